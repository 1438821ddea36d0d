"""What is given to `watch`, checked before anything is made: a refusal leaves no trace."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.watch._registry import QUANTITIES

_LATEST = 2**62  # a step that files can hold


def integer(name: str, value: Any, least: int) -> int:
    """A whole number, of Python or NumPy, that is not too small.

    >>> import numpy as np
    >>> integer("every", np.int64(5), 1)
    5
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InvalidValueError(name, value, f"expected an integer ≥ {least}")
    if number > _LATEST:
        raise InvalidValueError(name, value, f"at most {_LATEST}")
    return number


def check_rule(rate: Any, momentum: Any) -> None:
    """Refuse a learning rate or a momentum, as JAX users give them, that cannot be one."""
    if not callable(rate) and rate is not None and not 0 <= _real(rate) < math.inf:
        raise InvalidValueError("rate", rate, "expected a number ≥ 0, or a function of the step")
    if momentum is not None and not 0 <= _real(momentum) < 1:
        raise InvalidValueError("momentum", momentum, "expected a number from 0 to below 1")


def _real(value: Any) -> float:
    """Of one number; NaN for all else."""
    try:
        return math.nan if isinstance(value, str | bool) or np.ndim(value) else float(value)
    except (TypeError, ValueError):
        return math.nan


def chosen(quantities: Any) -> tuple[str, ...]:
    """Names of quantities in the order of the registry, all of them for None."""
    if quantities is None:
        return tuple(QUANTITIES)
    names = [quantities] if isinstance(quantities, str) else quantities
    allowed = f"expected some of {', '.join(QUANTITIES)}"
    try:
        unknown = [name for name in names if not isinstance(name, str) or name not in QUANTITIES]
    except TypeError as error:
        raise InvalidTypeError("quantities", names, allowed) from error
    if unknown or not names:
        raise InvalidValueError("quantities", unknown[0] if unknown else names, allowed)
    return tuple(name for name in QUANTITIES if name in names)


def check_functions(**functions: Any) -> None:
    """Refuse what is given as a function and cannot be called."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise InvalidTypeError(name, type(function).__name__, "expected a function")


def check_sinks(sinks: Any) -> None:
    """Refuse what is no list of sinks."""
    allowed = "expected a list of sinks, such as [JsonLines('watch.jsonl')]"
    if not isinstance(sinks, Sequence) or isinstance(sinks, str):
        raise InvalidTypeError("sinks", type(sinks).__name__, allowed)
    for sink in sinks:
        parts = (getattr(sink, name, None) for name in ("begin", "write", "close"))
        if isinstance(sink, type) or not all(map(callable, parts)):
            shown = sink.__name__ if isinstance(sink, type) else type(sink).__name__
            raise InvalidTypeError("sinks", shown, allowed)


def check_path(name: str, path: Any) -> None:
    """Refuse what cannot be a path."""
    if not isinstance(path, str | Path):
        raise InvalidTypeError(name, path, "expected a path")
    if "\0" in str(path):
        raise InvalidValueError(name, str(path), "a path has no zero bytes")


def check_unused(framework: str, **arguments: Any) -> None:
    """Refuse arguments that are for the other framework."""
    for name, value in arguments.items():
        if value is not None:
            raise InvalidTypeError(name, type(value).__name__, f"has no meaning in {framework}")
