"""Two-input components of the NTK: γ algebra, small separations, finite angles, their laws."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.gaussian._two_point import two_point_matrix
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.criticality import (
    angle_ntk,
    critical_initialisation,
    depth_scaled_rates,
    from_gamma,
    gamma_ntk,
    single_input_tangents,
    small_separation_ntk,
    to_gamma,
)

HYPER = {
    "C_b": (0.1, 0.2, 0.05, 0.1, 0.0, 0.3),
    "C_W": (1.3, 1.5, 1.1, 1.2, 1.4, 0.9),
    "lambda_b": (0.5, 1.2, 0.3, 0.8, 0.6, 0.2),
    "lambda_W": (1.3, 0.6, 0.9, 1.1, 0.4, 0.7),
}
WIDTHS = (3, 9, 9, 9, 9, 9, 1)
X = np.array([1.0, 0.5, -0.7])
DIRECTION = np.array([0.3, -0.2, 0.5])


def hadamard(a, b):
    """(X∘Y)_[0], _[1], _[2] from the components of X and Y."""
    half = 0.5 * a[1] * b[1]
    return np.array([
        a[0] * b[0] + a[2] * b[2] + half,
        a[0] * b[1] + a[1] * b[0] + a[1] * b[2] + a[2] * b[1],
        a[0] * b[2] + a[2] * b[0] + half,
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_exact_recursion_in_the_gamma_basis(name):
    """Θ_[a]' = λ_b δ_a0 + λ_W⟨σσ⟩_[a] + C_W(⟨σ'σ'⟩∘Θ)_[a] at a finite separation."""
    network = MLP(WIDTHS, name, **HYPER)
    pair = gamma_ntk(network, np.stack([X, [-0.4, 1.1, 0.6]]))
    for i in range(network.depth - 1):
        K = from_gamma(pair.K[i])
        products = to_gamma(two_point_matrix(network.activation, K))
        slopes = to_gamma(two_point_matrix(network.activation, K, 1, 1))
        wanted = network.lambda_W[i + 1] * products
        wanted += network.C_W[i + 1] * hadamard(slopes, pair.Theta[i])
        wanted[0] += network.lambda_b[i + 1]
        np.testing.assert_allclose(pair.Theta[i + 1], wanted, rtol=1e-10)


@pytest.mark.parametrize("name", ["tanh", "gelu", "sin"])
def test_small_separations_are_second_order_accurate(name):
    """All γ components of K and Θ at unequal norms: what is left out falls fourfold per halving."""
    network = MLP(WIDTHS, name, **HYPER)
    left = []
    for size in (4e-2, 2e-2):
        step = size * DIRECTION
        exact = gamma_ntk(network, np.stack([X + step / 2, X - step / 2]))
        flow = small_separation_ntk(
            MLP([1] * 7, name, **HYPER),
            X @ X / 3,
            along=float(X @ step / 3),
            distance=float(step @ step / 3),
        )
        pairs = [
            (exact.Theta[:, 0] - flow.Theta_midpoint, flow.Theta_0),
            (exact.Theta[:, 1], flow.Theta_1),
            (exact.Theta[:, 2], flow.Theta_2),
            (exact.K[:, 0] - flow.K_midpoint, flow.K_0),
            (exact.K[:, 1], flow.K_1),
            (exact.K[:, 2], flow.K_2),
        ]
        np.testing.assert_allclose([a[0] for a, _ in pairs], [b[0] for _, b in pairs], atol=1e-15)
        left.append([abs(a[-1] / b[-1] - 1.0) for a, b in pairs])
    coarse, fine = np.array(left)
    assert np.all(fine < 6e-4)
    np.testing.assert_allclose(coarse / fine, 4.0, rtol=0.02)


def test_midpoint_is_the_single_input_ntk():
    network = MLP(WIDTHS, "gelu", **HYPER)
    flow = small_separation_ntk(MLP([1] * 7, "gelu", **HYPER), X @ X / 3)
    np.testing.assert_allclose(
        flow.Theta_midpoint, single_input_tangents(network, X @ X / 3).Theta, rtol=1e-13
    )
    for part in (flow.Theta_0, flow.Theta_1, flow.Theta_2):
        np.testing.assert_array_equal(part, 0.0)


def test_a_jump_of_curvature_is_allowed():
    """ELU: σ' is continuous, so the leading order exists; the next is of relative order δ."""
    hyper = {name: values[:3] for name, values in HYPER.items()}
    network = MLP((3, 9, 9, 1), "elu", **hyper)
    left = []
    for size in (2e-2, 1e-2):
        step = size * DIRECTION
        exact = gamma_ntk(network, np.stack([X + step / 2, X - step / 2])).Theta[-1, 2]
        flow = small_separation_ntk(
            MLP([1] * 4, "elu", **hyper),
            X @ X / 3,
            along=float(X @ step / 3),
            distance=float(step @ step / 3),
        )
        left.append(exact / flow.Theta_2[-1] - 1.0)
    assert left[0] / left[1] == pytest.approx(2.0, rel=0.02)


def bent(z):
    return jnp.tanh(z) + 0.4 * jnp.tanh(z) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "wanted"), [("tanh", 1.0010), (bent, 0.9999)])
def test_distance_law_with_depth_scaled_rates(sigma, wanted):
    """(10.77): δδΘ_[2] from the recursion over the law at ℓ = L = 20 000."""
    depth, b, W = 20_000, 0.8, 1.5
    point, rates = critical_initialisation(sigma), depth_scaled_rates(sigma, depth, b, W)
    p, a1 = point.exponents.p_perpendicular, point.constants.a1
    flow = small_separation_ntk(
        MLP(
            [1] * (depth + 1),
            sigma,
            C_b=0.0,
            C_W=point.C_W,
            lambda_b=rates.lambda_b,
            lambda_W=rates.lambda_W,
        ),
        1.0,
        distance=4.0,
    )
    X_ = b + W / point.C_W / -a1
    curvature = 4.0 * -a1 * (1.0 - p)  # (σ₂/σ₁)²
    delta = flow.K_2[-1] * depth**p
    law = (
        delta * depth ** (p - 1) / (2 - p) * (W / point.C_W + curvature * X_) * depth ** (2 - 2 * p)
    )
    assert flow.Theta_2[-1] / law == pytest.approx(wanted, abs=1.1e-3)
    robustness = 2 * delta / (p - 2) * (W / point.C_W / X_ + curvature) * depth ** (1 - p)
    assert -2 * flow.Theta_2[-1] / flow.Theta_midpoint[-1] == pytest.approx(robustness, rel=3e-3)


def test_uniform_rates_need_the_curvature_term():
    """The printed (10.80) has λ_W only; the recursion has 1 + 1/0.6 times that for tanh."""
    depth = 20_000
    flow = small_separation_ntk(
        MLP([1] * (depth + 1), "tanh", C_b=0.0, C_W=1.0, lambda_b=1.0, lambda_W=0.6),
        1.0,
        distance=4.0,
    )
    delta = flow.K_2[-1] * depth
    assert flow.Theta_2[-1] / (0.6 * delta) == pytest.approx(2.6664, abs=2e-3)


@pytest.mark.parametrize("name", ["relu", "leaky_relu(0.2)", "linear", "abs"])
def test_finite_angle(name):
    """Against the general two-input kernels off criticality, at unequal norms."""
    x = np.stack([X, [-0.4, 1.1, 0.6]])
    network = MLP(WIDTHS, name, **HYPER)
    pair = angle_ntk(MLP([1] * 7, name, **HYPER), x @ x.T / 3)
    general = frozen_kernels(network, x)
    np.testing.assert_allclose(pair.K, general.K, rtol=1e-12)
    np.testing.assert_allclose(pair.Theta[:, 0, 1], general.Theta[:, 0, 1], rtol=1e-12)
    diagonal = np.einsum("laa->la", pair.Theta)
    np.testing.assert_allclose(
        diagonal, single_input_tangents(network, np.mean(x**2, axis=1)).Theta, rtol=1e-12
    )


def test_angle_between_features_tends_to_a_quarter():
    """cos ζ → 1/4 (10.93) whatever the rates, robustness −3/4 (10.94); slowly."""
    gram = np.array([[1.0, np.cos(1.0)], [np.cos(1.0), 1.0]])
    for rates in ((1.0, 1.0), (0.2, 3.0)):
        pair = angle_ntk(
            MLP([1] * (10_000 + 1), "relu", C_b=0.0, C_W=2.0, lambda_b=rates[0], lambda_W=rates[1]),
            gram,
        )
        assert pair.cosine[[999, 9999]] == pytest.approx([0.2539, 0.25048], abs=6e-5)
        assert pair.psi[-1] * 10_000 / (3 * np.pi) == pytest.approx(1.0, abs=2e-3)


def test_deep_linear_angle():
    """(10.98), exact at every depth."""
    gram = np.array([[1.0, 0.3], [0.3, 1.0]])
    pair = angle_ntk(MLP([1] * 31, "linear", C_b=0.0, C_W=1.0, lambda_b=0.4, lambda_W=1.5), gram)
    np.testing.assert_allclose(pair.cosine, (0.4 + 1.5 * 0.3) / 1.9, rtol=1e-13)


def test_refusals():
    given = {"C_b": 0.0, "C_W": 1.0}
    with pytest.raises(InvalidValueError, match="use angle_ntk or gamma_ntk"):
        small_separation_ntk(MLP([1] * 4, "relu", **given), 1.0)
    with pytest.raises(InvalidValueError, match="expected two rows"):
        gamma_ntk(MLP((2, 3, 1), "tanh", 0.0, 1.0), np.eye(2)[:1])
    with pytest.raises(InvalidValueError, match="expected a scale-invariant activation"):
        angle_ntk(MLP([1] * 4, "tanh", **given), np.eye(2))
    with pytest.raises(InvalidValueError, match="eigenvalues of gram"):
        angle_ntk(MLP([1] * 4, "relu", **given), np.array([[1.0, 2.0], [2.0, 1.0]]))
    skips = {**given, "skip": 0.5}
    with pytest.raises(InvalidValueError, match="for networks without skips only"):
        small_separation_ntk(MLP([1] * 4, "tanh", **skips), 1.0)
    with pytest.raises(InvalidValueError, match="for networks without skips only"):
        angle_ntk(MLP([1] * 4, "relu", **skips), np.eye(2))
