"""What is recorded of a member: loss, outputs, norms, NTK, and functions f(params, x) of a user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from dynagram._trust import import_function
from dynagram.ensembles.trained._records import Arrays
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Architecture, Params
from dynagram.networks._network import Structure
from dynagram.observables.tangents._ntk import any_ntk
from dynagram.training import Training, loss_value

BUILT_IN = (
    "loss", "outputs", "all_outputs", "norms", "ntk", "test_loss", "accuracy", "test_accuracy",
)  # fmt: skip
# Of the test inputs with their targets.
TESTED = ("test_loss", "test_accuracy")
# The outputs of test inputs, and of training and test inputs.
OUTPUTS = ("outputs", "all_outputs")
# Names of arrays that a run holds besides the observables.
RESERVED = (
    "member", "time", "step", "stopped", "failed", "largest_error", "mean", "covariance",
    "x", "y", "test_x", "test_y",
)  # fmt: skip

Observable = Callable[[Params, Array], Array]
# Name → the name of a built-in observable, "module:function", or a function.
Observables = tuple[tuple[str, str | Observable], ...]

if TYPE_CHECKING:
    ObservablesLike = Sequence[str] | Mapping[str, str | Observable]
else:
    ObservablesLike = object


def checked_observables(given: object) -> Observables:
    """`given`, a list of names or a mapping from names, in one form.

    >>> checked_observables(["loss", "jax.numpy:max"])
    (('loss', 'loss'), ('max', 'jax.numpy:max'))
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = [(s.rpartition(":")[2] if isinstance(s, str) else s, s) for s in given]
    else:
        raise InvalidTypeError("observables", given, "expected names, or a mapping from names")
    checked: list[tuple[str, str | Observable]] = []
    for name, source in list[Any](pairs):
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            allowed = "a name of letters, digits and _ is needed; a function goes into a mapping"
            raise InvalidValueError("observables", name, allowed)
        if isinstance(source, str) and source not in BUILT_IN:
            if ":" not in source:
                allowed = f"expected {', '.join(BUILT_IN)} or module:function"
                raise InvalidValueError("observables", source, allowed)
            import_function("observables", source)
        elif not isinstance(source, str) and not callable(source):
            raise InvalidTypeError(f"observable {name}", source, "is not callable")
        elif not isinstance(source, str):
            source = hashable(source)
        checked.append((name, source))  # pyright: ignore[reportArgumentType]
    names = [name for name, _ in checked]
    if len(set(names)) < len(names):
        raise InvalidValueError("observables", names, "every name may appear once")
    return tuple(checked)


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in a wrapper if it cannot be a key: compiled programs are kept by function."""
    try:
        hash(function)
    except TypeError:
        return functools.partial(function)
    return function


def needs_inputs(source: str | Observable) -> bool:
    """Whether the observable is measured on test inputs."""
    return source not in ("loss", "accuracy", "norms")


def outputs_name(observables: Observables) -> str | None:
    """The name under which outputs are recorded, if they are."""
    return next((name for name, source in observables if source in OUTPUTS), None)


def measured(
    network: Structure, how: Training, source: str | Observable
) -> Callable[[Params, Arrays, Array, Array], Array]:
    """(params, arrays, x, y) → the observable of one member; `x`, `y` are for the loss."""

    def measure(params: Params, arrays: Arrays, x: Array, y: Array) -> Array:
        if source in TESTED:
            x, y = arrays.probe, arrays.test_y
        if source in ("loss", "test_loss"):
            return loss_value(how.loss, network.apply(params, x), y)
        if source in ("accuracy", "test_accuracy"):
            return fraction_right(network.apply(params, x), y)
        if source in OUTPUTS:
            return network.apply(params, arrays.asked)
        if source == "norms":
            if not isinstance(network, Architecture):
                allowed = "norms are those of the layers of an MLP; pass a function instead"
                raise InvalidValueError("observables", source, allowed)
            return norms(params)
        if source == "ntk":
            return any_ntk(network, params, arrays.probe)
        function: Any = source
        if isinstance(source, str):
            function = import_function("observables", source)
        return jnp.asarray(function(params, arrays.probe)).astype(how.dtype)

    return measure


def fraction_right(z: Float[Array, "N n_L"], y: Float[Array, "N n_L"]) -> Float[Array, ""]:
    """The fraction of samples whose largest output is that of the target; its sign, of one output.

    >>> float(fraction_right(jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.array([[0.0, 1.0]] * 2)))
    0.5
    """
    if z.shape[1] == 1:
        return jnp.mean((z[:, 0] > 0.0) == (y[:, 0] > 0.0), dtype=z.dtype)
    return jnp.mean(jnp.argmax(z, axis=1) == jnp.argmax(y, axis=1), dtype=z.dtype)


def norms(params: Params) -> Float[Array, "layer 2"]:
    """|b^(ℓ)| and |W^(ℓ)| (Frobenius) of every layer.

    >>> from dynagram.networks import Layer
    >>> norms((Layer(jnp.array([3.0, 4.0]), jnp.ones((2, 2))),)).tolist()
    [[5.0, 2.0]]
    """
    size = lambda a: jnp.sqrt(jnp.sum(a * a))  # noqa: E731
    return jnp.stack([jnp.stack([size(layer.b), size(layer.W)]) for layer in params])
