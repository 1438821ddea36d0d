"""Plateaus of a logged loss curve: where the loss stood still, and whether it has left.

The curve is replaced by the decreasing sequence nearest to it (isotonic regression, which has no
width to choose). A plateau is then a stretch in which the loss falls by at most a small part of
the whole fall and which lasts several times longer than the next fall of the same size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

_LARGEST = 1e150  # squares of it are numbers


@dataclass(frozen=True)
class LossPlateau:
    """One stretch in which the loss stood still.

    **Arguments:**

    - `start`, `end`: in steps.
    - `level`: the loss there.
    - `contrast`: its length over that of the next fall of the same size (of the one before, at the
        end of the curve).
    - `left`: False when the curve ends on it.
    """

    start: float
    end: float
    level: float
    contrast: float
    left: bool


def find_plateaus(
    loss: Float[np.ndarray, " points"],
    steps: Float[np.ndarray, " points"] | None = None,
    *,
    fall: float = 0.05,
    contrast: float = 3.0,
) -> tuple[LossPlateau, ...]:
    """The plateaus of a loss curve, in the order of time.

    A curve whose whole fall is below three standard deviations of its own noise is one plateau.

    **Arguments:**

    - `loss`: the losses of a run.
    - `steps`: when they were logged, increasing; 0, 1, … without.
    - `fall`: the largest part of the curve's whole fall that a plateau may contain.
    - `contrast`: how many times longer than the next such fall a plateau must last.

    **Returns:** `LossPlateau`s. Cost: O(points log points).

    >>> t = np.arange(1000.0)
    >>> stages = 1 / (1 + np.exp((t - 300) / 10)) + 0.5 / (1 + np.exp((t - 800) / 10))
    >>> [(round(p.start, -1), round(p.end, -1), p.left) for p in find_plateaus(stages)]
    [(0.0, 270.0, True), (330.0, 770.0, True), (820.0, 1000.0, False)]
    """
    values = np.asarray(loss, dtype=np.float64)
    times = np.arange(float(len(values))) if steps is None else np.asarray(steps, dtype=np.float64)
    _check(values, times, fall, contrast)
    smooth = _decreasing(values)
    noise = float(np.std(values - smooth))
    total = float(smooth[0] - smooth[-1])
    if total <= 3.0 * noise or total == 0.0:
        level = float(np.median(values))
        return (LossPlateau(float(times[0]), float(times[-1]), level, float("inf"), False),)
    # Noise makes steps of about its own size in the decreasing sequence: they are no plateaus.
    return _longest(smooth, times, max(fall * total, 3.0 * noise), contrast)


def _check(values: np.ndarray, times: np.ndarray, fall: float, contrast: float) -> None:
    if values.ndim != 1 or len(values) < 3:
        raise InvalidValueError("loss", values.shape, "a sequence of at least 3 numbers needed")
    if not np.all(np.isfinite(values)):
        first = int(np.argmin(np.isfinite(values)))
        raise InvalidValueError(f"loss[{first}]", float(values[first]), "not finite: it diverged")
    if (size := float(np.abs(values).max())) > _LARGEST:
        raise InvalidValueError("loss", size, f"beyond {_LARGEST:g}: it diverged")
    increases = np.all(np.isfinite(times)) and np.all(np.diff(times) > 0)
    if times.shape != values.shape or not increases:
        raise InvalidValueError("steps", times.shape, "as many increasing numbers as losses needed")
    if not 0.0 < fall < 0.5:
        raise InvalidValueError("fall", fall, "expected 0 < fall < 0.5")
    if not contrast > 1.0:
        raise InvalidValueError("contrast", contrast, "a number above 1 needed")


def _decreasing(values: np.ndarray) -> np.ndarray:
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(values, increasing=False).x)


def _longest(
    smooth: np.ndarray, times: np.ndarray, fall: float, contrast: float
) -> tuple[LossPlateau, ...]:
    """Stretches with a fall of at most `fall`, the longest first, none overlapping another."""
    last = len(times) - 1
    rising = -smooth
    start = np.arange(len(times))
    end = np.searchsorted(rising, rising + fall * (1.0 + 1e-12), side="right") - 1
    end = np.maximum(end, start)
    after = np.minimum(np.searchsorted(rising, rising[end] + fall, side="left"), last)
    before = np.maximum(np.searchsorted(rising, rising - fall, side="right") - 1, 0)
    length = times[end] - times[start]
    open_end = rising[end] + fall > rising[last]
    next_fall = np.where(open_end, times[start] - times[before], times[after] - times[end])
    ratio = length / np.maximum(next_fall, 0.5 * float(np.min(np.diff(times))))
    end = np.where(open_end, last, end)
    length = np.where(open_end, times[last] - times[start], length)
    worth = np.where((ratio >= contrast) & (end > start), length, 0.0)
    plateaus: list[LossPlateau] = []
    while np.any(worth > 0):
        best = int(np.argmax(worth))
        stop = int(end[best])
        plateaus.append(
            LossPlateau(
                float(times[best]),
                float(times[stop]),
                float(np.median(smooth[best : stop + 1])),
                float(ratio[best]),
                not bool(open_end[best]),
            )
        )
        worth[(start <= stop) & (end >= best)] = 0.0
    return tuple(sorted(plateaus, key=lambda plateau: plateau.start))
