"""The networks of `benchmarks/check.py`: healthy ones of many kinds, and some with planted bugs."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dynagram.networks import load_config

FIRST_SEED = 20260
Made = tuple[nn.Module, torch.Tensor, dict[str, Any]]
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU,
               "leaky": lambda: nn.LeakyReLU(0.2)}  # fmt: skip


def mlp(width: int, hidden: int, activation: str, init: str = "kaiming", inputs: int = 24) -> Any:
    """A plain MLP whose weights are drawn by a function of torch.nn.init."""
    sizes = [inputs, *[width] * hidden, 10]
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    model = nn.Sequential(*layers[:-1])
    draw(model, init)
    return model


def draw(model: nn.Module, init: str) -> None:
    """Draw every matrix and convolution; `torch` leaves the module as it was made."""
    for module in model.modules():
        if not isinstance(module, nn.Linear | nn.Conv2d) or init == "torch":
            continue
        if init == "kaiming":
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif init == "kaiming-uniform":
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        elif init == "fan-out":
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif init == "xavier":
            nn.init.xavier_normal_(module.weight)
        elif init == "lecun":
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def cnn(width: int, depth: int, activation: str, init: str = "kaiming", flat: bool = False) -> Any:
    """Convolutions of 3 × 3 and a readout of the average, or of all positions."""
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), ACTIVATIONS[activation]()]
        channels = width
    end = [nn.Flatten(), nn.Linear(36 * width, 10)] if flat else [
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    ]  # fmt: skip
    model = nn.Sequential(*layers, *end)
    draw(model, init)
    return model


class ResidualBlock(nn.Module):
    """x + strength · W₂ σ(W₁ norm(x))."""

    def __init__(self, width: int, norm: bool, activation: str, strength: float, after: bool):
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.activation, self.strength, self.after = ACTIVATIONS[activation](), strength, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read = x if self.after else self.norm(x)
        out = x + self.strength * self.down(self.activation(self.up(read)))
        return self.norm(out) if self.after else out


def residual(
    width: int, depth: int, activation: str = "relu", norm: bool = True, strength: float = 1.0,
    init: str = "lecun", after: bool = False,
) -> Any:  # fmt: skip
    """A residual MLP with norms before its branches, behind them, or none."""
    blocks = [ResidualBlock(width, norm, activation, strength, after) for _ in range(depth)]
    model = nn.Sequential(nn.Linear(24, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 10))
    draw(model, init)
    return model


class SelfAttention(nn.Module):
    """Causal attention as nanoGPT writes it, with or without torch's own function."""

    def __init__(self, width: int, heads: int, flash: bool, power: float, causal: bool):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads, self.flash, self.power, self.causal = heads, flash, power, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        q, k, v = (part.view(batch, length, self.heads, size).transpose(1, 2)
                   for part in self.c_attn(x).split(width, dim=2))  # fmt: skip
        if self.flash:
            read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            logits = (q @ k.transpose(-2, -1)) * size**-self.power
            if self.causal:
                mask = torch.tril(torch.ones(length, length, device=x.device)) == 0
                logits = logits.masked_fill(mask, float("-inf"))
            read = functional.softmax(logits, dim=-1) @ v
        return self.c_proj(read.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, flash: bool, power: float, causal: bool):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, flash, power, causal)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A small GPT-2 with the pattern of its initialisation as an argument."""

    def __init__(
        self, width: int, depth: int, heads: int = 4, *, scaled: str = "c_proj.weight",
        flash: bool = True, tied: bool = False, power: float = 0.5, causal: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.wte, self.wpe = nn.Embedding(97, width), nn.Embedding(32, width)
        self.h = nn.ModuleList(Block(width, heads, flash, power, causal) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 97, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "ln_" not in name:
                small = (2 * depth) ** -0.5 if name.endswith(scaled) else 1.0
                nn.init.normal_(parameter, std=0.02 * small)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        assert tokens.shape[1] <= 32, "sequence too long"  # as nanoGPT asks
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(width, width, bias=False))
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)
        self.input_norm, self.post_norm = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1]
        plane = torch.arange(size // 2, dtype=x.dtype)
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-2.0 * plane / size)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.input_norm(x)
        q, k, v = (f(y).view(batch, length, self.heads, -1).transpose(1, 2)
                   for f in (self.q_proj, self.k_proj, self.v_proj))  # fmt: skip
        read = functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True
        )
        x = x + self.o_proj(read.transpose(1, 2).reshape(batch, length, width))
        y = self.post_norm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """A small Llama; `scaled` are the ends of the names that are divided by √(2·layers)."""

    def __init__(self, width: int, depth: int, scaled: tuple[str, ...] = ()):
        super().__init__()
        self.embed = nn.Embedding(97, width)
        self.layers = nn.Sequential(*[LlamaLayer(width, 4) for _ in range(depth)])
        self.norm = nn.RMSNorm(width, 1e-6)
        self.head = nn.Linear(width, 97, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                small = (2 * depth) ** -0.5 if name.split(".")[-2] in scaled else 1.0
                nn.init.normal_(parameter, std=0.05 * small)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embed(tokens))))


def gpt_config(width: int, depth: int) -> dict[str, Any]:
    """What the small GPT-2 is meant to be."""
    return {"model_type": "gpt2", "n_embd": width, "n_layer": depth, "n_head": 4,
            "vocab_size": 97}  # fmt: skip


def llama_config(width: int, depth: int, scaled: bool) -> Any:
    """What the small Llama is meant to be."""
    config = {"model_type": "llama", "hidden_size": width, "num_hidden_layers": depth,
              "num_attention_heads": 4, "intermediate_size": 2 * width, "vocab_size": 97,
              "initializer_range": 0.05}  # fmt: skip
    return load_config(config, positions=8, scaled=scaled)


def encoder(width: int, depth: int, before: bool) -> nn.Module:
    """torch.nn.TransformerEncoder on numbers, its biases at 0."""
    layer = nn.TransformerEncoderLayer(
        width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=before
    )
    inner = nn.TransformerEncoder(
        layer, depth, norm=nn.LayerNorm(width) if before else None, enable_nested_tensor=False
    )
    model = nn.Sequential(nn.Linear(12, width), inner, nn.Linear(width, 5))
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
        elif "norm" not in name:
            nn.init.zeros_(parameter)
    return model


def vectors(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(32, 24), options


def images(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(16, 3, 6, 6), options


def tokens(model: nn.Module, **options: Any) -> Made:
    return model, torch.randint(97, (4, 16)), options


def sequences(model: nn.Module, **options: Any) -> Made:
    return model, torch.randn(4, 6, 12), options


HEALTHY: dict[str, Any] = {
    "mlp 64×3 relu, kaiming": lambda: vectors(mlp(64, 3, "relu")),
    "mlp 128×4 relu, kaiming, declared": lambda: vectors(mlp(128, 4, "relu"), expected="kaiming"),
    "mlp 256×3 gelu, kaiming": lambda: vectors(mlp(256, 3, "gelu")),
    "mlp 128×5 tanh, xavier": lambda: vectors(mlp(128, 5, "tanh", "xavier")),
    "mlp 96×3 silu, lecun, declared": lambda: vectors(mlp(96, 3, "silu", "lecun"),
                                                      expected="lecun"),
    "mlp 128×3 relu, torch's default": lambda: vectors(mlp(128, 3, "relu", "torch")),
    "mlp 64×4 leaky relu, kaiming uniform": lambda: vectors(mlp(64, 4, "leaky",
                                                                "kaiming-uniform")),
    "cnn 32×3 relu, kaiming": lambda: images(cnn(32, 3, "relu")),
    "cnn 64×2 gelu, kaiming, flat": lambda: images(cnn(64, 2, "gelu", flat=True)),
    "cnn 48×3 tanh, lecun, declared": lambda: images(cnn(48, 3, "tanh", "lecun"),
                                                     expected="lecun"),
    "cnn 32×2 relu, torch's default": lambda: images(cnn(32, 2, "relu", "torch")),
    "residual 128×4 relu, pre-norm": lambda: vectors(residual(128, 4)),
    "residual 64×6 gelu, pre-norm": lambda: vectors(residual(64, 6, "gelu")),
    "residual 96×4 tanh, no norms, 1/√L": lambda: vectors(residual(96, 4, "tanh", norm=False,
                                                                   strength=0.5)),
    "residual 128×3 silu, post-norm": lambda: vectors(residual(128, 3, "silu", after=True)),
    "gpt 64×3, declared": lambda: tokens(GPT(64, 3), expected=gpt_config(64, 3)),
    "gpt 128×2, softmax written out, tied": lambda: tokens(GPT(128, 2, flash=False, tied=True)),
    "llama 64×3": lambda: tokens(Llama(64, 3)),
    "encoder 64×2, pre-norm": lambda: sequences(encoder(64, 2, True)),
    "encoder 64×2, post-norm": lambda: sequences(encoder(64, 2, False)),
}  # fmt: skip


def changed(model: nn.Module, change: Any) -> nn.Module:
    """The model after something was done to it."""
    with torch.no_grad():
        change(model)
    return model


def matrices(model: nn.Module) -> list[torch.Tensor]:
    """Its weight matrices in order."""
    return [p for p in model.parameters() if p.ndim > 1]


def _multiply(index: int, factor: float) -> Any:
    return lambda model: matrices(model)[index].mul_(factor)


def _set_bias(model: nn.Module) -> None:
    biases = [p for p in model.parameters() if p.ndim == 1]
    biases[1].fill_(-8.0)


def _same_seed(model: nn.Module) -> None:
    for W in matrices(model)[1:-1]:
        torch.manual_seed(1)
        nn.init.kaiming_normal_(W)


def _as_variance(model: nn.Module) -> None:
    for W in matrices(model):
        nn.init.normal_(W, std=2.0 / W.shape[1])


def _queries(model: nn.Module) -> None:
    for block in model.h:  # pyright: ignore
        width = block.ln_1.weight.shape[0]
        block.attn.c_attn.weight[:width].mul_(8.0)


def _twice(model: nn.Module) -> None:
    for W in matrices(model)[1:-1]:
        W.add_(nn.init.kaiming_normal_(torch.empty_like(W)))


def _never(model: nn.Module) -> None:
    for index in (2, 4):
        model[index].reset_parameters()  # pyright: ignore
        nn.init.zeros_(model[index].bias)  # pyright: ignore


class NoSkip(ResidualBlock):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(self.norm(x))))


def no_skip(width: int, depth: int) -> nn.Module:
    model = residual(width, depth)
    for index in range(1, depth + 1):
        model[index].__class__ = NoSkip
    return model


def pre_norm(width: int, depth: int, strength: float = 1.0, activation: str = "relu") -> Any:
    """What `residual` is meant to be."""
    from dynagram.networks import Chain
    from dynagram.networks.blocks import Activate, Dense, LayerNorm, Residual

    branch = [LayerNorm(1e-5), Dense(2 * width, C_W=1.0), Activate(activation), Dense(width)]
    block = Residual(branch, strength=strength)
    return Chain([Dense(width), *[block] * depth, LayerNorm(1e-5), Dense(10)], 24)


BUGS: dict[str, tuple[Any, str]] = {
    "gpt: depth scaling never applied, no name matches": (
        lambda: tokens(GPT(64, 4, scaled="c_proj.weights"), expected=gpt_config(64, 4)),
        "depth scaling absent"),
    "gpt: only the projections of attention are scaled": (
        lambda: tokens(GPT(64, 4, scaled="attn.c_proj.weight"), expected=gpt_config(64, 4)),
        "depth scaling absent"),
    "llama: up_proj scaled in place of down_proj": (
        lambda: tokens(Llama(64, 4, ("up_proj", "o_proj")), expected=llama_config(64, 4, True)),
        "wrong matrix scaled"),
    "llama: scaled with depth, which is not meant": (
        lambda: tokens(Llama(64, 4, ("down_proj", "o_proj")),
                       expected=llama_config(64, 4, False)), "depth scaling not meant"),
    "gpt: queries eight times too large": (
        lambda: tokens(changed(GPT(64, 3), _queries), expected=gpt_config(64, 3)),
        "wrong variance"),
    "gpt: logits divided by d in place of √d": (
        lambda: tokens(GPT(64, 3, flash=False, power=1.0), expected=gpt_config(64, 3)),
        "other attention"),
    "gpt: the causal mask is missing": (
        lambda: tokens(GPT(64, 3, flash=False, causal=False), expected=gpt_config(64, 3)),
        "other attention"),
    "gpt: one projection of eight twice too large, undeclared": (
        lambda: tokens(changed(GPT(64, 4), lambda m: m.h[2].c_proj.weight.mul_(2.0))),
        "doubled init"),
    "mlp: the gain of relu is missing": (
        lambda: vectors(mlp(128, 5, "relu", "lecun"), expected="kaiming"), "gain missing"),
    "mlp: the gain is missing in a deep one, undeclared": (
        lambda: vectors(mlp(128, 14, "relu", "lecun")), "gain missing"),
    "mlp: the gain is in it twice": (
        lambda: vectors(changed(mlp(128, 5, "relu"),
                                lambda m: [W.mul_(2**0.5) for W in matrices(m)]),
                        expected="kaiming"), "gain applied twice"),
    "mlp: fan-out in place of fan-in": (
        lambda: vectors(changed(mlp(128, 3, "relu"),
                                lambda m: nn.init.kaiming_normal_(m[0].weight, mode="fan_out")),
                        expected="kaiming"), "wrong fan"),
    "mlp: one layer twice too large, undeclared": (
        lambda: vectors(changed(mlp(128, 6, "relu"), _multiply(3, 2.0))), "doubled init"),
    "mlp: drawn twice and added": (
        lambda: vectors(changed(mlp(128, 5, "relu"), _twice), expected="kaiming"),
        "gain applied twice"),
    "mlp: standard deviation and variance mixed up": (
        lambda: vectors(changed(mlp(96, 4, "tanh"), _as_variance), expected="kaiming"),
        "std and variance"),
    "mlp: two layers that the initialisation did not reach": (
        lambda: vectors(changed(mlp(128, 5, "relu"), _never), expected="kaiming"),
        "never initialised"),
    "mlp: dead units": (
        lambda: vectors(changed(mlp(128, 4, "relu"), _set_bias)), "dead units"),
    "mlp: the seed is set again for every layer": (
        lambda: vectors(changed(mlp(128, 5, "tanh"), _same_seed)), "same draw twice"),
    "mlp: a layer of zeros": (
        lambda: vectors(changed(mlp(128, 5, "relu"), _multiply(2, 0.0))), "weights are zero"),
    "mlp: a layer of equal weights": (
        lambda: vectors(changed(mlp(128, 4, "relu"), lambda m: m[4].weight.fill_(0.05))),
        "constant weights"),
    "cnn: fan-out in place of fan-in": (
        lambda: images(changed(cnn(48, 3, "relu"),
                               lambda m: nn.init.kaiming_normal_(m[0].weight, mode="fan_out")),
                       expected="kaiming"), "wrong fan"),
    "cnn: the gain of relu is missing": (
        lambda: images(cnn(48, 3, "relu", "lecun"), expected="kaiming"), "gain missing"),
    "residual: norms behind the branches in place of before": (
        lambda: vectors(residual(128, 4, after=True), expected=pre_norm(128, 4)),
        "norm after instead of before"),
    "residual: the factor 1/√L of depth-muP is missing": (
        lambda: vectors(residual(128, 4), expected=pre_norm(128, 4, 0.5)),
        "depth scaling absent"),
    "residual: skips are missing": (
        lambda: vectors(no_skip(128, 4), expected=pre_norm(128, 4)), "skip missing"),
    "residual: another activation than declared": (
        lambda: vectors(residual(128, 4, "silu"), expected=pre_norm(128, 4)),
        "other activation"),
    "residual: one matrix of eight half as large, undeclared": (
        lambda: vectors(changed(residual(128, 4), lambda m: m[2].down.weight.mul_(0.5))),
        "wrong variance"),
    "mlp: not mup though declared": (
        lambda: vectors(mlp(64, 3, "relu"), scheme="mup",
                        factory=lambda width: mlp(width, 3, "relu")), "not mup"),
    "residual: not depth-mup though declared": (
        lambda: vectors(residual(64, 4), scheme="depth-mup",
                        factory=partial(lambda depth: residual(64, depth))), "not depth-mup"),
}  # fmt: skip
