"""Minimal models, fields, one network's observables."""

import jax
import numpy as np

from dynagram import Data, Model, measure
from dynagram.networks._weights import assemble_model
from dynagram.observables._collapse import collapse
from dynagram.observables._imbalance import imbalance, imbalance_drift
from dynagram.observables._signal import layer_signals, small_signal
from dynagram.observables.fields import fields, fixed_readout
from dynagram.observables.fields._overlaps import (
    activation_overlaps,
    collective_kernel,
    conjugate_correlators,
    kernel_terms,
)
from dynagram.observables.gram import held_out_linearity, target_linearity
from dynagram.observables.gram._agop import agop
from dynagram.observables.gram._gram import feature_learning_residual, weight_gram
from dynagram.observables.gram._surrogate import target_surrogate
from dynagram.observables.gram._virtual_covariance import gram_law, stationarity, virtual_covariance
from dynagram.observables.spectra import weight_spectrum
from dynagram.observables.spectra._power_law import fit_power_law
from dynagram.observables.tangents._ddntk import ddntk
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk, ntk_terms
from dynagram.theory.fields import anchored_run, descend, local_updates, simulate_one_layer
from dynagram.theory.minimal_models import (
    QuadraticModel,
    first_step,
    nearly_kernel_prediction,
    network_model,
    network_prediction,
    trained_weights,
)
from dynagram.theory.minimal_models._quadratic import first_order_outputs
from frozen.cases.samples import TEST_X, X, Y, plain
from frozen.registry import case

RNG = 5


def small():
    """A network of a few neurons and its weights."""
    net = plain("tanh", (4, 5, 6, 2))
    return Model(net, net.draw(jax.random.key(2), dtype="float64"))


def classes():
    rng = np.random.default_rng(RNG)
    x = rng.normal(size=(60, 5))
    labels = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int) + (x[:, 2] > 0.5)
    W = [rng.normal(size=(20, 5)), rng.normal(size=(3, 20)) / 4]
    return x, labels, W


@case()
def tangents():
    model = small()
    second = ddntk(model, X[:2])
    return {
        "ntk": ntk(model, X),
        "ntk terms": ntk_terms(model, X),
        "dntk": dntk(model, X[:2]),
        "ddntk": np.concatenate([np.ravel(second.first), np.ravel(second.second)]),
    }


@case()
def one_step():
    found = first_step(plain("tanh", (4, 40, 40, 1)), Data(X[:2], Y[:2], TEST_X[:1]), eta=0.1)
    names = ("ntk_change", "output_bend", "feature_mean", "feature_square")
    return {name: getattr(found, name) for name in names}


@case()
def quadratic():
    rng = np.random.default_rng(RNG)
    meta = rng.normal(size=(3, 4, 4))
    model = QuadraticModel(rng.normal(size=(3, 4)), meta + meta.transpose(0, 2, 1), epsilon=0.02)
    numbers = {"kernel": model.kernel, "meta-kernel": model.meta_kernel}
    for solution in ("gd", "ridge"):
        options = {"eta": 0.05} if solution == "gd" else {}
        weights = trained_weights(model, Y[:2], solution=solution, **options)
        numbers |= {f"{solution} free": weights.free, f"{solution} bent": weights.interacting}
        numbers[f"{solution} outputs"] = first_order_outputs(model, weights)
    numbers["nearly kernel"] = nearly_kernel_prediction(
        model.kernel, model.meta_kernel, Y[:2], eta=0.05
    )
    return numbers


@case()
def network_as_quadratic():
    net = plain("tanh", (4, 30, 30, 1))
    drawn = Model(net, net.draw(jax.random.key(2), dtype="float64"))
    quadratic_form = network_model(drawn, X)
    found = network_prediction(drawn, Data(X, Y, TEST_X), eta=0.05)
    return {
        "kernel": quadratic_form.kernel,
        "meta-kernel": quadratic_form.meta_kernel,
        "outputs": found.outputs,
        "response": found.response,
    }


def fixed():
    rng = np.random.default_rng(RNG)
    W = [rng.normal(size=(6, 4)) / 2, rng.normal(size=(5, 6)) / 2]
    return fixed_readout(W, "relu")


@case()
def field_state():
    found = fields(fixed(), X)
    residual = found.output - Y[:, 0]
    return {
        "output": found.output,
        "v": np.concatenate([np.ravel(v) for v in found.v]),
        "b": np.concatenate([np.ravel(b) for b in found.b]),
        "activation overlaps": activation_overlaps(found),
        "conjugate correlators": conjugate_correlators(found),
        "kernel terms": kernel_terms(found),
        "collective kernel": collective_kernel(found),
        "local updates": np.concatenate(
            [np.ravel(u) for u in local_updates(found, residual, 0.01)]
        ),
    }


@case()
def field_training():
    model = fixed()
    run = descend(model, X, np.abs(Y[:, 0]), eta=0.01, steps=20)
    anchored = anchored_run(model, X, np.abs(Y[:, 0]), eta=0.01, steps=6, every=3, unseen=TEST_X)
    start = fields(fixed_readout([model.params[0].W]), X)
    one_layer = simulate_one_layer(start, np.abs(Y[:, 0]), eta=0.01, steps=5)
    return {
        "losses": run.losses,
        "flips": run.flips,
        "predicted losses": anchored.predicted_losses,
        "residual error": anchored.residual_error,
        "one layer": one_layer.outputs,
    }


@case()
def measured_network():
    x, labels, W = classes()
    model = assemble_model({"W1": W[0], "W2": W[1]}, "relu")
    found = measure(model, Data.of_classes(x, labels))
    numbers = {"loss": found.loss, "accuracy": found.accuracy, "input": found.input_linearity.score}
    for layer in found.layers:
        numbers[f"layer {layer.layer}"] = [
            layer.norm,
            layer.kernel_share,
            layer.linearity.score,
            layer.linearity.null.mean,
            layer.alignment.value if layer.alignment else None,
            layer.alignment.null.deviation if layer.alignment else None,
            layer.imbalance,
            layer.dead,
            layer.spectrum.effective_rank,
        ]
    return numbers


@case()
def gram():
    rng = np.random.default_rng(RNG)
    W, h = rng.normal(size=(3, 5)), rng.normal(size=(40, 5))
    delta = rng.normal(size=(40, 3))
    gradient, g = delta.T @ h, delta @ W
    law = gram_law(W, gradient, h, g, 0.01, weight_decay=0.1)
    y = h[:, :2] ** 2 + rng.normal(size=(40, 2))
    surrogate = target_surrogate(W, h, y)
    model = small()
    return {
        "Gram": weight_gram(W),
        "virtual": virtual_covariance(h, g, 0.01),
        "law": law.total,
        "residual": feature_learning_residual(W, gradient, h, g),
        "stationarity": stationarity(W, gradient).value,
        "surrogate": [surrogate.value, surrogate.alignment.value],
        "agop": np.concatenate([np.ravel(a) for a in agop(model, X)]),
    }


@case()
def linearity():
    x, labels, _ = classes()
    y = np.eye(3)[labels]
    seen, unseen = target_linearity(x, y), held_out_linearity(x[:40], y[:40], x[40:], y[40:])
    return {
        "seen": [seen.score, seen.null.mean, seen.null.deviation],
        "unseen": [unseen.score, unseen.null.mean, unseen.null.deviation],
    }


@case()
def spectra():
    rng = np.random.default_rng(RNG)
    W = rng.normal(size=(40, 60)) * rng.pareto(2.0, size=60)
    found = weight_spectrum(W)
    tail = fit_power_law(rng.pareto(2.5, size=300) + 1.0)
    return {
        "eigenvalues": found.eigenvalues,
        "bulk": [found.effective_rank, found.bulk_variance, found.edge, found.distance],
        "tail": [tail.exponent, tail.error, tail.start, tail.distance, tail.p_value],
    }


@case()
def balance():
    model = small()
    y = np.tile(Y, (1, 2))
    drift = imbalance_drift(model, X, y)
    return {
        "imbalance": np.concatenate([np.ravel(i) for i in imbalance(model)]),
        "drift": np.concatenate([np.ravel(i) for i in drift]),
    }


@case()
def class_collapse():
    x, labels, W = classes()
    h = np.maximum(x @ W[0].T, 0.0)
    found = collapse(h, labels, W[1])
    names = ("within", "norms", "angles", "duality", "disagreement")
    numbers = {name: getattr(found, name) for name in names}
    return numbers | {"null": [found.within_null.mean, found.within_null.deviation]}


@case()
def signals():
    x, _, W = classes()
    y = x[:, :3] ** 2
    layers = layer_signals(Model.of_matrices(W, "tanh"), x, y)
    near = small_signal(Model.of_matrices(W, "tanh"), x, y)
    return {
        "scales": layers.scales,
        "gains": layers.gains,
        "nonlinearity": layers.nonlinearity,
        "small": [near.gamma, near.rate, near.self_interaction],
        "paths": near.path_gains,
    }
