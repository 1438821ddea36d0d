"""Closed two-sample averages against Mehler's series, conditional quadrature and derivatives."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.gaussian._closed_forms import closed_form, closed_kernel
from dynagram.gaussian._two_point import _conditional_quadrature, _series, two_point

NAMES = [
    "linear", "relu", "leaky_relu(0.3)", "abs", "relu2", "sin", "cos", "exp", "erf", "erf(0.7)",
    "gelu",
]  # fmt: skip
ORDERS = [(p, q) for p in range(5) for q in range(5) if p + q <= 4]
# Variances and correlation.
POINTS = [(0.3, 1.7, -0.6), (1.0, 1.0, 0.97), (2.5, 0.4, 0.3), (0.8, 0.8, -0.04)]


def _closed(name, p, q, a, b, rho):
    function = closed_form(activation(name), p, q)
    if function is None:
        return None
    return float(function(*(jnp.asarray(v) for v in (a, b, rho * math.sqrt(a * b)))))


@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_are_the_series_and_the_quadrature(name):
    general = replace(activation(name), closed_form=None)
    compared = 0
    for p, q in ORDERS:
        a, b, rho = np.array(POINTS).T
        series, _ = _series(general, p, general, q, a, b, rho)
        for i, point in enumerate(POINTS):
            exact = _closed(name, p, q, *point)
            if exact is None:
                continue
            tolerance = 1e-10 * max(abs(exact), 1e-3)
            assert abs(series[i] - exact) < tolerance, (p, q, point)
            if p <= q and i == (p + q) % 2:  # the other half is the exchange of the samples
                quadrature = _conditional_quadrature(general, p, general, q, *point)
                assert abs(quadrature - exact) < tolerance, (p, q, point)
            compared += 1
    assert compared >= 4 * len(POINTS)


@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_differentiate_into_each_other(name):
    """Price's theorem: ∂/∂c raises both orders, 2∂/∂a raises p by two, 2∂/∂b raises q by two."""
    sigma, compared = activation(name), 0
    point = tuple(jnp.asarray(v) for v in (0.7, 1.3, 0.4))
    for p, q in ORDERS:
        function = closed_form(sigma, p, q)
        if function is None:
            continue
        gradient = jax.grad(lambda a, b, c, f=function: f(a, b, c), argnums=(0, 1, 2))(*point)
        for index, factor, raised in (
            (2, 1, (p + 1, q + 1)),
            (0, 2, (p + 2, q)),
            (1, 2, (p, q + 2)),
        ):
            higher = closed_form(sigma, *raised) if max(raised) <= 4 else None
            if higher is not None:
                expected = float(higher(*point))
                assert abs(factor * gradient[index] - expected) < 1e-12 * max(1, abs(expected))
                compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", NAMES)
def test_kernels_from_numbers_prepared_per_sample(name):
    kernel = closed_kernel(activation(name))
    assert kernel is not None
    for a, b, rho in POINTS:
        c = jnp.asarray(rho * math.sqrt(a * b))
        left, right = kernel.prepare(jnp.asarray(a)), kernel.prepare(jnp.asarray(b))
        slope = kernel.slope(left, right, c)
        value = float(kernel.value(left, right, c, slope))
        assert value == pytest.approx(_closed(name, 0, 0, a, b, rho), rel=1e-13, abs=1e-15)
        assert float(slope) == pytest.approx(_closed(name, 1, 1, a, b, rho), rel=1e-13)


@pytest.mark.parametrize(("a", "b", "rho"), POINTS)
def test_printed_formulas(a, b, rho):
    """The closed forms of the reference, written out once more."""
    theta, root, c = math.acos(rho), math.sqrt(a * b), rho * math.sqrt(a * b)
    rest, pi = math.pi - theta, math.pi
    arcs = math.sin(theta) + rest * math.cos(theta)
    even = math.sin(theta) + (pi / 2 - theta) * math.cos(theta)
    printed = {
        ("relu", 0, 0): root / (2 * pi) * arcs,
        ("relu", 1, 1): rest / (2 * pi),
        ("relu", 2, 0): 2 * math.sqrt(b / a) * math.sin(theta) / (4 * pi),
        ("leaky_relu(0.3)", 0, 0): 1.3**2 / 4 * c + 0.7**2 / 4 * 2 * root / pi * even,
        ("abs", 0, 0): 2 * root / pi * even,
        ("relu2", 0, 0): a * b / (2 * pi)
        * (3 * math.sin(theta) * math.cos(theta) + rest * (1 + 2 * math.cos(theta) ** 2)),
        ("sin", 0, 0): math.exp(-(a + b) / 2) * math.sinh(c),
        ("linear", 0, 0): c,
    }  # fmt: skip
    for (name, p, q), expected in printed.items():
        assert _closed(name, p, q, a, b, rho) == pytest.approx(expected, rel=1e-12, abs=1e-14)
    step = two_point(activation("step"), *(np.array([v]) for v in (a, b, c)))
    assert step[0] == pytest.approx(rest / (2 * pi), rel=1e-11)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exp"])
def test_a_sample_that_is_zero(name):
    """b → 0 with independent noise: the mean of the two sides of σ^(q) at 0 times ⟨σ^(p)⟩_a."""
    sigma = activation(name)
    for p, q in [(0, 0), (1, 0), (1, 1), (2, 0)]:
        exact = _closed(name, p, q, 0.9, 0.0, 0.0)
        if exact is None or any(any(kink.jumps[:q]) for kink in sigma.kinks):
            continue
        general = replace(sigma, closed_form=None)
        limit = two_point(general, *(np.array([v]) for v in (0.9, 0.0, 0.0)), p, q)[0]
        assert exact == pytest.approx(limit, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", NAMES)
def test_collinear_pairs(name, sign):
    """z_2 = ±2 z_1 exactly: closed forms have no 0/0 there."""
    a = np.array([0.81])
    sigma, general = activation(name), replace(activation(name), closed_form=None)
    for p, q in [(0, 0), (1, 1), (0, 1)]:
        found = two_point(sigma, a, 4 * a, sign * 2 * a, p, q)
        expected = two_point(general, a, 4 * a, sign * 2 * a, p, q)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_repeated_inputs_of_any_size():
    """K_11 = K_22 = K_12 must be recognised whatever its digits."""
    a = np.random.default_rng(0).uniform(0.01, 30.0, 500)
    for name, slope in (("relu", 0.5), ("leaky_relu(0.3)", 0.545), ("abs", 1.0)):
        np.testing.assert_allclose(two_point(activation(name), a, a, a, 1, 1), slope, rtol=1e-12)
        np.testing.assert_allclose(two_point(activation(name), a, a, a), slope * a, rtol=1e-12)
