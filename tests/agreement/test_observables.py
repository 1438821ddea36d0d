"""Averages of any function at order 1/n against ensembles of real networks.

Three layers at widths n and 2n, extrapolated: what is left is of order 1/n². Tolerance |z| < 4; the
size of every correction is many standard errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import MLP
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.theory._predict import predict
from dynagram.theory.statistics import (
    observable_covariance,
    observable_mean,
    observable_ntk_correlation,
)

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])


def network(n):
    return MLP([3, n, n, 2], "tanh", (0.1, 0.2, 0.15), (1.6, 1.9, 1.7), 0.4, 0.8)


def measured(n, function, members=400_000, batch=5_000):
    """Means of `function(params of one member)` and their standard errors."""
    net = network(n)

    @jax.jit
    def some(keys):
        return jax.vmap(lambda key: function(net, net.draw(key, "float32")))(keys)

    keys = jax.random.split(jax.random.key(n), members // batch)
    means = np.stack([
        np.mean(np.asarray(some(jax.random.split(key, batch)), dtype=np.float64), axis=0)
        for key in keys
    ])  # fmt: skip
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(keys))


def slope(one, two, infinite, n):
    """n (E − infinite) at leading order, from widths n and 2n."""
    values = [n * (one[0] - infinite), 2 * n * (two[0] - infinite)]
    error = np.hypot(n * one[1], 2 * 2 * n * two[1])
    return 2 * values[1] - values[0], error


@pytest.mark.slow
def test_functions_of_outputs():
    """|z_a z_b| on one neuron, and the covariance of e^{−z²} and |z| on two."""
    x, n = jnp.asarray(X, dtype="float32"), 12

    def function(net, params):
        z = net.apply(params, x)  # (sample, output)
        bell, size = jnp.exp(-(z[0, 0] ** 2)), jnp.abs(z[1, 1])
        crossed = 0.5 * (bell * size + jnp.exp(-(z[0, 1] ** 2)) * jnp.abs(z[1, 0]))
        singles = 0.5 * (bell + jnp.exp(-(z[0, 1] ** 2))), 0.5 * (size + jnp.abs(z[1, 0]))
        return jnp.stack([jnp.mean(jnp.abs(z[0] * z[1])), crossed, *singles])

    one, two = measured(n, function), measured(2 * n, function)
    theory = observable_mean(network(n), X, lambda z: jnp.abs(z[0, 0] * z[0, 1]), count=2**20)
    found, error = slope(*((v[0], e[0]) for v, e in (one, two)), theory.infinite, n)
    assert abs(found - theory.correction) < 4 * error + 4 * theory.errors[1]
    assert abs(theory.correction) > 8 * error
    both = observable_covariance(
        network(n), X, lambda z: jnp.exp(-(z[0, 0] ** 2)), lambda z: jnp.abs(z[0, 1])
    )
    covariances = [(v[1] - v[2] * v[3], e[1]) for v, e in (one, two)]
    found, error = slope(*covariances, 0.0, n)
    assert abs(found - both.correction) < 4 * error
    assert abs(both.correction) > 8 * error


@pytest.mark.slow
def test_correlation_with_the_ntk():
    """E[O ΔH] of O = sin(z_1a z_2b), for H of equal and of different outputs."""
    x, n = jnp.asarray(X, dtype="float32"), 12

    def function(net, params):
        z, H = net.apply(params, x), network_ntk(net, params, x)  # H[a, b, i, j]
        weight = jnp.sin(z[0, 0] * z[1, 1])
        diagonal = 0.5 * (H[..., 0, 0] + H[..., 1, 1])
        return jnp.concatenate([
            (weight * H[..., 0, 1]).ravel(), (weight * diagonal).ravel(), diagonal.ravel(),
            weight[None],
        ])  # fmt: skip

    one, two = (measured(m, function, members=200_000, batch=2_000) for m in (n, 2 * n))
    theory = observable_ntk_correlation(
        network(n), X, lambda z: jnp.sin(z[0, 0] * z[1, 1]), count=2**20
    ).correction
    crossed = [(v[:4], e[:4]) for v, e in (one, two)]
    found, error = slope(*crossed, 0.0, n)
    assert np.all(np.abs(found - theory[0, 1].ravel()) < 4 * error)
    assert np.max(np.abs(theory[0, 1].ravel()) / error) > 8
    same = [(v[4:8] - v[8:12] * v[12], e[4:8]) for v, e in (one, two)]
    found, error = slope(*same, 0.0, n)
    assert np.all(np.abs(found - theory[0, 0].ravel()) < 4 * error + 1e-3)


def test_inputs_are_not_collinear():
    """Both inputs fluctuate on their own, so that K⁻¹ exists in every layer."""
    K = predict(network(8), X, ("K",))["K"]
    assert np.all(np.linalg.eigvalsh(K)[:, 0] > 0.05)
