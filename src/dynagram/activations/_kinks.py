"""Kinks of a callable: where σ or one of its first three derivatives jumps, found numerically."""

from __future__ import annotations

import math

import numpy as np

from dynagram.activations._core import MAX_ORDER, Activation, Kink, both_sides, trimmed

_NEAR, _SPACING = 20.0, 0.01
_FARTHEST, _GROWING = 2e5, 0.005
_MOST_CELLS = 512  # with more kinks than that σ is resolved as far as these go
_FAINTEST = 1e-10  # what is looked at, beside the largest |σ^(p)|
_BLURRED_ZERO = 1e-15
# The least jump, beside what is around it; formulas that meet to nine digits are one function.
_LEAST_SHARE = (1e-9, *[1e-11] * (MAX_ORDER - 1))
# A steep stretch is as wide as a twentieth of the distance at which its rounding still shows.
_AROUND = np.outer([-1.0, 1.0], np.geomspace(1e-4, 1.0, 160)).reshape(-1)
_Jumps = dict[float, list[float]]


def find_kinks(sigma: Activation) -> tuple[Kink, ...]:
    """Jumps of σ, σ', σ'', σ''' by the fundamental theorem, located by bisection.

    Automatic differentiation gives σ^(p+1) almost everywhere; where the increment of σ^(p) over a
    cell is not the integral of σ^(p+1), the cell holds a jump. A steep but smooth stretch loses
    its discrepancy as the cell shrinks; a jump keeps it. Cells are 0.01 long for |z| ≤ 20 and
    grow with |z| beyond, out to where no Gaussian of the theory reaches.
    """
    # An irrational offset keeps edges off the places where people put kinks.
    near = np.arange(-_NEAR, _NEAR, _SPACING) + _SPACING / math.pi
    steps = np.arange(1, 1 + math.ceil(math.log(_FARTHEST / _NEAR) / _GROWING))
    far = near[-1] * np.exp(_GROWING * steps)
    edges = np.concatenate([-far[::-1], near, far])
    left, right = edges[:-1], edges[1:]
    outside = np.abs(left + right) > 2.0 * _NEAR
    jumps: _Jumps = {}
    for order in range(MAX_ORDER):
        gap = _discrepancy(sigma, order, left, right)
        size = np.abs(sigma.values(right, order))
        threshold = 1e-4 * _SPACING ** max(0, 3 - order)
        threshold = min(threshold, _FAINTEST * float(size[~outside].max()))
        # Far out a jump counts beside the size of σ^(p) there.
        alive = gap > np.where(outside, np.maximum(threshold, 1e-9 * size), threshold)
        (cells,) = np.nonzero(alive & np.isfinite(gap))
        cells = cells[np.argsort(np.abs(left[cells]))][:_MOST_CELLS]
        _enter(sigma, order, left[cells], right[cells], jumps)
    return _as_kinks(jumps)


def with_kinks_at(
    sigma: Activation, intervals: tuple[tuple[float, float], ...]
) -> tuple[Kink, ...]:
    """The kinks of `sigma` and those inside short intervals, which a first search has missed."""
    jumps = {kink.location: [*kink.jumps, *[0.0] * MAX_ORDER][:MAX_ORDER] for kink in sigma.kinks}
    ends = np.array(intervals)
    middle, length = ends.mean(axis=1), np.diff(ends, axis=1)[:, 0]
    for order in range(MAX_ORDER):
        _enter(sigma, order, middle - length / math.sqrt(2), middle + length / math.sqrt(3), jumps)
    return _as_kinks(jumps)


def _as_kinks(jumps: _Jumps) -> tuple[Kink, ...]:
    return tuple(Kink(z, trimmed(jumps[z])) for z in sorted(jumps))


def _enter(
    sigma: Activation, order: int, left: np.ndarray, right: np.ndarray, jumps: _Jumps
) -> None:
    """Close in on the largest discrepancy of each cell and enter it in `jumps` if it stays."""
    for _ in range(60):
        if left.size == 0 or np.all(right - left < 1e-15 * np.maximum(1.0, np.abs(left))):
            break
        middle = 0.5 * (left + right)
        lower = _discrepancy(sigma, order, left, middle)
        upper = _discrepancy(sigma, order, middle, right)
        in_lower = lower >= upper
        left, right = np.where(in_lower, left, middle), np.where(in_lower, middle, right)
    places = 0.5 * (left + right)
    if places.size == 0:
        return
    # People put kinks at short decimals, and the last bits of a bisection are rounding.
    short = np.round(places, 11) + 0.0
    places = np.where(
        np.abs(places - short) < 1e-14 * np.maximum(1.0, np.abs(places)), short, places
    )
    # A lower order may have entered the same place, up to rounding.
    places = np.array(
        [next((z for z in jumps if abs(z - p) < 1e-9 * max(1.0, abs(p))), p) for p in places]
    )
    steps, limits = _steps(sigma, order, places)
    # (z − 1) + 1 turns around within rounding of 0, not at 0: its sides are farther apart.
    blurred = (places == 0.0) & (np.abs(steps) <= limits)
    if np.any(blurred):
        places = np.where(blurred, _BLURRED_ZERO, places)
        steps, limits = _steps(sigma, order, places)
    for place, step, limit in zip(places, steps, limits, strict=True):
        if abs(step) > limit:
            jumps.setdefault(float(place), [0.0] * MAX_ORDER)[order] = float(step)


def _steps(sigma: Activation, order: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What σ^(p) does across every place, and how much of that a smooth function might."""
    sides = np.array([both_sides(place) for place in places])
    steps = np.diff(sigma.values(sides, order), axis=1)[:, 0]
    # A smooth σ^(p) also changes from one side to the other, by its slope, and is rounded on the
    # scale of its peak in the neighbourhood, and of what lower orders have there, not of its value.
    slope = np.abs(sigma.values(sides, order + 1)).max(axis=1)
    smooth = 1e-12 * np.maximum(1.0, np.abs(places)) * slope
    near, wide = places[:, None] + _SPACING * _AROUND, places[:, None] + _AROUND
    nearby = np.abs(sigma.values(near, order)).max(axis=1)
    lower = [np.abs(sigma.values(wide, p)).max(axis=1) for p in range(order + 1)]
    return steps, _LEAST_SHARE[order] * nearby + smooth + 1e-13 * np.max(lower, axis=0)


def _discrepancy(sigma: Activation, order: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|σ^(p)(b) − σ^(p)(a) − ∫σ^(p+1)| by two-point Gauss, which never touches the ends."""
    middle, half = 0.5 * (a + b), 0.5 * (b - a)
    nodes = np.stack([middle - half / math.sqrt(3.0), middle + half / math.sqrt(3.0)])
    with np.errstate(invalid="ignore", over="ignore"):  # far out σ may overflow
        integral = half * sigma.values(nodes, order + 1).sum(axis=0)
        return np.abs(sigma.values(b, order) - sigma.values(a, order) - integral)
