"""The register of frozen numbers: each case is a small function that returns labelled numbers.

A case is named `module.function` or `module.function[argument-…]`, as in `numbers.json`. When an
entrance of the library moves, only the line that calls it in `cases/` changes: the numbers do not.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CASES = Path(__file__).parent / "cases"
NUMBERS = Path(__file__).parent / "numbers.json"
# Relative to the largest entry of an array. EXACT: a fixed sequence of float64 operations, of which
# another CPU changes the rounding only. CANCELLING: the same, where large parts cancel and leave
# that rounding magnified. SUMMED: sums over members or adaptive steps, whose order or number XLA
# and the CPU choose.
EXACT = 1e-12
CANCELLING = 1e-10
SUMMED = 1e-9
# What is zero but for rounding differs on every CPU: below this size the comparison is absolute.
NATURAL_SIZE = 1e-2


@dataclass(frozen=True)
class Case:
    """One named computation, its arguments, and how closely its numbers are reproduced."""

    name: str
    compute: Callable[..., Mapping[str, object]]
    arguments: tuple[object, ...]
    rtol: float

    def numbers(self) -> dict[str, list[float]]:
        """Label → numbers, flattened: shapes belong to the entrance, values to the formula."""
        return {label: flat(value) for label, value in self.compute(*self.arguments).items()}


_cases: list[Case] = []


def case(*arguments: object, rtol: float = EXACT) -> Callable:
    """Registers a function once for each element of the product of `arguments` (lists)."""

    def register(function: Callable[..., Mapping[str, object]]) -> Callable:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        for chosen in itertools.product(*arguments):
            label = f"[{'-'.join(map(str, chosen))}]" if chosen else ""
            _cases.append(Case(name + label, function, chosen, rtol))
        return function

    return register


def all_cases() -> Iterator[Case]:
    """Every case, after importing the modules that register them."""
    for path in sorted(CASES.glob("*.py")):
        importlib.import_module(f"frozen.cases.{path.stem}")
    names = [c.name for c in _cases]
    assert len(names) == len(set(names))
    yield from _cases


def flat(value: object) -> list[float]:
    """Numbers in order; None becomes NaN, so that an absent number is frozen as absent."""
    array = np.asarray(np.nan if value is None else value, dtype=object)
    return [float("nan") if x is None else float(x) for x in array.ravel()]


def difference(frozen: list[float], computed: list[float]) -> float:
    """Largest deviation relative to the largest frozen entry; infinite for other sizes or NaNs.

    Entries smaller than `NATURAL_SIZE` altogether are compared relative to that.
    """
    old, new = np.asarray(frozen), np.asarray(computed)
    if old.shape != new.shape or not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return np.inf
    finite = np.isfinite(old)
    if not finite.any():
        return 0.0
    scale = max(np.abs(old[finite]).max(), NATURAL_SIZE)
    return float(np.abs(new[finite] - old[finite]).max() / scale)
