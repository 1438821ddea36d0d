"""GPT-2 small in PyTorch with random weights, held against what it should be at birth.

Prints the stream, layer by layer, beside its band, and then what is wrong with a network whose
residual projections were not divided by √(2·layers). Needs the extra `torch`.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dynagram.networks import load_config
from dynagram.theory.chain import examine, judge_birth

CONFIG = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
TOKENS = [464, 3290, 318, 262]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_proj(read.transpose(1, 2).reshape(batch, length, width))

    def mlp(self, x):
        return self.mlp_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class GPT2(nn.Module):
    """The stream of every stage is kept, to be looked at; NumPy draws the weights."""

    def __init__(self, config, *, scaled, seed=0):
        super().__init__()
        width, layers = config["n_embd"], config["n_layer"]
        self.wte = nn.Embedding(config["vocab_size"], width)
        self.wpe = nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(width, config["n_head"]) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 1, bias=False)
        rng = np.random.default_rng(seed)
        for name, parameter in self.named_parameters():
            if "ln_" in name:
                continue  # gains 1, biases 0
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
                continue
            small = (2 * layers) ** -0.5 if scaled and "_proj" in name else 1.0
            drawn = rng.standard_normal(parameter.shape, dtype=np.float32)
            parameter.data = 0.02 * small * torch.from_numpy(drawn)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        self.streams = [x]
        for block in self.h:
            x = x + block.attention(block.ln_1(x))
            self.streams.append(x)
            x = x + block.mlp(block.ln_2(x))
            self.streams.append(x)
        return self.head(self.ln_f(x)[:, -1])


def mean_squares(model, tokens):
    """Of the stream after the embedding and after every branch, and how alike its tokens are."""
    with torch.no_grad():
        model(tokens)
    squares, alike = [], []
    for stream in model.streams:
        x = stream[0].double()
        squares.append(float((x**2).mean()))
        unit = x / x.norm(dim=1, keepdim=True)
        gram = (unit @ unit.T).numpy()
        alike.append(float(gram[~np.eye(len(gram), dtype=bool)].mean()))
    return squares, alike


def main():
    tokens = torch.tensor([TOKENS])
    network, plain = (load_config(CONFIG, positions=4, scaled=scaled) for scaled in (None, False))
    found = examine(network, np.array([TOKENS], float), plain=plain)
    birth = found.birth
    print("scaling          mean square       token similarity  gradient², early/late half")
    for scaling in found.scalings[1:]:
        first, last = scaling.mean_squares[0], scaling.mean_squares[-1]
        print(f"{scaling.name:15}  {first:.4f} → {last:.4f}  {scaling.similarities[-1]:16.2f}"
              f"  {scaling.gradient_ratio:12.1f}")  # fmt: skip
    squares, alike = mean_squares(GPT2(CONFIG, scaled=True), tokens)
    print("\nlayer  mean square  expected         token similarity  expected")
    for number in range(0, 25, 4):
        stage = birth.stages[number]
        print(f"{number // 2:5}  {squares[number]:11.4f}  {stage.mean_square:.4f} ± "
              f"{stage.mean_square_std:.4f}  {alike[number]:16.2f}"
              f"  {stage.similarity:.2f} ± {stage.similarity_std:.2f}")  # fmt: skip
    judgement = judge_birth(birth, squares, similarities=alike)
    print("all layers inside their bands:", judgement.is_inside)
    squares, alike = mean_squares(GPT2(CONFIG, scaled=False), tokens)
    judgement = judge_birth(birth, squares, similarities=alike)
    outside = sum(reading.quantity == "mean square" for reading in judgement.outside)
    print(f"\nwithout the scaling with depth: {outside} of 25 mean squares outside")
    print(judgement.messages[0])


if __name__ == "__main__":
    main()
