"""Two models of PyTorch held against what they should be before training; needs the extra `torch`.

A ReLU network whose gain was forgotten, and a small GPT-2 whose scaling with depth never reaches
its weights, because the end of a name does not match.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dynagram import Model, check

rng = np.random.default_rng(0)


def draw(parameter, std):
    """Numbers of NumPy, the same on every machine."""
    parameter.data = torch.from_numpy(std * rng.standard_normal(parameter.shape)).float()


def perceptron(gain):
    layers = [nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128),
              nn.ReLU(), nn.Linear(128, 10)]  # fmt: skip
    for layer in layers[::2]:
        draw(layer.weight, (gain / layer.in_features) ** 0.5)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln_1, self.ln_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (p.view(shape).transpose(1, 2) for p in self.c_attn(self.ln_1(x)).chunk(3, -1))
        read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(read.transpose(1, 2).reshape(x.shape))
        return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, width, layers, scaled):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(100, width), nn.Embedding(64, width)
        self.h = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "ln_" not in name:
                draw(parameter, 0.02 / (2 * layers) ** 0.5 if name.endswith(scaled) else 0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def main():
    x = torch.from_numpy(rng.standard_normal((64, 16))).float()
    print(Model.of(perceptron(2.0), x).network)
    for gain in (2.0, 1.0):
        result = check(perceptron(gain), x, expected="kaiming")
        print(f"gain {gain:g}: fine {result.is_fine}", *[f"\n  {c.message}" for c in result.causes])
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100}
    tokens = torch.arange(20)[None]
    for scaled in ("_proj.weight", "_proj.weights"):
        result = check(GPT(64, 3, scaled), tokens, expected=config)
        print(f"{scaled}: fine {result.is_fine}", *[f"\n  {c.message}" for c in result.causes])


if __name__ == "__main__":
    main()
