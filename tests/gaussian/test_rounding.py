"""Averages of steep functions with derivatives, against sums of bumps that are known exactly."""

import math

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from dynagram import MLP, activation, predict
from dynagram.activations import registered
from dynagram.gaussian._one_input import slope_average
from dynagram.gaussian._quadrature import product_rule
from dynagram.gaussian._rounding import is_steep, other_rules
from dynagram.gaussian._scalar import kernel_derivative
from dynagram.gaussian._two_point import two_point
from oracles.bumps import Bumps, exact_tensors

ONE_INPUT = ("V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
VARIANCES = {"C_b": 0.1, "C_W": 0.7, "lambda_b": 1.0, "lambda_W": 1.0}


def spiked(height, width):
    return Bumps(((1.0, -0.4, 1.0), (height, 0.55, width)))


def exact(sigma, K, *slots):
    with mpmath.workdps(60):
        covariance = np.vectorize(mpmath.mpf, otypes=[object])(np.atleast_2d(K))
        return float(sigma.average(covariance, slots))


def derivative(sigma, K, p, order):
    """2^{−k}⟨((σ^(p))²)^(2k)⟩ with every term to 60 digits."""
    with mpmath.workdps(60):
        covariance = np.array([[mpmath.mpf(K)]], dtype=object)
        total = mpmath.mpf(0)
        for i in range(2 * order + 1):
            slots = ((0, p + i), (0, p + 2 * order - i))
            total += math.comb(2 * order, i) * sigma.average(covariance, slots)
        return float(total / 2**order)


@pytest.mark.parametrize("width", [1e-2, 1e-4, 3.2e-5])
@pytest.mark.parametrize("K", [0.2, 3.0])
def test_derivatives_in_the_kernel(width, K):
    """g', χ⊥', j and the like: of a spike of width 10⁻⁴, g'' kept no digit."""
    bumps = spiked(30.0, width)
    sigma = activation(bumps)
    for order in (1, 2, 3, 4):
        assert float(kernel_derivative(sigma, K, order)) == pytest.approx(
            derivative(bumps, K, 0, order), rel=1e-10
        )
    for order in (1, 2):
        assert float(slope_average(sigma, np.array(K), order)) == pytest.approx(
            derivative(bumps, K, 1, order), rel=1e-9
        )


@pytest.mark.parametrize("rho", [0.3, -0.9, 0.98])
def test_derivatives_at_two_samples(rho):
    """All that V, G^{1} and the ddNTK need; at ρ = 0.98 by conditional quadrature."""
    a, b, bumps = 0.8, 1.7, spiked(30.0, 1e-3)
    c, sigma = rho * math.sqrt(a * b), activation(bumps)
    K = np.array([[a, c], [c, b]])
    for p, q in ((1, 1), (2, 0), (0, 2), (2, 2), (3, 1), (1, 3), (4, 0)):
        found = two_point(sigma, *(np.array([v]) for v in (a, b, c)), p, q)[0]
        # On the scale of a smooth function of the same mean square.
        scale = (p + q) ** 2 * math.sqrt(
            exact(bumps, a, (0, 0), (0, 0)) * exact(bumps, b, (0, 0), (0, 0))
        )
        assert found == pytest.approx(exact(bumps, K, (0, p), (1, q)), rel=1e-9, abs=1e-11 * scale)


def within_error_bars(sigma, x, letters, depth, smallest=1e-8):
    """Nothing farther off than five error bars, and these below `smallest` of a layer's largest."""
    network = MLP([x.shape[1], *[30] * (depth - 1), 1], sigma, **VARIANCES)
    found = predict(network, x, ("K", "Theta", *letters))
    expected = exact_tensors(network, sigma, x, letters)
    for name, want in expected.items():
        axes = tuple(range(1, want.ndim))
        scale = np.max(np.abs(want), axis=axes, keepdims=True)
        error = found.error(name)
        assert np.all(np.abs(found[name] - want) <= 5.0 * error + 1e-14 * scale), name
        assert np.all(error <= smallest * scale), name
        assert np.any(error > 0.0)


@pytest.mark.parametrize(("height", "width"), [(1.0, 1e-3), (30.0, 1e-4), (100.0, 3.2e-5)])
def test_every_tensor_of_one_input(height, width):
    within_error_bars(spiked(height, width), np.array([[1.0]]), ONE_INPUT, 4)


def test_two_inputs():
    x = np.array([[1.0, 0.2], [0.3, -0.9]])
    within_error_bars(spiked(30.0, 1e-4), x, ("V", "G1"), 3)


@pytest.mark.slow
def test_every_tensor_of_two_inputs():
    x = np.array([[1.0, 0.2], [0.3, -0.9]])
    within_error_bars(spiked(30.0, 1e-4), x, ONE_INPUT, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("distance", "smallest"), [(1e-2, 1e-9), (1e-4, 1e-3)])
def test_nearly_equal_inputs(distance, smallest):
    """Slopes of 10³ make of the rounding of K^(1) what they make of a difference of inputs."""
    x = np.array([[1.0, 0.2], [1.0 + distance, 0.2 - distance]])
    within_error_bars(spiked(30.0, 1e-2), x, ("V", "G1", "B"), 4, smallest)


def test_a_mild_function_costs_nothing():
    """Those that come with dynagram, and functions of one length, have no other rules."""

    def wide(z):
        return jnp.tanh(z) + 0.3 * jnp.exp(-((z - 0.5) ** 2))

    def bent(z):
        return jnp.maximum(z, 0.1 * z)

    for sigma in (*map(activation, registered()), activation(wide), activation(bent)):
        assert not is_steep(sigma)
        assert other_rules(sigma) == ()
    found = predict(MLP([1, 30, 1], bent, **VARIANCES), [[1.0]], ("K", "V"))
    assert set(found.errors) == {"V"}


def test_other_rules_share_no_node():
    sigma = activation(spiked(30.0, 1e-3))
    rules = [product_rule([(rule, 1.0)]) for rule in (sigma, *other_rules(sigma))]
    for t, w in rules:
        assert np.sum(w) == pytest.approx(1.0, rel=1e-14)
        on_the_spike = t[np.abs(t - 0.55) < 3e-3]
        assert on_the_spike.size > 50
        assert sum(np.isin(on_the_spike, other).any() for other, _ in rules) == 1
