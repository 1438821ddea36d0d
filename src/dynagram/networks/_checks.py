"""What a network may be made of: widths, activations, variances and inputs, checked one by one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from dynagram.activations import Activation, activation
from dynagram.errors import InvalidTypeError, InvalidValueError

MOST_LAYERS = 10**6

# What the constructor takes. At run time it validates by itself, with clearer messages.
if TYPE_CHECKING:
    Widths = Sequence[int] | np.ndarray
    PerLayer = float | Sequence[float] | np.ndarray
    ActivationLike = str | Callable[..., Any] | Activation
else:
    Widths = PerLayer = ActivationLike = object


def checked_widths(widths: object) -> tuple[int, ...]:
    """(n_0, …, n_L) as a tuple of at least two integers ≥ 1.

    **Arguments:**

    - `widths`: a sequence or array of integers.

    **Returns:** the widths.
    """
    if isinstance(widths, Sequence | np.ndarray) and len(widths) > MOST_LAYERS + 1:
        raise InvalidValueError("widths", f"{len(widths)} of them", f"at most {MOST_LAYERS} layers")
    values = as_list(widths)
    if values is None:
        raise InvalidTypeError("widths", widths, "expected a sequence (n_0, …, n_L) of integers")
    if len(values) < 2:
        raise InvalidValueError("widths", values, "at least input and output, (n_0, n_1), needed")
    checked = []
    for index, value in enumerate(values):
        name = f"n_{index} of widths"
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InvalidTypeError(name, value, "a width must be an integer ≥ 1")
        number = operator.index(value)
        if number < 1:
            raise InvalidValueError(name, number, "a width must be an integer ≥ 1")
        checked.append(number)
    return tuple(checked)


def checked_activation(spec: object) -> Activation:
    """The activation meant by `spec`, refusing in one line what cannot be one.

    **Arguments:**

    - `spec`: a name, a callable or an `Activation`.

    **Returns:** an `Activation`.
    """
    if not (isinstance(spec, str) or callable(spec)):
        raise InvalidTypeError("activation", spec, "expected a name or a callable")
    return activation(spec)


def per_layer(
    name: str, value: object, depth: int, allowed: str, *, positive: bool = False
) -> tuple[float, ...]:
    """`value` as one float per layer, ≥ 0, or > 0 if `positive`.

    **Arguments:**

    - `name`: what the value is called in messages.
    - `value`: one number, or a sequence or array with one per layer.
    - `depth`: L, the number of layers.
    - `allowed`: says in words what is allowed.
    - `positive`: whether 0 is refused.

    **Returns:** L numbers.
    """
    values = as_list(value)
    if values is None:
        return (checked_number(name, value, allowed, positive=positive),) * depth
    if len(values) != depth:
        expected = f"one number, or one per layer: {depth} expected, {len(values)} given"
        raise InvalidValueError(name, values, expected)
    return tuple(
        checked_number(f"{name} of layer {index + 1}", entry, allowed, positive=positive)
        for index, entry in enumerate(values)
    )


def checked_number(name: str, value: object, allowed: str, *, positive: bool = False) -> float:
    """`value` as a finite float ≥ 0, or > 0 if `positive`.

    **Arguments:**

    - `name`: what the value is called in messages.
    - `value`: what should be a number.
    - `allowed`: the complaint about a number out of range.
    - `positive`: whether 0 is refused.

    **Returns:** the number.
    """
    number = checked_real(name, value)
    if number < 0 or (positive and number == 0):
        raise InvalidValueError(name, number, allowed)
    return number


def checked_real(name: str, value: object) -> float:
    """`value` as a finite float of either sign.

    **Arguments:**

    - `name`: what the value is called in messages.
    - `value`: what should be a number.

    **Returns:** the number; −0.0 becomes 0.0.
    """
    try:
        if isinstance(value, bool | np.bool_ | str | bytes):
            raise TypeError
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTypeError(name, value, "expected a real number") from error
    if not math.isfinite(number):
        raise InvalidValueError(name, number, "must be finite")
    return number + 0.0  # -0.0 becomes 0.0


def checked_dtype(dtype: DTypeLike | None) -> np.dtype:
    """A real floating-point dtype that JAX can use now; its default for None."""
    if dtype is None:
        return jnp.result_type(float)
    wanted = jnp.dtype(dtype)
    if not jnp.issubdtype(wanted, jnp.floating):
        raise InvalidValueError("dtype", str(wanted), "expected a real floating-point type")
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise InvalidValueError(
            "dtype", str(wanted), "64-bit JAX is off; enclose the call in jax.enable_x64(True)"
        )
    return wanted


def require_plain(network: Any, what: str) -> None:
    """Refuse a network with skips, which `what` would leave out."""
    if network.has_skips:
        raise InvalidValueError("skip", network.skip, f"{what}: for networks without skips only")


def as_list(value: object) -> list[Any] | None:
    """The entries of a sequence or array; None for anything else, so for a single number."""
    if isinstance(value, np.ndarray | jax.Array):
        value = np.asarray(value).tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def collapsed(values: tuple[float, ...]) -> str:
    """One number where all layers agree, else the list; by repr, so that reading back is exact."""
    return repr(values[0]) if len(set(values)) == 1 else repr(list(values))


def checked_integer(name: str, value: object, smallest: int, largest: int = 2**31 - 1) -> int:
    """`value` as an int from `smallest` to `largest`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidTypeError(name, value, "expected an integer")
    if not smallest <= value <= largest:
        top = f"2**{largest.bit_length()} − 1" if (largest + 1).bit_count() == 1 else largest
        raise InvalidValueError(name, int(value), f"expected {smallest} to {top}")
    return int(value)


def checked_choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """`value` as one of the words `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValueError(name, value, f"expected one of {', '.join(allowed)}")
    return value
