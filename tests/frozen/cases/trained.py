"""Trained networks: infinite width, order 1/n, in time, one given network."""

import math

import jax
import numpy as np

from dynagram.data import Data
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import (
    expected_loss,
    interpolate,
    kernel_descent,
    kernel_flow,
    robustness,
    stochastic_moments,
)
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.training import GradientDescent, GradientFlow, Training, TwoStep
from frozen.cases.samples import TEST_X, TEST_Y, X, Y, plain
from frozen.registry import CANCELLING, SUMMED, case
from oracles.linear_model import linear_model

DATA = Data(X, Y, TEST_X)
PAIR = Data(X[:2], Y[:2], TEST_X[:1])
WIDTHS = (4, 40, 40, 1)
ALGORITHMS = {"gd": GradientDescent(0.05), "flow": GradientFlow(), "two-step": TwoStep()}


def network(activation="tanh"):
    return plain(activation, WIDTHS)


def how(algorithm, **options):
    return Training(ALGORITHMS[algorithm], **options)


@case(["tanh", "gelu", "relu"], ["gd", "flow"])
def infinite(activation, algorithm):
    training = InfiniteTraining.of(network(activation), DATA, how(algorithm))
    numbers = {
        "eigenvalues": training.eigenvalues,
        "largest step": training.step_sizes.largest,
        "fastest step": training.step_sizes.fastest,
    }
    moments = how(algorithm, record=[0, 3, 40])
    outputs = predict_outputs(network(activation), DATA, moments, order="infinite")
    for when, time in zip((0, 3, 40, None), moments.times, strict=True):
        now = outputs.at(time)
        numbers |= {
            f"mean at {when}": now.mean,
            f"covariance at {when}": now.kernel_infinite,
            f"std at {when}": now.std,
            f"train_mean at {when}": now.train.mean,
            f"train_covariance at {when}": now.train.kernel_infinite,
            f"response at {when}": training.at(math.inf if when is None else when).response[3:],
        }
    return numbers


def parts(prediction):
    names = ("mean_infinite", "covariance_infinite", "mean_correction", "covariance_correction")
    numbers = {name: getattr(prediction, name) for name in (*names, "mean", "covariance", "std")}
    numbers |= {f"mean {name}": value for name, value in prediction.mean_parts.items()}
    return numbers | {f"covariance {name}": v for name, v in prediction.covariance_parts.items()}


@case(["gd", "flow", "two-step"], rtol=CANCELLING)
def end_of_training(algorithm):
    return parts(predict_outputs(network(), PAIR, how(algorithm)))


def early(algorithm):
    return how(algorithm, **({"steps": 12} if algorithm == "gd" else {"time": 0.6}))


@case(["gd", "flow"], rtol=CANCELLING)
def in_time(algorithm):
    found = predict_outputs(network(), PAIR, early(algorithm))
    numbers = {f"test {name}": value for name, value in parts(found.test).items()}
    return numbers | {f"train {name}": value for name, value in parts(found.train).items()}


@case(rtol=CANCELLING)
def end_and_regime():
    found = predict_outputs(network("gelu"), PAIR, how("gd"))
    return parts(found) | found.regime.numbers


@case(rtol=CANCELLING)
def two_outputs_and_duplicates():
    net = plain("tanh", (4, 40, 40, 2))
    data = Data(X[[0, 1, 0]], [[0.7, 0.1], [-0.2, 0.3], [0.5, 0.2]], TEST_X[:1])
    found = predict_outputs(net, data, how("gd"))
    return {"mean": found.mean, "covariance": found.covariance}


@case()
def losses_expected():
    found = expected_loss(predict_outputs(network(), PAIR, how("gd")), TEST_Y[:1])
    return {name: [loss.bias, loss.variance, loss.total] for name, loss in found.items()}


@case(["gd", "flow"])
def one_network(algorithm):
    model = network().init(jax.random.key(3), dtype="float64")
    end = predict_outputs(model, DATA, how(algorithm))
    now = predict_outputs(model, DATA, early(algorithm))
    numbers = {"initial": model(TEST_X), "end": end.mean, "early": now.mean}
    for label, outputs in (("end", end), ("early", now)):
        numbers |= {f"{label} {k}": v / outputs.width for k, v in outputs.mean_parts.items()}
        linearised = predict_outputs(model, DATA, outputs.how, order="infinite")
        numbers[f"linearised {label}"] = linearised.mean
    return numbers


@case()
def one_linear_model():
    model = network().init(jax.random.key(3), dtype="float64")
    found = linear_model(model, Data(X, Y), how("gd", steps=12))
    return {"outputs": found.outputs(TEST_X), "distances": found.distances()}


@case()
def stochastic():
    found = stochastic_moments(network(), DATA, how("gd", batch=1, steps=9))
    names = ("mean", "covariance", "batch_covariance", "training_loss")
    return {name: getattr(found, name) for name in names}


@case(["mse", "cross-entropy"], rtol=SUMMED)
def kernel_losses(loss):
    Theta = np.array([[1.0, 0.3, 0.2], [0.3, 1.1, -0.1], [0.2, -0.1, 0.8]])
    initial = np.array([[0.1, -0.2], [0.3, 0.0], [0.2, 0.4]])
    targets = np.array([[0.9, 0.1], [0.2, 0.8]])
    # Recorded for sums over the two samples: the cross-entropy is their mean.
    name, samples = ("half-sum", 1) if loss == "mse" else (loss, 2)
    times, eta = [0.5 * samples, 2.0 * samples], 0.3 * samples
    return {
        "flow": kernel_flow(Theta, initial, targets, times, loss=name),
        "descent": kernel_descent(Theta, initial, targets, eta=eta, steps=7, loss=name),
    }


@case(["tanh", "relu"])
def between_inputs(activation):
    net = network(activation)
    line = interpolate(net, Data(X[:2], Y[:2]), np.array([-0.5, 0.25, 0.5, 2.0]))
    far = robustness(net, X[0], TEST_X[0])
    numbers = {name: getattr(line, name) for name in ("mean", "std", "straight", "curvature")}
    return numbers | {"robustness": [far.response, far.variance]}
