"""Posteriors, evidence, representation learning."""

from dynagram.data import Data
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import (
    evidence_landscape,
    log_bayes_factor,
    log_evidence,
    log_predictive_density,
    representation_shift,
)
from dynagram.training import Posterior
from frozen.cases.samples import TEST_X, TEST_Y, X, Y, plain
from frozen.registry import case

NOISE = 0.05
DATA = Data(X, Y, TEST_X, TEST_Y)
NOISY = Posterior(NOISE)


def network(activation):
    return plain(activation, (4, 40, 40, 1))


@case(["tanh", "gelu", "relu"], [0.0, NOISE])
def infinite(activation, noise):
    found = predict_outputs(network(activation), DATA, Posterior(noise), order="infinite")
    numbers = {"mean": found.mean, "covariance": found.kernel_infinite, "std": found.std}
    return numbers | {"log_evidence": found.about["log_evidence"]} | found.regime.numbers


@case(["tanh", "gelu", "relu"])
def finite(activation):
    found = predict_outputs(network(activation), DATA, NOISY)
    names = ("mean_infinite", "mean_correction", "covariance_infinite", "covariance_correction")
    numbers = {name: getattr(found, name) for name in (*names, "mean", "covariance", "std")}
    evidence = [found.about[f"log_evidence{part}"] for part in ("_infinite", "_correction", "")]
    return numbers | {"log evidence": evidence}


@case(["tanh", "relu"])
def evidence(activation):
    found = log_evidence(network(activation), DATA, NOISY)
    return {
        "log evidence": [found.infinite, found.correction, found.value],
        "Bayes factor": log_bayes_factor(network(activation), network("gelu"), DATA, NOISY),
        "predictive": log_predictive_density(network(activation), DATA, NOISY),
    }


@case()
def landscape():
    sets = {"depth": [2, 3], "C_b": [0.0, 0.1], "C_W": [1.0, 1.5]}
    infinite = evidence_landscape("tanh", DATA, NOISY, **sets)
    finite = evidence_landscape("tanh", DATA, NOISY, **sets, width=30)
    return {"infinite": infinite.log_evidence, "finite": finite.log_evidence}


@case(["tanh", "relu"])
def representation(activation):
    found = representation_shift(network(activation), DATA, NOISY)
    return {name: getattr(found, name) for name in ("activations", "preactivations", "source")}
