"""Measured ensembles at fixed seeds: few members, the same draws."""

import numpy as np

from dynagram import (
    MLP,
    Data,
    GradientDescent,
    GradientFlow,
    Optax,
    Training,
    simulate,
    train,
)
from dynagram.ensembles import exact_posterior
from dynagram.training import Posterior
from frozen.cases.initial import residual
from frozen.cases.samples import TEST_X, X, Y, plain
from frozen.registry import SUMMED, case


def estimates(record, names):
    found = {name: getattr(record, name) for name in names}
    values = {name: estimate.value for name, estimate in found.items()}
    return values | {f"error of {n}": estimate.standard_error for n, estimate in found.items()}


def measured(found, names):
    """Letters of the registry by the names that they were frozen under."""
    values = {old: found[new] for old, new in names.items()}
    errors = {f"error of {old}": found.error(new) for old, new in names.items()}
    return values | errors


@case(["metric", "weights"], rtol=SUMMED)
def kernels(sampler):
    names = {"G": "K", "G1": "G1", "V": "V", "U": "six_point"}
    net = plain("tanh", (4, 12, 10, 3))
    found = simulate(net, X[:2], tuple(names.values()), members=64, seed=7, sampler=sampler)
    return measured(found, names)


@case(["tanh", "relu"], rtol=SUMMED)
def tangents(activation):
    names = {"H": "Theta"} | {name: name for name in ("H1", *"ABDF")}
    names |= {name: name for name in "PQRSTU"} if activation == "tanh" else {}
    net = plain(activation, (4, 6, 5, 2))
    found = simulate(net, X[:2], ("K", "V", *names.values()), members=64, seed=7)
    # K and V were frozen at the output layer here.
    output = {"G": found["K"][-1], "V": found["V"][-1]}
    output |= {"error of G": found.error("K")[-1], "error of V": found.error("V")[-1]}
    return measured(found, names) | output


@case(["metric", "weights"], rtol=SUMMED)
def skips(sampler):
    names = {"G": "K", "G1": "G1", "V": "V"}
    names |= {"H": "Theta", "T": "odd"} if sampler == "weights" else {}
    found = simulate(
        residual("tanh"), X[:2], list(names.values()), members=64, seed=7, sampler=sampler
    )
    return measured(found, names)


def outputs(found):
    return {
        "mean": found.mean,
        "covariance": found.covariance,
        "error of mean": found.error,
        "error of covariance": found.covariance_error,
    }


@case(["gd", "flow"], rtol=SUMMED)
def trained(algorithm):
    how = {
        "gd": Training(GradientDescent(0.05), steps=10),
        "flow": Training(GradientFlow(rtol=1e-11, atol=1e-13), time=0.5),
    }[algorithm]
    net, data = plain("tanh", (4, 12, 10, 1)), Data(X, Y, TEST_X)
    found = train(net, data, how, members=64, seed=7, pairs=True, kernels=1)
    return outputs(found) | {"largest error": found.about["largest_error"]}


@case(rtol=SUMMED)
def trained_to_the_end():
    how, data = Training(GradientDescent(0.1)), Data(X[:2], Y[:2], TEST_X)
    net = plain("tanh", (4, 12, 10, 1))
    return outputs(train(net, data, how, members=64, seed=7, pairs=True))


@case(["plain", "skip"], ["gd", "adam"], rtol=SUMMED)
def trained_members(kind, algorithm):
    net = (
        plain("tanh", (4, 8, 8, 1))
        if kind == "plain"
        else MLP([4, 8, 8, 1], "tanh", 0.1, 0.8, skip=0.5)
    )
    rule = GradientDescent(0.05) if algorithm == "gd" else Optax("adam", 0.05)
    how = Training(rule, steps=12, batch=2, record=4, spacing="linear")
    found = train(net, Data(X, Y, TEST_X), how, members=4, seed=7)
    return {
        "loss": found["loss"],
        "outputs": found["outputs"],
        "mean": found.means,
        "covariance": found.covariances,
    }


@case(rtol=SUMMED)
def posterior():
    net, data = plain("tanh", (4, 12, 10, 1)), Data(X, Y, TEST_X)
    found = exact_posterior(net, data, Posterior(0.3), members=1000, seed=7)
    numbers = {}
    for name in ("mean", "covariance", "log_evidence", "activation_shift"):
        estimate = found.estimate(name)
        numbers |= {name: estimate.value, f"error of {name}": estimate.standard_error}
    return numbers | {"effective size": np.array(found.about["effective_size"])}
