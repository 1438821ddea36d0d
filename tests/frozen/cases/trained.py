"""Trained networks: infinite width, order 1/n, in time, one given network."""

import jax
import numpy as np

from dynagram import infinite_training, predict_in_time, predict_trained
from dynagram.theory.training._generalisation import expected_loss
from dynagram.theory.training._interpolation import interpolate, robustness
from dynagram.theory.training._linear_model import linear_model
from dynagram.theory.training._losses import kernel_descent, kernel_flow
from dynagram.theory.training._one_network import linearised_output, trained_output
from dynagram.theory.training._sgd import stochastic_moments
from frozen.cases.samples import TEST_X, TEST_Y, X, Y, plain
from frozen.registry import CANCELLING, SUMMED, case

PAIR = (X[:2], Y[:2], TEST_X[:1])
WIDTHS = (4, 40, 40, 1)
ALGORITHMS = {"gd": {"eta": 0.05}, "flow": {}, "two-step": {}}


def network(activation="tanh"):
    return plain(activation, WIDTHS)


def how(algorithm):
    return {"algorithm": algorithm, **ALGORITHMS[algorithm]}


@case(["tanh", "gelu", "relu"], ["gd", "flow"])
def infinite(activation, algorithm):
    training = infinite_training(network(activation), X, Y, TEST_X, **how(algorithm))
    numbers = {
        "eigenvalues": training.eigenvalues,
        "largest step": training.step_sizes.largest,
        "fastest step": training.step_sizes.fastest,
    }
    unit = "steps" if algorithm == "gd" else "time"
    for when in (0, 3, 40, None):
        found = training.at(**({} if when is None else {unit: when}))
        for name in ("mean", "covariance", "std", "train_mean", "train_covariance", "response"):
            numbers[f"{name} at {when}"] = getattr(found, name)
    return numbers


def parts(prediction):
    names = ("mean_infinite", "covariance_infinite", "mean_correction", "covariance_correction")
    numbers = {name: getattr(prediction, name) for name in (*names, "mean", "covariance", "std")}
    numbers |= {f"mean {name}": value for name, value in prediction.mean_parts.items()}
    return numbers | {f"covariance {name}": v for name, v in prediction.covariance_parts.items()}


@case(["gd", "flow", "two-step"], rtol=CANCELLING)
def end_of_training(algorithm):
    return parts(predict_trained(network(), *PAIR, **how(algorithm)))


@case(["gd", "flow"], rtol=CANCELLING)
def in_time(algorithm):
    times = {"steps": 12} if algorithm == "gd" else {"time": 0.6}
    found = predict_in_time(network(), *PAIR, **how(algorithm), **times)
    numbers = {f"test {name}": value for name, value in parts(found.test).items()}
    return numbers | {f"train {name}": value for name, value in parts(found.train).items()}


@case(rtol=CANCELLING)
def end_and_regime():
    found = predict_trained(network("gelu"), *PAIR, **how("gd"))
    return parts(found) | found.regime.numbers


@case(rtol=CANCELLING)
def two_outputs_and_duplicates():
    net = plain("tanh", (4, 40, 40, 2))
    x, y = X[[0, 1, 0]], np.array([[0.7, 0.1], [-0.2, 0.3], [0.5, 0.2]])
    found = predict_trained(net, x, y, TEST_X[:1], **how("gd"))
    return {"mean": found.mean, "covariance": found.covariance}


@case()
def losses_expected():
    found = expected_loss(predict_trained(network(), *PAIR, **how("gd")), TEST_Y[:1])
    return {name: [loss.bias, loss.variance, loss.total] for name, loss in found.items()}


@case(["gd", "flow"])
def one_network(algorithm):
    sets = (network().init(jax.random.key(3), dtype="float64"), X, Y, TEST_X)
    times = {"steps": 12} if algorithm == "gd" else {"time": 0.6}
    end = trained_output(*sets, **how(algorithm))
    numbers = {"initial": end.initial, "end": end.output} | {
        f"end {k}": v for k, v in end.parts.items()
    }
    early = trained_output(*sets, **how(algorithm), **times)
    numbers |= {"early": early.output} | {f"early {k}": v for k, v in early.parts.items()}
    numbers["linearised end"] = linearised_output(*sets, **how(algorithm))
    numbers["linearised early"] = linearised_output(*sets, **how(algorithm), **times)
    return numbers


@case()
def one_linear_model():
    drawn = network().init(jax.random.key(3), dtype="float64")
    found = linear_model(drawn, X, Y, eta=0.05, steps=12)
    return {"outputs": found.outputs(TEST_X), "distances": found.distances()}


@case()
def stochastic():
    kernel = infinite_training(network(), X, Y, TEST_X, algorithm="flow")
    found = stochastic_moments(kernel, eta=0.05, batch=1, steps=9)
    names = ("mean", "covariance", "batch_covariance", "training_loss")
    return {name: getattr(found, name) for name in names}


@case(["mse", "cross-entropy"], rtol=SUMMED)
def kernel_losses(loss):
    Theta = np.array([[1.0, 0.3, 0.2], [0.3, 1.1, -0.1], [0.2, -0.1, 0.8]])
    initial = np.array([[0.1, -0.2], [0.3, 0.0], [0.2, 0.4]])
    targets = np.array([[0.9, 0.1], [0.2, 0.8]])
    return {
        "flow": kernel_flow(Theta, initial, targets, [0.5, 2.0], loss=loss),
        "descent": kernel_descent(Theta, initial, targets, eta=0.3, steps=7, loss=loss),
    }


@case(["tanh", "relu"])
def between_inputs(activation):
    net = network(activation)
    line = interpolate(net, X[:2], Y[:2], np.array([-0.5, 0.25, 0.5, 2.0]))
    far = robustness(net, X, TEST_X)
    numbers = {name: getattr(line, name) for name in ("mean", "std", "straight", "curvature")}
    return numbers | {"robustness": [far.response, far.variance]}
