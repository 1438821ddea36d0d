"""Depth-scaled rates and layer shares against the reference's numbers and the NTK recursion."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    depth_scaled_rates,
    ntk_shares,
    single_input_tangents,
)


def shares_of(name, depth, lambda_b, lambda_W, mean_square=1.0):
    point = critical_initialisation(name)
    return ntk_shares(
        MLP(
            [1] * (depth + 1),
            name,
            C_b=point.C_b,
            C_W=point.C_W,
            lambda_b=lambda_b,
            lambda_W=lambda_W,
        ),
        mean_square,
    )


@pytest.mark.parametrize(
    ("depth", "scaled", "uniform", "weights"),
    [
        (10, 1.68007, 5.1675, 0.181),
        (50, 1.56732, 20.818, 0.039),
        (200, 1.54924, 80.565, 0.0095),
        (1000, 1.54788, 400.29, 0.0019),
    ],
)
def test_equivalence_principle_of_tanh(depth, scaled, uniform, weights):
    """Depth-scaled rates keep Θ near 1.55; uniform ones let it grow as λ_b L/2, biases only."""
    rates = depth_scaled_rates("tanh", depth, 0.8, 1.5)
    balanced = shares_of("tanh", depth, rates.lambda_b, rates.lambda_W)
    assert np.sum(balanced.bias + balanced.weight) == pytest.approx(scaled, abs=6e-6)
    plain = shares_of("tanh", depth, 0.8, 1.5)
    total = np.sum(plain.bias + plain.weight)
    assert total == pytest.approx(uniform, rel=2e-5)
    assert np.sum(plain.weight) / total == pytest.approx(weights, rel=0.02)


def test_shares_of_tanh_at_200_layers():
    rates = depth_scaled_rates("tanh", 200, 0.8, 1.5)
    shares = shares_of("tanh", 200, rates.lambda_b, rates.lambda_W)
    picked = [0, 99, 199]
    assert 200 * shares.bias[picked] == pytest.approx([0.5715, 0.7930, 0.8], abs=6e-5)
    assert 200 * shares.weight[picked] == pytest.approx([1.0715, 0.7614, 0.7601], abs=6e-5)


@pytest.mark.parametrize("name", ["relu", "linear", "leaky_relu(0.2)"])
def test_scale_invariant_layers_share_exactly(name):
    point = critical_initialisation(name)
    rates = depth_scaled_rates(name, 17, 0.8, 1.5)
    assert rates.equation == "(9.94)"
    shares = shares_of(name, 17, rates.lambda_b, rates.lambda_W, mean_square=0.6)
    np.testing.assert_allclose(shares.bias, 0.8 / 17, rtol=1e-14)
    A2_K = 0.6 * point.C_W / point.C_W  # A₂K* = C_W·x²/C_W
    np.testing.assert_allclose(shares.weight, 1.5 * A2_K / 17, rtol=1e-14)


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "elu"])
def test_formal_solution_is_the_recursion(name):
    """(9.28) with everything different in every layer, for two inputs."""
    network = MLP(
        (3, 7, 8, 9, 6, 2), name, (0.1, 0.0, 0.3, 0.2, 0.4), (1.1, 2.0, 0.7, 1.5, 1.3),
        (0.4, 0.0, 1.2, 0.8, 0.3), (0.9, 1.4, 0.0, 0.6, 1.7),
    )  # fmt: skip
    x = np.array([[0.5, -1.0, 0.3], [1.4, 0.2, -0.6]])
    squares = np.mean(x**2, axis=1)
    shares = ntk_shares(network, squares)
    total = np.sum(shares.bias + shares.weight, axis=0)
    np.testing.assert_allclose(total, single_input_tangents(network, squares).Theta[-1], rtol=1e-13)
    assert np.all(shares.weight[2] == 0.0)
    np.testing.assert_array_equal(shares.chain_rule[-1], 1.0)


@pytest.mark.parametrize(
    ("name", "C_b", "C_W", "wanted"),
    [("tanh", 0.0, 1.0, 0.1375), ("relu", 0.0, 2.0, 1.0), ("tanh", 0.1, 1.6, 0.3116),
     ("relu", 0.1, 1.6, 0.32768)],
)  # fmt: skip
def test_chain_rule_variance(name, C_b, C_W, wanted):
    """E Σ_j (dz^(6)_i/dz^(1)_j)² (9.93), which networks of width 64 confirmed."""
    shares = ntk_shares(MLP([1] * 7, name, C_b=C_b, C_W=C_W), 1.0)
    assert shares.chain_rule[0] == pytest.approx(wanted, abs=6e-5)


def test_rates_of_a_non_odd_activation():
    """(9.95), and all but the first layers contribute alike."""

    def sigma(z):
        return jnp.sin(z) + 0.9 * (1.0 - jnp.cos(z))

    p, depth = critical_initialisation(sigma).exponents.p_perpendicular, 400
    rates = depth_scaled_rates(sigma, depth, 0.5, 2.0)
    assert rates.equation == "(9.95)"
    layers = np.arange(1, depth + 1)
    np.testing.assert_allclose(rates.lambda_b, 0.5 * layers**-p * depth ** (p - 1), rtol=1e-13)
    np.testing.assert_allclose(rates.lambda_W, 2.0 * (depth / layers) ** (p - 1), rtol=1e-13)
    shares = shares_of(sigma, depth, rates.lambda_b, rates.lambda_W)
    for part in (shares.bias, shares.weight):
        assert np.ptp(part[100:]) < 0.03 * np.mean(part)
        assert np.max(part) < 2.5 * np.min(part)


@pytest.mark.parametrize("name", ["elu", "selu", "softsign"])
def test_rates_at_a_kink(name):
    """K ~ ℓ^{-2} and χ⊥ products ~ ℓ^2: λ_b ∝ ℓ^{-2}, λ_W constant, shares level off."""
    rates = depth_scaled_rates(name, 300)
    assert "beyond the book" in rates.equation
    shares = shares_of(name, 300, rates.lambda_b, rates.lambda_W)
    for part in (shares.bias, shares.weight):
        assert np.ptp(part[60:]) < 0.1 * np.mean(part[60:])


def test_half_stable_rates_are_exact_at_the_fixed_point():
    point = critical_initialisation("gelu")
    assert point.K_star is not None
    rates = depth_scaled_rates("gelu", 30)
    mean_square = (point.K_star - point.C_b) / point.C_W
    shares = shares_of("gelu", 30, rates.lambda_b, rates.lambda_W, mean_square)
    np.testing.assert_allclose(shares.bias, 1 / 30, rtol=1e-10)
    np.testing.assert_allclose(shares.weight, mean_square / 30, rtol=1e-10)
    assert "K^(1) = K*" in rates.note


def test_words_and_refusals():
    assert "guess" in depth_scaled_rates("hardtanh", 5).note
    with pytest.raises(InvalidValueError, match="no critical initialisation"):
        depth_scaled_rates("sigmoid", 5)
    with pytest.raises(InvalidValueError, match="depth = 0"):
        depth_scaled_rates("relu", 0)
    with pytest.raises(InvalidValueError, match="lambda_W = -1.0"):
        depth_scaled_rates("relu", 3, lambda_W=-1.0)
    with pytest.raises(InvalidValueError, match="the NTK does not exist"):
        ntk_shares(MLP([1] * 4, "step", C_b=0.0, C_W=1.0), 1.0)
