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

X = 1.4 * np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
WIDTH, MEMBERS = 32, 300_000


def network(n):
    return MLP([3, n, n, 2], "relu", 0.0, 2.0, 0.4, 0.8)


def measured(n, function, members=MEMBERS, batch=5_000):
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
    """e^{−z_a²} and a step in z_a z_b on one neuron, and the covariance of e^{−z²} on two."""
    x, n = jnp.asarray(X, dtype="float32"), WIDTH

    def function(net, params):
        z = net.apply(params, x)  # (sample, output)
        bell = jnp.exp(-(z**2))
        crossed = jnp.mean(bell[:, 0] * bell[:, 1])
        loud = jnp.mean(jnp.where(jnp.abs(z[0]) > 2.0, 1.0, 0.0))
        return jnp.stack([jnp.mean(bell[0]), loud, crossed, jnp.mean(bell[0]), jnp.mean(bell[1])])

    one, two = measured(n, function), measured(2 * n, function)
    for index, observable in enumerate(
        (lambda z: jnp.exp(-(z[0, 0] ** 2)), lambda z: jnp.where(jnp.abs(z[0, 0]) > 2.0, 1.0, 0.0))
    ):
        theory = observable_mean(network(n), X, observable, count=2**20)
        found, error = slope(*((v[index], e[index]) for v, e in (one, two)), theory.infinite, n)
        assert abs(found - theory.correction) < 4 * error + 4 * theory.errors[1]
        assert abs(theory.correction) > 8 * error
    bells = [lambda z, a=a: jnp.exp(-(z[0, a] ** 2)) for a in (0, 1)]
    both = [observable_covariance(network(n), X, bell, bell).correction for bell in bells]
    squares = [(v[2] - 0.5 * (v[3] ** 2 + v[4] ** 2), e[2]) for v, e in (one, two)]
    found, error = slope(*squares, 0.0, n)
    assert abs(found - np.mean(both)) < 4 * error
    assert abs(np.mean(both)) > 6 * error


@pytest.mark.slow
def test_correlation_with_the_ntk():
    """E[O ΔH] of O = tanh z_1a tanh z_2b, for H of different and of equal outputs."""
    x, n = jnp.asarray(X, dtype="float32"), WIDTH

    def function(net, params):
        z, H = net.apply(params, x), network_ntk(net, params, x)  # H[a, b, i, j]
        weight = jnp.tanh(z[0, 0]) * jnp.tanh(z[1, 1])
        other = jnp.tanh(z[0, 1]) * jnp.tanh(z[1, 0])
        return 0.5 * (weight * H[..., 0, 1] + other * H[..., 1, 0]).ravel()

    one, two = (measured(m, function, members=100_000, batch=2_000) for m in (n, 2 * n))
    theory = observable_ntk_correlation(
        network(n), X, lambda z: jnp.tanh(z[0, 0]) * jnp.tanh(z[1, 1]), count=2**20
    ).correction[0, 1]
    found, error = slope(one, two, 0.0, n)
    assert np.all(np.abs(found - theory.ravel()) < 4 * error)
    assert np.min(np.abs(theory.ravel()) / error) > 8


def test_inputs_are_not_collinear():
    """Both inputs fluctuate on their own, so that K⁻¹ exists in every layer."""
    K = predict(network(8), X, ("K",))["K"]
    assert np.all(np.linalg.eigvalsh(K)[:, 0] > 0.05)
