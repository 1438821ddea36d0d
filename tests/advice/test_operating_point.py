"""Operating points: the amplification by adaptive quadrature, the budget, and its limits."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from dynagram.activations import activation
from dynagram.advice import operating_point
from dynagram.errors import InvalidValueError

NAMES = ["tanh", "sin", "relu", "gelu", "silu", "elu", "sigmoid", "hardtanh", "softplus"]


def average(function, mean, variance):
    def density(t):
        return np.exp(-t * t / 2) / np.sqrt(2 * np.pi)

    root = np.sqrt(variance)
    # Kinks of all functions here lie at −1, 0 and 1.
    places = sorted((edge - mean) / root for edge in (-1.0, 0.0, 1.0))
    edges = [-12.0, *[p for p in places if -12 < p < 12], 12.0]
    parts = [
        quad(lambda t: density(t) * function(mean + root * t), a, b, epsabs=1e-13, epsrel=1e-13)[0]
        for a, b in itertools.pairwise(edges)
    ]
    return sum(parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [4, 40])
def test_amplification_by_adaptive_quadrature(name, depth):
    sigma, point = activation(name), operating_point(name, depth)

    def value(z, order=0):
        return float(sigma.values(np.array([z]), order)[0])

    mean = average(value, point.mean, point.variance)
    spread = average(lambda z: (value(z) - mean) ** 2, point.mean, point.variance)
    slope = average(lambda z: value(z, 1) ** 2, point.mean, point.variance)
    assert point.sigma_mean == pytest.approx(mean, rel=1e-9, abs=1e-12)
    assert pytest.approx(point.variance / spread, rel=1e-9) == point.C_W
    assert point.amplification == pytest.approx(point.C_W * slope, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [3, 10, 100, 1000])
def test_a_network_keeps_to_its_budget(name, depth):
    """χ ≥ 1 always (Poincaré), and χ^L ≤ e^c, with equality where the point has moved."""
    point = operating_point(name, depth)
    growth = depth * np.log(point.amplification)
    assert 0.0 <= growth < 4.0 * (1 + 1e-9)
    if (point.mean, point.variance) not in ((0.0, 1.0), (0.0, 3.0)):
        assert growth == pytest.approx(4.0, rel=1e-6)


def test_linear_networks_amplify_nothing():
    point = operating_point("linear", 1000)
    assert point.amplification == pytest.approx(1.0, rel=1e-12)
    assert (point.mean, point.variance) == (0.0, 3.0)


def test_relu_in_closed_form():
    """At μ = 0: χ = ½/(½ − 1/2π) = π/(π − 1)."""
    assert operating_point("relu", 4).amplification == pytest.approx(np.pi / (np.pi - 1), rel=1e-12)


def test_refusals():
    with pytest.raises(InvalidValueError, match="no part of it is straight enough for 100 layers"):
        operating_point("cos", 100)
    with pytest.raises(InvalidValueError, match="depth = 1: expected an integer ≥ 2"):
        operating_point("relu", 1)
    with pytest.raises(InvalidValueError, match="budget"):
        operating_point("relu", 10, budget=0.0)
