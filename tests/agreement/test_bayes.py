"""Bayesian order 1/n against the exact finite-width posterior.

Measured coefficients n(exact − infinite width) at widths n and 2n are extrapolated, 2c(2n) − c(n),
which removes the next order. Every entry of log evidence, mean, covariance and hidden shifts must
agree within 4 standard errors, and the errors must be small enough to see a factor of two.
"""

import functools

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles._exact_posterior import exact_posterior
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.results._estimate import Estimate
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import representation_shift
from dynagram.training import Posterior

X = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7], [0.9, -0.2, 0.5]])
Y = np.array([[0.9, 0.3], [-0.5, 1.1]])
# Activation, C_b, C_W, hidden widths, targets, noise, members.
CASES = {
    "one hidden layer": ("sin", 0.1, 1.6, (64,), Y, 0.0, 60_000),
    "unequal widths": ("sin", 0.1, 1.6, (96, 48), Y, 0.0, 70_000),
    "noise": ("tanh", 0.2, 1.5, (40,), 2 * Y[:, :1], 0.2, 60_000),
}


@functools.cache
def measured(name, factor):
    """n(exact − ∞) at `factor` times the widths, with standard errors, by name."""
    sigma, C_b, C_W, hidden, y, noise, members = CASES[name]
    hidden = [int(factor * n) for n in hidden]
    network = MLP([3, *hidden, y.shape[1]], sigma, C_b, C_W)
    data, how = Data(X[:2], y, X[2:]), Posterior(noise)
    exact = exact_posterior(network, data, how, members=members, seed=10 + int(2 * factor))
    infinite = predict_outputs(network, data, how, order="infinite")
    n = hidden[-1]
    return {
        "log evidence": scaled(first(exact, "log_evidence"), n, infinite.about["log_evidence"]),
        "mean": scaled(exact.estimate("mean"), n, infinite.mean),
        "covariance": scaled(exact.estimate("covariance"), n, infinite.covariance),
        "hidden layers": scaled(
            first(exact, "activation_shift"), np.array(hidden)[:, None, None], 0.0
        ),
    }


def first(exact, name):
    """An estimate of the posterior, without its axis of moments."""
    found = exact.estimate(name)
    return Estimate(np.asarray(found.value[0]), np.asarray(found.standard_error[0]), found.count)


def scaled(estimate, factor, origin):
    value = np.asarray(factor * (estimate.value - origin))
    return Estimate(value, np.asarray(factor * estimate.standard_error), estimate.count)


def predicted(name):
    sigma, C_b, C_W, hidden, y, noise, _ = CASES[name]
    network = MLP([3, *hidden, y.shape[1]], sigma, C_b, C_W)
    data, how = Data(X[:2], y, X[2:]), Posterior(noise)
    theory = predict_outputs(network, data, how)
    return {
        "log evidence": np.asarray(theory.about["log_evidence_correction"]),
        "mean": theory.mean_correction,
        "covariance": theory.covariance_correction,
        "hidden layers": representation_shift(network, data, how).activations,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_exact_posterior(name):
    narrow, wide = measured(name, 1), measured(name, 2)
    for quantity, prediction in predicted(name).items():
        one, two = narrow[quantity], wide[quantity]
        error = np.asarray(np.hypot(one.standard_error, 2 * two.standard_error))
        estimate = Estimate(np.asarray(2 * two.value - one.value), error, one.count)
        result = compare(prediction, estimate, name=quantity)
        assert result.ok(), result
        # Half or twice the largest entry would show.
        assert np.max(np.abs(prediction)) > 6 * np.max(error), (quantity, prediction, error)


@pytest.mark.slow
def test_what_is_left_of_the_evidence_falls_with_the_square_of_the_width():
    name, residuals, errors = "one hidden layer", [], []
    coefficient = predicted(name)["log evidence"]
    for factor in (0.5, 1):
        found = measured(name, factor)["log evidence"]
        residuals.append(found.value - coefficient)
        errors.append(found.standard_error)
    ratio = residuals[0] / residuals[1]
    error = abs(ratio) * np.hypot(errors[0] / residuals[0], errors[1] / residuals[1])
    # n × residual halves when n doubles; the order after next adds a few per cent.
    assert abs(ratio - 2.0) < 3 * error + 0.2, (ratio, error)
    assert error < 0.3
