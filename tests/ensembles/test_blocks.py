"""Tuning of general residual blocks: the identity (B.44), and signals that stay as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.ensembles.initial._blocks import measure_signal, tune_blocks
from dynagram.errors import DynagramError
from dynagram.networks import BlockChain
from dynagram.theory.skips import balanced_skip, balanced_strength, next_signal

N = 32


def init(key):
    """Three layers of a critical ReLU network, the first one linear in z."""
    scale = jnp.sqrt(jnp.array([1.0, 2.0, 2.0]) / N)
    return scale[:, None, None] * jax.random.normal(key, (3, N, N), dtype=jnp.float64)


def block(weights, z):
    """Not an MLP block: the elementwise part makes R and z correlated, and gives a mean."""
    signal = z @ weights[0].T
    for W in weights[1:]:
        signal = jax.nn.relu(signal) @ W.T
    return signal + 0.5 * jax.nn.relu(z)


def start(key):
    return jax.random.normal(key, (2, N), dtype=jnp.float64)


@pytest.fixture(scope="module")
def tuned():
    return tune_blocks(init, block, start, skip=[0.5] * 8, members=300, seed=1)


def test_tuned_chain_keeps_its_signal_on_other_draws(tuned):
    np.testing.assert_allclose(tuned.G_zz, tuned.G_zz[0], rtol=1e-12)
    fresh = measure_signal(tuned.chain, start, members=300, seed=77)
    # d log G_zz/dξ of one block is 2(ξG_RR + γG_Rz); the errors of all blocks add up.
    reach = 2 * (tuned.solved.value * tuned.G_RR + 0.5 * tuned.G_Rz) * tuned.solved.standard_error
    tuning = np.append(0.0, np.sqrt(np.cumsum(reach**2)))
    assert np.all(np.abs(fresh.value - 1.0) < 4 * np.hypot(fresh.standard_error, tuning))
    assert np.all(np.hypot(fresh.standard_error, tuning) < 0.1)
    # ξ settles near 0.641 once the mean of z has built up (0.717 at the first block).
    assert tuned.chain.strength[0] == pytest.approx(0.717, abs=4 * tuned.solved.standard_error[0])
    assert tuned.chain.strength[-1] == pytest.approx(0.641, abs=4 * tuned.solved.standard_error[-1])
    assert tuned.G_Rz[0] == pytest.approx(0.25, abs=0.02)


def test_tuning_once_or_not_at_all_does_not(tuned):
    first = (tuned.chain.strength[0],) * 8
    once = BlockChain(init, block, first, tuned.chain.skip)
    drift = measure_signal(once, start, members=300, seed=5).value
    assert drift[-1] > 2.0
    naive = BlockChain(init, block, (1.0,) * 8, (1.0,) * 8)
    assert measure_signal(naive, start, members=300, seed=5).value[-1] > 1e3


def test_skip_for_a_given_strength():
    chain = tune_blocks(init, block, start, strength=[0.3] * 4, members=300, seed=2).chain
    assert chain.strength == (0.3,) * 4
    signal = measure_signal(chain, start, members=300, seed=6)
    assert np.all(np.abs(signal.value - 1.0) < 4 * signal.standard_error + 0.02)


def test_balance_solves_the_identity():
    for G_RR, G_Rz, G_zz in ((2.0, 0.3, 1.0), (0.4, -0.2, 3.0), (5.0, 0.0, 0.7)):
        for skip in (0.0, 0.5, -0.9):
            xi = balanced_strength(G_RR, G_Rz, G_zz, skip=skip)
            assert xi > 0
            kept = next_signal(G_RR, G_Rz, G_zz, strength=xi, skip=skip)
            assert kept == pytest.approx(G_zz, rel=1e-12)
            gamma = balanced_skip(G_RR, G_Rz, G_zz, strength=0.1)
            kept = next_signal(G_RR, G_Rz, G_zz, strength=0.1, skip=gamma)
            assert kept == pytest.approx(G_zz, rel=1e-12)
    # At γ = 1 only a block that works against z can be balanced.
    assert balanced_strength(2.0, -0.3, 1.0, skip=1.0) == pytest.approx(0.3)


def test_refusals():
    with pytest.raises(DynagramError, match="no strength ξ > 0"):
        balanced_strength(2.0, 0.3, 1.0, skip=1.0)
    with pytest.raises(DynagramError, match="the block alone makes the signal grow"):
        balanced_skip(2.0, 0.0, 1.0)
    with pytest.raises(DynagramError, match="G_zz = 0.0"):
        balanced_strength(2.0, 0.0, 0.0, skip=0.5)
    with pytest.raises(DynagramError, match="either skip"):
        tune_blocks(init, block, start, members=100, seed=0)
    with pytest.raises(DynagramError, match="at least 64"):
        tune_blocks(init, block, start, skip=[0.5], members=3, seed=0)
    with pytest.raises(DynagramError, match="shape of the block's output"):
        tune_blocks(init, lambda _, z: z[:, :1], start, skip=[0.5], members=64, seed=0)
    with pytest.raises(DynagramError, match="not finite"):
        tune_blocks(init, lambda _, z: z / 0.0, start, skip=[0.5], members=64, seed=0)
