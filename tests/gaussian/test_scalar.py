"""One-variable Gaussian averages against 30-digit tables, closed forms and identities."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc, ndtr

from dynagram.activations import activation
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._scalar import hermite_polynomial, kernel_derivative, moment

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "criticality.json").read_text())
VARIANCES = np.array([0.5, 1.0, 2.0])

# Each column of the table in the form the library computes it; h, j per C_W as in book §5.
COLUMNS = {
    "g": lambda sigma, K: moment(sigma, K, (0, 0)),
    "slope_squared": lambda sigma, K: moment(sigma, K, (1, 1)),
    "g_prime": lambda sigma, K: kernel_derivative(sigma, K, 1),
    "h": lambda sigma, K: moment(sigma, K, (1, 1), hermite=2) / (4 * K),
    "j": lambda sigma, K: 4 * K**2 * kernel_derivative(sigma, K, 2),
    "fourth": lambda sigma, K: moment(sigma, K, (0, 0, 0, 0)),
    "mixed": lambda sigma, K: moment(sigma, K, (0, 0, 1, 1)),
    "slope_fourth": lambda sigma, K: moment(sigma, K, (1, 1, 1, 1)),
    "curvature": lambda sigma, K: moment(sigma, K, (0, 2)),
}


@pytest.mark.parametrize("name", GOLDEN["averages"])
def test_the_golden_table(name):
    sigma, rows = activation(name), GOLDEN["averages"][name]
    assert set(rows) == {f"{K:g}" for K in VARIANCES}
    scale = 1e-3 * np.array([rows[f"{K:g}"]["g"] for K in VARIANCES])
    for column, compute in COLUMNS.items():
        expected = np.array([rows[f"{K:g}"][column] for K in VARIANCES])
        error = np.abs(compute(sigma, VARIANCES) - expected) / np.maximum(np.abs(expected), scale)
        assert np.all(error < 1e-11), (column, error)


# --- closed forms over many orders of magnitude of K ------------------------------------------

WIDE = np.logspace(-8, 4, 25)
CLOSED_FORMS = {
    "sin": lambda K: -0.5 * np.expm1(-2 * K),
    "cos": lambda K: 0.5 * (1 + np.exp(-2 * K)),
    "erf": lambda K: 2 / math.pi * np.arcsin(2 * K / (1 + 2 * K)),
    "relu": lambda K: K / 2,
    "leaky_relu(0.3)": lambda K: 1.09 * K / 2,
    "relu2": lambda K: 1.5 * K**2,
    "monomial(6)": lambda K: 10395.0 * K**6,
    "step": lambda K: np.full_like(K, 0.5),
    # ∫ of min(z², 1): inside |z| < 1 the truncated second moment, outside the two tails.
    "hardtanh": lambda K: (
        K * (1 - erfc(1 / np.sqrt(2 * K)))
        - np.sqrt(2 * K / math.pi) * np.exp(-1 / (2 * K))
        + erfc(1 / np.sqrt(2 * K))
    ),
    "gelu": lambda K: (
        K * (0.25 + (np.arcsin(K / (1 + K)) + 2 * K / ((1 + K) * np.sqrt(1 + 2 * K))) / 2 / math.pi)
    ),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms_from_tiny_to_large_variance(name):
    expected = CLOSED_FORMS[name](WIDE)
    # The closed form of hardtanh cancels to rounding of its terms at large K.
    rtol = 1e-11 if name == "hardtanh" else 1e-12
    np.testing.assert_allclose(moment(activation(name), WIDE, (0, 0)), expected, rtol=rtol)


def test_exponential_growth():
    K = np.array([1e-6, 0.1, 1.0, 10.0, 30.0])
    np.testing.assert_allclose(moment(activation("exp"), K, (0, 1, 2)), np.exp(4.5 * K), rtol=1e-12)
    np.testing.assert_allclose(moment(activation("exp"), K, (0,)), np.exp(0.5 * K), rtol=1e-12)
    expected = 0.5 * np.expm1(2 * K)
    np.testing.assert_allclose(moment(activation("sinh"), K, (0, 0)), expected, rtol=1e-12)


def test_a_callable_with_two_kinks_off_the_origin():
    sigma = activation(lambda z: jnp.clip(z, 0.0, 6.0))
    K = np.array([0.5, 4.0, 100.0])
    root = np.sqrt(K)
    inside = ndtr(6 / root) - 0.5
    density = np.exp(-18 / K) / np.sqrt(2 * math.pi * K)
    square = K * (inside - 6 * density) + 36 * ndtr(-6 / root)
    np.testing.assert_allclose(moment(sigma, K, (0, 0)), square, rtol=1e-11)
    np.testing.assert_allclose(moment(sigma, K, (1, 1)), inside, rtol=1e-12)
    np.testing.assert_allclose(moment(sigma, K, (0, 2)), -6 * density, rtol=1e-11)
    np.testing.assert_allclose(kernel_derivative(sigma, K, 1), inside - 6 * density, rtol=1e-10)


# --- identities -------------------------------------------------------------------------------

SLOPED = ["tanh", "gelu", "swish", "softplus", "sin", "relu", "elu", "softsign", "hardtanh"]
HOMOGENEOUS = ["relu", "leaky_relu(0.2)", "abs", "linear", "relu2", "monomial(3)", "monomial(4)"]
variances = st.floats(1e-4, 1e3)


@given(name=st.sampled_from(SLOPED), K=variances)
@settings(deadline=None, max_examples=60)
def test_the_derivative_of_g_is_slope_squared_plus_curvature(name, K):
    """g' = ⟨σ'²⟩ + ⟨σσ''⟩, deltas at kinks included, against ⟨σ² He_2⟩/2K."""
    sigma = activation(name)
    by_parts = moment(sigma, K, (1, 1)) + moment(sigma, K, (0, 2))
    on_gaussian = moment(sigma, K, (0, 0), hermite=2) / (2 * K)
    # Each form may cancel: the error is measured against the size of its terms.
    size = moment(sigma, K, (1, 1)) + moment(sigma, K, (0, 0)) / K
    assert abs(by_parts - on_gaussian) <= 1e-12 * size
    assert abs(kernel_derivative(sigma, K, 1) - by_parts) <= 1e-12 * size


@given(name=st.sampled_from(HOMOGENEOUS), K=variances, p=st.integers(0, 1), q=st.integers(0, 1))
@settings(deadline=None, max_examples=60)
def test_homogeneous_activations_scale_with_the_variance(name, K, p, q):
    sigma = activation(name)
    degree = sigma.homogeneity.degree
    expected = K ** (degree - (p + q) / 2) * moment(sigma, 1.0, (p, q))
    size = math.sqrt(moment(sigma, K, (p, p)) * moment(sigma, K, (q, q)))
    assert abs(moment(sigma, K, (p, q)) - expected) <= 1e-12 * size


@given(name=st.sampled_from(SLOPED), K=variances, m=st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_cauchy_schwarz(name, K, m):
    sigma = activation(name)
    bound = moment(sigma, K, (0, 0)) * moment(sigma, K, (1, 1))
    assert moment(sigma, K, (0, 1)) ** 2 <= bound * (1 + 1e-12)
    # ⟨σ He_m⟩² ≤ ⟨σ²⟩⟨He_m²⟩ with ⟨He_m²⟩ = m!
    projection = moment(sigma, K, (0,), hermite=m)
    assert projection**2 <= moment(sigma, K, (0, 0)) * math.factorial(m) * (1 + 1e-12)


@given(name=st.sampled_from(["tanh", "gelu", "sin", "mish"]), K=st.floats(0.05, 20.0))
@settings(deadline=None, max_examples=40)
def test_integration_by_parts(name, K):
    """⟨σ He_m⟩ = K^{m/2} ⟨σ^(m)⟩."""
    sigma = activation(name)
    size = math.sqrt(moment(sigma, K, (0, 0)))
    for m in range(5):
        by_parts = K ** (m / 2) * moment(sigma, K, (m,))
        assert abs(moment(sigma, K, (0,), hermite=m) - by_parts) <= 1e-11 * (1 + K) ** 2 * size


@pytest.mark.parametrize("name", SLOPED)
@pytest.mark.parametrize("power", [1, 2])
def test_kernel_derivatives_are_derivatives(name, power):
    """Against the derivatives of the polynomial that interpolates ⟨σ^power⟩ around K = 1.3."""
    sigma, centre = activation(name), 1.3
    interpolant = np.polynomial.Chebyshev.interpolate(
        lambda K: moment(sigma, K, (0,) * power), 22, domain=[0.6 * centre, 1.4 * centre]
    )
    for order in range(5):
        expected = interpolant.deriv(order)(centre) if order else interpolant(centre)
        value = kernel_derivative(sigma, centre, order, power=power)
        # Differentiating the interpolant loses about a digit and a half per derivative.
        assert value == pytest.approx(expected, rel=1e-12 * 30**order, abs=1e-13 * 30**order)


def test_hermite_polynomials():
    t = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(hermite_polynomial(2, t), t**2 - 1, atol=1e-14)
    np.testing.assert_allclose(hermite_polynomial(4, t), t**4 - 6 * t**2 + 3, atol=1e-13)


# --- the limit K → 0 and refusals -------------------------------------------------------------


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "gelu", "exp", "cos"])
@pytest.mark.parametrize("orders", [(0, 0), (1, 1), (0, 2), (0, 1, 1), (3,)])
def test_zero_variance_evaluates_smooth_functions_at_the_origin(name, orders):
    sigma = activation(name)
    data = sigma.taylor(3)
    expected = math.prod(float(data[p]) for p in orders)
    assert moment(sigma, 0.0, orders) == pytest.approx(expected, rel=1e-12, abs=1e-139)
    assert moment(sigma, 1e-16, orders) == pytest.approx(expected, rel=1e-7, abs=1e-15)


def test_zero_variance_averages_the_two_sides_of_a_kink():
    assert moment(activation("relu"), 0.0, (1, 1)) == pytest.approx(0.5, rel=1e-12)
    assert moment(activation("leaky_relu(0.5)"), 0.0, (1, 1)) == pytest.approx(0.625, rel=1e-12)
    assert moment(activation("elu(0.5)"), 0.0, (1,)) == pytest.approx(0.75, rel=1e-12)
    assert moment(activation("step"), 0.0, (0,)) == pytest.approx(0.5, rel=1e-12)
    assert moment(activation("relu"), 0.0, (0, 0)) == pytest.approx(0.0, abs=1e-279)


def test_zero_variance_derivatives_of_smooth_kernels():
    """g' = σ_1² + σ_0σ_2 and, for tanh, g'' = 2σ_1σ_3 at K = 0."""
    assert kernel_derivative(activation("softplus"), 0.0, 1) == pytest.approx(
        0.25 + 0.25 * math.log(2), rel=1e-12
    )
    assert kernel_derivative(activation("tanh"), 0.0, 2) == pytest.approx(-4.0, rel=1e-12)


def test_shapes_are_kept():
    K = np.linspace(0.1, 2.0, 6).reshape(1, 2, 3)
    for name in ("tanh", "relu", "hardtanh"):
        whole = moment(activation(name), K, (0, 0))
        assert whole.shape == K.shape
        single = moment(activation(name), float(K[0, 1, 1]), (0, 0))
        assert single.shape == ()
        assert whole[0, 1, 1] == pytest.approx(float(single), rel=1e-13)


@pytest.mark.parametrize("K", [-1e-9, float("nan"), float("inf"), np.array([1.0, -2.0])])
def test_a_variance_must_be_finite_and_non_negative(K):
    for compute in (moment, kernel_derivative):
        orders = (0, 0) if compute is moment else 1
        with pytest.raises(InvalidValueError, match="a variance must be finite and ≥ 0") as caught:
            compute(activation("tanh"), K, orders)  # pyright: ignore[reportArgumentType]
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "orders"),
    [("relu", (2, 2)), ("hardtanh", (2, 2)), ("step", (1, 1)), ("relu", (0, 3)), ("elu", (3, 3))],
)
def test_products_of_deltas_are_refused(name, orders):
    with pytest.raises(InvalidValueError, match="does not exist") as caught:
        moment(activation(name), 1.0, orders)
    assert "\n" not in str(caught.value)


def test_one_delta_is_evaluated_at_its_kink():
    """⟨σ'σ''⟩ of ReLU is ½δ(z): half the density at 0; of hardtanh the two kinks cancel."""
    assert moment(activation("relu"), 2.0, (1, 2)) == pytest.approx(
        0.5 / math.sqrt(4 * math.pi), rel=1e-13
    )
    assert moment(activation("hardtanh"), 2.0, (1, 2)) == pytest.approx(0.0, abs=1e-15)
    assert moment(activation("step"), 2.0, (1,)) == pytest.approx(
        1 / math.sqrt(4 * math.pi), rel=1e-13
    )


def test_what_overflows_or_diverges_is_refused():
    with pytest.raises(NonFiniteError, match="exp") as caught:
        moment(activation("exp"), 1000.0, (0, 0))  # e^2000
    assert "\n" not in str(caught.value)
    with pytest.raises(NonFiniteError):
        moment(activation("relu"), 0.0, (1, 2))  # a delta of height 1/√K
    with pytest.raises(NonFiniteError):
        moment(activation("step"), np.array([1.0, 0.0]), (1,))
    assert moment(activation("relu"), 0.0, (0, 2)) == 0.0  # but σ(0) = 0 kills it


@pytest.mark.parametrize(
    ("name", "order", "limit"),
    [("relu", 2, 0.0), ("relu2", 2, 3.0), ("tanh", 3, 34.0), ("elu", 2, -math.inf)],
)
def test_derivatives_lost_at_zero_variance_are_right_or_flagged(name, order, limit):
    """Where the form used is 0/0 at K = 0 the answer is the limit or nan, never another number."""
    value = float(kernel_derivative(activation(name), 0.0, order))
    assert math.isnan(value) or value == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize("order", [-1, 5])
def test_orders_beyond_four_are_refused(order):
    with pytest.raises(InvalidValueError, match="expected 0 to 4"):
        kernel_derivative(activation("tanh"), 1.0, order)
