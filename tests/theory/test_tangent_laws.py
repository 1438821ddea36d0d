"""Closed forms and depth laws of the tangent tensors against the recursions they summarise."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    dimensionless_ratios,
    off_critical_ntk,
    ratio_laws,
    scale_invariant_tangents,
    single_input_tangents,
    tangent_laws,
)

LETTERS = ("K", "Theta", *"VDFBA")


def bent(z):
    return jnp.tanh(z) + 0.4 * jnp.tanh(z) ** 2


def strong(z):
    return jnp.sin(z) + 0.9 * (1.0 - jnp.cos(z))


ACTIVATIONS = {"tanh": "tanh", "sin": "sin", "bent": bent, "strong": strong}


def at_depth_scaled_rates(name, depth, lambda_b, lambda_W, mean_square=1.0):
    """The recursion with the rates (9.70)."""
    sigma = ACTIVATIONS[name]
    point = critical_initialisation(sigma)
    p, layers = point.exponents.p_perpendicular, np.arange(1.0, depth + 1.0)
    return single_input_tangents(
        MLP(
            [1] * (depth + 1),
            sigma,
            C_b=0.0,
            C_W=point.C_W,
            lambda_b=lambda_b * layers**-p,
            lambda_W=lambda_W * layers ** (1.0 - p),
        ),
        mean_square,
    )


def limit(flow, law, part):
    """Measured/predicted as ℓ → ∞, by a fit of the corrections log ℓ/ℓ, 1/ℓ and the next."""
    layers = np.geomspace(400, flow.K.size, 12).astype(int)
    ell = layers.astype(float)
    log = np.log(ell)
    basis = [np.ones(12), log / ell, 1 / ell, (log / ell) ** 2, log / ell**2]
    ratios = getattr(flow, part)[layers - 1] / law(ell)
    return np.linalg.lstsq(np.stack(basis, axis=1), ratios)[0][0]


@pytest.mark.parametrize("name", ["linear", "relu", "leaky_relu(0.2)", "abs"])
def test_scale_invariant_closed_forms(name):
    C_W, layers = critical_initialisation(name).C_W, np.arange(1.0, 60.0)
    K = 0.7 * C_W
    flow = single_input_tangents(
        MLP([1] * 60, name, C_b=0.0, C_W=C_W, lambda_b=0.8, lambda_W=1.3), 0.7
    )
    exact = scale_invariant_tangents(name, layers, K=K, lambda_b=0.8, lambda_W=1.3)
    assert set(exact) == {"Theta", *"VDFBAPQ"} | (set("RSTU") if name == "linear" else set())
    for part, values in exact.items():
        np.testing.assert_allclose(getattr(flow, part), values, rtol=1e-12, err_msg=part)
    np.testing.assert_array_equal(flow.H1, 0.0)
    laws = tangent_laws(name, K=K, lambda_b=0.8, lambda_W=1.3)
    far = np.array([1e7])
    exact = scale_invariant_tangents(name, far, K=K, lambda_b=0.8, lambda_W=1.3)
    for part in set(laws) - {"K"}:
        np.testing.assert_allclose(laws[part](far), exact[part], rtol=1e-6, err_msg=part)


def test_deep_linear_at_equivalent_rates():
    """(∞.47), (∞.48) as printed, with λ̃/L."""
    depth, b, W, K = 20, 0.6, 1.1, 0.9
    flow = single_input_tangents(
        MLP([1] * (depth + 1), "linear", C_b=0.0, C_W=1.0, lambda_b=b / depth, lambda_W=W / depth),
        K,
    )
    layers = np.arange(1.0, depth + 1.0)
    common = layers**2 * (layers**2 - 1) / (12 * depth**3) * (b + W * K) * W
    np.testing.assert_allclose(flow.S, common * (b + W * K), rtol=1e-12)
    np.testing.assert_allclose(flow.T, common * W * K, rtol=1e-12)


@pytest.mark.parametrize("C_W", [0.6, 2.0, 2.0 + 1e-9, 3.1])
def test_off_critical_ntk(C_W):
    flow = single_input_tangents(
        MLP([1] * 41, "relu", C_b=0.0, C_W=C_W, lambda_b=0.3, lambda_W=1.7), 0.4
    )
    law = off_critical_ntk(
        "relu", np.arange(1.0, 41.0), K1=0.4 * C_W, C_W=C_W, lambda_b=0.3, lambda_W=1.7
    )
    np.testing.assert_allclose(flow.Theta, law, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "coefficients", "at_100", "at_10000"),
    [
        ("tanh", (0.5, 1.55, 0.166667, -0.088889, 0.19375, 0.800833, 0.094815),
         (1.0241, 1.0028, 1.0196, 0.9885, 0.9940, 0.9850, 0.9396),
         (1.0004, 0.9996, 1.0004, 0.9987, 0.9994, 0.9985, 0.9965)),
        ("sin", (1.0, 2.3, 0.666667, -0.177778, 0.575, 1.763333, 0.094815),
         (0.9843, 1.0135, 0.9621, 1.0229, 0.9897, 1.0333, 1.0766),
         (0.9997, 1.0005, 0.9995, 1.0018, 1.0004, 1.0015, 1.0045)),
        ("bent", (0.657895, 1.786842, 0.288550, -0.089461, 0.286353, 1.064268, 0.055472),
         None, (1.0001, 0.9998, 1.0005, 0.9983, 0.9999, 0.9994, 1.0015)),
    ],
)  # fmt: skip
def test_vanishing_kernel_laws(name, coefficients, at_100, at_10000):
    """Coefficients, how the recursion tends to them, and the exponents it shows by itself."""
    flow = at_depth_scaled_rates(name, 10_000, 0.8, 1.5)
    laws = tangent_laws(ACTIVATIONS[name], lambda_b=0.8, lambda_W=1.5)
    assert [laws[k].coefficient for k in LETTERS] == pytest.approx(coefficients, abs=6e-7)
    for layer, wanted in ((100, at_100), (10_000, at_10000)):
        if wanted is not None:
            got = [
                getattr(flow, k)[layer - 1] / laws[k](np.array([float(layer)]))[0] for k in LETTERS
            ]
            assert got == pytest.approx(wanted, abs=6e-5)
    slopes = {}
    for part in (*LETTERS, *"PQRSTU"):
        tensor = getattr(flow, part)
        slopes[part] = -np.log10(tensor[9_999] / tensor[999])
        assert slopes[part] == pytest.approx(laws[part].exponent, abs=0.013), part
    for part, (i, j) in {"V": (2, 0), "A": (0, 2), "B": (0, 2), "D": (1, 1), "F": (1, 1)}.items():
        combination = slopes[part] - i * slopes["K"] - j * slopes["Theta"]
        assert combination == pytest.approx(-1.0, abs=0.011)


@pytest.mark.parametrize(
    ("name", "rates", "P", "Q"),
    [
        ("tanh", (0.5, 1.0), -0.083321, -0.031238),
        pytest.param("tanh", (1.0, 0.0), -0.083283, -0.062471, marks=pytest.mark.slow),
        pytest.param("sin", (0.5, 1.0), -0.083378, -0.020853, marks=pytest.mark.slow),
    ],
)
def test_dntk_ratios(name, rates, P, Q):
    """P/Θ² and Q/Θ² per layer at ℓ = 3·10⁴, and their limits (11.100), (11.102)."""
    depth = 30_000
    ratios = dimensionless_ratios(at_depth_scaled_rates(name, depth, *rates, mean_square=0.5))
    assert ratios["P"][-1] / depth == pytest.approx(P, abs=6e-7)
    assert ratios["Q"][-1] / depth == pytest.approx(Q, abs=6e-7)
    laws = ratio_laws(tangent_laws(ACTIVATIONS[name], lambda_b=rates[0], lambda_W=rates[1]))
    assert laws["P"].exponent == laws["Q"].exponent == pytest.approx(-1.0, abs=1e-15)
    assert laws["P"].coefficient == pytest.approx(P, rel=1e-3)
    assert laws["Q"].coefficient == pytest.approx(Q, rel=1.5e-3)


@pytest.mark.parametrize(
    ("name", "rates"),
    [("tanh", (1.0, 1.0)), ("sin", (0.5, 2.0)), ("bent", (0.8, 1.5)), ("strong", (0.8, 1.5))],
)
def test_ddntk_laws(name, rates):
    """(∞.30)-(∞.33), and for σ''(0) ≠ 0 their extension: R, S, T as ℓ^{5−3p}, U as ℓ^{4−3p}."""
    flow = at_depth_scaled_rates(name, 8000, *rates)
    laws = tangent_laws(ACTIVATIONS[name], lambda_b=rates[0], lambda_W=rates[1])
    for part in (*LETTERS, *"PQRSTU"):
        assert limit(flow, laws[part], part) == pytest.approx(1.0, abs=5e-4), part
    assert ("beyond the book" in laws["U"].equation) == (name in ("bent", "strong"))


def test_ddntk_ratios_of_tanh():
    ratios = ratio_laws(tangent_laws("tanh", lambda_b=1.0, lambda_W=1.0))
    got = [ratios[k].coefficient for k in "RSTU"]
    assert got == pytest.approx((-0.069444, 0.027778, 0.013889, 0.5), abs=6e-7)
    assert [ratios[k].exponent for k in "RSTU"] == [-1.0, -1.0, -1.0, 1.0]


def test_scale_invariant_ratios():
    """ReLU with λ_b = w: 11/12, 2/3, 7/4, 1; Q/Θ² at λ_b = 0: A₄/(6A₂²)."""
    ratios = ratio_laws(tangent_laws("relu", K=2.0, lambda_b=1.9, lambda_W=1.9))
    got = [ratios[k].coefficient for k in "ABDFV"]
    assert got == pytest.approx([11 / 12, 2 / 3, 7 / 4, 1.0, 5.0], rel=1e-14)
    for name, wanted in (("relu", 1 / 3), ("leaky_relu(0.2)", 0.308679), ("linear", 1 / 6)):
        ratio = ratio_laws(tangent_laws(name, K=0.4, lambda_b=0.0, lambda_W=2.0))["Q"]
        assert ratio.coefficient == pytest.approx(wanted, abs=6e-7)
        assert ratio.exponent == -1.0


def test_refusals():
    with pytest.raises(InvalidValueError, match="no closed law for the class 'half-stable'"):
        tangent_laws("gelu")
    with pytest.raises(InvalidValueError, match="no closed law for the class 'K\\*=0 kinked'"):
        tangent_laws("elu")
    with pytest.raises(InvalidValueError, match="no critical initialisation"):
        tangent_laws("sigmoid")
    with pytest.raises(InvalidValueError, match="keeps its K: give it"):
        tangent_laws("relu")
    with pytest.raises(InvalidValueError, match="forgets the input"):
        tangent_laws("tanh", K=1.0)
    with pytest.raises(InvalidValueError, match="expected a scale-invariant activation"):
        off_critical_ntk("tanh", np.ones(1), K1=1.0, C_W=1.0)
    flow = single_input_tangents(MLP([1] * 4, "tanh", C_b=0.0, C_W=1.0), 0.0)
    with pytest.raises(InvalidValueError, match="both > 0 in every layer"):
        dimensionless_ratios(flow)
