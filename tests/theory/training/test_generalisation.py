"""Bias and variance, robustness and interpolation against direct computation."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import (
    expected_cross_entropy,
    expected_loss,
    interpolate,
    robustness,
    split_loss,
)
from dynagram.training import GradientFlow, Training

FLOW = Training(GradientFlow())
NET = MLP([3, 200, 2], "tanh", C_b=0.1, C_W=1.3)
X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
T = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
T_Y = np.array([[0.3, 0.2], [-0.1, 0.6]])


def test_expected_loss_is_that_of_the_gaussian_it_describes():
    found = predict_outputs(NET, Data(X, Y, T), FLOW)
    losses = expected_loss(found, T_Y)
    limit = predict_outputs(NET, Data(X, Y, T), FLOW, order="infinite")
    alone = expected_loss(limit, T_Y)
    assert list(alone) == ["∞"]
    assert alone["∞"].total == pytest.approx(losses["∞"].total, rel=1e-12)
    plain = 0.5 * np.sum((limit.mean - T_Y) ** 2) + np.trace(limit.kernel_infinite)  # two outputs
    assert alone["∞"].total == pytest.approx(plain, rel=1e-12)
    # At this width the second-order terms in 1/n are what is left.
    exact = 0.5 * np.sum((found.mean - T_Y) ** 2 + np.einsum("titi->ti", found.covariance))
    left = 0.5 * np.sum((found.mean_correction / 200) ** 2)
    assert losses["1/n"].total + left == pytest.approx(exact, rel=1e-12)
    assert losses["1/n"].total != pytest.approx(losses["∞"].total, rel=1e-4)


def test_expected_cross_entropy_against_sampling():
    mean, p = np.array([[0.4, -0.2, 0.1]]), np.array([[0.7, 0.2, 0.1]])
    variance = 0.01
    z = mean + np.sqrt(variance) * np.random.default_rng(0).normal(size=(200_000, 3))
    loss = np.log(np.sum(np.exp(z), axis=1)) - z @ p[0]
    base = expected_cross_entropy(mean, np.zeros((1, 1)), p)
    found = expected_cross_entropy(mean, np.array([[variance]]), p)
    error = np.std(loss) / np.sqrt(loss.size)
    assert abs(found - np.mean(loss)) < 4 * error
    assert found - base > 10 * error  # the second-order term is seen


def test_cross_entropy_of_correlated_outputs():
    """Against sampling, with a covariance that ties outputs; other shapes are refused."""
    mean, p = np.array([[0.4, -0.2], [0.1, 0.3]]), np.array([[0.7, 0.3], [0.0, 1.0]])
    root = 0.15 * np.random.default_rng(1).normal(size=(4, 4))
    z = mean + (np.random.default_rng(0).normal(size=(200_000, 4)) @ root.T).reshape(-1, 2, 2)
    loss = np.sum(np.log(np.sum(np.exp(z), axis=2)) - np.sum(z * p, axis=2), axis=1)
    covariance = (root @ root.T).reshape(2, 2, 2, 2)
    found = expected_cross_entropy(mean, covariance, p)
    base = expected_cross_entropy(mean, np.zeros((2, 2)), p)
    error = np.std(loss) / np.sqrt(loss.size)
    assert abs(found - np.mean(loss)) < 4 * error
    assert found - base > 10 * error
    alone = split_loss("cross-entropy", mean, covariance, p)  # the mean over samples
    assert 2 * alone.total == pytest.approx(found, rel=1e-12)
    for wrong in (np.zeros((2, 2, 2)), np.zeros((4, 4)), np.zeros((2, 2, 2, 3))):
        with pytest.raises(InvalidValueError, match="shape of covariance"):
            expected_cross_entropy(mean, wrong, p)
    with pytest.raises(InvalidValueError, match="shape of targets"):
        expected_cross_entropy(mean, covariance, p[:1])


def test_split_loss_of_a_squared_error_is_expected_loss():
    found = predict_outputs(NET, Data(X, Y, T), FLOW, order="infinite")
    whole = expected_loss(found, T_Y)["∞"]
    for covariance in (found.kernel_infinite, found.covariance_infinite):
        split = split_loss("half-sum", found.mean, covariance, T_Y)
        assert split.bias == pytest.approx(whole.bias, rel=1e-12)
        assert split.variance == pytest.approx(whole.variance, rel=1e-9)


def test_robustness():
    """(10.57), (10.63), and their expansions for near inputs of equal norm (10.62)."""
    angle = 0.05
    plus, minus = (np.array([np.cos(s * angle), np.sin(s * angle), 0.0]) for s in (1, -1))
    found = robustness(NET, plus, minus)
    kernels = frozen_kernels(NET, np.stack([plus, minus, (plus + minus) / 2]))
    Theta, K = kernels.Theta[-1], kernels.K[-1]
    assert found.response == pytest.approx(Theta[0, 1] / Theta[0, 0] - 1, rel=1e-12)
    second = lambda M: 0.25 * (M[0, 0] + M[1, 1] - 2 * M[0, 1])  # noqa: E731
    assert found.response == pytest.approx(-2 * second(Theta) / Theta[2, 2], rel=0.01)
    assert found.variance == pytest.approx(4 * second(K), rel=0.01)
    assert abs(robustness(NET, plus, plus).response) < 1e-12


def test_interpolation():
    s = np.array([-0.5, 0.0, 0.3, 0.7, 1.0, 1.5])
    angle = 0.04
    x = np.array([[np.cos(k * angle), np.sin(k * angle), 0.2] for k in (1, -1)])
    y = np.array([[1.0, 0.3], [0.96, 0.31]])  # a smooth target: it differs by O(δ)
    found = interpolate(NET, Data(x, y), s)
    line = Data(x, y, x[0] + s[:, None] * (x[1] - x[0]))
    direct = predict_outputs(NET, line, FLOW, order="infinite")
    np.testing.assert_allclose(found.mean, direct.mean, rtol=1e-12)
    np.testing.assert_allclose(found.mean[[1, 4]], y, rtol=1e-9)
    np.testing.assert_allclose(found.std[[1, 4]], 0.0, atol=1e-6)
    # The corrected (10.117); the printed factor would be four times as large.
    bend = -(s * (1 - s))[:, None] * found.curvature * (y[0] + y[1])
    bent = found.mean - found.straight
    # Terms odd under s → 1 − s are of the next order.
    np.testing.assert_allclose((bent + bent[::-1]) / 2, bend, rtol=0.02, atol=1e-9)
    # A linear network draws the straight line (10.104).
    line = MLP([3, 20, 2], "linear", C_b=0.1, C_W=1.0)
    found = interpolate(line, Data(x, y), s)
    np.testing.assert_allclose(found.mean, found.straight, rtol=1e-8)
    with pytest.raises(InvalidValueError, match="two different samples expected"):
        interpolate(line, Data(x[[0, 0]], y), s)
