"""Models of PyTorch with random weights against their bands, and what is said of wrong ones."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from dynagram.networks import load_config
from dynagram.theory.chain import judge_birth, trace_birth

torch = pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2_at_birth.py"
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 100, "rms_norm_eps": 1e-6,
    "initializer_range": 0.06,
}  # fmt: skip
TOKENS = np.array([[3, 14, 15]])


@pytest.mark.slow
def test_gpt2_small_is_inside_and_without_depth_scaling_outside():
    example = runpy.run_path(str(EXAMPLE), run_name="example")
    tokens, config = torch.tensor([example["TOKENS"]]), example["CONFIG"]
    network = load_config(config, positions=tokens.shape[1])
    assert (network.width, len(network.blocks)) == (768, 28)
    birth = trace_birth(network, tokens.numpy().astype(float))
    # The whole stream, between tokens that are all different and all equal.
    assert 0.066 < birth.stages[24].mean_square < 0.1134
    for seed in range(3):
        good = judge(birth, example, tokens, scaled=True, seed=seed)
        assert len(good.readings) >= 50
        assert good.is_inside, good.outside
        assert good.messages == ()
    bad = judge(birth, example, tokens, scaled=False, seed=0)
    assert {r.number for r in bad.outside if r.quantity == "mean square"} == set(range(1, 25))
    assert len(bad.messages) == 1
    assert "not divided by √24 = 4.9, the scaling with depth 1/√(2L) is left out" in bad.messages[0]


def judge(birth, example, tokens, **options):
    model = example["GPT2"](example["CONFIG"], **options)
    squares, alike = example["mean_squares"](model, tokens)
    return judge_birth(birth, squares, similarities=alike)


class Llama(torch.nn.Module):
    """RMSNorm, rotary attention of grouped heads and SwiGLU, all weights of one std."""

    def __init__(self, config):
        super().__init__()
        n, heads, groups = (config[key] for key in
            ("hidden_size", "num_attention_heads", "num_key_value_heads"))  # fmt: skip
        self.heads, self.groups, self.size = heads, groups, n // heads
        self.embed = torch.nn.Embedding(config["vocab_size"], n)
        keys, m = groups * self.size, config["intermediate_size"]
        shapes = {"q": (n, n), "k": (n, keys), "v": (n, keys), "O": (n, n),
                  "W1": (n, m), "gate1": (n, m), "W2": (m, n)}  # fmt: skip
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {name: torch.nn.Linear(*shape, bias=False) for name, shape in shapes.items()}
            )
            for _ in range(config["num_hidden_layers"])
        )
        self.head = torch.nn.Linear(n, 1, bias=False)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=config["initializer_range"])

    def norm(self, x):
        return x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-6)

    def split(self, x, heads):
        return x.view(1, -1, heads, self.size).transpose(1, 2)

    def turned(self, x):
        plane = torch.arange(self.size // 2, dtype=x.dtype)
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-2.0 * plane / self.size)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)

    def forward(self, tokens):
        x = self.embed(tokens)
        self.streams = [x]
        for layer in self.layers:
            y = self.norm(x)
            q, k, v = (self.split(layer[name](y), h) for name, h in
                       (("q", self.heads), ("k", self.groups), ("v", self.groups)))  # fmt: skip
            q, k = self.turned(q), self.turned(k)
            k, v = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (k, v))
            read = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["O"](read.transpose(1, 2).reshape(x.shape))
            self.streams.append(x)
            y = self.norm(x)
            x = x + layer["W2"](torch.nn.functional.silu(layer["W1"](y)) * layer["gate1"](y))
            self.streams.append(x)
        return self.head(self.norm(x)[:, -1])


def read_off(model):
    """Mean squares, similarities and squared gradients of a model's only output."""
    model.zero_grad()
    model(torch.tensor(TOKENS)).sum().backward()
    squares, alike = [], []
    for stream in model.streams:
        x = stream.detach()[0].double()
        squares.append(float((x**2).mean()))
        unit = x / x.norm(dim=1, keepdim=True)
        off = ~np.eye(len(x), dtype=bool)
        alike.append(float((unit @ unit.T).numpy()[off].mean()))
    gradients = {}
    for number, layer in enumerate(model.layers):
        parts = {name: float((w.weight.grad**2).sum()) for name, w in layer.items()}
        gradients[2 * number + 1] = {name: parts[name] for name in "qkvO"}
        gradients[2 * number + 2] = {name: parts[name] for name in ("W1", "gate1", "W2")}
    return squares, alike, gradients


@pytest.mark.slow
def test_a_wrong_matrix_in_a_llama_is_named():
    birth = trace_birth(load_config(LLAMA, positions=3), TOKENS.astype(float), bands=[2, 8])
    for seed in range(3):
        torch.manual_seed(seed)
        model = Llama(LLAMA)
        squares, alike, gradients = read_off(model)
        good = judge_birth(birth, squares, similarities=alike, gradients=gradients)
        assert sum(r.quantity == "squared gradient" for r in good.readings) == 2
        assert good.is_inside, good.outside
        assert good.messages == ()
        for name in ("W2", "gate1"):
            with torch.no_grad():
                model.layers[1][name].weight.mul_(3.0)
            squares, alike, gradients = read_off(model)
            bad = judge_birth(birth, squares, similarities=alike, gradients=gradients)
            assert not bad.is_inside
            assert len(bad.messages) == 1
            assert bad.messages[0].startswith("block 5, residual (gated), adds ")
            assert f"the variance of {name} is off" in bad.messages[0]
            factor = float(bad.messages[0].split("adds ")[1].split()[0])
            assert 9.0 / 2 < factor < 9.0 * 2  # one draw of 256 channels varies by a third
            unknown = judge_birth(birth, squares)
            assert "one of W1, W2, gate1" in unknown.messages[0]
            with torch.no_grad():
                model.layers[1][name].weight.div_(3.0)
