"""Two-sample averages: one method against another, brute force, identities, singular K."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dynagram._precision import float64
from dynagram.activations import activation, registered
from dynagram.errors import InvalidValueError
from dynagram.gaussian._kernel_map import kernel_step
from dynagram.gaussian._kernel_tiles import Tiling
from dynagram.gaussian._quadrature import panel_rule
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import (
    _conditional_quadrature,
    _series,
    cross_average,
    two_point,
    two_point_matrix,
)

ALIASES = {"identity", "silu", "perceptron", "relu_squared", "square", "cube"}
NAMES = [name for name in registered() if name not in ALIASES]
SMOOTH = [name for name in NAMES if activation(name).is_smooth]
CONTINUOUS = [name for name in NAMES if name != "step"]
HALF_OF_THE_ORDERS = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3), (2, 2)]


def _one(sigma, a, b, c, p=0, q=0):
    return float(two_point(sigma, *(np.array([v]) for v in (a, b, c)), p, q)[0])


# --- every activation, every order -------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_series_and_conditional_quadrature_agree(name):
    sigma = replace(activation(name), closed_form=None)
    points = [(0.3, 1.7, -0.6), (1.0, 1.2, 0.9)]
    a, b, rho = np.array(points).T
    for p, q in HALF_OF_THE_ORDERS:
        series, converged = _series(sigma, p, sigma, q, a, b, rho)
        assert np.all(converged)
        point = points[(p + q) % 2]
        quadrature = _conditional_quadrature(sigma, p, sigma, q, *point)
        error = abs(series[points.index(point)] - quadrature)
        assert error < 1e-10 * max(abs(quadrature), 1e-3), (p, q, point)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_activations_by_brute_force(name):
    """A plain two-dimensional trapezoid rule, sharing nothing with the library but σ."""
    sigma = activation(name)
    step, reach = 0.06, 13.0
    t = np.arange(-reach, reach + step, step)
    w = step * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    a, b, rho = 0.9, 0.6, -0.45
    first = math.sqrt(a) * t[:, None] + 0 * t[None, :]
    second = math.sqrt(b) * (rho * t[:, None] + math.sqrt(1 - rho**2) * t[None, :])
    for p, q in HALF_OF_THE_ORDERS:
        direct = w @ (sigma.values(first, p) * sigma.values(second, q)) @ w
        found = _one(sigma, a, b, rho * math.sqrt(a * b), p, q)
        assert abs(found - direct) < 1e-10 * max(abs(direct), 1e-3), (p, q)


@pytest.mark.parametrize("name", ["hardtanh", "elu", "selu", "softsign", "relu2", "step"])
def test_kinked_activations_by_nested_panels(name):
    """σσ and σ'σ' by Gauss-Legendre panels cut at the kinks of both samples."""
    sigma = activation(name)
    a, b, rho = 0.9, 0.6, 0.55
    kinks = np.array([kink.location for kink in sigma.kinks])
    u, w = panel_rule(kinks / math.sqrt(a), 0.05, 12.5, 3.0)
    mean, spread = rho * math.sqrt(b) * u, math.sqrt(b * (1 - rho**2))
    v, inner = panel_rule((kinks[None, :] - mean[:, None]) / spread, 0.05, 12.5, 3.0)
    for p in (0,) if name == "step" else (0, 1):
        conditional = np.sum(inner * sigma.values(mean[:, None] + spread * v, p), axis=1)
        direct = np.sum(w * sigma.values(math.sqrt(a) * u, p) * conditional)
        found = _one(sigma, a, b, rho * math.sqrt(a * b), p, p)
        assert found == pytest.approx(direct, rel=1e-10)


def test_averages_of_two_different_functions():
    """⟨z_1³ sin z_2⟩ = (3ac − c³)e^{−b/2}, by Stein's lemma."""
    a, b, c = np.array([0.5, 2.0]), np.array([1.5, 0.3]), np.array([0.4, -0.6])
    found = cross_average(activation("cube"), activation("sin"), a, b, c)
    np.testing.assert_allclose(found, (3 * a * c - c**3) * np.exp(-b / 2), rtol=1e-11)


# --- singular covariances ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_repeated_inputs_are_one_variable_averages(name):
    sigma = activation(name)
    for K in (0.3, 1.9):
        for p, q in [(0, 0), (0, 1), (1, 1), (0, 2)]:
            if any(kink.jumps[0] for kink in sigma.kinks) and p + q:
                continue
            expected = float(moment(sigma, K, (p, q)))
            assert abs(_one(sigma, K, K, K, p, q) - expected) < 1e-9 * max(abs(expected), 1e-3)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_proportional_inputs(name):
    """z_2 = ratio·z_1: one integral, with panels at the kinks of both factors."""
    sigma, K = activation(name), 0.7
    kinks = np.array([kink.location for kink in sigma.kinks] or [0.0]) / math.sqrt(K)
    for ratio in (-1.0, 0.5, -3.0):
        t, w = panel_rule(np.concatenate([kinks, kinks / ratio]), 0.1, 16.0, 2.0)
        z = math.sqrt(K) * t
        for p, q in [(0, 0), (1, 1), (0, 1)]:
            direct = np.sum(w * sigma.values(z, p) * sigma.values(ratio * z, q))
            found = _one(sigma, K, ratio**2 * K, ratio * K, p, q)
            assert abs(found - direct) < 1e-9 * max(abs(direct), 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_zero_sample_factorises(name):
    sigma = activation(name)
    for p, q in [(0, 0), (1, 0), (0, 1), (1, 1)]:
        if any(any(kink.jumps[:q]) for kink in sigma.kinks if kink.location == 0.0):
            continue
        mean = float(moment(sigma, 1.3, (p,)))
        expected = mean * float(np.mean(sigma.one_sided(q)[:, q]))
        assert abs(_one(sigma, 1.3, 0.0, 0.0, p, q) - expected) < 1e-11 * max(abs(expected), 1e-3)
        assert abs(_one(sigma, 0.0, 1.3, 0.0, q, p) - expected) < 1e-11 * max(abs(expected), 1e-3)


def test_two_deltas_at_one_place_diverge():
    relu = activation("relu")
    assert _one(replace(relu, closed_form=None), 1.0, 1.0, 1.0, 2, 2) == math.inf
    assert _one(activation("step"), 1.0, 4.0, 2.0, 1, 1) == math.inf


@pytest.mark.parametrize("name", ["tanh", "hardtanh", "elu", "gelu", "softsign"])
@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-8])
def test_nearly_repeated_inputs(name, gap):
    """⟨σσ⟩ at ρ = 1 − gap: E over the difference, expanded; ⟨σ²⟩ − gap·K⟨σ'²⟩ to leading order."""
    sigma, K = activation(name), 1.2
    found = _one(sigma, K, K, K * (1 - gap))
    expected = float(moment(sigma, K, (0, 0))) - gap * K * float(moment(sigma, K, (1, 1)))
    # The next term is gap² for smooth σ and gap^{3/2} for a kink.
    order = 2.0 if sigma.is_smooth else 1.5
    assert abs(found - expected) < 2.0 * (gap * K) ** order + 1e-12


# --- identities, by hypothesis -----------------------------------------------------------------

variances = st.floats(0.05, 6.0)
correlations = st.floats(-0.95, 0.95)
cases = {
    "sigma": st.sampled_from(["tanh", "relu", "gelu", "elu", "softsign", "sin", "hardtanh"]),
    "a": variances,
    "b": variances,
    "rho": correlations,
}


@settings(deadline=None, max_examples=40)
@given(**cases, orders=st.sampled_from([(0, 0), (0, 1), (1, 2), (0, 3), (1, 3), (0, 4)]))
def test_exchange_of_the_samples(sigma, a, b, rho, orders):
    sigma, c = activation(sigma), rho * math.sqrt(a * b)
    p, q = orders
    left, right = _one(sigma, a, b, c, p, q), _one(sigma, b, a, c, q, p)
    assert abs(left - right) < 1e-11 * max(abs(left), 1e-2)


@settings(deadline=None, max_examples=30)
@given(**cases)
@example(sigma="relu", a=1.0, b=1.0, rho=0.0)
def test_price_theorem(sigma, a, b, rho):
    """Central differences in K_12, K_11 and K_22 of ⟨σσ⟩ are ⟨σ'σ'⟩, ½⟨σ''σ⟩ and ½⟨σσ''⟩."""
    sigma, c = activation(sigma), rho * math.sqrt(a * b)
    scale = (1 - abs(rho)) * min(a, b)
    h = 1e-3 * scale
    for shift, expected in [
        ((0, 0, h), _one(sigma, a, b, c, 1, 1)),
        ((h, 0, 0), 0.5 * _one(sigma, a, b, c, 2, 0)),
        ((0, h, 0), 0.5 * _one(sigma, a, b, c, 0, 2)),
    ]:
        plus = _one(sigma, a + shift[0], b + shift[1], c + shift[2])
        minus = _one(sigma, a - shift[0], b - shift[1], c - shift[2])
        far_plus = _one(sigma, a + 2 * shift[0], b + 2 * shift[1], c + 2 * shift[2])
        far_minus = _one(sigma, a - 2 * shift[0], b - 2 * shift[1], c - 2 * shift[2])
        slope = (8 * (plus - minus) - (far_plus - far_minus)) / (12 * h)
        assert abs(slope - expected) < 1e-8 * max(1.0, abs(expected)) + 1e-13 * abs(plus) / h


@settings(deadline=None, max_examples=30)
@given(**cases, order=st.sampled_from([0, 1]))
def test_cauchy_schwarz_and_positivity(sigma, a, b, rho, order):
    sigma, c = activation(sigma), rho * math.sqrt(a * b)
    cross = _one(sigma, a, b, c, order, order)
    bound = math.sqrt(_one(sigma, a, a, a, order, order) * _one(sigma, b, b, b, order, order))
    assert abs(cross) <= bound * (1 + 1e-12)


@settings(deadline=None, max_examples=20)
@given(a=variances, b=variances, rho=correlations, parity=st.sampled_from(["tanh", "cos", "abs"]))
def test_parity(a, b, rho, parity):
    sigma, c = activation(parity), rho * math.sqrt(a * b)
    sign = -1.0 if parity == "tanh" else 1.0
    assert abs(_one(sigma, a, b, -c) - sign * _one(sigma, a, b, c)) < 1e-11


def test_bad_input_is_refused():
    tanh, one = activation("tanh"), np.ones(1)
    with pytest.raises(InvalidValueError, match="K_12 = 1.1"):
        two_point(tanh, one, one, 1.1 * one)
    with pytest.raises(InvalidValueError, match="K_12 = nan"):
        two_point(tanh, one, one, np.nan * one)
    with pytest.raises(InvalidValueError, match="≥ 0"):
        two_point(tanh, -one, one, 0 * one)
    with pytest.raises(InvalidValueError, match="derivative orders"):
        two_point(tanh, one, one, one, 9, 0)


# --- whole matrices ----------------------------------------------------------------------------


def _inputs():
    """Twenty inputs: random, one nearly repeated (ρ = 1 − 1e-6), one opposite, one zero."""
    x = np.random.default_rng(1).normal(size=(20, 8)) * math.sqrt(0.9 / 8)
    direction = np.random.default_rng(2).normal(size=8)
    direction -= direction @ x[3] / (x[3] @ x[3]) * x[3]
    x[7] = x[3] + math.sqrt(2e-6) * np.linalg.norm(x[3]) / np.linalg.norm(direction) * direction
    x[11], x[15] = -x[2], 0.0
    return x


def _itself(step):
    return step


@float64
def _kernel_step(sigma, x):
    tiling = Tiling.of(x.shape[0])
    tiles, variance = tiling.gram(x)
    step = kernel_step(sigma, tiling, variance, tiles, _itself)
    value, slope = np.empty((2, tiling.samples, tiling.samples))
    tiling.write(value, step.value, step.value_diagonal)
    tiling.write(slope, step.slope, step.slope_diagonal)
    return value, slope


def _check_kernel_step(sigma, x):
    for p, found in enumerate(_kernel_step(sigma, x)):
        expected = two_point_matrix(sigma, x @ x.T, p, p)
        # A sample meets itself: the limit of ⟨σ^(p)(z)²⟩, not of two independent zeros.
        np.fill_diagonal(expected, moment(sigma, np.sum(x * x, axis=1), (p, p)))
        diagonal = np.diagonal(expected)
        scale = np.maximum(np.sqrt(np.outer(diagonal, diagonal)), 1e-3)
        assert np.max(np.abs(found - expected) / scale) < 1e-10


@pytest.mark.parametrize("name", CONTINUOUS)
def test_kernel_maps_are_two_point_averages(name):
    """Random inputs, two of them nearly the same (ρ = 1 − 1e-6)."""
    x = np.delete(_inputs(), [11, 15], axis=0)
    rho = x[3] @ x[7] / np.linalg.norm(x[3]) / np.linalg.norm(x[7])
    assert 0.5e-6 < 1 - rho < 2e-6
    _check_kernel_step(activation(name), x)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_kernel_maps_of_opposite_and_repeated_inputs(name):
    _check_kernel_step(activation(name), _inputs()[[1, 2, 11, 4, 4, 9]])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_kernel_maps_of_a_zero_input(name):
    _check_kernel_step(activation(name), _inputs()[[1, 2, 15, 4]])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_kernel_maps_of_small_inputs(name):
    x = _inputs()[[1, 2, 4]]
    x[1] *= 1e-8
    _check_kernel_step(activation(name), x)
