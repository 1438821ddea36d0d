"""Kinks far from 0, in standard deviations: coefficients of small variances, and their warnings."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram import MLP, predict
from dynagram.activations import activation
from dynagram.gaussian._hermite import hermite_table


def test_a_kink_that_no_sample_reaches_leaves_no_trace():
    """h_k overflows there while φ is 0: their product was nan, after four warnings."""
    sigma = activation(lambda z: jnp.tanh(z) + jnp.maximum(z - 1.0, 0.0))
    table = hermite_table(sigma, np.array([1e-7, 1e-280]), 2, 256)
    assert np.all(np.isfinite(table))


@pytest.mark.parametrize("size", [0.0, 1e-9])
def test_slopes_beside_a_value_at_zero(size):
    """Of hard-sigmoid at a zero input ⟨σ'σ'⟩_12 was 0: σ − σ(0) is rounding there."""
    net = MLP([2, 30, 1], lambda z: jnp.clip(z / 6 + 0.5, 0.0, 1.0), C_b=0.0, C_W=1.0)
    Theta = predict(net, [[1.0, 0.0], [0.0, size]], ("Theta",))["Theta"][1]
    # One σ' is 1/6, and so is the other where |z| < 3, at a variance of ½.
    inside = math.erf(3.0)
    assert Theta[0, 1] == pytest.approx(1.0 + 0.25 + inside / 36.0, rel=1e-9)
