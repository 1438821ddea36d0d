"""Masks, rotary angles, normalised queries and shared keys against networks drawn here and now.

Two inputs of three tokens, all 36 pairs. The matrix after the heads is wide, so that V is made of
what the heads do. Two widths extrapolate, 2 m(32) − m(16); and with the option left out the theory
does not agree.
"""

import jax
import numpy as np
import pytest

from dynagram import predict, simulate
from dynagram.networks import Chain
from dynagram.networks.blocks import Attention, Dense, RMSNorm

LETTERS = ("K", "Theta", "V", "B")
X = np.random.default_rng(1).standard_normal((2, 12))


def network(n, *, shared=1, **options):
    """Heads of four components; `shared` of them have keys and values in common."""
    heads = Attention(
        heads=n // 4, head_size=4, width=4 * n, groups=n // (4 * shared), C_q=3.0, C_k=1.5,
        lambda_q=0.5, lambda_k=0.8, lambda_v=1.1, lambda_O=0.9, **options,
    )  # fmt: skip
    return Chain([Dense(n, lambda_W=0.7), RMSNorm(), heads, Dense(2, lambda_W=0.8)], (3, 4))


def distances(runs, options):
    """The largest |z| of every letter, and how many errors its largest entry is."""
    T = predict(network(32, **options), X, LETTERS)
    found = {}
    for letter in LETTERS:
        value = 2.0 * runs[32][letter] - runs[16][letter]
        errors = (2.0 * runs[32].error(letter), runs[16].error(letter), T.error(letter))
        error = np.sqrt(sum(part**2 for part in errors))
        z, resolved = np.abs(value - T[letter]) / error, np.abs(T[letter]) / error
        found[letter] = float(z.max()), float(resolved.max())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "without", "letters"),
    [
        ({"causal": True}, {}, LETTERS),
        ({"causal": True, "rope": 10.0}, {"causal": True}, ("K", "Theta")),
        ({"causal": True, "qk_norm": True}, {"causal": True}, LETTERS),
        # Kernels of infinite width do not know which heads share their keys.
        ({"causal": True, "shared": 2}, {"causal": True}, ("V", "B")),
    ],
    ids=["causal", "rope", "qk-norm", "groups"],
)
def test_drawn_networks(options, without, letters):
    with jax.numpy_rank_promotion("allow"):  # rotary angles of a position, for every input
        runs = {
            n: simulate(network(n, **options), X, LETTERS, members=3000, seed=2) for n in (16, 32)
        }
    for letter, (z, resolved) in distances(runs, options).items():
        assert z < 4.0, (letter, z)
        assert resolved > 8.0, letter
    for letter, (z, _) in distances(runs, without).items():
        assert letter not in letters or z > 4.0, (letter, z)
