"""A residual block that is not an MLP: the strength ξ that keeps its signal, block by block."""

import jax
import numpy as np

from dynagram.ensembles.initial import measure_signal, tune_blocks
from dynagram.networks import BlockChain

N, BLOCKS = 32, 8


def init(key):
    return jax.random.normal(key, (2, N, N)) * (2.0 / N) ** 0.5


def block(weights, z):
    """Two ReLU layers and an elementwise part, which correlates R with z."""
    return jax.nn.relu(jax.nn.relu(z) @ weights[0]) @ weights[1] + 0.5 * jax.nn.relu(z)


def start(key):
    return jax.random.normal(key, (1, N))


def show(words, values):
    print(f"{words:34}", " ".join(f"{value:7.3g}" for value in values))


tuned = tune_blocks(init, block, start, skip=[0.5] * BLOCKS, members=400, seed=0)
show("xi of every block, skip 0.5", tuned.solved.value)
show("  standard error", tuned.solved.standard_error)
once = BlockChain(init, block, tuned.chain.strength[:1] * BLOCKS, tuned.chain.skip)
naive = BlockChain(init, block, (1.0,) * BLOCKS, (1.0,) * BLOCKS)
print("signal G_zz on 400 other draws, before the first block, ..., after the last")
for words, chain in (("tuned", tuned.chain), ("tuned once", once), ("xi = skip = 1", naive)):
    signal = measure_signal(chain, start, members=400, seed=1)
    show(f"  {words}", signal.value)
    if chain is tuned.chain:
        show("  standard error", signal.standard_error)
        assert np.all(np.abs(signal.value - 1.0) < 0.35)
