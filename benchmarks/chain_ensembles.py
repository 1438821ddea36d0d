"""Ensembles of networks of blocks, measured for the tests of the Gram chain; best on a GPU.

Writes tests/golden/chain_ensembles.npz and .json: every tensor of residual, convolutional and
attention networks, those up to F of norms and gates, at two or three widths, and the outputs of
the first three after 30 steps of gradient descent. Two minutes on an H200, hours on two cores.

    python benchmarks/chain_ensembles.py tests/golden
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from dynagram import Data, GradientDescent, Training, simulate, train
from dynagram.ensembles.initial import _tangent_members
from dynagram.networks import Chain
from dynagram.networks.blocks import (
    Activate,
    Attention,
    AveragePool,
    Conv,
    Dense,
    Gated,
    LayerNorm,
    Residual,
    RMSNorm,
    Select,
)
from dynagram.theory._kernels import frozen_kernels

LOW = ("K", "V", "G1", "Theta", "H1", "A", "B", "D", "F")
ALL = (*LOW, "P", "Q", "R", "S", "T", "U")
TRAINED = ("residual", "conv", "attention")
STEPS, TARGETS = 30, (1.5, -1.0)


def make_networks(n: int, outputs: int = 2) -> dict[str, Chain]:
    """The networks of width n."""
    first = Dense(n, C_W=1.0, lambda_W=0.7)
    up, last = Dense(n, C_W=1.2, lambda_W=1.1), Dense(outputs, C_W=1.0, lambda_W=0.8)
    inner = Dense(n, C_W=1.5, lambda_W=0.9)
    heads = Attention(
        heads=n // 4, head_size=4, causal=True, C_q=2.0,
        lambda_q=0.5, lambda_k=0.8, lambda_v=1.1, lambda_O=0.9,
    )  # fmt: skip
    gate = Gated(n, "silu", C_W=1.5, C_gate=1.2, lambda_W=0.6, lambda_gate=0.8)
    one = Conv(n, size=3, padding="zero", C_W=1.2, C_b=0.1, lambda_b=0.3)
    two = Conv(n, size=2, stride=2, padding="valid", C_W=1.5, lambda_W=0.9)
    tanh, gelu = Activate("tanh"), Activate("gelu")
    return {
        "attention": Chain([first, Residual([RMSNorm(), heads]), Select(-1), last], (2, 3)),
        "residual": Chain([first, Residual([inner, tanh, up], strength=0.8), last], 3),
        "layer-norm": Chain(
            [first, Residual([LayerNorm(), inner, gelu, up]), LayerNorm(), last], 3
        ),
        "conv": Chain([one, tanh, two, tanh, AveragePool(), last], (4, 2)),
        "swiglu": Chain([first, Residual([RMSNorm(), gate, up]), last], 3),
        "post-norm": Chain([first, Residual([inner, gelu, up]), RMSNorm(), last], 3),
    }


def measure_tensors(name: str, n: int, members: int) -> tuple[dict[str, np.ndarray], dict]:
    """The tensors of one network, with errors, and its description."""
    letters = ALL if name in TRAINED else LOW
    network = make_networks(n)[name]
    x = np.random.default_rng(0).normal(size=(2, network.input_size))
    chunk = members // 25
    T = simulate(network, x, letters, members=members, seed=1, chunk_members=chunk)
    arrays = {f"{name}/{n}/x": x}
    for letter in letters:
        arrays[f"{name}/{n}/{letter}"] = T[letter][0]
        arrays[f"{name}/{n}/{letter}/error"] = T.error(letter)[0].astype(np.float32)
    return arrays, {"network": network.to_toml()}


def measure_training(name: str, n: int, members: int) -> tuple[dict[str, np.ndarray], dict]:
    """Mean and variance of a test output after training on two samples."""
    network = make_networks(n, outputs=1)[name]
    x = np.random.default_rng(3).normal(size=(3, network.input_size))
    Theta = frozen_kernels(network, x).Theta[-1]
    eta = float(0.5 / np.linalg.eigvalsh(Theta[:2, :2])[-1])
    how = Training(GradientDescent(eta), steps=STEPS)
    data = Data(x[:2], list(TARGETS), test_x=x[2:])
    chunk = members // 5
    y = train(network, data, how, members=members, pairs=True, seed=5, chunk_members=chunk)
    about = {
        "network": network.to_toml(), "eta": eta, "steps": STEPS, "y": list(TARGETS),
        "mean": float(y.mean.ravel()[0]), "mean_error": float(y.mean_errors.ravel()[0]),
        "variance": float(y.covariance.ravel()[0]),
        "variance_error": float(y.covariance_errors.ravel()[0]),
    }  # fmt: skip
    return {f"{name}/{n}/trained_x": x}, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--members", type=int, default=200_000)
    options = parser.parse_args()
    # Batches of a size that fills a GPU.
    _tangent_members._BATCH_NUMBERS = 2**28
    arrays, about = {}, {}
    for name in make_networks(32):
        for n in (32, 64, 128) if name in TRAINED else (64, 128):
            found, about[f"{name}/{n}"] = measure_tensors(name, n, options.members)
            arrays |= found
            if name in TRAINED:
                found, trained = measure_training(name, n, options.members // 4)
                arrays |= found
                about[f"{name}/{n}"]["trained"] = trained
            print(name, n, flush=True)
    np.savez_compressed(options.folder / "chain_ensembles.npz", **arrays)
    (options.folder / "chain_ensembles.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
