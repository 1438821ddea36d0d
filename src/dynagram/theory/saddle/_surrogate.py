"""The deep-linear surrogate of a network on a small-signal plateau, and when it leaves.

While the signals are small an activation acts as its slope, so that the network is
f = g W_L⋯W_1 x with one number g for all activations, and its loss needs the data through
Σ = E[xxᵀ], C = E[yxᵀ] and E|y|² only. Its gradient flow is integrated from the current weights:
a plateau of a million training steps takes some twenty steps of an adaptive solver.

All velocities have the rank k of the output, and so do the stages of a Runge-Kutta step: they are
kept as factors, which makes a step cost a few products of the weights with k vectors. That is why
the Dormand–Prince method is written out here: diffrax adds up stages as whole arrays, of the size
of the weights each.
Derivation: docs/derivations/surrogate-flow.md (D4.1)-(D4.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

Weights = tuple[np.ndarray, ...]

RTOL = 1e-5
_MOST_STEPS = 2000
# Directions of Σ below this fraction of its largest eigenvalue carry no signal, only rounding.
_SMALLEST_DIRECTION = 1e-12
# Dormand and Prince's rule of order five: the coefficients of each stage, then of the result, and
# of its difference from the embedded rule of order four.
_STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
_RESULT = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


@dataclass(frozen=True, eq=False)
class LinearTask:
    """What a linear map can see of the data, and the loss ½E|Px − y|² of the map P.

    >>> x = np.array([[1.0], [-1.0]])
    >>> task = LinearTask.of(x, 2.0 * x)
    >>> task.loss(np.zeros((1, 1))), round(task.minimum, 12)
    (2.0, 0.0)
    """

    second_moment: Float[np.ndarray, "n_0 n_0"]
    cross_moment: Float[np.ndarray, "outputs n_0"]
    power: float

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "samples n_0"],
        y: Float[np.ndarray, "samples outputs"],
        *,
        centred: bool = False,
    ) -> LinearTask:
        """Moments over the rows; `centred` for a network whose biases carry the means."""
        if centred:
            x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        samples = x.shape[0]
        return cls(x.T @ x / samples, y.T @ x / samples, float(np.sum(y * y)) / samples)

    @property
    def best_map(self) -> Float[np.ndarray, "outputs n_0"]:
        """The smallest P of least loss, C Σ⁺."""
        values, vectors = np.linalg.eigh(self.second_moment)
        kept = values > _SMALLEST_DIRECTION * max(float(values[-1]), 0.0)
        inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
        return ((self.cross_moment @ vectors) * inverse) @ vectors.T

    @property
    def minimum(self) -> float:
        """The least loss of a linear map: the end of the small-signal stage."""
        return max(0.5 * (self.power - float(np.sum(self.best_map * self.cross_moment))), 0.0)

    def residual(self, P: Float[np.ndarray, "outputs n_0"]) -> Float[np.ndarray, "outputs n_0"]:
        """∂(loss)/∂P = PΣ − C."""
        return P @ self.second_moment - self.cross_moment

    def loss(self, P: Float[np.ndarray, "outputs n_0"]) -> float:
        """½E|Px − y|²."""
        seen = 0.5 * float(np.sum(P * (P @ self.second_moment))) - float(
            np.sum(P * self.cross_moment)
        )
        return seen + 0.5 * self.power


@dataclass(frozen=True, eq=False)
class SurrogateEscape:
    """When the surrogate's loss reached each level, in flow time, and the weights it had then.

    A level that is never reached has the time inf; `weights` are those at the last level reached.
    `velocity_growth` is log(|v_end|/|v_start|) of the velocity of all weights, `steps` the number
    of accepted steps of the solver.
    """

    times: tuple[float, ...]
    weights: Weights
    velocity_growth: float
    steps: int


def linear_map(weights: Sequence[np.ndarray], gain: float) -> np.ndarray:
    """P = g W_L⋯W_1, multiplied from the side of the outputs: L products of k × n by n × n."""
    product = weights[-1]
    for layer in reversed(weights[:-1]):
        product = product @ layer
    return gain * product


def surrogate_escape(
    task: LinearTask,
    weights: Sequence[np.ndarray],
    *,
    gain: float,
    levels: Sequence[float],
    rates: Sequence[float] | None = None,
    rtol: float = RTOL,
) -> SurrogateEscape:
    """Flow times at which the surrogate's loss falls to `levels`, which must decrease.

    `rates` are learning rates ρ_l of the layers relative to the common one. Cost: 10 to 50 steps
    of seven evaluations, 4k Σ_l n_l n_{l−1} flop each, and two passes over the weights. Memory: two
    copies of the weights.

    >>> task = LinearTask.of(np.array([[1.0], [-1.0]]), np.array([[1.0], [-1.0]]))
    >>> start = [np.full((1, 1), 0.1)] * 2
    >>> t = surrogate_escape(task, start, gain=1.0, levels=[0.125]).times[0]
    >>> bool(abs(t - 0.5 * np.log(99)) < 1e-4)     # w' = 2w(1 − w) from 0.01 to 1/2
    True
    """
    wanted = [float(level) for level in levels]
    if sorted(wanted, reverse=True) != wanted or not wanted:
        raise InvalidValueError("levels", wanted, "one or more decreasing losses needed")
    flow = _Flow(task, gain, [1.0] * len(weights) if rates is None else list(rates))
    now = [np.array(layer, dtype=np.float64) for layer in weights]
    times: list[float] = []
    while wanted and flow.loss(now) <= wanted[0]:
        times.append(0.0)
        wanted.pop(0)
    velocity = flow.velocity(now)
    # Steps are measured in growth times: near a blow-up these shrink, and the measure stays.
    time, taken, reach, longest, pace = 0.0, 0, 0.01, 5.0, _growth_time(now, velocity)
    least = task.minimum  # what lies below is never reached
    # Steps that are too long are tried, and thrown away when they overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        while (
            wanted
            and wanted[0] > least
            and taken < _MOST_STEPS
            and math.isfinite(time + reach * pace)
        ):
            step = reach * pace
            moved, error, after = flow.step(now, step, velocity)
            size = error / rtol
            if not size <= 1.0:
                reach *= max(0.2, 0.9 * size**-0.2) if math.isfinite(size) else 0.1
                longest = 1.0  # the next one shall not be tried longer at once
                continue
            if flow.loss(moved) <= wanted[0]:
                step = flow.crossing(now, step, velocity, wanted.pop(0), 0.01 * rtol)
                moved, _, after = flow.step(now, step, velocity)
                times.append(time + step)
            now, velocity, time, taken = moved, after, time + step, taken + 1
            reach, longest = reach * min(longest, 0.9 * max(size, 1e-6) ** -0.2), 5.0
            pace = _growth_time(now, velocity)
    speeds = [math.hypot(*flow.velocity(layers).sizes()) for layers in (weights, now)]
    growth = math.log(speeds[1] / speeds[0]) if min(speeds) > 0 else 0.0
    return SurrogateEscape((*times, *[math.inf] * len(wanted)), tuple(now), growth, taken)


class _Change(NamedTuple):
    """left[l]ᵀ right[l] for every layer, with as many rows as the rank."""

    left: list[np.ndarray]
    right: list[np.ndarray]

    def sizes(self) -> list[float]:
        """Frobenius norms, from the small Gram matrices of the factors."""
        return [
            math.sqrt(max(float(np.sum((a @ a.T) * (b @ b.T))), 0.0))
            for a, b in zip(self.left, self.right, strict=True)
        ]


def _growth_time(weights: Sequence[np.ndarray], velocity: _Change) -> float:
    """The shortest time in which a layer would change by its own size."""
    pairs = zip(weights, velocity.sizes(), strict=True)
    times = [float(np.linalg.norm(layer)) / speed for layer, speed in pairs if speed > 0]
    return min(times, default=math.inf)


@dataclass(frozen=True, eq=False)
class _Flow:
    """dW_l/dt = −ρ_l g (W_L⋯W_{l+1})ᵀ R (W_{l−1}⋯W_1)ᵀ with R = ∂(loss)/∂P."""

    task: LinearTask
    gain: float
    rates: list[float]

    def loss(self, weights: Sequence[np.ndarray]) -> float:
        return self.task.loss(linear_map(weights, self.gain))

    def step(
        self, weights: list[np.ndarray], length: float, velocity: _Change
    ) -> tuple[list[np.ndarray], float, _Change]:
        """The weights after a step, the largest error of a layer over its norm, and the velocity.

        `velocity` is the one at `weights`.
        """
        moved, stages = self._moved(weights, length, velocity)
        stages.append(self.velocity(moved))
        error = _combined(stages, _ERROR, length)
        assert error is not None
        norms = [float(np.linalg.norm(layer)) for layer in moved]
        relative = [e / max(n, 1e-300) for e, n in zip(error.sizes(), norms, strict=True)]
        return moved, float(np.max(relative)), stages[-1]

    def _moved(
        self, weights: list[np.ndarray], length: float, velocity: _Change
    ) -> tuple[list[np.ndarray], list[_Change]]:
        stages = [velocity]
        for row in _STAGES[1:]:
            stages.append(self.velocity(weights, _combined(stages, row, length)))
        move = _combined(stages, _RESULT, length)
        assert move is not None
        return [w + a.T @ b for w, a, b in zip(weights, *move, strict=True)], stages

    def crossing(
        self,
        weights: list[np.ndarray],
        length: float,
        velocity: _Change,
        level: float,
        tolerance: float,
    ) -> float:
        """The length at which a step from here reaches `level`, to a part `tolerance` of it."""
        from scipy.optimize import brentq

        def excess(part: float) -> float:
            return self.loss(self._moved(weights, part, velocity)[0] if part else weights) - level

        return float(brentq(excess, 0.0, length, xtol=tolerance * length, rtol=tolerance))  # pyright: ignore[reportArgumentType]

    def velocity(self, weights: Sequence[np.ndarray], change: _Change | None = None) -> _Change:
        """The velocity at `weights` + `change`; the sum is never formed."""
        above = [np.eye(weights[-1].shape[0])]
        for index in range(len(weights) - 1, -1, -1):
            above.append(_times(above[-1], weights, change, index))
        P = above.pop()
        above.reverse()
        below = [self.gain * self.task.residual(self.gain * P)]
        for index in range(len(weights) - 1):
            below.append(_times_transposed(below[-1], weights, change, index))
        return _Change([-r * rows for r, rows in zip(self.rates, above, strict=True)], below)


def _times(
    rows: np.ndarray, weights: Sequence[np.ndarray], change: _Change | None, index: int
) -> np.ndarray:
    product = rows @ weights[index]
    if change is None:
        return product
    return product + (rows @ change.left[index].T) @ change.right[index]


def _times_transposed(
    rows: np.ndarray, weights: Sequence[np.ndarray], change: _Change | None, index: int
) -> np.ndarray:
    product = rows @ weights[index].T
    if change is None:
        return product
    return product + (rows @ change.right[index].T) @ change.left[index]


def _combined(stages: Sequence[_Change], factors: Sequence[float], step: float) -> _Change | None:
    """step · Σ_j factors_j · stage_j, by stacking the factors of the stages."""
    used = [(step * c, stage) for c, stage in zip(factors, stages, strict=True) if c != 0.0]
    if not used:
        return None
    layers = range(len(stages[0].left))
    return _Change(
        [np.concatenate([c * stage.left[index] for c, stage in used]) for index in layers],
        [np.concatenate([stage.right[index] for _, stage in used]) for index in layers],
    )
