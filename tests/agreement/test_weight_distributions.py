"""Weights of other distributions with the same variances: equal at K, different at order 1/n.

Tolerance: |z| < 4, and the difference from Gaussian weights is many standard errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import MLP
from dynagram.networks._distributions import DISTRIBUTIONS, KURTOSES
from dynagram.theory._predict import predict
from dynagram.theory.statistics import kurtosis_shift

INPUT = np.sign(np.random.default_rng(0).standard_normal(60))
NETWORK = MLP([60, 12, 12, 12], "tanh", C_b=0.0, C_W=(1.3, 1.6, 1.4))


def test_kurtoses_of_what_is_drawn():
    for name, draw in DISTRIBUTIONS.items():
        w = np.asarray(draw(jax.random.key(0), (400_000,), "float32"), dtype=np.float64)
        assert abs(w.var() - 1.0) < 4 * np.sqrt(2.0 / w.size)
        spread = np.std(w**4 - 6 * w**2) / np.sqrt(w.size)  # of the kurtosis, by the delta method
        assert abs(np.mean(w**4) / w.var() ** 2 - 3.0 - KURTOSES[name]) < 4 * spread, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uniform", "truncated-normal"])
def test_shifts_at_order_one_over_n(name):
    """The fourth cumulant of a neuron and G1 of layer 3; Gaussian weights are rejected."""
    x = jnp.asarray(INPUT[None], dtype="float32")

    @jax.jit
    def moments(keys):
        def one(key):
            z = NETWORK.preactivations(NETWORK.draw(key, "float32", name), x)
            second, third = z[1][0], z[2][0]
            pairs = (jnp.sum(second**2) ** 2 - jnp.sum(second**4)) / (12 * 11)
            return jnp.stack([jnp.mean(second**4), pairs, jnp.mean(second**2), jnp.mean(third**2)])

        return jax.vmap(one)(keys)

    keys = jax.random.split(jax.random.key(1), 40)
    batches = np.stack([
        np.asarray(moments(jax.random.split(key, 10_000)), dtype=np.float64).mean(axis=0)
        for key in keys
    ])  # fmt: skip
    mean = batches.mean(axis=0)
    spread = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    tensors = predict(NETWORK, INPUT[None], ("K", "V", "G1"))
    shift = kurtosis_shift(NETWORK, INPUT, KURTOSES[name])
    K, n = tensors["K"][:, 0, 0], 12
    # E[z⁴] − 3E[z_i²z_j²] of layer 2: 3V cancels, what is left is the neuron's own cumulant.
    own = mean[0] - 3 * mean[1]
    error = np.std(batches[:, 0] - 3 * batches[:, 1], ddof=1) / np.sqrt(len(batches))
    predicted = shift.four_point[1] / n
    assert abs(own - predicted) < 4 * error + 0.12 * abs(predicted)  # the next order in 1/n
    assert abs(own) > 20 * error
    # Between neurons V stays: E[z_i²z_j²] = (E z²)² + V/n.
    between = mean[1] - mean[2] ** 2
    V = tensors["V"].ravel()[1] / n
    assert abs(between - V) < 0.12 * V
    G1 = tensors["G1"].ravel()[2]
    gaussian, shifted = ((mean[3] - K[2]) * n - g for g in (G1, G1 + shift.G1[2]))
    assert abs(shifted) < 0.3 * abs(shift.G1[2]) + 4 * n * spread[3]
    assert abs(gaussian) > 0.6 * abs(shift.G1[2]) > 4 * n * spread[3]
