"""Rows of weights, and signals that are outside their bands though every weight is inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dynagram.live._causes import Cause, WeightReading
from dynagram.live._result import LayerReading
from dynagram.live._walk import Matrix
from dynagram.results._table import short


def row_of_weight(layer: str, reading: WeightReading) -> LayerReading:
    """The variance of an array of weights beside the one expected."""
    matrix: Matrix = reading.matrix
    quantity = "weights" if reading.matrix.is_weight else "biases"
    spread = 1.96 * reading.error * matrix.variance
    return LayerReading(
        layer, quantity, reading.measured, matrix.variance, matrix.variance - spread,
        matrix.variance + spread, reading.z if matrix.variance > 0 or reading.measured > 0 else 0.0,
        "declared",
    )  # fmt: skip


def explain_signals(
    readings: Sequence[LayerReading], threshold: float, parameters: Mapping[str, np.ndarray],
    biases: Collection[str] = (),
) -> list[Cause]:  # fmt: skip
    """The first signal outside its band though every weight has its variance.

    `biases` are vectors that are known to be such: those of ones may be gains else.
    """
    outside = [r for r in readings if r.z is not None and abs(r.z) > threshold
               and r.quantity not in ("weights", "biases")]  # fmt: skip
    if not outside:
        return []
    first = outside[0]
    expected = "" if first.expected is None else f", {short(first.expected, 3)} expected"
    seen = f"{first.layer} is the first, its {first.quantity} is {short(first.measured, 3)}"
    vectors = {name: b for name, b in parameters.items()
               if b.ndim == 1 and b.size > 1 and b.dtype.kind == "f"}  # fmt: skip
    shifts = {name: float(b[0]) for name, b in vectors.items()
              if np.all(b == b[0]) and (b[0] not in (0.0, 1.0) or name in biases)}  # fmt: skip
    if shifts:
        name = max(shifts, key=lambda one: abs(shifts[one]))
        more = f", and {len(shifts) - 1} more are constant" if len(shifts) > 1 else ""
        text = f"all entries of {name} are {short(shifts[name], 3)}{more}; {seen}{expected}"
        return [Cause("constant biases", f"constant biases: {text}", tuple(shifts))]
    text = f"signal outside: {seen}{expected}: its weights have their variance and are not "
    return [Cause("signal outside", f"{text}independent of each other")]
