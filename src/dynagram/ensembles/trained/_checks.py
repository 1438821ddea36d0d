"""What a training ensemble may be asked: the parts of a request checked against each other."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dynagram.ensembles.trained._batches import check_data_function
from dynagram.ensembles.trained._losses import checked_targets
from dynagram.ensembles.trained._observe import Observables, needs_inputs
from dynagram.ensembles.trained._specification import Training, imported
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Layer, Params, check_inputs
from dynagram.observables.tangents._signals import check_differentiable


def check_training(network: MLP, training: Training) -> None:
    """Whether this network can be trained so."""
    check_differentiable(network, 1, "gradient descent")
    depth = network.depth
    if training.fixed and training.fixed[-1] > depth:
        raise InvalidValueError("fixed", training.fixed[-1], f"the network has {depth} layers")
    if len(training.fixed) == depth:
        raise InvalidValueError("fixed", training.fixed, "at least one layer must be trained")


def checked_data(
    network: MLP, training: Training, x: Any, y: Any, data: Any
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The training set as float64 (N, n_0) and (N, n_L), or None twice where `data` makes it."""
    n_0, n_L = network.widths[0], network.widths[-1]
    if (data is None) == (x is None) or (x is None) != (y is None):
        raise InvalidTypeError("x, y, data", "given", "expected x and y, or data alone")
    if data is None:
        inputs = check_inputs(x, n_0)
        if training.batch is not None and training.batch > inputs.shape[0]:
            raise InvalidValueError("batch", training.batch, f"there are {len(inputs)} samples")
        return inputs, checked_targets(training.loss, y, inputs.shape[0], n_L)
    if training.algorithm == "flow" or training.batch is not None:
        what = "gradient flow" if training.algorithm == "flow" else "a batch size"
        raise InvalidValueError("data", data, f"{what} needs a training set x, y")
    function: Any = imported("data", data) if isinstance(data, str) else data
    if not callable(function):
        raise InvalidTypeError("data", data, "expected a function of a key or 'module:function'")
    check_data_function(function, n_0, n_L)  # pyright: ignore[reportArgumentType]
    return None, None


def checked_seed(seed: object) -> int:
    """`seed` as an integer of 32 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InvalidTypeError("seed", seed, "expected an integer")
    if not 0 <= seed < 2**32:
        raise InvalidValueError("seed", int(seed), "expected 0 to 2**32 − 1")
    return int(seed)


def checked_parameters(network: MLP, parameters: Any) -> Params | None:
    """Parameters of several members as NumPy arrays with the members first."""
    if parameters is None:
        return None
    try:
        pairs: Any = [[np.asarray(part) for part in layer] for layer in parameters]
        layers = tuple(Layer(*pair) for pair in pairs)
    except TypeError as error:
        raise InvalidTypeError("parameters", type(parameters), "expected layers (b, W)") from error
    members = layers[0].b.shape[0] if layers and layers[0].b.ndim == 2 else 0
    expected = tuple(
        ((members, n_out), (members, n_out, n_in))
        for n_in, n_out in zip(network.widths[:-1], network.widths[1:], strict=True)
    )
    shapes = tuple((layer.b.shape, layer.W.shape) for layer in layers)
    if shapes != expected or members == 0:
        allowed = "expected (members, n_ℓ) and (members, n_ℓ, n_{ℓ-1}) in every layer"
        raise InvalidValueError("shapes of parameters", shapes, allowed)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(layers)):
        raise InvalidValueError("parameters", "not finite", "every parameter must be finite")
    return layers


def check_observables(
    observables: Observables, training: Training, covariances: tuple[str, ...], *, inputs: bool
) -> None:
    """Whether every name that is used is recorded; `inputs` tells that there are test inputs."""
    names = [name for name, _ in observables]
    for rule in training.rules:
        if rule.observable not in names:
            allowed = f"not recorded; observables are {', '.join(names) or 'none'}"
            raise InvalidValueError("stop", rule.observable, allowed)
    if unknown := [name for name in covariances if name not in names]:
        allowed = f"not recorded; observables are {', '.join(names) or 'none'}"
        raise InvalidValueError("covariances", ", ".join(unknown), allowed)
    for name, source in observables:
        if needs_inputs(source) and not inputs:
            raise InvalidValueError("test_x", None, f"{name} is measured on test inputs")
