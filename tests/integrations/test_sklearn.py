"""The scikit-learn estimators: its conventions, and the same numbers as the theory behind them."""

import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError, MissingExtraError
from dynagram.integrations.sklearn import NearlyKernelRegressor, NetworkProcessRegressor
from dynagram.networks import MLP
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.minimal_models import effective_kernel, nearly_kernel_prediction
from dynagram.training import Posterior

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(12, 2)), RNG.normal(size=(5, 2))
Y = np.stack([np.sin(X[:, 0]), X[:, 0] * X[:, 1]], axis=1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    "estimator", [NearlyKernelRegressor(), NetworkProcessRegressor(depth=2)], ids=["nearly", "gp"]
)
def test_check_estimator(estimator):
    report = check_estimator(estimator, on_skip=None)
    failed = [entry["check_name"] for entry in report if entry["status"] == "failed"]
    assert not failed
    assert sum(entry["status"] == "passed" for entry in report) > 40


# --- nearly-kernel regression -----------------------------------------------------------------


def product(first, second, third):
    """φ_1ψ_0φ_2 for ψ_ij = φ_iφ_j, as a user would write it."""
    return (
        rbf_kernel(first, second, gamma=0.5)[:, :, None]
        * rbf_kernel(first, third, gamma=0.5)[:, None, :]
    )


@pytest.mark.parametrize("solution", ["gd", "flow", "span", "ridge"])
def test_nearly_kernel_is_the_theory(solution):
    everything = np.concatenate([X, NEW])
    kernel = rbf_kernel(everything, gamma=0.5)
    meta = 0.2 * product(everything, everything, everything)
    how = {"solution": solution, "eta": 0.1 if solution == "gd" else None, "regularisation": 0.0}
    expected = nearly_kernel_prediction(kernel, meta, Y, **how)
    for meta_kernel in ("product", product):
        model = NearlyKernelRegressor(gamma=0.5, meta_kernel=meta_kernel, epsilon=0.2, **how)
        found = model.fit(X, Y).predict(NEW)
        np.testing.assert_allclose(found, expected[12:], rtol=1e-6, atol=1e-8)
        learned = model.effective_kernel(everything, everything)
        dual = model.fit_.dual
        np.testing.assert_allclose(
            learned, effective_kernel(kernel, meta[:, :, :12], dual), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(model.predict(X), Y, atol=1e-8)


def test_without_meta_features_it_is_kernel_ridge():
    model = NearlyKernelRegressor(gamma=0.5, epsilon=0.0, regularisation=0.3).fit(X, Y)
    ridge = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.5).fit(X, Y)
    np.testing.assert_allclose(model.predict(NEW), ridge.predict(NEW), rtol=1e-10)
    assert model.nonlinearity_ == 0.0


def test_meta_features_help_where_the_target_is_a_square():
    """y = (w·x)² + w·x with a linear kernel: out of reach for the kernel, not for ε > 0."""
    x = RNG.normal(size=(40, 3)) * 0.3
    u = x @ np.array([1.0, -0.5, 0.8])
    y = u + 0.5 * 0.4 * u**2
    scores = [
        NearlyKernelRegressor("linear", epsilon=epsilon, regularisation=1e-6)
        .fit(x[:20], y[:20])
        .score(x[20:], y[20:])
        for epsilon in (0.0, 0.4)
    ]
    assert 1 - scores[1] < 0.2 * (1 - scores[0])


def test_grid_search_and_user_kernels():
    search = GridSearchCV(NearlyKernelRegressor(gamma=0.5), {"epsilon": [0.0, 0.2]}, cv=3)
    assert search.fit(X, Y[:, 0]).best_estimator_.predict(NEW).shape == (5,)
    own = NearlyKernelRegressor(lambda a, b: rbf_kernel(a, b, gamma=0.5)).fit(X, Y)
    named = NearlyKernelRegressor(gamma=0.5).fit(X, Y)
    np.testing.assert_allclose(own.predict(NEW), named.predict(NEW), rtol=1e-10)


def test_bad_input_to_nearly_kernel_regression():
    x, y = X[[0, 1, 2, 0]], np.array([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(InvalidValueError, match="repeated inputs with different targets"):
        NearlyKernelRegressor(solution="flow", regularisation=0.0).fit(x, y)
    same = NearlyKernelRegressor(solution="flow", regularisation=0.0).fit(x, [1.0, 2.0, 3.0, 1.0])
    assert same.fit_.minimum_norm
    with pytest.raises(InvalidValueError, match="diverges from"):
        NearlyKernelRegressor(solution="gd", eta=100.0, regularisation=0.0).fit(X, Y)
    with pytest.raises(InvalidTypeError, match="meta_kernel"):
        NearlyKernelRegressor(meta_kernel="cubic").fit(X, Y)
    with pytest.raises(InvalidTypeError, match="epsilon"):
        NearlyKernelRegressor(epsilon="a").fit(X, Y)
    with pytest.raises(InvalidValueError, match="shape of the kernel"):
        NearlyKernelRegressor(lambda a, b: a @ a.T[:, :1] + 0 * b[:1, :1]).fit(X, Y)
    with pytest.raises(NotFittedError):
        NearlyKernelRegressor().predict(X)


# --- networks as Gaussian processes -----------------------------------------------------------


def test_network_process_is_the_theory():
    network = MLP([2, 1, 1, 2], "erf", 0.2, 1.5)
    model = NetworkProcessRegressor("erf", C_b=0.2, C_W=1.5, noise=0.05).fit(X, Y)
    centre = Y.mean(axis=0)
    data = Data(X, Y - centre, NEW)
    expected = predict_outputs(network, data, Posterior(0.05), order="infinite")
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, expected.mean + centre, rtol=1e-10)
    np.testing.assert_allclose(std, expected.std, rtol=1e-10)
    evidence = expected.about["log_evidence"]
    assert model.log_marginal_likelihood() == pytest.approx(evidence, rel=1e-10)
    single = NetworkProcessRegressor("erf", C_b=0.2, C_W=1.5, noise=0.05).fit(X, Y[:, 0])
    one, covariance = single.predict(NEW, return_cov=True)
    np.testing.assert_allclose(one, mean[:, 0], rtol=1e-10)
    np.testing.assert_allclose(covariance, expected.kernel_infinite, rtol=1e-10, atol=1e-14)
    whole = model.predict(NEW, return_cov=True)[1]
    np.testing.assert_allclose(whole, expected.covariance, rtol=1e-10, atol=1e-14)


def test_finite_width_uses_the_order_one_over_n():
    x, y = X[:2], np.array([0.4, -0.2])
    model = NetworkProcessRegressor("sin", C_b=0.2, C_W=1.3, noise=0.1, width=30).fit(x, y)
    network = MLP([2, 30, 30, 1], "sin", 0.2, 1.3)
    expected = predict_outputs(network, Data(x, y - 0.1, NEW[:1]), Posterior(0.1))
    mean, std = model.predict(NEW[:1], return_std=True)
    np.testing.assert_allclose(mean, expected.mean[:, 0] + 0.1, rtol=1e-10)
    np.testing.assert_allclose(std, expected.std[:, 0], rtol=1e-10)
    assert model.log_marginal_likelihood() == pytest.approx(expected.about["log_evidence"])


def test_the_same_algebra_as_scikit_learn():
    """Their RBF process and our kernel posterior: the same mean, spread and evidence."""
    from dynagram.theory.bayes._conditioning import condition, kernel_log_evidence
    from dynagram.theory.bayes._solve import training_kernel

    theirs = GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None).fit(X, Y[:, 0])
    K = rbf_kernel(np.concatenate([X, NEW]), gamma=0.5)
    kernel = training_kernel(K[:12, :12], Posterior(0.1))
    ours = condition(kernel, K, Y[:, :1])
    mean, covariance = theirs.predict(NEW, return_cov=True)
    np.testing.assert_allclose(ours.mean[12:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(ours.covariance[12:, 12:], covariance, rtol=1e-9, atol=1e-12)
    evidence = kernel_log_evidence(kernel, Y[:, :1])
    assert evidence == pytest.approx(theirs.log_marginal_likelihood(), rel=1e-10)


def test_bad_input_to_the_process():
    x, y = X[[0, 1, 0]], np.array([1.0, 2.0, 3.0])
    with pytest.raises(InvalidValueError, match="with other targets"):
        NetworkProcessRegressor(noise=0.0).fit(x, y)
    with pytest.raises(InvalidValueError, match="depth"):
        NetworkProcessRegressor(depth=2.5).fit(X, Y)
    model = NetworkProcessRegressor(depth=2).fit(X, Y)
    with pytest.raises(InvalidValueError, match="return_std"):
        model.predict(NEW, return_std=True, return_cov=True)


def test_a_missing_scikit_learn_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("dynagram.integrations.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dynagram\[sklearn\]'"):
        import dynagram.integrations.sklearn  # noqa: F401
