"""Evidence and posterior at infinite width: closed forms of one and two inputs, block inverses."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import (
    compare_hypotheses,
    log_bayes_factor,
    log_evidence,
    log_predictive_density,
)
from dynagram.theory.bayes._conditioning import condition, kernel_log_evidence, residual
from dynagram.theory.bayes._solve import training_kernel
from dynagram.training import GradientFlow, Posterior, Training

EXACT = Posterior()
X = np.array([[1.0, 0.4], [-0.3, 0.9], [0.7, 0.8], [-1.1, 0.2]])
Y = np.array([[1.0, 0.3], [-0.6, 1.2]])


def posterior(network, x, y, test_x, *, noise=0.0, jitter=0.0):
    how = Posterior(noise, jitter)
    return predict_outputs(network, Data(x, y, test_x), how, order="infinite")


def random_kernel(samples, seed):
    factor = np.random.default_rng(seed).normal(size=(samples, samples + 2))
    return factor @ factor.T / samples


def test_hypotheses_are_weighed_by_their_evidence():
    """(6.29)-(6.31): p(H|y) ∝ p(y|H), and ratios are Bayes factors."""
    networks = [MLP([2, *[30] * n, 2], "relu", C_b=0.1, C_W=2.0) for n in (1, 2, 5)]
    data = Data(X[:2], Y)
    found = compare_hypotheses(networks, data, EXACT, order="infinite")
    densities = np.exp([log_evidence(n, data, EXACT, order="infinite").value for n in networks])
    np.testing.assert_allclose(found.probabilities, densities / densities.sum(), rtol=1e-12)
    factor = log_bayes_factor(networks[0], networks[2], data, EXACT, order="infinite")
    assert found.log_bayes_factors[0] - found.log_bayes_factors[2] == pytest.approx(factor)
    with pytest.raises(InvalidValueError, match="at least one"):
        compare_hypotheses([], data, EXACT)


def test_posterior_from_the_inverse_of_the_whole_kernel():
    """(6.53)-(6.58): the B block of K⁻¹ is the inverse of the posterior covariance."""
    K, y = random_kernel(5, 0), np.random.default_rng(1).normal(size=(3, 2))
    kernel = training_kernel(K[:3, :3], EXACT)
    found = condition(kernel, K, y)
    whole = np.linalg.inv(K)
    np.testing.assert_allclose(found.covariance[3:, 3:], np.linalg.inv(whole[3:, 3:]), rtol=1e-10)
    mean = -np.linalg.solve(whole[3:, 3:], whole[3:, :3] @ y)
    np.testing.assert_allclose(found.mean[3:], mean, rtol=1e-10)
    density = sum(multivariate_normal(np.zeros(3), K[:3, :3]).logpdf(column) for column in y.T)
    np.testing.assert_allclose(kernel_log_evidence(kernel, y), density, rtol=1e-12)


def test_training_samples_with_noise():
    """What is written out on training samples is the formula for all of them."""
    K, y = random_kernel(5, 3), np.random.default_rng(4).normal(size=(3, 2))
    kernel = training_kernel(K[:3, :3], Posterior(0.2, 0.1))
    inverse = np.linalg.inv(K[:3, :3] + (0.2 + 0.1 * np.mean(np.diag(K)[:3])) * np.eye(3))
    found = condition(kernel, K, y)
    np.testing.assert_allclose(found.mean, K[:, :3] @ inverse @ y, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, K - K[:, :3] @ inverse @ K[:3], rtol=1e-9)
    P = np.eye(5)
    P[:, :3] -= K[:, :3] @ inverse
    np.testing.assert_allclose(residual(kernel, K), P, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("equal_norms", [True, False])
def test_two_inputs_in_the_gamma_basis(equal_norms):
    """(6.45) and (6.48)."""
    K_0, K_1, K_2 = 0.7, 0.0 if equal_norms else 0.25, 0.2
    K = np.array([[K_0 + K_1 + K_2, K_0 - K_2], [K_0 - K_2, K_0 - K_1 + K_2]])
    (p, m), n_L = Y, 2
    Y_0, Y_2 = np.sum(((p + m) / 2) ** 2), np.sum(((p - m) / 2) ** 2)
    Y_1 = 0.5 * (np.sum(p**2) - np.sum(m**2))
    determinant = 4 * K_0 * K_2 - K_1**2
    exponent = (4 * K_0 * Y_2 + 4 * K_2 * Y_0 - 2 * K_1 * Y_1) / (2 * determinant)
    expected = -0.5 * n_L * np.log(4 * np.pi**2 * determinant) - exponent
    if equal_norms:
        separate = -0.5 * n_L * np.log(16 * np.pi**2 * K_0 * K_2) - Y_0 / 2 / K_0 - Y_2 / 2 / K_2
        np.testing.assert_allclose(expected, separate, rtol=1e-12)
    np.testing.assert_allclose(
        kernel_log_evidence(training_kernel(K, EXACT), Y), expected, rtol=1e-12
    )


@pytest.mark.parametrize(("depth", "expected"), [(2, 1.732051), (10, 1.943283)])
def test_relu_prefers_criticality_as_it_gets_deep(depth, expected):
    """C_W* = 2 (Y/(2 r n_L))^{1/L} → 2; Y = 3, n_L = 2, r = 1."""
    x, y = np.ones((1, 4)), np.array([[1.0, np.sqrt(2.0)]])

    def loss(C_W):
        network = MLP([4, *[1] * (depth - 1), 2], "relu", 0.0, C_W)
        return -log_evidence(network, Data(x, y), EXACT, order="infinite").value

    best = minimize_scalar(loss, bounds=(1.4, 2.4), method="bounded", options={"xatol": 1e-7})
    assert best.x == pytest.approx(expected, abs=2e-6)
    assert -best.fun == pytest.approx(-(1 + np.log(2 * np.pi * 1.5)), abs=1e-9)


@pytest.mark.parametrize(("depth", "C_W", "digits"), [(2, 1.942489, 2e-6), (10, 2.535306, 2e-6)])
def test_tanh_prefers_the_fixed_point_that_fits_the_targets(depth, C_W, digits):
    x, y = np.ones((1, 3)), np.array([[1.0]])

    def loss(value):
        network = MLP([3, *[1] * (depth - 1), 1], "tanh", 0.0, value)
        return -log_evidence(network, Data(x, y), EXACT, order="infinite").value

    best = minimize_scalar(loss, bounds=(1.0, 3.5), method="bounded", options={"xatol": 1e-8})
    assert best.x == pytest.approx(C_W, abs=digits)
    critical = MLP([3, *[1] * 9, 1], "tanh", 0.0, 1.0)
    assert log_evidence(critical, Data(x, y), EXACT, order="infinite").value == pytest.approx(
        -8.11, abs=5e-3
    )


def test_bayes_factor_and_predictive_density_by_hand():
    """One hidden ReLU layer against six, from the arc-cosine kernel written out here."""

    def relu_kernel(x, depth):
        K = 2.0 * x @ x.T / 2
        for _ in range(depth - 1):
            norm = np.sqrt(np.outer(np.diagonal(K), np.diagonal(K)))
            angle = np.arccos(np.clip(K / norm, -1, 1))
            K = norm / np.pi * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
        return K

    def density(K, y):
        return multivariate_normal(np.zeros(len(y)), K).logpdf(y)

    y, noise = np.array([1.0, -0.6]), 0.3
    nets = [MLP([2, *[9] * (depth - 1), 1], "relu", 0.0, 2.0) for depth in (2, 7)]
    by_hand = [density(relu_kernel(X[:2], depth) + noise * np.eye(2), y) for depth in (2, 7)]
    data, noisy = Data(X[:2], y, X[2:3], [0.2]), Posterior(noise)
    found = log_bayes_factor(*nets, data, noisy, order="infinite")
    assert found == pytest.approx(by_hand[0] - by_hand[1], rel=1e-10)
    K = relu_kernel(X[:3], 7) + noise * np.eye(3)
    expected = density(K, np.array([1.0, -0.6, 0.2])) - by_hand[1]
    score = log_predictive_density(nets[1], data, noisy, order="infinite")
    assert score == pytest.approx(expected, rel=1e-10)
    with pytest.raises(InvalidValueError, match="test_y"):
        log_predictive_density(nets[1], Data(X[:2], y), noisy)


def test_noise_goes_on_the_diagonal_and_not_into_the_bias():
    """Setup N of the reference, and the bias-shift recipe of the book's footnote 6 beside it."""
    network, y = MLP([2, 16, 1], "tanh", 0.3, 1.4), np.array([[1.0], [-0.6]])
    found = posterior(network, X[:2], y, X[2:3], noise=0.25)
    assert found.about["log_evidence"] == pytest.approx(-2.86901, abs=5e-6)
    assert found.mean.item() == pytest.approx(0.38416, abs=5e-6)
    assert found.covariance.item() == pytest.approx(0.17287, abs=5e-6)
    assert (found.how.noise, found.about["jitter"]) == (0.25, 0.0)
    shifted = MLP([2, 16, 1], "tanh", [0.3, 0.55], 1.4)
    wrong = posterior(shifted, X[:2], y, X[2:3])
    assert wrong.mean.item() == pytest.approx(0.537, abs=5e-4)


def test_training_inputs_are_reproduced_without_noise():
    network = MLP([2, 8, 8, 2], "gelu", 0.2, 1.7)
    found = posterior(network, X[:2], Y, np.concatenate([X[:2], X[3:]]))
    np.testing.assert_allclose(found.mean[:2], Y, rtol=1e-10)
    np.testing.assert_allclose(found.covariance[:2], 0.0, atol=1e-12)
    assert np.all(found.std[2] > 0.1)
    np.testing.assert_allclose(found.train.mean, Y, rtol=1e-12)
    np.testing.assert_array_equal(found.train.std, 0.0)


def test_jitter_is_explicit_and_reported():
    network = MLP([2, 8, 1], "tanh", 0.1, 1.0)
    x, y = X[[0, 1, 0]], [1.0, -0.6, 1.0]
    with pytest.raises(InvalidValueError, match=r"x\[2\] repeats x\[0\]: drop it"):
        posterior(network, x, y, X[3:])
    found = posterior(network, x, y, X[3:], jitter=1e-8)
    K = frozen_kernels(network, x, layers="last").K[0]
    assert found.about["jitter"] == pytest.approx(1e-8 * np.mean(np.diagonal(K)))
    assert found.regime.verdict == "careful"
    assert "digits" in str(found.regime)
    plain = posterior(network, x[:2], y[:2], X[3:])
    assert plain.regime.verdict == "trust"
    np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-6)
    with pytest.raises(InvalidValueError, match="with other targets"):
        posterior(network, x, [1.0, -0.6, 2.0], X[3:])
    noisy = posterior(network, x, [1.0, -0.6, 2.0], X[3:], noise=0.1)
    assert np.all(np.isfinite(noisy.mean))


def test_collinear_inputs_of_a_linear_network_are_refused_with_the_reason():
    network = MLP([2, 8, 1], "linear", 0.0, 1.0)
    with pytest.raises(InvalidValueError, match="collinear"):
        log_evidence(network, Data(X[:3], [1.0, 2.0, 3.0]), EXACT, order="infinite")


def test_bad_arguments():
    network = MLP([2, 8, 2], "tanh", 0.1, 1.0)
    with pytest.raises(InvalidValueError, match=r"shape of y = \(2, 1\): expected \(2, 2\)"):
        posterior(network, X[:2], Y[:, :1], X[2:])
    with pytest.raises(InvalidValueError, match=r"y\[0, 1\] = nan: not finite"):
        posterior(network, X[:2], [[0.0, np.nan], [1.0, 1.0]], X[2:])
    with pytest.raises(InvalidTypeError, match="array of reals"):
        posterior(network, X[:2], [["a", "b"], ["c", "d"]], X[2:])
    with pytest.raises(InvalidValueError, match="noise = -1"):
        posterior(network, X[:2], Y, X[2:], noise=-1.0)
    with pytest.raises(InvalidValueError, match="test_x"):
        posterior(network, X[:2], Y, np.ones((1, 3)))
    with pytest.raises(InvalidValueError, match="order = '2'"):
        log_evidence(network, Data(X[:2], Y), EXACT, order="2")
    with pytest.raises(InvalidValueError, match="kernel = 'not finite'"):
        training_kernel(np.array([[np.inf]]), EXACT)
    with pytest.raises(InvalidTypeError, match="over all initialisations"):
        predict_outputs(network.init(seed=0), Data(X[:2], Y), EXACT)


def test_only_the_last_layer_trained_is_the_posterior():
    """(10.46)-(10.49): with λ = C of the last layer, training ends where inference does."""
    network = MLP([2, 8, 2], "tanh", 0.1, 1.3, lambda_b=(0.0, 0.1), lambda_W=(0.0, 1.3))
    data = Data(X[:2], Y, X[2:])
    trained = predict_outputs(network, data, Training(GradientFlow()), order="infinite")
    inferred = predict_outputs(network, data, EXACT, order="infinite")
    np.testing.assert_allclose(trained.mean, inferred.mean, rtol=1e-9)
    np.testing.assert_allclose(trained.covariance, inferred.covariance, rtol=1e-9, atol=1e-13)
