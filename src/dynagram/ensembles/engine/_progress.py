"""How far an ensemble is and how precise: its worst relative standard error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dynagram.results._estimate import Estimate

# Axes along which a tensor may change its size by orders of magnitude: each entry has its scale.
_SCALES_ALONG = ("layer", "time", "step")
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
    """Where an ensemble stands: what every `progress` callback is called with.

    Members done, members asked for (or None), the precision wanted, members that failed.

    >>> Progress(done=100, members=400).expected
    400
    """

    done: int
    members: int | None
    until_error: float | None = None
    failed: int = 0
    measure: Callable[[], WorstError | None] = lambda: None

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
