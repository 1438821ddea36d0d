"""The helper functions of K against closed forms, identities and the figures of the chapter."""

import math

import numpy as np
import pytest
from scipy.special import erfcx

from dynagram.activations import registered
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.theory.criticality import (
    curvature_average,
    mean_square,
    metric_source,
    parallel_susceptibility,
    perpendicular_source,
    perpendicular_susceptibility,
    susceptibility_ratio,
)

K = np.array([1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 7.0, 30.0])


def _gelu_g(K):
    inner = np.arcsin(K / (1 + K)) + 2 * K / ((1 + K) * np.sqrt(1 + 2 * K))
    return K / 4 + K / (2 * np.pi) * inner


def _gelu_slope(K):
    inner = np.arcsin(K / (1 + K)) + K * (3 + 5 * K) / ((1 + K) * (1 + 2 * K) ** 1.5)
    return 0.25 + inner / (2 * np.pi)


def _tail(K, rate):
    """e^{rate² K/2} Φ(−rate √K)."""
    return 0.5 * erfcx(rate * np.sqrt(K / 2))


# activation -> (g, ⟨σ'²⟩) in closed form
CLOSED_FORMS = {
    "erf": (
        lambda K: 2 / np.pi * np.arcsin(2 * K / (1 + 2 * K)),
        lambda K: 4 / (np.pi * np.sqrt(1 + 4 * K)),
    ),
    "sin": (lambda K: -np.expm1(-2 * K) / 2, lambda K: (1 + np.exp(-2 * K)) / 2),
    "cos": (lambda K: (1 + np.exp(-2 * K)) / 2, lambda K: -np.expm1(-2 * K) / 2),
    "exp": (lambda K: np.exp(2 * K), lambda K: np.exp(2 * K)),
    "gelu": (_gelu_g, _gelu_slope),
    "monomial(3)": (lambda K: 15 * K**3, lambda K: 27 * K**2),
    "monomial(4)": (lambda K: 105 * K**4, lambda K: 240 * K**3),
    "leaky_relu(0.3)": (lambda K: 0.545 * K, lambda K: 0.545 + 0 * K),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_averages_match_closed_forms(name):
    g, slope = CLOSED_FORMS[name]
    np.testing.assert_allclose(mean_square(name, K), g(K), rtol=1e-12)
    np.testing.assert_allclose(
        perpendicular_susceptibility(name, K, 1.7), 1.7 * slope(K), rtol=1e-12
    )


def test_elu_matches_its_closed_form():
    # The closed form itself cancels at small K.
    large = K[K >= 0.1]
    g = large / 2 + _tail(large, 2.0) - 2 * _tail(large, 1.0) + 0.5
    np.testing.assert_allclose(mean_square("elu", large), g, rtol=1e-12)
    slope = perpendicular_susceptibility("elu", large, 1.0)
    np.testing.assert_allclose(slope, 0.5 + _tail(large, 2.0), rtol=1e-12)


def test_derivatives_in_K_match_closed_forms():
    # sin: g' = e^{-2K}, g'' = -2e^{-2K}, ⟨σ'²⟩' = -e^{-2K}
    decay = np.exp(-2 * K[:7])
    for order, factor in enumerate((1, -2, 4, -8), start=1):
        values = mean_square("sin", K[:7], derivative=order)
        # the last two move derivatives to the Gaussian and lose 1e-16/K² at small K
        tolerance = 1e-13 if order <= 2 else 1e-13 / K[:7] ** (order - 2)
        assert np.all(np.abs(values - factor * decay) <= tolerance)
    np.testing.assert_allclose(perpendicular_source("sin", K[:7], 3.0), -1.5 * decay, rtol=1e-9)
    np.testing.assert_allclose(
        metric_source("sin", K[:7], 3.0), -24 * K[:7] ** 2 * decay, rtol=1e-9
    )
    np.testing.assert_allclose(parallel_susceptibility("sin", K[:7], 3.0), 3 * decay, rtol=1e-9)


@pytest.mark.parametrize(
    "name", [name for name in registered() if name not in ("step", "perceptron")]
)
def test_difference_of_susceptibilities_is_the_curvature_average(name):
    """χ∥ − χ⊥ = C_W⟨σσ''⟩, kinks included."""
    points = np.array([0.3, 1.0, 4.0])
    difference = parallel_susceptibility(name, points, 2.0) - perpendicular_susceptibility(
        name, points, 2.0
    )
    size = np.abs(perpendicular_susceptibility(name, points, 2.0))
    assert np.all(np.abs(difference - 2.0 * curvature_average(name, points)) <= 1e-12 * size)


@pytest.mark.parametrize("name", ["tanh", "gelu", "softsign", "selu", "mish"])
def test_derivatives_agree_with_finite_differences(name):
    point, step = 0.7, 1e-4
    shifted = np.array([point - step, point + step])
    rise = np.diff(mean_square(name, shifted))[0] / (2 * step)
    assert float(mean_square(name, point, derivative=1)) == pytest.approx(rise, rel=1e-7)
    bend = np.diff(mean_square(name, shifted, derivative=1))[0] / (2 * step)
    assert float(mean_square(name, point, derivative=2)) == pytest.approx(bend, rel=1e-6)
    drift = np.diff(perpendicular_susceptibility(name, shifted, 1.0))[0] / (2 * step)
    assert 2 * float(perpendicular_source(name, point, 1.0)) == pytest.approx(drift, rel=1e-6)


# Ratio R(K) of Figs. 5.1, 5.2, 5.3
FIGURE_VALUES = {
    "tanh": {
        0.001: 1.00199801,
        0.01: 1.01980880,
        0.1: 1.18596213,
        0.5: 1.82492623,
        1.0: 2.55450389,
        2.0: 3.95030040,
        3.0: 5.31621089,
        5.0: 8.01731913,
    },
    "sigmoid": {0.0: 1.0, 0.5: 1.2294782, 1.0: 1.4371400, 2.0: 1.8249262, 3.0: 2.1945488},
    "softplus": {
        0.0: 1 / (1 + math.log(2)),
        0.5: 0.6230501,
        1.0: 0.6472044,
        2.0: 0.6823286,
        3.0: 0.7075952,
        3162.0: 0.98582,
    },
    "swish": {
        0.1: 0.96260249,
        0.5: 0.91479061,
        0.859784: 0.90916475,
        5.0: 0.96159117,
        10.0: 0.98949662,
        15.0: 1.00112008,
        20.0: 1.00687921,
        57.3634: 1.01420667,
    },
    "gelu": {
        0.1: 0.92969607,
        0.317717: 0.90376046,
        2.0: 0.97480202,
        10.0: 1.0185144,
        13.7927: 1.01922636,
        20.0: 1.01855383,
    },
    "monomial(3)": {0.2: 3 / 5, 4.0: 3 / 5},
    "exp": {0.5: 0.5, 3.0: 0.5},
    "relu2": {0.7: 2 / 3},
}


@pytest.mark.parametrize("name", FIGURE_VALUES)
def test_ratio_has_the_values_of_the_figures(name):
    points, values = zip(*FIGURE_VALUES[name].items(), strict=True)
    ratio = susceptibility_ratio(name, np.array(points))
    np.testing.assert_allclose(ratio, values, atol=6e-8 if name != "softplus" else 6e-6)


@pytest.mark.parametrize(
    ("name", "minimum", "maximum"), [("swish", 0.859784, 57.3634), ("gelu", 0.317717, 13.7927)]
)
def test_ratio_turns_where_the_figure_says(name, minimum, maximum):
    for centre, sign in ((minimum, 1), (maximum, -1)):
        around = susceptibility_ratio(name, centre * np.array([0.99, 1.0, 1.01]))
        assert sign * (around[0] - around[1]) > 0
        assert sign * (around[2] - around[1]) > 0


def test_slope_of_the_ratio_at_zero():
    """R = 1 + (b₁ − 2a₁)K + O(K²): 2 for tanh."""
    step = np.array([1e-4, 2e-4])
    slopes = (susceptibility_ratio("tanh", step) - 1) / step
    assert 2 * slopes[0] - slopes[1] == pytest.approx(2.0, abs=1e-6)


def test_small_K_expansion_has_one_sigma0_sigma2():
    """g(K) = σ₀² + (σ₁² + σ₀σ₂)K + …; the book's (5.81) prints 2σ₀σ₂."""
    log2 = math.log(2)
    assert float(mean_square("softplus", 0.0, derivative=1)) == pytest.approx(
        0.25 + log2 / 4, rel=1e-13
    )
    step = 1e-6
    slope = (float(mean_square("softplus", step)) - log2**2) / step
    assert slope == pytest.approx(0.25 + log2 / 4, rel=1e-5)
    assert abs(slope - (0.25 + 2 * log2 / 4)) > 0.1


@pytest.mark.parametrize("name", ["tanh", "elu", "relu"])
def test_limits_at_zero(name):
    """g = 0, χ∥ = χ⊥ = C_W σ'(0)², j = 0 at K = 0, kinked or not."""
    C_W = 2.0 if name == "relu" else 1.0
    assert float(mean_square(name, 0.0)) == 0.0
    assert float(parallel_susceptibility(name, 0.0, C_W)) == pytest.approx(1.0, abs=1e-14)
    assert float(perpendicular_susceptibility(name, 0.0, C_W)) == pytest.approx(1.0, abs=1e-14)
    assert float(metric_source(name, 0.0, C_W)) == 0.0


def test_refusals_name_the_reason():
    with pytest.raises(InvalidValueError, match="K = -1.0: a variance must be finite and ≥ 0"):
        mean_square("tanh", -1.0)
    with pytest.raises(InvalidValueError, match="σ jumps"):
        perpendicular_susceptibility("step", 1.0, 1.0)
    with pytest.raises(NonFiniteError, match="of elu leaves float64 at K = 0: take K > 0"):
        mean_square("elu", 0.0, derivative=2)
    with pytest.raises(InvalidValueError, match="of elu need not exist at 0"):
        perpendicular_source("elu", 0.0, 1.0)
    with pytest.raises(InvalidValueError, match="derivative = 5"):
        mean_square("tanh", 1.0, derivative=5)
    with pytest.raises(NonFiniteError, match="leaves float64 at K = 1000"):
        mean_square("exp", 1e3)
    with pytest.raises(NonFiniteError, match="χ∥ is zero"):
        susceptibility_ratio(lambda z: 0.0 * z + 1.0, 1.0)
