"""The exact finite-width posterior: against quadrature, brute force over parameters, and itself."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

from dynagram.data import Data
from dynagram.ensembles._exact_posterior import _Control, exact_posterior
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate
from dynagram.training import Posterior

X = np.array([[1.0, 0.4], [-0.3, 0.9], [0.7, 0.8]])


def posterior(network, x, y, test_x, *, noise=0.0, **options):
    return exact_posterior(network, Data(x, y, test_x), Posterior(noise), **options)


def evidence_of(found):
    """The log evidence and its error, as numbers."""
    estimate = found.estimate("log_evidence")
    value, error = (np.asarray(part[0]) for part in (estimate.value, estimate.standard_error))
    return Estimate(value, error, estimate.count)


def test_a_linear_network_by_quadrature():
    """One training input: Ĝ_AA = K g with g ~ χ²_n/n, and (7.3) is exact at any width."""
    n, y = 6, np.array([[0.9, -1.4]])
    network, x = MLP([2, n, 2], "linear", 0.0, 1.3), X[:2]
    K = 1.3**2 * x @ x.T / 2
    Y = float(np.sum(y**2))

    def average(power):
        def integrand(g):
            density = gamma.pdf(g, n / 2, scale=2 / n) * (2 * np.pi * K[0, 0] * g) ** -1.0
            return density * np.exp(-Y / (2 * K[0, 0] * g)) * g**power

        return quad(integrand, 0.0, 30.0, points=[0.5, 1.0, 3.0], epsrel=1e-10, limit=300)[0]

    evidence, inverse_g = average(0), average(-1) / average(0)
    spread = K[1, 1] - K[0, 1] ** 2 / K[0, 0]
    covariance = spread * (n - 1) / n * np.eye(2) + spread / n * inverse_g * y.T @ y / K[0, 0]
    found = posterior(network, x[:1], y, x[1:], members=100_000, seed=4)
    assert compare(np.log(evidence), evidence_of(found)).ok()
    assert compare(K[:1, 1:] / K[0, 0] * y, found.estimate("mean")).ok()
    result = compare(covariance[None, :, None, :], found.estimate("covariance"))
    assert result.ok(), result
    assert np.max(found.covariance_error) < 0.01 * spread
    assert evidence_of(found).standard_error < 0.01


def test_brute_force_over_all_parameters():
    """Setup N: weights drawn one by one, Gaussian likelihood, no Rao–Blackwellisation."""
    network, y, noise, members = MLP([2, 16, 1], "tanh", 0.3, 1.4), [1.0, -0.6], 0.25, 20_000
    keys = jax.random.split(jax.random.key(0), members)
    outputs = jax.jit(
        lambda k: jax.lax.map(lambda key: network.apply(network.draw(key), X), k, batch_size=4096)
    )(keys)
    z = np.asarray(outputs)[:, :, 0]
    log_w = -0.5 * np.sum((z[:, :2] - y) ** 2, axis=1) / noise - np.log(2 * np.pi * noise)
    w = np.exp(log_w)
    mean = np.sum(w * z[:, 2]) / np.sum(w)
    error = np.sqrt(np.sum(w**2 * (z[:, 2] - mean) ** 2)) / np.sum(w)
    evidence_error = np.std(w) / np.mean(w) / np.sqrt(members)
    found = posterior(network, X[:2], y, X[2:], members=50_000, seed=1, noise=noise)
    assert compare(np.array([[mean]]), found.estimate(), prediction_error=float(error)).ok()
    assert compare(np.log(np.mean(w)), evidence_of(found), prediction_error=evidence_error).ok()
    # The reference's own sampler.
    assert compare(-2.88874, evidence_of(found), prediction_error=1.9e-4).ok()
    assert compare(np.array([[0.38185]]), found.estimate(), prediction_error=9e-5).ok()
    variance = np.full((1, 1, 1, 1), 0.17692)
    assert compare(variance, found.estimate("covariance"), prediction_error=2e-5).ok()
    assert found.error.item() < 2e-4


def test_the_control_changes_errors_and_not_values(monkeypatch):
    network, y = MLP([2, 80, 80, 1], "sin", 0.3, 1.4), [1.0, -0.6]
    options = {"members": 10_000, "seed": 2}
    with_control = posterior(network, X[:2], y, X[2:], **options)
    monkeypatch.setattr(_Control, "__call__", lambda _, g: np.zeros_like(g[:, -1]))
    plain = posterior(network, X[:2], y, X[2:], **options)
    for name in ("log_evidence", "mean", "covariance"):
        one, two = with_control.estimate(name), plain.estimate(name)
        assert compare(one.value, two, prediction_error=one.standard_error).ok(), name
        assert np.all(one.standard_error < 0.6 * two.standard_error), name
    assert with_control.about["effective_size"] == pytest.approx(plain.about["effective_size"])


def test_standard_errors_are_those_of_repetitions():
    """Eight seeds scatter as their standard errors say; a jumping activation works too."""
    network, y = MLP([2, 9, 9, 1], "step", 0.3, 1.4), [0.5, -0.2]
    runs = [
        posterior(network, X[:2], y, X[2:], members=2000, seed=seed, noise=0.1) for seed in range(8)
    ]
    values = np.array([run.mean.item() for run in runs])
    errors = np.array([run.error.item() for run in runs])
    ratio = np.std(values, ddof=1) / np.sqrt(np.mean(errors**2))
    assert 0.4 < ratio < 1.7  # 99 % of the standard deviations of eight


def test_the_same_seed_gives_the_same_numbers_and_progress_is_told():
    network, calls = MLP([2, 5, 1], "tanh", 0.3, 1.4), []
    options = {"members": 2000, "seed": 3}
    one = posterior(network, X[:2], [1.0, 0.0], X[2:], **options)
    two = posterior(network, X[:2], [1.0, 0.0], X[2:], progress=calls.append, **options)
    assert one.mean.item() == two.mean.item()
    assert (calls[-1].done, calls[-1].members) == (2000, 2000)
    assert (one.order, one.members, one.seed) == ("measured", 2000, 3)
    assert one.covariance.shape == (1, 1, 1, 1)


def test_few_effective_draws_are_reported():
    network = MLP([2, 3, 1], "tanh", 0.0, 1.0)
    found = posterior(network, X[:2], [30.0, 30.0], X[2:], members=2000, seed=0, noise=0.5)
    assert found.regime.verdict == "do not use"
    assert "improbable under the prior" in str(found.regime)


def test_bad_arguments():
    network = MLP([2, 1, 1], "linear", 0.0, 1.0)
    with pytest.raises(InvalidValueError, match="give noise > 0"):
        posterior(network, X[:2], [1.0, 0.5], X[2:], members=2000, seed=0)
    with pytest.raises(InvalidValueError, match="members = 10"):
        posterior(network, X[:2], [1.0, 0.5], X[2:], members=10, seed=0)
