"""What a training ensemble may be asked: the parts of a request checked against each other."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dynagram._trust import import_function
from dynagram.data import Data
from dynagram.ensembles.trained._batches import DataFunction, check_data_function
from dynagram.ensembles.trained._observe import OUTPUTS, TESTED, Observables, needs_inputs
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Architecture, Chain, Layer, Params
from dynagram.networks._network import Structure
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.training import GradientDescent, Training, TwoStep
from dynagram.training._losses import SQUARED, check_loss_targets

_FEWEST_IN_PAIRS = 64


def check_training(network: Structure, how: Training) -> None:
    """Whether this network can be trained so."""
    network.with_fixed(how.fixed)
    check_differentiable(network, 1, "gradient descent")
    if len(how.fixed) == network.depth:
        raise InvalidValueError("fixed", how.fixed, "at least one layer must be trained")
    if how.reaches_the_end:
        _check_the_end(network, how)


def _check_the_end(network: Structure, how: Training) -> None:
    """Training without a length is asked only where it has an end, zero error."""
    length = "a time" if how.is_flow else "steps"
    for name, value, wrong in (
        ("loss", how.loss, how.loss not in SQUARED),
        ("batch", how.batch, how.batch is not None),
        ("weight_decay", how.weight_decay, how.weight_decay > 0.0),
        ("stop", how.stop, bool(how.stop) and not how.is_discrete),
    ):
        if wrong:
            allowed = f"training to the end stops at zero error, which this prevents: give {length}"
            raise InvalidValueError(name, value, allowed)
    if isinstance(how.algorithm, TwoStep):
        if how.fixed:
            raise InvalidValueError("fixed", how.fixed, "the two leaps move every layer")
        if len(how.recorded) > 1:
            raise InvalidValueError("record", how.recorded, "two leaps have no moments but the end")
        if not isinstance(network, MLP | Chain):
            allowed = "the second leap takes the frozen NTK of an MLP with an initialisation"
            raise InvalidTypeError("network", network, allowed)


def check_data(network: Structure, how: Training, data: object) -> None:
    """Whether `data` is a training set, or a function of a key, that fits."""
    if isinstance(data, Data):
        data.check(network)
        check_batch_fits(how, len(data.x))
        check_loss_targets(how.loss, data.y)
        return
    function = data_function(data)
    for what, wrong in (
        ("gradient flow", how.is_flow),
        ("a batch size", how.batch is not None),
        ("training to the end", how.reaches_the_end),
    ):
        if wrong:
            raise InvalidValueError("data", data, f"{what} needs a training set: pass a Data")
    check_data_function(function, network.input_size, network.output_size)


def check_batch_fits(how: Training, samples: int) -> None:
    """Whether a batch is not larger than the training set, and names samples of it."""
    listed = how.batch if isinstance(how.batch, tuple) else ()
    largest = max((sample + 1 for batch in listed for sample in batch), default=how.batch_size or 0)
    if largest > samples:
        raise InvalidValueError("batch", how.batch, f"there are {samples} samples")


def data_function(data: object) -> DataFunction:
    """The function of a key that makes fresh data."""
    function: Any = import_function("data", data) if isinstance(data, str) else data
    if not callable(function):
        allowed = "expected a Data, a function of a key, or 'module:function'"
        raise InvalidTypeError("data", type(data).__name__, allowed)
    return function  # pyright: ignore[reportReturnType]


def check_parameters(network: Structure, parameters: Any) -> Params | None:
    """Parameters of several members as NumPy arrays with the members first."""
    if not isinstance(network, Architecture):
        if parameters is not None:
            allowed = "only an MLP starts from given layers"
            raise InvalidValueError("parameters", "given", allowed)
        return None
    if parameters is None:
        if not isinstance(network, MLP):
            allowed = "an architecture without an initialisation needs a Model or parameters"
            raise InvalidTypeError("network", network, allowed)
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
    observables: Observables, how: Training, covariances: tuple[str, ...], data: object, probe: Any
) -> None:
    """Whether every name that is used is recorded, on inputs that there are."""
    names = [name for name, _ in observables]
    recorded = f"not recorded; observables are {', '.join(names) or 'none'}"
    for rule in how.rules:
        if rule.observable not in names:
            raise InvalidValueError("stop", rule.observable, recorded)
    if unknown := [name for name in covariances if name not in names]:
        raise InvalidValueError("covariances", ", ".join(unknown), recorded)
    sources = [source for _, source in observables]
    if sum(source in OUTPUTS for source in sources) > 1:
        raise InvalidValueError("observables", names, f"one of {', '.join(OUTPUTS)}, not both")
    if "all_outputs" in sources and not isinstance(data, Data):
        raise InvalidValueError("observables", "all_outputs", "fresh data have no training inputs")
    for name, source in observables:
        if needs_inputs(source) and probe is None:
            raise InvalidValueError("test_x", None, f"{name} is measured on test inputs")
        if source in TESTED and (not isinstance(data, Data) or data.test_y is None):
            raise InvalidValueError("test_y", None, f"{name} needs test inputs with targets")


def check_pairs(
    network: Structure, data: object, how: Training, **others: tuple[object, bool]
) -> None:
    """Whether networks can be trained in pairs; `others` are (value, wrong) of further options."""
    for name, (value, wrong) in {
        "network": (network, not isinstance(network, MLP | Chain) or network.positions > 1),
        "data": (data, not isinstance(data, Data) or not len(data.test_x)),
        "loss": (how.loss, how.loss not in SQUARED),
        "algorithm": (how.name, how.is_discrete and not isinstance(how.algorithm, GradientDescent)),
        "batch": (how.batch, how.batch is not None),
        "schedule": (how.schedule, bool(how.schedule)),
        "weight_decay": (how.weight_decay, how.weight_decay > 0.0),
        "fixed": (how.fixed, bool(how.fixed)),
        "stop": (how.stop, bool(how.stop)),
        "dtype": (how.dtype, how.dtype != "float64"),
        **others,
    }.items():
        if wrong:
            allowed = (
                "pairs are compared with infinite width: an MLP or a Chain on a Data with test "
                "inputs, a squared error, all samples, gd, flow or two-step, float64, outputs only"
            )
            raise InvalidValueError(name, value, allowed)


def check_members(members: int, *, pairs: bool, name: str = "members") -> None:
    """Whether there may be so many: pairs are counted by their networks."""
    if not pairs:
        return
    if members < _FEWEST_IN_PAIRS:
        allowed = f"at least {_FEWEST_IN_PAIRS} needed for a standard error"
        raise InvalidValueError(name, members, allowed)
    if members % 2:
        raise InvalidValueError(name, members, "an even number: networks come in pairs")
