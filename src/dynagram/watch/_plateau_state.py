"""Whether the loss falls, stands on a plateau, or is done, from its curve so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dynagram.observables._plateaus import find_plateaus

State = Literal["falling", "plateau", "done"]
STATES: tuple[State, ...] = ("falling", "plateau", "done")  # as they are numbered in records

_POINTS = 2000  # of a loss curve that is searched for plateaus
_FEWEST = 10
_STILL = 0.01  # of the loss at the beginning: a fall that is none
_DONE = 0.05  # of the loss at the beginning: nothing much is left to fall


def plateau_state(steps: Sequence[int], losses: Sequence[float]) -> State | None:
    """What the loss does now; None for fewer than ten records, or if it is not finite.

    It stands still while all of it is within 1 % of where it began, or while its curve ends on a
    plateau (`find_plateaus`). If that is below 5 % of where it began, it is done.

    >>> t = range(0, 400, 10)
    >>> fall = [1 / (1 + math.exp((s - 200) / 10)) for s in t]
    >>> plateau_state(t[:12], fall[:12]), plateau_state(t[:21], fall[:21]), plateau_state(t, fall)
    ('plateau', 'falling', 'done')
    """
    if len(losses) < _FEWEST or not all(map(math.isfinite, losses)):
        return None
    stride = max(1, len(losses) // _POINTS)
    curve = np.array(losses[::-stride][::-1])
    times = np.array(steps[::-stride][::-1], dtype=np.float64)
    first = abs(losses[0])
    if float(np.ptp(curve)) > _STILL * first:
        plateaus = find_plateaus(curve, times)
        if not plateaus or plateaus[-1].left:
            return "falling"
    return "done" if losses[-1] <= _DONE * first else "plateau"
