"""Posteriors, evidence, representation learning."""

from dynagram import finite_posterior, infinite_posterior
from dynagram.theory.bayes import (
    evidence_landscape,
    log_bayes_factor,
    log_evidence,
    log_predictive_density,
    representation_shift,
)
from frozen.cases.samples import TEST_X, TEST_Y, X, Y, plain
from frozen.registry import case

NOISE = 0.05


def network(activation):
    return plain(activation, (4, 40, 40, 1))


@case(["tanh", "gelu", "relu"], [0.0, NOISE])
def infinite(activation, noise):
    found = infinite_posterior(network(activation), X, Y, TEST_X, noise=noise)
    names = ("mean", "covariance", "std", "log_evidence")
    return {name: getattr(found, name) for name in names} | found.regime.numbers


@case(["tanh", "gelu", "relu"])
def finite(activation):
    found = finite_posterior(network(activation), X, Y, TEST_X, noise=NOISE)
    names = ("mean_infinite", "mean_correction", "covariance_infinite", "covariance_correction")
    numbers = {name: getattr(found, name) for name in (*names, "mean", "covariance", "std")}
    evidence = found.log_evidence
    return numbers | {"log evidence": [evidence.infinite, evidence.correction, evidence.value]}


@case(["tanh", "relu"])
def evidence(activation):
    found = log_evidence(network(activation), X, Y, noise=NOISE)
    return {
        "log evidence": [found.infinite, found.correction, found.value],
        "Bayes factor": log_bayes_factor(network(activation), network("gelu"), X, Y, noise=NOISE),
        "predictive": log_predictive_density(
            network(activation), X, Y, TEST_X, TEST_Y, noise=NOISE
        ),
    }


@case()
def landscape():
    sets = {"depth": [2, 3], "C_b": [0.0, 0.1], "C_W": [1.0, 1.5]}
    infinite = evidence_landscape("tanh", X, Y, **sets, noise=NOISE)
    finite = evidence_landscape("tanh", X, Y, **sets, noise=NOISE, width=30)
    return {"infinite": infinite.log_evidence, "finite": finite.log_evidence}


@case(["tanh", "relu"])
def representation(activation):
    found = representation_shift(network(activation), X, Y, TEST_X, noise=NOISE)
    return {name: getattr(found, name) for name in ("activations", "preactivations", "source")}
