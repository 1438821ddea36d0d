"""When training is recorded and when it stops: steps, times and conditions, checked."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import as_list, checked_choice, checked_integer, checked_number

_SPACINGS = ("log", "linear")
_STOP = re.compile(r"\s*([A-Za-z_]\w*)\s*([<>])\s*(\S+)\s*")
_RECORD = "expected a number of moments to record, or the moments themselves"


class StopRule(NamedTuple):
    """Stop a member as soon as any entry of `observable` is below, or above, `value`."""

    observable: str
    below: bool
    value: float

    def __str__(self) -> str:
        return f"{self.observable} {'<' if self.below else '>'} {self.value!r}"


def check_steps(steps: object) -> int:
    """A number of steps: a whole number ≥ 0.

    >>> check_steps(3.0)
    3
    """
    if isinstance(steps, float | np.floating) and math.isfinite(steps) and steps == int(steps):
        steps = int(steps)
    if isinstance(steps, float | np.floating):
        raise InvalidValueError("steps", float(steps), "expected a whole number ≥ 0, or math.inf")
    return checked_integer("steps", steps, 0)


def check_record(
    record: object, spacing: str, end: float | int, *, whole: bool
) -> tuple[float | int, ...]:
    """The moments to record, steps if `whole` or times; the end is always one of them.

    >>> check_record(4, "log", 1000, whole=True), check_record(None, "log", 7, whole=True)
    ((0, 1, 32, 1000), (7,))
    """
    checked_choice("spacing", spacing, _SPACINGS)
    if record is None:
        return (end,)
    if (values := as_list(record)) is not None:
        return _listed(values, end, whole=whole)
    if isinstance(record, bool) or not isinstance(record, int | np.integer):
        raise InvalidTypeError("record", record, _RECORD)
    if math.isinf(end):
        allowed = "training to the end has no spacing: list the moments, or give steps or a time"
        raise InvalidValueError("record", record, allowed)
    return spaced_moments(end, checked_integer("record", record, 2), spacing, whole=whole)


def spaced_moments(
    end: float | int, count: int, spacing: str = "log", *, whole: bool = True
) -> tuple[float | int, ...]:
    """About `count` moments from 0 to `end`, both included, evenly or logarithmically spaced.

    >>> spaced_moments(1000, 5, "linear")
    (0, 250, 500, 750, 1000)
    """
    first = 1.0 if whole else end / 10.0 ** min(count, 3)
    if spacing == "linear" or end == 0:
        wanted = np.linspace(0, end, max(count, 2))
    else:
        wanted = np.append(0, np.geomspace(first, end, max(count - 1, 1)) if count > 2 else end)
    if whole:
        return tuple(int(step) for step in np.unique(np.rint(wanted)))
    return tuple(float(moment) for moment in np.unique(wanted))


def _listed(values: list[object], end: float | int, *, whole: bool) -> tuple[float | int, ...]:
    if whole:
        chosen: set[float | int] = {
            end if value == math.inf else checked_integer("a step of record", value, 0)
            for value in values
        }
    else:
        chosen = {
            end if value == math.inf else checked_number("a time of record", value, "must be ≥ 0")
            for value in values
        }
    if chosen and max(chosen) > end:
        raise InvalidValueError("record", max(chosen), f"training ends at {end:g}")
    return tuple(sorted(chosen | {end}))


def parse_stop(stop: object) -> list[StopRule]:
    """Conditions such as "loss < 1e-3".

    >>> parse_stop(["loss<1e-3"])
    [StopRule(observable='loss', below=True, value=0.001)]
    """
    values = as_list(stop)
    if values is None:
        raise InvalidTypeError("stop", stop, 'expected a list such as ["loss < 0.001"]')
    rules = []
    for text in values:
        match = _STOP.fullmatch(text) if isinstance(text, str) else None
        try:
            value = float(match[3]) if match else None
        except ValueError:
            value = None
        if match is None or value is None or not np.isfinite(value):
            raise InvalidValueError("stop", text, "expected 'name < number' or 'name > number'")
        rules.append(StopRule(match[1], match[2] == "<", value))
    return rules


def check_layers(fixed: object) -> tuple[int, ...]:
    """Numbers of layers, sorted, each once."""
    values = as_list(fixed)
    if values is None:
        raise InvalidTypeError("fixed", fixed, "expected a list of layers, numbered from 1")
    return tuple(sorted({checked_integer("a layer of fixed", value, 1) for value in values}))


def check_batch(batch: object) -> int | tuple[tuple[int, ...], ...] | None:
    """A batch size, or batches of equal size as tuples of sample numbers.

    >>> check_batch([[0, 1], [2, 0]])
    ((0, 1), (2, 0))
    """
    if batch is None:
        return None
    if (lists := as_list(batch)) is None:
        return checked_integer("batch", batch, 1)
    batches = [as_list(some) for some in lists]
    allowed = "expected a number, or lists of samples of equal length, each without repetition"
    if not batches or any(some is None for some in batches):
        raise InvalidValueError("batch", batch, allowed)
    checked = tuple(
        tuple(checked_integer("a sample of batch", sample, 0) for sample in some or ())
        for some in batches
    )
    if len({len(some) for some in checked}) > 1 or any(
        not some or len(set(some)) < len(some) for some in checked
    ):
        raise InvalidValueError("batch", checked, allowed)
    return checked


def check_factors(schedule: object) -> tuple[float, ...]:
    """Factors of the step size, each ≥ 0."""
    values = as_list(schedule)
    if values is None:
        raise InvalidTypeError("schedule", schedule, "expected a list of factors, one per step")
    name = "a factor of schedule"
    return tuple(checked_number(name, value, "must be ≥ 0") for value in values)
