"""How far a forecast may be off: the batch, the curvature, whole steps, mini-batches (D4.14)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dynagram.theory.saddle._forecast_record import LaterStage
from dynagram.theory.saddle._plateau import Escape, Plateau

# Error of log10(steps) per unit of nonlinearity, by the order q of the first nonlinear term, and
# of a step that is not observed: fitted to trained networks, see the experiment.
_NEGLECTED = {2: 0.45, 3: 0.12}
# Of the correction by the network's own flow, and the least without one: its usual size.
_CORRECTED, _LEAST = 0.2, 0.012
# Beside it, from the third stage on: what earlier ones leave behind of their nonlinear parts. As
# much as stages of saddle-forecast-networks with seeds 0, 1 and 3 need; it is judged on others.
_THIRD = 0.015
_SUBBATCHES = 4
# 90 % quantiles: of a Gaussian, and of Student's t for a spread known from four sub-batches only.
_GAUSSIAN, _STUDENT = 1.645, 2.132


def batch_spreads(case: Plateau, escape: Escape, whole: Sequence[float], seed: int) -> list[float]:
    """Root-mean-square changes of log10(steps) on random halves of the batch, for every stage.

    A half differs from the whole by as much as the whole from the population.
    """
    if not math.isfinite(escape.steps):
        return [0.0] * len(whole)
    rng = np.random.default_rng(seed)
    changes = []
    for _ in range(_SUBBATCHES):
        rows = rng.permutation(len(case.x))[: max(len(case.x) // 2, 1)]
        half = case.on_rows(rows, len(whole)).quick_steps(escape.quick, len(whole))
        changes.append(
            [
                math.log10(part / steps) if math.isfinite(part + steps) else 1.0
                for part, steps in zip(half, whole, strict=True)
            ]
        )
    return np.sqrt(np.mean(np.square(changes), axis=0)).tolist()


def corrected(steps: float, ratio: float) -> float:
    """Steps of the surrogate times what the network's own flow takes longer, where it is known."""
    return steps if math.isnan(ratio) else ratio * steps


def neglected_curvature(ratio: float, nonlinearity: float, q: int | None) -> float:
    """Spread of log10(steps) from curvature: of what the network's own flow corrects, or all."""
    whole = _NEGLECTED[2 if q == 2 else 3] * nonlinearity
    return max(whole, _LEAST) if math.isnan(ratio) else _CORRECTED * abs(math.log10(ratio))


def interval_of(
    case: Plateau, escape: Escape, steps: float, spread: float, neglected: float
) -> tuple[float, float]:
    """The 90 % interval of a stage after `steps`, with its own spread and neglected curvature."""
    if not math.isfinite(steps):
        return (math.inf, math.inf)
    batches = case.batch_noise(escape.early, steps)
    width = math.hypot(
        _STUDENT * spread, _GAUSSIAN * neglected, _GAUSSIAN * 0.3 / steps, _GAUSSIAN * batches
    )
    # A buffer that is filled already saves what an empty one costs.
    filled = max(steps - case.descent.start, 0.5 * steps)
    return filled * 10.0**-width, steps * 10.0**width


def later_stages(
    case: Plateau,
    surrogate: Escape,
    escape: Escape,
    ratios: Sequence[float],
    spreads: Sequence[float],
    neglected: Sequence[float],
) -> tuple[LaterStage, ...]:
    """Half of each later stage that is followed, with the interval of its own spread and ratio."""
    numbers = range(2, len(ratios) + 1)
    stages = []
    times = case.later_times(surrogate, numbers, surrogate.slowness)
    for number, time in zip(numbers, times, strict=True):
        ratio = ratios[number - 1]
        steps = case.steps_from(escape if math.isnan(ratio) else surrogate, time)
        steps = corrected(steps, ratio)
        left = math.hypot(neglected[number - 1], 0.0 if number == 2 else _THIRD)
        interval = interval_of(case, escape, steps, spreads[number - 1], left)
        level = case.unit * case.stages.level(0.5, number)
        stages.append(LaterStage(number, steps, interval, level))
    return tuple(stages)
