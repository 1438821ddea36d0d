"""Where channels and positions of a signal stand in an array of a framework."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

LAYOUTS = ("last", "first", "time", "rows", "flat", "flat-first", "line")


@dataclass(frozen=True, eq=False)
class LiveSignal:
    """A signal in our form, (samples, positions, channels), and how the framework holds it.

    **Arguments:**

    - `values`: in our form.
    - `grid`: the grid of positions.
    - `layout`: "last" and "first" say where channels stand, "time" that positions come before
        samples, "rows" that samples and positions are one axis, "flat" and "flat-first" that
        positions and channels are, "line" that all are.
    """

    values: np.ndarray
    grid: tuple[int, ...]
    layout: str

    def canonical(self, array: np.ndarray, layout: str | None = None) -> np.ndarray | None:
        """An array that is held likewise in our form; None where its shape does not allow it."""
        samples, positions, _ = self.values.shape
        layout = layout or self.layout
        if array.size % (samples * positions):
            return None
        channels = array.size // (samples * positions)
        shapes = {
            "last": (samples, *self.grid, channels),
            "first": (samples, channels, *self.grid),
            "time": (positions, samples, channels),
            "rows": (samples * positions, channels),
            "flat": (samples, positions * channels),
            "flat-first": (samples, positions * channels),
            "line": (array.size,),
        }
        if _without_ones(array.shape) != _without_ones(shapes[layout]):
            return None  # axes of length 1 say nothing
        array = array.reshape(shapes[layout])
        if layout in ("first", "flat-first"):
            return array.reshape(samples, channels, positions).transpose(0, 2, 1)
        if layout == "time":
            return array.transpose(1, 0, 2)
        return array.reshape(samples, positions, channels)

    def layout_of(self, array: np.ndarray) -> str | None:
        """The layout in which `array` holds the same numbers; None where it does not."""
        if array.size != self.values.size:
            return None
        for layout in dict.fromkeys((self.layout, *LAYOUTS)):
            values = self.canonical(array, layout)
            if values is not None and alike(values, self.values):
                return layout
        return None

    def after(self, array: np.ndarray) -> LiveSignal | None:
        """The signal that `array` is, held in the same way."""
        values = self.canonical(array)
        return None if values is None else replace(self, values=values)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def alike(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-7) -> bool:
    """Whether two arrays are the same but for rounding of float64 or float32 constants."""
    if a.shape != b.shape:
        return False
    scale = float(np.max(np.abs(b), initial=0.0))
    return bool(np.all(np.abs(a - b) <= tolerance * scale + 1e-300))


def proportion(a: np.ndarray, b: np.ndarray) -> float | None:
    """c of a = c b for arrays of one shape; None where there is none."""
    if a.shape != b.shape or not np.any(b):
        return None
    c = float(np.vdot(a, b) / np.vdot(b, b))
    return c if c != 0.0 and alike(a, c * b) else None
