"""Networks with skips wherever infinite width is enough, by dense formulas; refused elsewhere."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import multivariate_normal

from dynagram.data import Data
from dynagram.ensembles import simulate
from dynagram.ensembles._exact_posterior import exact_posterior
from dynagram.errors import InvalidValueError
from dynagram.integrations.sklearn import NetworkProcessRegressor
from dynagram.networks import MLP
from dynagram.observables.tangents import function_ntk
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._next_order import next_order
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import log_evidence
from dynagram.theory.bayes._representation import representation_shift
from dynagram.theory.criticality import gamma_ntk, to_gamma
from dynagram.theory.information import trained_information
from dynagram.theory.information._depth import skip_advice
from dynagram.theory.minimal_models._first_step import first_step
from dynagram.theory.statistics._correlators import metric_cumulants
from dynagram.theory.statistics._exact import exact_metric, log_metric
from dynagram.training import GradientDescent, GradientFlow, Posterior, Training

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1], [0.4, -1.2, 0.8]])
Y = np.array([[0.7, -0.2], [0.1, 0.9], [-0.5, 0.3]])
T = np.array([[0.2, 0.9, 0.4], [1.1, -0.3, 0.5]])
DATA = Data(X, Y, T)


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
    members = 1_500
    one, two = (
        simulate(network("tanh", n), X, ("Theta",), members=members, seed=n) for n in (16, 32)
    )
    error = np.hypot(one.error("Theta"), 2 * two.error("Theta"))[0]
    measured = Estimate(2 * two["Theta"][0] - one["Theta"][0], error, members)
    Theta = frozen_kernels(network("tanh"), X, layers="last").Theta[0]
    assert compare(Theta, measured).ok(4.0)
    assert np.max(error) < 0.03 * np.max(Theta)


def test_training(kernels):
    """Mean and covariance after any time of flow, of descent, and at the end (10.31), (10.41)."""
    net, K, Theta = kernels
    train, test = slice(0, 3), slice(3, 5)
    inverse = np.linalg.inv(Theta[train, train])
    eta = 0.5 / np.linalg.eigvalsh(Theta[train, train])[-1]
    block = Theta[train, train]
    for how, forgotten in (
        (Training(GradientFlow(), time=0.7), expm(-0.7 * block)),
        (
            Training(GradientDescent(eta), steps=4),
            np.linalg.matrix_power(np.eye(3) - eta * block, 4),
        ),
        (Training(GradientFlow()), np.zeros((3, 3))),
    ):
        now = predict_outputs(net, DATA, how, order="infinite")
        gain = Theta[test, train] @ inverse @ (np.eye(3) - forgotten)
        line = np.concatenate([-gain, np.eye(2)], axis=1)
        np.testing.assert_allclose(now.mean, gain @ Y, rtol=1e-9)
        np.testing.assert_allclose(now.kernel_infinite, line @ K @ line.T, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_one_network_by_its_own_kernel(name, getkey):
    """z + Ĥ_BA Ĥ_AA⁻¹(1 − e^{−Ĥτ})(y − z), with the NTK of the drawn network by autodiff."""
    model = network(name).init(getkey(), dtype="float64")
    net, inputs = model.network, np.concatenate([X, T])
    rates = tuple(
        type(layer)(b * jnp.ones_like(layer.b), W / n * jnp.ones_like(layer.W))
        for layer, b, W, n in zip(
            model.params, net.lambda_b, net.lambda_W, net.widths[:-1], strict=True
        )
    )
    H = np.asarray(function_ntk(net.apply, model.params, jnp.asarray(inputs), rates))
    H = H.transpose(0, 2, 1, 3).reshape(10, 10)
    z = np.asarray(model(inputs))
    for time, forgotten in ((0.4, expm(-0.4 * H[:6, :6])), (None, np.zeros((6, 6)))):
        gain = H[6:, :6] @ np.linalg.inv(H[:6, :6]) @ (np.eye(6) - forgotten)
        wanted = z[3:].ravel() - gain @ (z[:3] - Y).ravel()
        how = Training(GradientFlow(), time=time)
        found = predict_outputs(model, Data(X, Y, T), how, order="infinite")
        np.testing.assert_allclose(found.mean.ravel(), wanted, rtol=1e-8, atol=1e-10)


def test_posterior_and_evidence(kernels):
    net, K, _ = kernels
    noise = 0.2
    observed = K[:3, :3] + noise * np.eye(3)
    gain = K[3:, :3] @ np.linalg.inv(observed)
    found = predict_outputs(net, DATA, Posterior(noise), order="infinite")
    spread = found.kernel_infinite
    np.testing.assert_allclose(found.mean, gain @ Y, rtol=1e-10)
    np.testing.assert_allclose(spread, K[3:, 3:] - gain @ K[:3, 3:], rtol=1e-10)
    wanted = sum(multivariate_normal(np.zeros(3), observed).logpdf(column) for column in Y.T)
    assert found.about["log_evidence"] == pytest.approx(wanted, rel=1e-12)
    alone = log_evidence(net, DATA, Posterior(noise), order="infinite")
    assert alone.value == pytest.approx(wanted, rel=1e-12)
    left = np.linalg.slogdet(spread)[1]
    shared = 0.5 * (np.sum(np.log(np.diagonal(spread))) - left)
    information = trained_information(net, X, T, [0], [1], noise=noise)
    assert information == pytest.approx(shared, rel=1e-9)


def test_estimator():
    """The scikit-learn process with skips is the posterior of centred targets."""
    model = NetworkProcessRegressor("tanh", depth=4, C_b=0.1, C_W=1.2, noise=0.1, skip=0.7)
    mean, std = model.fit(X, Y).predict(T, return_std=True)
    net = MLP([3, 1, 1, 1, 2], "tanh", 0.1, 1.2, skip=0.7)
    centred = Data(X, Y - Y.mean(axis=0), T)
    wanted = predict_outputs(net, centred, Posterior(0.1), order="infinite")
    np.testing.assert_allclose(mean, wanted.mean + Y.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, wanted.std, rtol=1e-12)


def test_two_inputs_in_the_gamma_basis(kernels):
    net, _, _ = kernels
    frozen = frozen_kernels(net, X[:2])
    pair = gamma_ntk(net, X[:2])
    np.testing.assert_array_equal(pair.Theta, to_gamma(frozen.Theta))


def test_order_one_over_n_is_refused_where_it_holds_without_skips_only():
    net = network()
    linear = MLP([3, 5, 5, 5, 2], "linear", 0.0, 1.0, skip=0.5)
    for call in (
        lambda: predict_outputs(net, DATA, Training(GradientFlow())),
        lambda: predict_outputs(net, DATA, Training(GradientFlow(), time=1.0)),
        lambda: predict_outputs(net, DATA, Posterior()),
        lambda: log_evidence(net, DATA, Posterior()),
        lambda: representation_shift(net, DATA, Posterior()),
        lambda: exact_posterior(net, DATA, Posterior(), members=256, seed=0),
        lambda: first_step(net, DATA, eta=0.1),
        lambda: next_order(net, X[:1]),
        lambda: metric_cumulants(predict(net, X[:1]), 2),
        lambda: exact_metric(linear, X, 2),
        lambda: log_metric(linear),
        lambda: skip_advice(MLP.critical([3, 9, 9, 9, 1], "relu", skip=0.5), 1.0),
    ):
        with pytest.raises(InvalidValueError, match="for networks without skips only") as caught:
            call()
        assert "\n" not in str(caught.value)
