"""How far a run is and how precise: the worst relative standard error, and a bar that shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dynagram.results._estimate import Estimate

# Axes along which a tensor may change its size by orders of magnitude: each entry has its scale.
_SCALES_ALONG = ("layer", "step")
# A slice smaller than this many of its standard errors may be zero: it has no scale of its own.
_NOTHING = 4.0


@dataclass(frozen=True)
class WorstError:
    """The least precise of several estimates: its name and its relative standard error."""

    name: str
    value: float


def worst_relative_error(
    estimates: Mapping[str, Estimate], dims: Mapping[str, tuple[str, ...]]
) -> WorstError:
    """The largest standard error in terms of the size of what is estimated.

    Of every tensor, in every layer and at every step, the largest standard error is divided by
    the largest absolute entry. Where that entry is within four standard errors of zero, it says
    nothing about the scale, and the largest entry of all layers and steps takes its place. The
    worst of these ratios is returned. Entries that are the same in all members have no error.

    >>> V = Estimate(np.array([[0.0, 0.0], [2.0, 0.1]]), np.array([[0.0, 0.0], [0.02, 0.01]]), 9)
    >>> worst_relative_error({"V": V}, {"V": ("layer", "a")})
    WorstError(name='V', value=0.01)
    """
    worst = WorstError("", 0.0)
    for name, estimate in estimates.items():
        value, error = np.abs(estimate.value), estimate.standard_error
        axes = [i for i, axis in enumerate(dims.get(name, ())) if axis in _SCALES_ALONG]
        places = list(range(len(axes)))
        slices = int(np.prod([value.shape[axis] for axis in axes], dtype=int))
        sizes = np.moveaxis(value, axes, places).reshape(slices, -1).max(axis=1)
        errors = np.moveaxis(error, axes, places).reshape(slices, -1).max(axis=1)
        scales = np.where(sizes > _NOTHING * errors, sizes, sizes.max())
        ratios = np.divide(errors, scales, out=np.zeros_like(errors), where=errors > 0)
        if ratios.max() > worst.value or not worst.name:
            worst = WorstError(name, float(ratios.max()))
    return worst


@dataclass(frozen=True)
class Progress:
    """Where a run stands: members done, members asked for (or None) and the precision wanted."""

    done: int
    members: int | None
    until_error: float | None
    failed: int
    measure: Callable[[], WorstError | None]

    @cached_property
    def worst(self) -> WorstError | None:
        """The current worst relative error; None where nothing is estimated. Costs a jackknife."""
        return self.measure()

    @property
    def expected(self) -> int | None:
        """Members at the end: errors fall as one over the root of their number."""
        if self.until_error is None:
            return self.members
        if self.worst is None or not 0 < self.worst.value < np.inf:
            return self.members
        needed = int(min(self.done * (self.worst.value / self.until_error) ** 2, 2.0**63))
        return max(self.done, needed if self.members is None else min(needed, self.members))


@contextmanager
def terminal_bar(words: str) -> Iterator[Callable[[Progress], object] | None]:
    """A bar on stderr with members/s, the time left and the worst error; None if no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(words),
        BarColumn(),
        TextColumn("{task.completed:.0f} members, {task.fields[rate]}/s"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[error]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="–", error="")
        state: dict[str, Any] = {"start": None, "seen": 0.0}

        def update(progress: Progress) -> None:
            now = time.monotonic()
            if state["start"] is None:  # chunks read back from a stored run took no time
                state["start"] = now, progress.done
            since, base = state["start"]
            rate = (progress.done - base) / (now - since) if now > since else 0.0
            bar.update(task, completed=progress.done, rate=_rate_text(rate))
            if now - state["seen"] > 1.0:  # the error costs a jackknife
                state["seen"] = now
                bar.update(task, total=progress.expected, error=_error_text(progress))

        yield update


def _rate_text(rate: float) -> str:
    if rate == 0.0:
        return "–"
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _error_text(progress: Progress) -> str:
    failed = f", {progress.failed} failed" if progress.failed else ""
    if progress.worst is None or not np.isfinite(progress.worst.value):
        return failed.removeprefix(", ")
    return f"{progress.worst.name} ± {100 * progress.worst.value:.2g} %{failed}"
