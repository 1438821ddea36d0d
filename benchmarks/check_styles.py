"""More networks for `benchmarks/check.py`, written in the many styles that people write them in.

None of them set anything in the library: they were written after it, to see what it makes of them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from check_models import ACTIVATIONS, Made, changed, matrices
from torch import nn
from torch.nn import functional

from dynagram.networks import load_config


def drawn(model: nn.Module, draw: Any) -> nn.Module:
    """All matrices drawn by a function, all vectors but gains at 0."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            draw(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def small_normal(parameter: torch.Tensor) -> None:
    nn.init.trunc_normal_(parameter, std=0.02)


def flat_orthogonal(gain: float) -> Any:
    return lambda parameter: nn.init.orthogonal_(parameter, gain=gain)


class Patches(nn.Module):
    """A vision transformer: patches by a convolution, a class token, vectors of positions."""

    def __init__(self, width: int, depth: int, *, before: bool = True, position: float = 0.02):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.pos = nn.Parameter(position * torch.randn(1, 5, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=before
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        for one in self.encoder.layers:
            drawn(one, small_normal)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        small_normal(self.head.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.encoder(x))[:, 0])


class Basic(nn.Module):
    """x + conv(relu(conv(relu(x)))), with a projection where widths change."""

    def __init__(self, inputs: int, outputs: int, stride: int, skip: bool = True):
        super().__init__()
        self.a = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.b = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.project = nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else None
        self.skip = skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.b(functional.relu(self.a(functional.relu(x))))
        if not self.skip:
            return out
        return out + (x if self.project is None else self.project(x))


def resnet(width: int, depth: int, *, grows: bool = False, skip: bool = True) -> nn.Module:
    """A residual convolutional network without batch norms, its branches ending small."""
    blocks = [Basic(width, width, 1, skip) for _ in range(depth)]
    last = width
    if grows:
        blocks.append(Basic(width, 2 * width, 2, skip))
        last = 2 * width
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *blocks, nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(last, 10),
    )  # fmt: skip
    drawn(model, lambda W: nn.init.kaiming_normal_(W, nonlinearity="relu"))
    with torch.no_grad():
        for block in blocks:
            block.b.weight.mul_(depth**-0.5)
    return model


class MixerLayer(nn.Module):
    def __init__(self, width: int, positions: int):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(positions, 32), nn.GELU(), nn.Linear(32, positions))
        self.channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


class Mixer(nn.Module):
    """MLP-Mixer on patches of images."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 2, 2)
        self.layers = nn.Sequential(*[MixerLayer(width, 16) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))


def normed_mlp(width: int, depth: int, activation: str = "gelu", norm: bool = True) -> nn.Module:
    """Linear, LayerNorm, activation, again and again; PyTorch's own draw."""
    layers: list[nn.Module] = []
    inputs = 24
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.LayerNorm(width) if norm else nn.Identity(),
                   ACTIVATIONS[activation]()]  # fmt: skip
        inputs = width
    return nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(inputs, 10))


def wave(width: int, depth: int, size: int = 5) -> nn.Module:
    """Convolutions along a line, SiLU, an average at the end."""
    layers: list[nn.Module] = []
    inputs = 2
    for _ in range(depth):
        layers += [nn.Conv1d(inputs, width, size, padding=size // 2), nn.SiLU()]
        inputs = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 4))
    return drawn(model, lambda W: nn.init.kaiming_uniform_(W, nonlinearity="relu"))


class Bag(nn.Module):
    """The mean of the vectors of the words, then an MLP."""

    def __init__(self, width: int, fast: bool):
        super().__init__()
        self.words = (nn.EmbeddingBag if fast else nn.Embedding)(97, width)
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 4)
        self.fast = fast

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        x = x if self.fast else x.mean(dim=1)
        return self.last(torch.relu(self.first(x)))


class Grouped(nn.Module):
    """Llama's layer with fewer heads of keys than of queries, norms written out."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.g1, self.g2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.wq = nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.wo = nn.Linear(width, width, bias=False)
        self.w1, self.w3 = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, width, bias=False)

    @staticmethod
    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        half = self.size // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), rates)[None, :, None]
        a, b = x[..., ::2], x[..., 1::2]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.norm(x, self.g1)
        q = self.turn(self.wq(y).view(batch, length, self.heads, self.size)).transpose(1, 2)
        k = self.turn(self.wk(y).view(batch, length, self.groups, self.size)).transpose(1, 2)
        v = self.wv(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        score = q @ k.transpose(2, 3) / math.sqrt(self.size)
        score = score + torch.full((length, length), float("-inf")).triu(1)
        read = (score.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.wo(read)
        y = self.norm(x, self.g2)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


class GroupedLlama(nn.Module):
    def __init__(self, width: int, depth: int, *, groups: int = 2):
        super().__init__()
        self.tok = nn.Embedding(97, width)
        self.layers = nn.ModuleList(Grouped(width, 4, groups, 3 * width) for _ in range(depth))
        self.gain = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, 97, bias=False)
        drawn(self, lambda W: nn.init.normal_(W, std=0.02))
        for layer in self.layers:
            for W in (layer.wo.weight, layer.w2.weight):  # pyright: ignore
                nn.init.normal_(W, std=0.02 / math.sqrt(2 * depth))  # pyright: ignore

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(Grouped.norm(x, self.gain))


def encoder(width: int, before: bool, activation: str = "relu", draws: Any = None) -> nn.Module:
    """torch.nn.TransformerEncoder exactly as it comes, between two matrices."""
    layer = nn.TransformerEncoderLayer(
        width, 2, 2 * width, 0.1, activation, batch_first=True, norm_first=before
    )
    inner = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    if draws is not None:
        drawn(inner, draws)
    return nn.Sequential(nn.Linear(12, width), inner, nn.Linear(width, 5))


def hugging(kind: str, **changes: Any) -> nn.Module:
    """A tiny model of the transformers library, drawn by that library."""
    import transformers as t

    if kind == "gpt2":
        config = t.GPT2Config(vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                              **changes)  # fmt: skip
        return t.GPT2LMHeadModel(config)
    if kind == "gpt2-base":
        config = t.GPT2Config(vocab_size=97, n_positions=32, n_embd=48, n_layer=2, n_head=4)
        return t.GPT2Model(config)
    small: Any = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 96, **changes}  # fmt: skip
    if kind == "bert":
        return t.BertModel(t.BertConfig(vocab_size=97, **small))
    if kind == "llama":
        config = t.LlamaConfig(vocab_size=97, num_key_value_heads=2, **small)
        return t.LlamaForCausalLM(config)
    config = t.ViTConfig(image_size=8, patch_size=4, **small)
    return t.ViTForImageClassification(config)


def rows(model: nn.Module, **options: Any) -> Made:
    x = torch.randn(32, 24)
    return model, x.to(next(model.parameters()).dtype), options


def pictures(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(8, 3, 8, 8), options


def lines(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(8, 2, 20), options


def words(model: nn.Module, **options: Any) -> Made:
    return model, torch.randint(97, (4, 12)), options


def series(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(4, 6, 12), options


def plain(width: int, depth: int, activation: str, draw: Any) -> nn.Module:
    sizes = [24, *[width] * depth, 10]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), ACTIVATIONS[activation]()]
    return drawn(nn.Sequential(*layers[:-1]), draw)


def _xavier_tanh(W: torch.Tensor) -> None:
    nn.init.xavier_uniform_(W, gain=5 / 3)


STYLES: dict[str, Any] = {
    "encoder, norms before, truncated normal": lambda: series(
        encoder(64, True, "relu", small_normal)
    ),
    "encoder, norms behind, xavier": lambda: series(
        encoder(64, False, "gelu", nn.init.xavier_uniform_)
    ),
    "vision transformer": lambda: pictures(Patches(64, 2)),
    "residual convolutions": lambda: pictures(resnet(32, 3)),
    "residual convolutions that grow": lambda: pictures(resnet(24, 2, grows=True)),
    "mixer": lambda: pictures(Mixer(48, 2)),
    "gelu with norms": lambda: rows(normed_mlp(128, 4)),
    "convolutions along a line": lambda: lines(wave(48, 3)),
    "bag of words": lambda: words(Bag(64, True)),
    "mean of words": lambda: words(Bag(64, False)),
    "llama, grouped, written out": lambda: words(GroupedLlama(64, 3)),
    "orthogonal": lambda: rows(plain(96, 4, "tanh", flat_orthogonal(1.0))),
    "orthogonal, relu": lambda: rows(plain(128, 3, "relu", flat_orthogonal(2**0.5))),
    "xavier uniform with the gain of tanh": lambda: rows(plain(64, 5, "tanh", _xavier_tanh)),
    "truncated normal 0.02": lambda: rows(plain(256, 2, "gelu", small_normal)),
    "narrow": lambda: rows(plain(16, 3, "relu", nn.init.kaiming_normal_)),
    "wide": lambda: rows(plain(1024, 2, "relu", nn.init.kaiming_normal_)),
    "float64": lambda: rows(plain(64, 3, "silu", nn.init.kaiming_normal_).double()),
    "HF gpt2": lambda: words(hugging("gpt2")),
    "HF gpt2 without head": lambda: words(hugging("gpt2-base")),
    "HF bert": lambda: words(hugging("bert")),
    "HF llama": lambda: words(hugging("llama")),
    "HF vit": lambda: pictures(hugging("vit")),
    "batch norms, declared": lambda: pictures(batch_normed(48, 3), expected="kaiming"),
}


# --- with planted bugs ------------------------------------------------------------------------


def batch_normed(width: int, depth: int, gain: str = "relu") -> nn.Module:
    """Convolutions with batch norms, which are measured only."""
    layers: list[nn.Module] = []
    inputs = 3
    for _ in range(depth):
        conv = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity=gain)  # pyright: ignore
        layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        inputs = width
    last = nn.Linear(width, 10)
    nn.init.kaiming_normal_(last.weight, nonlinearity=gain)  # pyright: ignore
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def _scaled(name: str, factor: float) -> Any:
    return lambda model: model.get_parameter(name).mul_(factor)


def _positions(model: nn.Module) -> None:
    model.get_parameter("transformer.wpe.weight").normal_(std=0.5)


def _tokens(model: nn.Module) -> None:
    for name in ("transformer.wte.weight", "transformer.wpe.weight"):
        model.get_parameter(name).normal_(std=1.0)


def _no_depth(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):
            parameter.normal_(std=0.02)


def _wrong_llama(model: nn.Module) -> None:
    for layer in model.layers:  # pyright: ignore
        layer.w2.weight.mul_(6**0.5)
        layer.w3.weight.mul_(6**-0.5)


def _copied(model: nn.Module) -> None:
    model.layers[1].load_state_dict(model.layers[0].state_dict())  # pyright: ignore


def _fan_out(model: nn.Module) -> None:
    for W in matrices(model):
        nn.init.kaiming_normal_(W, mode="fan_out")


def _dead(model: nn.Module) -> None:
    model.get_parameter("3.bias").fill_(-30.0)


class Dropped(nn.Module):
    """Dropout that is never switched off and leaves a hundredth."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(24, 128), nn.Linear(128, 128), (
            nn.Linear(128, 10))  # fmt: skip
        drawn(self, nn.init.kaiming_normal_)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(torch.relu(self.first(x)), 0.99, training=True)
        return self.last(torch.relu(self.second(x)))


def gpt2_config() -> dict[str, Any]:
    return {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 97}


def llama_config() -> Any:
    """What `GroupedLlama(64, 3)` is meant to be."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192,
              "vocab_size": 97, "initializer_range": 0.02, "rms_norm_eps": 1e-5}  # fmt: skip
    return load_config(config, positions=12, scaled=True)


MISTAKES: dict[str, tuple[Any, str]] = {
    "encoder as it comes: all layers hold the same numbers": (
        lambda: series(encoder(64, True)), "same draw twice"),
    "HF gpt2: depth scaling missing": (
        lambda: words(changed(hugging("gpt2"), _no_depth), expected=gpt2_config()),
        "depth scaling absent"),
    "HF gpt2: tables of standard deviation 1": (
        lambda: words(changed(hugging("gpt2"), _tokens), expected=gpt2_config()),
        "never initialised"),
    "HF gpt2: positions of standard deviation 0.5": (
        lambda: words(changed(hugging("gpt2"), _positions), expected=gpt2_config()),
        "wrong variance"),
    "HF llama: a value matrix twice too large": (
        lambda: words(changed(hugging("llama"),
                              _scaled("model.layers.1.self_attn.v_proj.weight", 2.0)),
                      expected="normal-0.02"), "doubled init"),
    "llama, grouped: w3 scaled in place of w2": (
        lambda: words(changed(GroupedLlama(64, 3), _wrong_llama), expected=llama_config()),
        "wrong matrix scaled"),
    "llama, grouped: a layer copied": (
        lambda: words(changed(GroupedLlama(64, 3), _copied)), "same draw twice"),
    "HF bert: one matrix of three doubled, undeclared": (
        lambda: words(changed(hugging("bert", num_hidden_layers=4),
                              _scaled("encoder.layer.2.intermediate.dense.weight", 2.0))),
        "doubled init"),
    "HF vit: an output matrix of zeros, undeclared": (
        lambda: pictures(changed(hugging("vit", num_hidden_layers=4),
                                 _scaled("vit.layers.1.mlp.fc2.weight", 0.0))),
        "weights are zero"),
    "batch norms: the gain of relu is missing": (
        lambda: pictures(batch_normed(48, 3, "linear"), expected="kaiming"), "gain missing"),
    "batch norms: one convolution doubled, undeclared": (
        lambda: pictures(changed(batch_normed(48, 5), _scaled("6.weight", 2.0))), "doubled init"),
    "residual convolutions: the sum is left out": (
        lambda: pictures(resnet(32, 3, skip=False), expected=_meant_resnet()), "skip missing"),
    "convolutions along a line: fan-out": (
        lambda: lines(changed(wave(48, 3), _fan_out), expected="kaiming"), "wrong fan"),
    "gelu with norms: dead by a bias": (
        lambda: rows(changed(normed_mlp(128, 4, "relu", norm=False), _dead)), "dead units"),
    "orthogonal without its gain, deep": (
        lambda: rows(plain(128, 14, "relu", flat_orthogonal(1.0))), "gain missing"),
    "dropout that is never off": (lambda: rows(Dropped()), "dropout always on"),
    "dropout that drops what it should keep": (
        lambda: rows(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Dropout(0.95),
                                   nn.Linear(64, 10))), "dropout too large"),
}  # fmt: skip


def _meant_resnet() -> Any:
    from dynagram.networks import Chain
    from dynagram.networks.blocks import Activate, AveragePool, Conv, Dense, Residual

    branch = [Activate("relu"), Conv(32, size=3, C_W=2.0), Activate("relu"),
              Conv(32, size=3, C_W=2.0 / 3.0)]  # fmt: skip
    return Chain(
        [Conv(32, size=3, C_W=2.0), *[Residual(branch)] * 3, Activate("relu"), AveragePool(),
         Dense(10, C_W=2.0)], (8, 8, 3),
    )  # fmt: skip
