"""The sextic coupling of two inputs against the density of an exact mixture of Gaussians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.theory.statistics import sextic_coupling
from dynagram.theory.statistics._correlators import MetricCumulants

G = np.array([[1.0, 0.3], [0.3, 0.8]])
A = np.array([[0.5, 0.2], [0.2, -0.3]])
B = np.array([[-0.1, 0.4], [0.4, 0.6]])
Z = np.array([[0.7, -0.4], [0.2, 0.9], [-0.5, 0.3]])  # three neurons on two inputs
SKEW = 0.8


def sextic_of_the_mixture(scale):
    """−S at t⁶ along t·Z, Ĝ = G + scale(ξA + ηB), ξ skew of third cumulant SKEW·scale."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    weights = weights / weights.sum()
    tilted = weights * (1 + SKEW * scale / 6 * (nodes**3 - 3 * nodes))
    exponents, amounts = [], []
    for x, w in zip(nodes, tilted, strict=True):
        for y, v in zip(nodes, weights, strict=True):
            metric = G + scale * (x * A + y * B)
            exponents.append(np.einsum("ia,ab,ib->", Z, np.linalg.inv(metric), Z))
            amounts.append(w * v * np.linalg.det(metric) ** (-len(Z) / 2))
    with jax.enable_x64():
        q, p = jnp.asarray(exponents), jnp.asarray(amounts)

        def log_density(s):  # s = t²
            return jnp.log(jnp.sum(p * jnp.exp(-0.5 * s * q)))

        third = jax.grad(jax.grad(jax.grad(log_density)))
        return float(third(0.0)) / 6.0


def test_two_inputs_against_a_mixture():
    """V = A⊗A + B⊗B, κ₃ = SKEW A⊗A⊗A at n = 1/scale²: the t⁶ coefficient over scale⁴."""
    V = np.einsum("ab,cd->abcd", A, A) + np.einsum("ab,cd->abcd", B, B)
    six = SKEW * np.einsum("ab,cd,ef->abcdef", A, A, A)
    u = sextic_coupling(MetricCumulants(G, V, 1, six))
    Y = Z.T @ Z
    predicted = -np.einsum("abcdef,ab,cd,ef->", u, Y, Y, Y) / 24.0
    coarse, fine = (sextic_of_the_mixture(s) / s**4 for s in (0.02, 0.01))
    found = (4 * fine - coarse) / 3  # the next order is scale² higher
    # What is left after it is of order scale⁴ and rounding over scale⁴.
    np.testing.assert_allclose(predicted, found, rtol=1e-4)
    for part in (MetricCumulants(G, V, 1, 0 * six), MetricCumulants(G, 0 * V, 1, six)):
        alone = -np.einsum("abcdef,ab,cd,ef->", sextic_coupling(part), Y, Y, Y) / 24.0
        assert abs(alone / found - 1) > 0.05  # both terms are needed


def test_symmetries_and_refusal():
    V = np.einsum("ab,cd->abcd", A, A) + np.einsum("ab,cd->abcd", B, B)
    six = np.einsum("ab,cd,ef->abcdef", A, A, A)
    u = sextic_coupling(MetricCumulants(G, V, 10, six))
    for order in ("bacdef", "cdabef", "abefcd"):
        np.testing.assert_allclose(u, np.einsum(f"abcdef->{order}", u), atol=1e-12)
    with pytest.raises(InvalidValueError, match="six_point"):
        sextic_coupling(MetricCumulants(G, V, 10))
