"""The affine surrogate of a network on a small-signal plateau, and when it leaves.

While the signals are small an activation acts on each neuron as its best straight line, so that the
network is a chain of affine maps, z_l = W_l h_{l−1} + b_l, h_l = a_l + g_l z_l, and its loss needs
the data through means and second moments only (samples, for losses that are not squares). Its
gradient flow is integrated from the current weights: a plateau of a million training steps takes
some twenty steps of an adaptive solver.

All velocities have the rank k of the output, and so do the stages of a Runge-Kutta step: they are
kept as factors, which makes a step cost a few products of the weights with k vectors. That is why
the Dormand–Prince method is written out here: diffrax adds up stages as whole arrays, of the size
of the weights each.
Derivation: docs/derivations/surrogate-flow.md (D4.1)-(D4.7), (D4.18).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._chain import Chain, Change, Movement, ahead
from dynagram.theory.saddle._tasks import Task

RTOL = 1e-5
_MOST_STEPS = 2000
# A mean that is learnt much faster than the rest makes the flow stiff. After this many steps it is
# slowed down: it stays fast, and its value follows from the rest as before.
_STIFF_STEPS, _SLOWER, _SLOWEST_MEAN = 1500, 0.3, 1e-6
# The largest curvature is found by turning a change of the outputs, of this size, towards it.
_MOST_TURNS, _TURNED, _DIFFERENCE = 200, 1e-4, 1e-3
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
class SurrogateEscape:
    """When the surrogate's loss reached each level, in flow time, and the chain it was then.

    A level that is never reached has the time inf; `chain` is that at the last level reached.
    `velocity_growth` is log(|v_end|/|v_least|) of the velocity of all weights, `steps` the number
    of accepted steps of the solver, `slowness` what the mean had to be slowed down by.
    """

    times: tuple[float, ...]
    chain: Chain
    velocity_growth: float
    steps: int
    slowness: float = 1.0


def linear_map(weights: Sequence[np.ndarray], gain: float) -> np.ndarray:
    """P = g W_L⋯W_1, multiplied from the side of the outputs: L products of k × n by n × n."""
    return Chain.linear(weights, gain=gain).affine_map[0]


def surrogate_escape(
    task: Task,
    chain: Chain,
    levels: Sequence[float],
    *,
    rtol: float = RTOL,
    measure: Callable[[Chain], float] | None = None,
    slowness: float = 1.0,
) -> SurrogateEscape:
    """Flow times at which the surrogate's loss falls to `levels`, which must decrease.

    `measure` replaces the loss by another function that falls; `slowness` is that of an earlier
    solution, to begin with. Cost: 10 to 50 steps, some hundred where a mean is learnt beside, of
    seven evaluations, 4k Σ_l n_l n_{l−1} flop each, and two passes over the weights. Memory: two
    copies of the weights.

    >>> from dynagram.theory.saddle._tasks import LinearTask
    >>> task = LinearTask.of(np.array([[1.0], [-1.0]]), np.array([[1.0], [-1.0]]))
    >>> start = Chain.linear([np.full((1, 1), 0.1)] * 2)
    >>> t = surrogate_escape(task, start, [0.125]).times[0]
    >>> bool(abs(t - 0.5 * np.log(99)) < 1e-4)     # w' = 2w(1 − w) from 0.01 to 1/2
    True
    """
    return follow(Flow(task, chain, slowness, measure), levels, rtol)


def follow(flow: Flow, levels: Sequence[float], rtol: float) -> SurrogateEscape:
    """Solve a flow until its levels, with the mean slowed down as far as it takes."""
    wanted = [float(level) for level in levels]
    if sorted(wanted, reverse=True) != wanted or not wanted:
        raise InvalidValueError("levels", wanted, "one or more decreasing losses needed")
    while True:
        is_last = flow.slowness < _SLOWEST_MEAN or not flow.chain.is_affine
        most = _MOST_STEPS if is_last else _STIFF_STEPS
        escape = _solve(flow, list(wanted), rtol, most)
        if escape.steps < most or is_last:
            return escape
        flow = replace(flow, slowness=_SLOWER * flow.slowness)


def velocity(task: Task, chain: Chain) -> Change:
    """The velocity of the layers [W_l b_l] under gradient flow, as factors."""
    change = Flow(task, chain).velocity(chain.joined)
    assert isinstance(change, Change)
    return change


def _solve(flow: Flow, wanted: list[float], rtol: float, most: int) -> SurrogateEscape:
    now = flow.chain.joined
    times: list[float] = []
    while wanted and flow.value(now) <= wanted[0]:
        times.append(0.0)
        wanted.pop(0)
    velocity = flow.velocity(now)
    least_speed = speed = math.hypot(*velocity.sizes())
    # Steps are measured in growth times: near a blow-up these shrink, and the measure stays.
    time, taken, reach, longest, pace = 0.0, 0, 0.01, 5.0, _growth_time(now, velocity)
    # Steps that are too long are tried, and thrown away when they overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        while (
            wanted
            and wanted[0] > flow.least
            and taken < most
            and math.isfinite(time + reach * pace)
        ):
            step = reach * pace
            moved, error, after = flow.step(now, step, velocity)
            size = error / rtol
            if not size <= 1.0:
                reach *= max(0.2, 0.9 * size**-0.2) if math.isfinite(size) else 0.1
                longest = 1.0  # the next one shall not be tried longer at once
                continue
            if flow.value(moved) <= wanted[0]:
                step = flow.crossing(now, step, velocity, wanted.pop(0), 0.01 * rtol)
                moved, _, after = flow.step(now, step, velocity)
                times.append(time + step)
            now, velocity, time, taken = moved, after, time + step, taken + 1
            reach, longest = reach * min(longest, 0.9 * max(size, 1e-6) ** -0.2), 5.0
            pace = _growth_time(now, velocity)
            speed = math.hypot(*velocity.sizes())
            least_speed = min(least_speed, speed)
    growth = math.log(speed / least_speed) if least_speed > 0 else 0.0
    chain = flow.chain.with_layers(now)
    reached = (*times, *[math.inf] * len(wanted))
    return SurrogateEscape(reached, chain, growth, taken, flow.slowness)


def iterated_escape(
    task: Task, chain: Chain, level: float, *, rate: float, momentum: float, most: int
) -> float:
    """Steps of gradient descent with momentum on the surrogate, one by one, until `level`.

    The buffer starts empty. Between two steps the loss is interpolated; inf if `level` is not
    reached in `most` steps. Cost: an evaluation and a pass over the weights each.

    >>> from dynagram.theory.saddle._tasks import LinearTask
    >>> task = LinearTask.of(np.array([[1.0], [-1.0]]), np.array([[1.0], [-1.0]]))
    >>> start = Chain.linear([np.full((1, 1), 0.1)] * 2)
    >>> steps = iterated_escape(task, start, 0.125, rate=1e-3, momentum=0.0, most=9999)
    >>> bool(abs(1e-3 * steps - 0.5 * np.log(99)) < 3e-3)
    True
    """
    flow, now = Flow(task, chain), chain.joined
    buffer = [np.zeros_like(layer) for layer in now]
    before = flow.value(now)
    with np.errstate(over="ignore", invalid="ignore"):  # a rate that is too large ends in inf
        for step in range(most):
            if before <= level:
                return float(step)
            left, right = velocity(task, chain.with_layers(now))
            for index, (rows, columns) in enumerate(zip(left, right, strict=True)):
                buffer[index] = momentum * buffer[index] + rate * (rows.T @ columns)
                now[index] = now[index] + buffer[index]
            after = flow.value(now)
            if not math.isfinite(after):
                break
            if after <= level:
                return step + (before - level) / (before - after)
            before = after
    return math.inf


def sharpness(task: Task, chain: Chain) -> float:
    """The largest rate at which a change of the outputs relaxes under the flow (D4.18).

    It is the largest eigenvalue of Q ↦ Σ_l A_lA_lᵀ E[Hq hᵀ] R_l, q = Qh_0 a change of the outputs,
    H the second derivative of the loss, h the inputs of layer l with a 1 for the bias: that of the
    Gauss-Newton matrix with the rates. Descent is stable along it while η·sharpness < 2(1 + β).
    Cost: a product of all weights with the inputs' directions, and a power iteration.

    >>> from dynagram.theory.saddle._tasks import LinearTask
    >>> task = LinearTask.of(np.array([[1.0], [-1.0]]), np.array([[1.0], [-1.0]]))
    >>> round(sharpness(task, Chain.linear([np.full((1, 1), 0.5)] * 2)), 6)     # w_1² + w_2²
    0.5
    """
    above, P, c = ahead(chain, chain.joined)
    inputs, terms = np.eye(P.shape[1] + 1), []
    for index, layer in enumerate(chain.joined):
        rates = np.full(len(inputs), chain.rates[index])
        rates[-1] = chain.bias_rates[index]
        terms.append((above[index] @ above[index].T, inputs.T @ (rates[:, None] * inputs)))
        if index + 1 < len(chain.weights):
            through = chain.gains[index][:, None] * (layer @ inputs)
            through[:, -1] += chain.offsets[index]
            inputs = np.vstack([through, inputs[-1]])
    Q = np.random.default_rng(0).normal(size=(len(P), P.shape[1] + 1))
    largest = 0.0
    for _ in range(_MOST_TURNS):
        Q = Q * (_DIFFERENCE / np.linalg.norm(Q))
        plus, minus = (task.pull(P + s * Q[:, :-1], c + s * Q[:, -1]) for s in (0.5, -0.5))
        mean = plus.mean - minus.mean
        moment = plus.covariance - minus.covariance + np.outer(mean, task.input_mean)
        turned = np.column_stack([moment, mean])
        Q = sum((outer @ turned @ inner for outer, inner in terms), np.zeros_like(Q))
        before, largest = largest, float(np.linalg.norm(Q)) / _DIFFERENCE
        if largest == 0.0 or abs(largest - before) < _TURNED * largest:
            break
    return largest


def _growth_time(layers: Sequence[np.ndarray], velocity: Movement) -> float:
    """The shortest time in which a layer would change by its own size."""
    pairs = zip(layers, velocity.sizes(), strict=True)
    times = [float(np.linalg.norm(layer)) / speed for layer, speed in pairs if speed > 0]
    return min(times, default=math.inf)


@dataclass(frozen=True, eq=False)
class Flow:
    """dW_l/dt = −ρ_l A_lᵀ E[r h_{l−1}ᵀ], A_l = ∂f/∂z_l; a bias is the weight of an input 1.

    E[r] counts `slowness` times, see `_STIFF_STEPS`.
    """

    task: Task
    chain: Chain
    slowness: float = 1.0
    measure: Callable[[Chain], float] | None = None

    @property
    def least(self) -> float:
        """What `value` never falls below."""
        if self.measure is not None:
            return -math.inf
        return self.task.least if self.chain.is_affine else self.task.minimum

    def value(self, layers: Sequence[np.ndarray]) -> float:
        """The loss, or what is measured in its place."""
        if self.measure is not None:
            return self.measure(self.chain.with_layers(layers))
        return self.task.loss(*ahead(self.chain, layers)[1:])

    def step(
        self, layers: list[np.ndarray], length: float, velocity: Movement
    ) -> tuple[list[np.ndarray], float, Movement]:
        """The layers after a step, the largest error of one over its norm, and the velocity.

        `velocity` is the one at `layers`.
        """
        moved, stages = self._moved(layers, length, velocity)
        stages.append(self.velocity(moved))
        error = self.combined(stages, _ERROR, length)
        norms = [float(np.linalg.norm(layer)) for layer in moved]
        relative = [e / max(n, 1e-300) for e, n in zip(error.sizes(), norms, strict=True)]
        return moved, float(np.max(relative)), stages[-1]

    def _moved(
        self, layers: list[np.ndarray], length: float, velocity: Movement
    ) -> tuple[list[np.ndarray], list[Movement]]:
        stages = [velocity]
        for row in _STAGES[1:]:
            stages.append(self.velocity(layers, self.combined(stages, row, length)))
        return self.moved(layers, self.combined(stages, _RESULT, length)), stages

    def moved(self, layers: Sequence[np.ndarray], change: Movement) -> list[np.ndarray]:
        """The layers after a change."""
        assert isinstance(change, Change)
        return [w + a.T @ b for w, a, b in zip(layers, *change, strict=True)]

    def combined(
        self, stages: Sequence[Movement], factors: Sequence[float], step: float
    ) -> Movement:
        """step · Σ_j factors_j · stage_j, by stacking the factors of the stages."""
        used = [(step * c, stage) for c, stage in zip(factors, stages, strict=True) if c != 0.0]
        numbers = range(len(self.chain.weights))
        return Change(
            [np.concatenate([c * stage.left[index] for c, stage in used]) for index in numbers],  # pyright: ignore
            [np.concatenate([stage.right[index] for _, stage in used]) for index in numbers],  # pyright: ignore
        )

    def crossing(
        self,
        layers: list[np.ndarray],
        length: float,
        velocity: Movement,
        level: float,
        tolerance: float,
    ) -> float:
        """The length at which a step from here reaches `level`, to a part `tolerance` of it."""
        from scipy.optimize import brentq

        def excess(part: float) -> float:
            return self.value(self._moved(layers, part, velocity)[0] if part else layers) - level

        return float(brentq(excess, 0.0, length, xtol=tolerance * length, rtol=tolerance))  # pyright: ignore[reportArgumentType]

    def velocity(self, layers: Sequence[np.ndarray], change: Movement | None = None) -> Movement:
        """The velocity at `layers` + `change`; the sum is never formed."""
        assert change is None or isinstance(change, Change)
        above, P, c = ahead(self.chain, layers, change)
        pull = self.task.pull(P, c)
        mean = self.slowness * pull.mean
        moment = pull.covariance + np.outer(mean, self.task.input_mean)
        below = [np.column_stack([moment, mean])]  # E[r h_lᵀ] and E[r]
        for index in range(len(layers) - 1):
            rows = _times_transposed(below[-1], layers, change, index) * self.chain.gains[index]
            rows += np.outer(mean, self.chain.offsets[index])
            below.append(np.column_stack([rows, mean]))
        for rows, weight, bias in zip(below, self.chain.rates, self.chain.bias_rates, strict=True):
            rows[:, :-1] *= weight
            rows[:, -1] *= bias
        return Change([-rows for rows in above], below)


def _times_transposed(
    rows: np.ndarray, layers: Sequence[np.ndarray], change: Change | None, index: int
) -> np.ndarray:
    product = rows @ layers[index].T
    if change is None:
        return product
    return product + (rows @ change.right[index].T) @ change.left[index]
