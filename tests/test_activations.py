"""Activations: values, derivatives, declared against found properties, names, refusals."""

import itertools
import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.special import erf, expit, ndtr

from dynagram.activations import Activation, Homogeneity, Kink, activation, analyse, registered
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "criticality.json").read_text())

# Each registered function once more, in NumPy and SciPy.
FORMULAS = {
    "abs": np.abs,
    "arcsinh": lambda z: np.log(z + np.sqrt(z * z + 1)),
    "arctan": np.arctan,
    "cos": np.cos,
    "cube": lambda z: z * z * z,
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "erf": erf,
    "exp": np.exp,
    "expm1": lambda z: np.exp(z) - 1,
    "gelu": lambda z: z * ndtr(z),
    "gelu_tanh": lambda z: z * expit(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)),
    "hardtanh": lambda z: np.clip(z, -1, 1),
    "identity": lambda z: z,
    "leaky_relu": lambda z: np.maximum(z, 0.01 * z),
    "linear": lambda z: z,
    # tanh(log(1 + e^z)) = ((1 + e^z)² − 1)/((1 + e^z)² + 1)
    "mish": lambda z: z * ((1 + np.exp(z)) ** 2 - 1) / ((1 + np.exp(z)) ** 2 + 1),
    "monomial": lambda z: z**3,
    "perceptron": lambda z: np.heaviside(z, 0.0),
    "perturbed_identity": lambda z: z - z**3 / 60,
    "relu": lambda z: np.maximum(z, 0),
    "relu2": lambda z: np.maximum(z, 0) ** 2,
    "relu_squared": lambda z: np.maximum(z, 0) ** 2,
    "selu": lambda z: (
        1.0507009873554805 * np.where(z > 0, z, 1.6732632423543772 * (np.exp(np.minimum(z, 0)) - 1))
    ),
    "sigmoid": expit,
    "silu": lambda z: z * expit(z),
    "sin": np.sin,
    "sinh": lambda z: 0.5 * (np.exp(z) - np.exp(-z)),
    "softplus": lambda z: np.logaddexp(0, z),
    "softsign": lambda z: z / (1 + np.abs(z)),
    "square": lambda z: z * z,
    "step": lambda z: np.heaviside(z, 0.0),
    "swish": lambda z: z * expit(z),
    "tanh": np.tanh,
}
EVERY = pytest.mark.parametrize("name", registered())
GRID = np.linspace(-4.0, 4.0, 161) + 0.0123


def refusal(expected: type[DynagramError], call) -> str:
    """The message of the refusal, which must be one line."""
    with pytest.raises(expected) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def central_difference(function, z: np.ndarray, h: float = 0.01) -> np.ndarray:
    """f'(z) with an error of order h⁸."""
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    return sum(w * (function(z + k * h) - function(z - k * h)) for k, w in weights.items()) / h


# --- the registered functions -----------------------------------------------------------------


def test_every_registered_name_has_a_formula_here():
    assert sorted(FORMULAS) == registered()


@EVERY
def test_values(name):
    expected = FORMULAS[name](GRID)
    np.testing.assert_allclose(activation(name).values(GRID), expected, rtol=1e-13, atol=1e-15)


@EVERY
def test_derivatives_are_the_slopes_of_the_order_below(name):
    sigma = activation(name)
    away = np.all([np.abs(GRID - k.location) > 0.05 for k in sigma.kinks], axis=0)
    z = GRID[away] if sigma.kinks else GRID
    for order in (1, 2, 3):
        slope = central_difference(lambda t, p=order - 1: sigma.values(t, p), z)
        values = sigma.values(z, order)
        np.testing.assert_allclose(values, slope, rtol=1e-9, atol=1e-10)
        traced = jax.jit(sigma.derivative(order))(jnp.asarray(z))
        np.testing.assert_allclose(traced, values, rtol=1e-14, atol=1e-16)


@EVERY
def test_declared_properties_are_those_found_by_analysis(name):
    declared = activation(name)
    found = analyse(declared.function, "found")
    assert [kink.location for kink in found.kinks] == [kink.location for kink in declared.kinks]
    for have, want in zip(found.kinks, declared.kinks, strict=True):
        np.testing.assert_allclose(have.jumps, want.jumps, rtol=1e-9, atol=1e-9)
    assert found.parity == declared.parity
    assert found.homogeneity == declared.homogeneity
    assert found.growth == pytest.approx(declared.growth, rel=1e-6)


@EVERY
def test_finite_in_the_tails(name):
    """Out to |z| = 60 nothing overflows on the way: the result and three derivatives are finite."""
    sigma = activation(name)
    tails = np.array([-60.0, -25.0, 25.0, 60.0])
    for order in range(4):
        assert np.all(np.isfinite(sigma.values(tails, order))), order


@EVERY
def test_precision_follows_the_argument(name):
    sigma = activation(name)
    for dtype in (jnp.float32, jnp.float64):
        values = sigma(jnp.asarray(GRID, dtype).reshape(7, 23))
        assert values.dtype == dtype
        assert values.shape == (7, 23)
        tolerance = 1e-5 if dtype == jnp.float32 else 1e-13
        np.testing.assert_allclose(
            values.reshape(-1), FORMULAS[name](GRID), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", GOLDEN["taylor"])
def test_taylor_data(name):
    """σ(0), …, σ^(5)(0) against 14-digit tables."""
    expected = GOLDEN["taylor"][name]["sigma"]
    np.testing.assert_allclose(activation(name).taylor(5), expected, rtol=1e-13, atol=1e-13)


def test_one_sided_data_at_a_kink():
    np.testing.assert_array_equal(activation("relu").one_sided(2), [[0, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(
        activation("elu(0.5)").one_sided(2), [[0, 0.5, 0.5], [0, 1, 0]], atol=1e-15
    )
    np.testing.assert_array_equal(activation("step").one_sided(1), [[0, 0], [1, 0]])
    smooth = activation("hardtanh").one_sided(1)  # its kinks are elsewhere
    np.testing.assert_array_equal(smooth, [[0, 1], [0, 1]])


def test_scale_invariance_and_smoothness():
    invariant = {name for name in registered() if activation(name).is_scale_invariant}
    assert invariant == {"abs", "identity", "leaky_relu", "linear", "relu"}
    kinked = {name for name in registered() if not activation(name).is_smooth}
    assert kinked >= {"abs", "relu", "leaky_relu", "elu", "selu", "softsign", "hardtanh", "step"}
    assert kinked.isdisjoint({"tanh", "gelu", "swish", "linear", "sigmoid", "monomial"})


# --- names and parameters ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("leaky_relu(0.2)", lambda z: np.maximum(z, 0.2 * z)),
        (" leaky_relu( 2e-1 ) ", lambda z: np.maximum(z, 0.2 * z)),
        ("elu(0.5)", lambda z: np.where(z > 0, z, 0.5 * np.expm1(z))),
        ("elu()", FORMULAS["elu"]),
        ("erf(0.7071067811865476)", lambda z: 2 * ndtr(z) - 1),
        ("sigmoid(0.5)", lambda z: expit(z) - 0.5),
        ("sigmoid(0.25)", lambda z: expit(z) - 0.25),
        ("softplus(0.6931471805599453)", lambda z: np.logaddexp(0, z) - math.log(2)),
        ("monomial(4)", lambda z: z**4),
        ("perturbed_identity(0.3, -0.2)", lambda z: z + 0.15 * z**2 - z**3 / 30),
    ],
)
def test_parameters_in_the_name(name, formula):
    sigma = activation(name)
    np.testing.assert_allclose(sigma.values(GRID), formula(GRID), rtol=1e-13, atol=1e-15)
    assert not sigma.anonymous
    again = activation(sigma.name)
    np.testing.assert_array_equal(again.values(GRID), sigma.values(GRID))


def test_a_name_written_out_gives_the_same_function_back():
    for text in ("leaky_relu(0.12345678901234567)", "perturbed_identity(0.12345678901,-1e-9)"):
        sigma = activation(text)
        again = activation(sigma.name)
        np.testing.assert_array_equal(again.values(GRID), sigma.values(GRID))


def test_equal_activations_are_one_object():
    """So that specifications holding them compare equal and hit the same caches."""
    for first, second in [
        ("tanh", "tanh"),
        ("swish", "silu"),
        ("relu2", "relu_squared"),
        ("cube", "monomial(3)"),
        ("leaky_relu", "leaky_relu(0.01)"),
        ("elu", "elu(1.0)"),
        ("monomial", "monomial(3)"),
    ]:
        assert activation(first) is activation(second), (first, second)
    sigma = activation("tanh")
    assert activation(sigma) is sigma
    assert repr(sigma) == "activation('tanh')"


def test_kinks_and_homogeneity_with_parameters():
    assert activation("leaky_relu(0.2)").homogeneity == Homogeneity(1, 1.0, -0.2)
    assert activation("leaky_relu(0.25)").kinks == (Kink(0.0, (0.0, 0.75)),)
    assert activation("leaky_relu(1)").is_smooth
    assert activation("monomial(4)").homogeneity == Homogeneity(4, 1.0, 1.0)
    assert activation("sigmoid(0.5)").parity == "odd"
    assert activation("sigmoid(0.4)").parity == "none"
    assert activation("elu(0.5)").kinks == (Kink(0.0, (0.0, 0.5, -0.5, -0.5)),)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("tahn", "tanh"), ("ReLU", "relu"), ("leakyrelu", "leaky_relu"), ("sigmoyd", "sigmoid")],
)
def test_near_names_are_suggested(name, suggestion):
    says = refusal(InvalidValueError, lambda: activation(name))
    assert re.search(rf"did you mean .*\b{suggestion}\b", says)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("xyzzy", "known: abs,"),
        ("", "expected a name"),
        ("tanh(", "expected a name"),
        ("a b", "expected a name"),
        ("tanh(1)", "tanh does not take these numbers"),
        ("leaky_relu(1, 2)", "leaky_relu does not take these numbers"),
        ("leaky_relu(a)", "parameters must be numbers"),
        ("leaky_relu(1,)", "parameters must be numbers"),
        ("leaky_relu(nan)", "finite"),
        ("elu(inf)", "finite"),
        ("leaky_relu(1e308)", "parameters must lie within ±1e+06"),
        ("monomial(2.5)", "integer from 1 to 6"),
        ("monomial(7)", "integer from 1 to 6"),
        ("math:no_such", "cannot be imported"),
        ("no_such_module_at_all:f", "cannot be imported"),
        (":f", "expected package.module:function"),
        ("math:", "expected package.module:function"),
        ("..math:sin", "expected package.module:function"),
    ],
)
def test_bad_names_are_refused_in_one_line(name, says):
    assert says in refusal(InvalidValueError, lambda: activation(name))


def test_bad_orders_are_refused():
    sigma = activation("tanh")
    for order in (-1, 9):
        for method in (sigma.derivative, lambda p: sigma.values(GRID, p)):
            says = refusal(InvalidValueError, lambda p=order, m=method: m(p))
            assert "expected 0 to 8" in says


# --- users' callables -------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [3.0, 10.0, 30.0, 100.0, 300.0])
def test_a_steep_smooth_function_has_no_kinks(slope):
    sigma = activation(lambda z: jnp.tanh(slope * z))
    assert sigma.kinks == ()
    assert sigma.parity == "odd"


@pytest.mark.parametrize(
    ("function", "kinks"),
    [
        (lambda z: jnp.clip(z, 0, 6), [(0.0, (0, 1)), (6.0, (0, -1))]),
        (jax.nn.relu6, [(0.0, (0, 1)), (6.0, (0, -1))]),
        (jax.nn.hard_swish, [(-3.0, (0, -0.5, 1 / 3)), (3.0, (0, -0.5, -1 / 3))]),
        (jax.nn.celu, [(0.0, (0, 0, -1, -1))]),
        (lambda z: jnp.maximum(z - 0.33371234, 0), [(0.33371234, (0, 1))]),
        (lambda z: jnp.maximum(z, 0) ** 3, [(0.0, (0, 0, 0, 6))]),
        (lambda z: jnp.where(z > -2.5, z + 1, 0 * z), [(-2.5, (-1.5, 1))]),
        (lambda z: jnp.maximum(z - 1 / 3, 0), [(1 / 3, (0, 1))]),
        (lambda z: jnp.clip(z, 0, 30), [(0.0, (0, 1)), (30.0, (0, -1))]),
        (lambda z: jnp.maximum(jnp.abs(z), 4321.9), [(-4321.9, (0, 1)), (4321.9, (0, 1))]),
        (
            lambda z: jnp.tanh(z) + jnp.maximum(0, 1 - jnp.abs(z - 0.3) / 0.004),
            [(0.296, (0, 250)), (0.3, (0, -500)), (0.304, (0, 250))],
        ),
        (jax.nn.gelu, []),
        (jax.nn.squareplus, []),
        (lambda z: jnp.exp(-z * z), []),
    ],
)
def test_kinks_of_callables(function, kinks):
    found = activation(function).kinks
    assert len(found) == len(kinks)
    for have, (location, jumps) in zip(found, kinks, strict=True):
        assert have.location == pytest.approx(location, abs=1e-10)
        if jumps is not None:
            np.testing.assert_allclose(have.jumps, jumps, rtol=1e-9, atol=1e-9)


def test_kinks_go_on():
    found = [kink.location for kink in activation(lambda z: jnp.abs(jnp.sin(z / 6))).kinks]
    near = [z for z in found if abs(z) < 300.0]
    np.testing.assert_allclose(near, 6 * math.pi * np.arange(-15, 16), atol=1e-10)


def test_declared_kinks_are_not_searched_for():
    kinks = (Kink(1.0, (0.0, 2.0)),)
    assert analyse(lambda z: jnp.abs(z - 1.0), "v", kinks=kinks).kinks == kinks


@pytest.mark.slow
def test_parity_homogeneity_and_growth_of_callables():
    assert activation(lambda z: z / (1 + z * z)).parity == "odd"
    assert activation(lambda z: jnp.exp(-z * z)).parity == "even"
    assert activation(lambda z: z + 1e-9).parity == "none"
    assert activation(lambda z: 3 * jnp.maximum(z, 0)).homogeneity == Homogeneity(1, 3.0, 0.0)
    assert activation(lambda z: z + 0.01 * jnp.sin(z)).homogeneity is None
    assert activation(lambda z: jnp.cosh(0.5 * z)).growth == pytest.approx(0.5, rel=1e-3)
    assert activation(lambda z: z**5).growth == 0.0


@jax.custom_jvp
def _straight_through(z):
    return jnp.tanh(z)


_straight_through.defjvp(
    lambda z, dz: (jnp.tanh(z[0]), jnp.where(jnp.abs(z[0]) < 1, 1.0, 0.0) * dz[0])
)


@pytest.mark.parametrize(
    "function", [lambda z: z * jax.lax.stop_gradient(jax.nn.sigmoid(z)), _straight_through]
)
def test_derivatives_that_are_not_those_of_the_function_are_refused(function):
    """V of the first was a third too small, with an error of 1e-12: parts were integrated."""
    with pytest.raises(InvalidValueError, match="derivatives in JAX are not those of σ"):
        activation(function)


@pytest.mark.parametrize(("place", "width"), [(0.55, 0.035), (-3.21, 0.2), (9.7, 0.004)])
def test_narrow_features_decide_on_parity_and_homogeneity(place, width):
    def bump(z):
        return jnp.exp(-(((z - place) / width) ** 2))

    assert activation(lambda z: jnp.tanh(z) + bump(z)).parity == "none"
    assert activation(lambda z: jnp.cos(z) + 1e-6 * bump(z)).parity == "none"
    assert activation(lambda z: jnp.maximum(z, 0) + bump(z)).homogeneity is None


def test_slow_exponential_growth_is_growth():
    assert activation(lambda z: z * jnp.exp(0.1 * z)).growth == pytest.approx(0.1, rel=1e-2)
    assert activation(lambda z: jnp.sin(z) * z**3).growth == 0.0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda z: jnp.sqrt(81 - z * z), "σ is not a number at z = -9.05"),
        (lambda z: jnp.sqrt(jnp.abs(z - 0.1234)), "singular"),
        (lambda z: jnp.exp(z * z), "grows faster than"),
        (lambda z: 1 / (z - 0.1234), "singular"),
        (lambda z: jnp.tanh(z.astype(jnp.float32)).astype(jnp.float64), "computes in float32"),
    ],
)
def test_refusals_say_why(function, says):
    assert says in refusal(InvalidValueError, lambda: activation(function))


def test_callables_are_anonymous_and_analysed_once():
    def mine(z):
        return jnp.tanh(2 * z)

    sigma = activation(mine)
    assert sigma.anonymous
    assert "mine" in sigma.name
    assert activation(mine) is sigma


class Unhashable:
    """A callable that cannot be a dictionary key."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, z):
        return jnp.tanh(z)


def test_a_callable_object():
    class Scaled:
        def __call__(self, z):
            return 2.0 * jnp.tanh(z)

    sigma = activation(Scaled())
    np.testing.assert_allclose(sigma.values(GRID), 2 * np.tanh(GRID), rtol=1e-14)
    sigma = activation(Unhashable())
    np.testing.assert_allclose(sigma.values(GRID), np.tanh(GRID), rtol=1e-14)


COUNT = itertools.count(1)
BACKWARD = jax.custom_vjp(lambda z: jnp.maximum(z, 0.0))
BACKWARD.defvjp(lambda z: (jnp.maximum(z, 0.0), z), lambda z, g: (g * (z > 0),))


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda z: jnp.stack([z, z]), InvalidTypeError, "must map a scalar to a scalar"),
        (lambda z: (z, z), InvalidTypeError, "returned tuple"),
        (lambda z: None, InvalidTypeError, "returned NoneType"),  # noqa: ARG005
        (lambda z: z > 0, InvalidTypeError, "must return a real float, got bool"),
        (lambda z: 1j * z, InvalidTypeError, "must return a real float, got complex128"),
        (lambda z: z if z > 0 else 0.0, InvalidTypeError, "not traceable by JAX"),
        (math.tanh, InvalidTypeError, "not traceable by JAX"),
        (lambda: 1.0, InvalidTypeError, "not traceable by JAX"),
        (lambda z: sys.exit(3), InvalidTypeError, "not traceable by JAX"),  # noqa: ARG005
        (lambda z: z * np.random.rand(), InvalidValueError, "other values when called again"),  # noqa: NPY002
        (lambda z: z * next(COUNT), InvalidValueError, "it must depend on nothing but z"),
        (lambda z: z - jnp.mean(z), InvalidValueError, "is no function of one number"),
        (lambda z: z / (1e-3 + jnp.std(z)), InvalidValueError, "is no function of one number"),
        (BACKWARD, InvalidTypeError, "JAX has no derivatives of it"),
        (lambda z: jax.pure_callback(np.tanh, z, z), InvalidTypeError, "has no derivatives of it"),
        (lambda z: 1 / z, InvalidValueError, "σ is not finite at z = 0"),
        (jnp.log, InvalidValueError, "σ is not finite at z = -8"),
        (lambda z: jnp.sqrt(jnp.abs(z)), InvalidValueError, "σ' is not finite at z = 0"),
        (lambda z: jnp.exp(z * z), InvalidValueError, "Gaussian averages diverge"),
    ],
)
def test_bad_callables_are_refused_in_one_line(function, error, says):
    assert says in refusal(error, lambda: activation(function))


@pytest.mark.parametrize("value", [3, None, 2.5, ["tanh"]])
def test_what_is_neither_name_nor_callable_is_refused(value, monkeypatch):
    # The type checks of the test run would refuse it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    says = refusal(InvalidTypeError, lambda: activation(value))
    assert "expected a name or a callable" in says


# --- package.module:function ------------------------------------------------------------------


def test_import_from_the_current_directory(tmp_path, monkeypatch):
    package = tmp_path / "my_activations_for_this_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "curves.py").write_text(
        "import jax.numpy as jnp\n"
        "scale = 2.0\n"
        "def soft(z):\n    return jnp.tanh(scale * z)\n"
        "class Family:\n    @staticmethod\n    def member(z):\n        return jnp.maximum(z, 0.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    sigma = activation("my_activations_for_this_test.curves:soft")
    assert isinstance(sigma, Activation)
    assert not sigma.anonymous
    assert sigma.name == "my_activations_for_this_test.curves:soft"
    np.testing.assert_allclose(sigma.values(GRID), np.tanh(2 * GRID), rtol=1e-14)
    assert activation(sigma.name) is sigma
    member = activation("my_activations_for_this_test.curves:Family.member")
    assert member.kinks == (Kink(0.0, (0.0, 1.0)),)
    says = refusal(
        InvalidTypeError, lambda: activation("my_activations_for_this_test.curves:scale")
    )
    assert "is not callable" in says


def test_import_from_the_path():
    assert activation("jax.nn:relu").kinks == (Kink(0.0, (0.0, 1.0)),)
    says = refusal(InvalidTypeError, lambda: activation("math:tanh"))
    assert "not traceable by JAX" in says
