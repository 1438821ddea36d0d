"""Networks with skips wherever infinite width is enough, by dense formulas; refused elsewhere."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import multivariate_normal

from dynagram.ensembles._exact_posterior import exact_posterior
from dynagram.ensembles.initial._skips import measure_residual
from dynagram.errors import InvalidValueError
from dynagram.integrations.sklearn import NetworkProcessRegressor
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._next_order import next_order
from dynagram.theory._predict import predict
from dynagram.theory.bayes import finite_posterior, infinite_posterior, log_evidence
from dynagram.theory.bayes._representation import representation_shift
from dynagram.theory.criticality import gamma_ntk, to_gamma
from dynagram.theory.information import trained_information
from dynagram.theory.information._depth import skip_advice
from dynagram.theory.minimal_models._first_step import first_step
from dynagram.theory.statistics._correlators import metric_cumulants
from dynagram.theory.statistics._exact import exact_metric, log_metric
from dynagram.theory.training._finite import predict_trained
from dynagram.theory.training._in_time import predict_in_time
from dynagram.theory.training._infinite import infinite_training

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1], [0.4, -1.2, 0.8]])
Y = np.array([[0.7, -0.2], [0.1, 0.9], [-0.5, 0.3]])
T = np.array([[0.2, 0.9, 0.4], [1.1, -0.3, 0.5]])


def network(name="tanh", n=30, outputs=2):
    return MLP(
        [3, n, n, n, outputs], name, [0.1, 0.2, 0.05, 0.1], [1.2, 0.9, 1.1, 1.3],
        lambda_b=[0.5, 0.3, 0.8, 0.2], lambda_W=[0.7, 1.5, 0.4, 0.9], skip=[0.6, -0.8],
    )  # fmt: skip


@pytest.fixture(params=["tanh", "relu"])
def kernels(request):
    """The network, K and Θ of training and test inputs in blocks."""
    net = network(request.param)
    frozen = frozen_kernels(net, np.concatenate([X, T]), layers="last")
    plain = MLP(net.widths, request.param, net.C_b, net.C_W, net.lambda_b, net.lambda_W)
    without = frozen_kernels(plain, np.concatenate([X, T]), layers="last")
    assert np.max(np.abs(frozen.Theta - without.Theta)) > 0.1  # the skips count
    return net, frozen.K[0], frozen.Theta[0]


def test_mean_ntk_of_drawn_networks():
    """Θ is the mean NTK of wide networks: widths n and 2n extrapolated."""
    members, by_width = 1_500, {}
    for n in (16, 32):
        found = measure_residual(
            network("tanh", n), X, members=members, seed=n, tensors=("H",), sampler="weights"
        )
        by_width[n] = found.H
    one, two = by_width[16], by_width[32]
    error = np.hypot(one.standard_error, 2 * two.standard_error)
    measured = Estimate(2 * two.value - one.value, error, members)
    Theta = frozen_kernels(network("tanh"), X, layers="last").Theta[0]
    assert compare(Theta, measured).ok(4.0)
    assert np.max(error) < 0.03 * np.max(Theta)


def test_training(kernels):
    """Mean and covariance after any time of flow, of descent, and at the end (10.31), (10.41)."""
    net, K, Theta = kernels
    train, test = slice(0, 3), slice(3, 5)
    inverse = np.linalg.inv(Theta[train, train])
    flow = infinite_training(net, X, Y, T, algorithm="flow")
    eta = 0.5 / np.linalg.eigvalsh(Theta[train, train])[-1]
    steps = infinite_training(net, X, Y, T, algorithm="gd", eta=eta)
    for now, forgotten in (
        (flow.at(time=0.7), expm(-0.7 * Theta[train, train])),
        (steps.at(steps=4), np.linalg.matrix_power(np.eye(3) - eta * Theta[train, train], 4)),
        (flow.at(), np.zeros((3, 3))),
    ):
        gain = Theta[test, train] @ inverse @ (np.eye(3) - forgotten)
        line = np.concatenate([-gain, np.eye(2)], axis=1)
        np.testing.assert_allclose(now.mean, gain @ Y, rtol=1e-9)
        np.testing.assert_allclose(now.covariance, line @ K @ line.T, rtol=1e-8, atol=1e-12)


def test_posterior_and_evidence(kernels):
    net, K, _ = kernels
    noise = 0.2
    observed = K[:3, :3] + noise * np.eye(3)
    gain = K[3:, :3] @ np.linalg.inv(observed)
    found = infinite_posterior(net, X, Y, T, noise=noise)
    np.testing.assert_allclose(found.mean, gain @ Y, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, K[3:, 3:] - gain @ K[:3, 3:], rtol=1e-10)
    wanted = sum(multivariate_normal(np.zeros(3), observed).logpdf(column) for column in Y.T)
    assert found.log_evidence == pytest.approx(wanted, rel=1e-12)
    assert log_evidence(net, X, Y, order="∞", noise=noise).value == pytest.approx(wanted, rel=1e-12)
    left = np.linalg.slogdet(found.covariance)[1]
    shared = 0.5 * (np.sum(np.log(np.diagonal(found.covariance))) - left)
    information = trained_information(net, X, T, [0], [1], noise=noise)
    assert information == pytest.approx(shared, rel=1e-9)


def test_estimator():
    """The scikit-learn process with skips is the posterior of centred targets."""
    model = NetworkProcessRegressor("tanh", depth=4, C_b=0.1, C_W=1.2, noise=0.1, skip=0.7)
    mean, std = model.fit(X, Y).predict(T, return_std=True)
    net = MLP([3, 1, 1, 1, 2], "tanh", 0.1, 1.2, skip=0.7)
    wanted = infinite_posterior(net, X, Y - Y.mean(axis=0), T, noise=0.1)
    np.testing.assert_allclose(mean, wanted.mean + Y.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std[:, 0], wanted.std.reshape(2, -1)[:, 0], rtol=1e-12)


def test_two_inputs_in_the_gamma_basis(kernels):
    net, _, _ = kernels
    frozen = frozen_kernels(net, X[:2])
    pair = gamma_ntk(net, X[:2])
    np.testing.assert_array_equal(pair.Theta, to_gamma(frozen.Theta))


def test_order_one_over_n_is_refused_where_it_holds_without_skips_only():
    net = network()
    linear = MLP([3, 5, 5, 5, 2], "linear", 0.0, 1.0, skip=0.5)
    for call in (
        lambda: predict_trained(net, X, Y, T, algorithm="flow"),
        lambda: predict_in_time(net, X, Y, T, algorithm="flow", time=1.0),
        lambda: finite_posterior(net, X, Y, T),
        lambda: log_evidence(net, X, Y),
        lambda: representation_shift(net, X, Y),
        lambda: exact_posterior(net, X, Y, T, members=256, seed=0),
        lambda: first_step(net, X, Y, eta=0.1),
        lambda: next_order(net, X[:1]),
        lambda: metric_cumulants(predict(net, X[:1]), 2),
        lambda: exact_metric(linear, X, 2),
        lambda: log_metric(linear),
        lambda: skip_advice(MLP.critical([3, 9, 9, 9, 1], "relu", skip=0.5), 1.0),
    ):
        with pytest.raises(InvalidValueError, match="for networks without skips only") as caught:
            call()
        assert "\n" not in str(caught.value)
