"""E[F(z)], covariances and NTK correlations of any function: known cases, honest errors."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.statistics import (
    correlator,
    metric_cumulants,
    observable_covariance,
    observable_mean,
    observable_ntk_correlation,
)

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
NET = MLP([3, 30, 40, 2], "tanh", C_b=(0.1, 0.2, 0.15), C_W=(1.1, 1.3, 0.9), lambda_b=0.4)


def test_polynomials_are_correlators():
    """z z, zzzz on one and on two neurons, against (4.71) with Ĝ's mean and covariance."""
    tensors = predict(NET, X)
    cumulants = metric_cumulants(tensors, 3)
    products = [((0, 0), (0, 1)), ((0, 0, 0, 0), (0, 0, 1, 1)), ((0, 0, 1, 1), (0, 1, 0, 1))]

    def function(z):
        return jnp.stack([
            jnp.prod(jnp.stack([z[i, a] for i, a in zip(neurons, samples, strict=True)]))
            for neurons, samples in products
        ])  # fmt: skip

    mean = observable_mean(NET, X, function, neurons=2)
    K, n = tensors["K"][-1], NET.widths[-2]
    for index, (neurons, samples) in enumerate(products):
        exact = correlator(cumulants, neurons, samples)
        if len(neurons) == 4:  # GG of the correlator has G1 squared, of order 1/n²
            G1 = tensors["G1"][-1]
            pairings = [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)]
            for i, j, k, m in pairings:
                if neurons[i] == neurons[j] and neurons[k] == neurons[m]:
                    a, b, c, d = (samples[p] for p in (i, j, k, m))
                    exact -= G1[a, b] * G1[c, d] / n**2
        assert abs(mean.value[index] - exact) < 1e-3 * K[0, 0] / n + 3 * mean.error[index]
        np.testing.assert_allclose(mean.value[index], exact, rtol=1e-4)


def test_a_step_function():
    """E[θ(z)] = ½ at any metric; E[θ(z_a)θ(z_b)] moves with the angle, by finite differences."""
    flat = observable_mean(NET, X[:1], lambda z: jnp.where(z[0, 0] > 0, 1.0, 0.0))
    assert abs(flat.correction) < 2 * flat.errors[1] < 1e-5
    assert abs(flat.value - 0.5) < 2 * flat.error
    tensors = predict(NET, X)
    K, G1, V = (tensors[name][-1] for name in ("K", "G1", "V"))

    def both(G):  # P(z_a > 0, z_b > 0) = ¼ + arcsin ρ/2π
        rho = G[0, 1] / np.sqrt(G[0, 0] * G[1, 1])
        return 0.25 + np.arcsin(rho) / (2 * np.pi)

    pairs, h = [(0, 0), (0, 1), (1, 1)], 1e-3

    def unit(a, b):
        e = np.zeros((2, 2))
        e[a, b] = e[b, a] = 1.0
        return e

    expected = (both(K + h * G1) - both(K - h * G1)) / (2 * h)
    for p in pairs:
        for q in pairs:
            e, f = h * unit(*p), h * unit(*q)
            second = both(K + e + f) - both(K + e - f) - both(K - e + f) + both(K - e - f)
            expected += 0.5 * second / (4 * h * h) * V[*p, *q]
    found = observable_mean(NET, X, lambda z: jnp.where(jnp.all(z > 0), 1.0, 0.0), count=2**20)
    assert abs(found.correction - expected) < max(5 * found.errors[1], 1e-3 * abs(expected))


def test_covariances_are_v_contracted():
    """Cov[z_a z_b, z_c z_d] on two neurons is V_(ab)(cd)."""
    V = predict(NET, X, ("V",))["V"][-1]
    found = observable_covariance(NET, X, lambda z: z[0, 0] * z[0, 1], lambda z: z[0, 1] * z[0, 1])
    np.testing.assert_allclose(found.correction, V[0, 1, 1, 1], rtol=1e-9)
    assert found.infinite == 0.0


def test_ntk_correlations_are_d_and_f():
    """(8.67): δ_ij δ_kl D_1234 + δ_ik δ_jl F_1324 + δ_il δ_jk F_1423 for O = z z."""
    tensors = predict(NET, X, ("D", "F"))
    D, F = tensors["D"][-1], tensors["F"][-1]
    found = observable_ntk_correlation(NET, X, lambda z: z[0, 0] * z[1, 1]).correction
    np.testing.assert_allclose(found[0, 1], np.einsum("ab->ab", F[0, :, 1, :]), atol=1e-7)
    np.testing.assert_allclose(found[1, 0], F[0, :, 1, :].T, atol=1e-7)
    np.testing.assert_allclose(found[0, 0], 0.0, atol=1e-7)
    same = observable_ntk_correlation(NET, X, lambda z: z[0, 0] * z[0, 1]).correction
    expected = D[0, 1] + F[0, :, 1, :] + F[0, :, 1, :].T
    np.testing.assert_allclose(same[0, 0], expected, atol=1e-7)
    np.testing.assert_allclose(same[1, 1], D[0, 1], atol=1e-7)


def test_refusals():
    for options, words in (
        ({"layer": 4}, "layers 1 to 3"), ({"neurons": 0}, "at least one"), ({"count": 2}, "nodes"),
    ):  # fmt: skip
        with pytest.raises(InvalidValueError, match=words):
            observable_mean(NET, X, jnp.sum, **options)
    with pytest.raises(InvalidValueError, match="not an array"):
        observable_ntk_correlation(NET, X, lambda z: z)
    with pytest.raises(InvalidValueError, match="singular"):
        observable_mean(NET, X[[0, 0]], jnp.sum)
