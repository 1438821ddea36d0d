"""One network, one task and one way of training: what the surrogate says of their plateau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynagram.networks import Model
from dynagram.observables._signal import layer_signals
from dynagram.theory.saddle._chain import Chain, ahead, chain_of
from dynagram.theory.saddle._descent import SHORT, Descent
from dynagram.theory.saddle._network_flow import network_escape
from dynagram.theory.saddle._stages import Stages, find_stages
from dynagram.theory.saddle._surrogate import RTOL, iterated_escape, surrogate_escape, velocity
from dynagram.theory.saddle._tasks import Task, make_task, output_gradient, output_loss

_EARLY = 0.2  # of the asked fraction: a tenth of the fall where that is a half
_ARRIVED = 0.05  # of the first fall: so near the plateau's loss the mean is learnt
_MOST_STAGES = 10
_QUICK_RTOL = 1e-3
_STIFF = 100  # steps of the solver, above which a mean may be slower still where it is compared
# Samples for the network's own flow: as many as fit into this many products, within these limits.
_EFFORT, _ROWS = 3e7, (128, 1024)


@dataclass(frozen=True)
class Escape:
    """Steps to the escape, the share of them before the early part of the fall, the chain then.

    `arrival` is the step at which the mean of the targets is learnt, 0 if it is; `last` the chain
    at the escape, `time` its flow time. `slowness` is that of the solutions, `quick` one for
    surrogates that are only compared with each other.
    """

    steps: float
    early_share: float
    arrival: float
    early: Chain
    last: Chain
    time: float
    slowness: float
    quick: float


@dataclass(frozen=True, eq=False)
class Plateau:
    """What the surrogate knows; `chain` has the rates in units of the loss of a sample."""

    model: Model
    x: np.ndarray
    y: np.ndarray
    descent: Descent
    loss: str
    unit: float
    fraction: float
    chain: Chain
    task: Task
    stages: Stages
    learns_constants: bool

    @classmethod
    def of(
        cls,
        model: Model,
        x: np.ndarray,
        y: np.ndarray,
        descent: Descent,
        *,
        loss: str,
        unit: float,
        fraction: float,
        fixed: Sequence[int],
        is_offset: bool,
    ) -> Plateau:
        """Measure slopes and offsets, find the first stages."""
        rates = [
            (0.0, 0.0) if layer in fixed else (unit * bias, unit * weight)
            for layer, (bias, weight) in enumerate(model.network.rates(), start=1)
        ]
        chain = chain_of(model, x, rates)
        learns = rates[-1][0] > 0.0 or (is_offset and rates[-1][1] > 0.0)
        task = make_task(loss, x, y)
        mean = np.asarray(model(x)).mean(axis=0)
        constant = task.best_constant() if learns else mean
        stages = find_stages(task, constant, is_free=learns, count=_MOST_STAGES)
        return cls(model, x, y, descent, loss, unit, fraction, chain, task, stages, learns)

    def on_rows(self, rows: np.ndarray, count: int = 1) -> Plateau:
        """The same on a part of the batch, with its first `count` stages."""
        x, y = self.x[rows], self.y[rows]
        task = make_task(self.loss, x, y)
        constant = task.best_constant() if self.learns_constants else self.stages.constant
        stages = find_stages(task, constant, is_free=self.learns_constants, count=count)
        return replace(self, x=x, y=y, task=task, stages=stages)

    def rescaled(self, layer: int, factor: float, samples: int) -> Plateau:
        """The same with one layer multiplied; its signals are larger, so the slopes differ."""
        params = tuple(
            part._replace(W=factor * part.W) if number == layer else part
            for number, part in enumerate(self.model.params, start=1)
        )
        changed = self.model.with_params(params)
        rates = list(zip(self.chain.bias_rates, self.chain.rates, strict=True))
        chain = chain_of(changed, self.x[:: max(len(self.x) // samples, 1)], rates)
        return replace(self, model=changed, chain=chain)

    def loss_of(self, outputs: np.ndarray) -> float:
        """That of a sample, on average, for given outputs."""
        return output_loss(self.loss, outputs, self.y)

    def escape(self, rtol: float = RTOL, slowness: float = 1.0) -> Escape:
        """The surrogate's escape from the present weights."""
        first, level = self.stages.falls[0], self.stages.level(self.fraction)
        # The mean is learnt at its own pace; after that a slower one is as good, where it is stiff.
        arrived = surrogate_escape(
            self.task, self.chain, [self.stages.loss + _ARRIVED * first], rtol=rtol
        )
        early = self.stages.level(_EARLY * self.fraction)
        begun = surrogate_escape(self.task, arrived.chain, [early], rtol=rtol, slowness=slowness)
        slowness = begun.slowness
        ended = surrogate_escape(self.task, begun.chain, [level], rtol=rtol, slowness=slowness)
        begun_time = arrived.times[0] + begun.times[0]
        time, chains = begun_time + ended.times[0], (begun.chain, ended.chain)
        arrival = self.descent.steps(arrived.times[0]) if arrived.times[0] else 0.0
        if not math.isfinite(time):
            return Escape(math.inf, 1.0, arrival, *chains, math.inf, slowness, slowness)
        growth = begun.velocity_growth + ended.velocity_growth
        steps = self.descent.steps(time, growth)
        if self.descent.is_short(steps):
            taken = iterated_escape(
                self.task, self.chain, level, rate=self.descent.rate,
                momentum=self.descent.momentum,
                most=int(4 * SHORT / (1.0 - self.descent.momentum)),
            )  # fmt: skip
            steps = 0.5 + taken if math.isfinite(taken) else steps
        share = begun_time / time if time else 0.0
        is_stiff = self.chain.is_affine and begun.steps + ended.steps > _STIFF
        quick = 0.1 * slowness if is_stiff else slowness
        return Escape(steps, share, arrival, *chains, time, slowness, quick)

    def quick_steps(self, slowness: float, count: int = 1) -> list[float]:
        """Steps of the surrogate to its first `count` stages, at a lower precision."""
        escape = self.escape(_QUICK_RTOL, slowness)
        later = self.later_times(escape, range(2, count + 1), slowness)
        return [escape.steps, *(self.steps_from(escape, time) for time in later)]

    def steps_from(self, escape: Escape, time: float) -> float:
        """The step at a flow time after the escape."""
        if not math.isfinite(time):
            return math.inf
        return escape.steps + self.descent.steps(time) - self.descent.steps(escape.time)

    def later_times(self, escape: Escape, numbers: range, slowness: float) -> list[float]:
        """Flow times at half of the stages `numbers`, inf for those that are not there."""
        levels = [self.stages.level(0.5, n) for n in numbers if n <= len(self.stages.falls)]
        if not levels or not math.isfinite(escape.time):
            return [math.inf for _ in numbers]
        onward = surrogate_escape(
            self.task, escape.last, levels, rtol=_QUICK_RTOL, slowness=slowness
        )
        missing = len(numbers) - len(levels)
        return [escape.time + time for time in onward.times] + [math.inf] * missing

    def curvature_ratios(self, escape: Escape, q: int | None, count: int = 1) -> list[float]:
        """Times of the network itself over the surrogate's to its stages, on a part of the batch.

        nan where it is not worth its cost, because a fast mean makes the flow stiff, or where the
        part is too small: with σ''(0) ≠ 0 networks fit the n_0² squares of few samples by chance.
        """
        if not math.isfinite(escape.time):
            return [1.0] * count
        parameters = sum(W.size for W in self.chain.weights)
        rows = int(np.clip(_EFFORT // parameters, *_ROWS))
        is_small = rows < min(len(self.x), self.x.shape[1] ** 2)
        if escape.quick < escape.slowness or (q == 2 and is_small):
            return [math.nan] * count
        part = self
        if rows < len(self.x):
            part = self.on_rows(np.linspace(0, len(self.x) - 1, rows).astype(int), count)
        surrogate = part.escape(_QUICK_RTOL, escape.slowness)
        expected = [
            surrogate.time,
            *part.later_times(surrogate, range(2, count + 1), escape.slowness),
        ]
        levels = [part.stages.level(self.fraction)]
        levels += [
            part.stages.level(0.5, n) for n in range(2, count + 1) if n <= len(part.stages.falls)
        ]
        arrival = part.stages.loss + _ARRIVED * part.stages.falls[0]
        parts = (self.model.network.activation, self.loss, part.x, part.y)
        begun = network_escape(*parts, self.chain, [arrival], rtol=_QUICK_RTOL)
        ended = network_escape(
            *parts, begun.chain, levels, rtol=_QUICK_RTOL, slowness=escape.slowness
        )
        times = [begun.times[0] + time for time in ended.times]
        times += [math.inf] * (count - len(times))
        return [
            time / other if math.isfinite(time + other) and time > 0.0 < other else math.nan
            for time, other in zip(times, expected, strict=True)
        ]

    def followed(self, escape: Escape, count: int, largest: float) -> int:
        """To which stage the network with the surrogate's weights stays linear, 1 for the first."""
        chain = escape.last
        for number in range(2, min(count, len(self.stages.falls)) + 1):
            params = tuple(
                part._replace(b=b, W=W)
                for part, b, W in zip(self.model.params, chain.biases, chain.weights, strict=True)
            )
            signals = layer_signals(self.model.with_params(params), self.x, self.y)
            is_small = max(signals.nonlinearity, default=0.0) <= largest
            # What is not linear in the stages before falls too, as much as they leave behind.
            if not is_small or self.stages.falls[number - 1] < self.stages.floor:
                return number - 1
            level = self.stages.level(0.5, number)
            onward = surrogate_escape(
                self.task, chain, [level], rtol=_QUICK_RTOL, slowness=escape.slowness
            )
            if not math.isfinite(onward.times[0]):
                return number - 1
            chain = onward.chain
        return max(1, min(count, len(self.stages.falls)))

    def batch_noise(self, chain: Chain, steps: float) -> float:
        """Spread of log10(steps) from mini-batches: that of the mean drive over all steps.

        The drive of a sample is −r·(dP x + dc) with dP, dc the surrogate's change per time. Batches
        without repetition leave the part 1 − B/M of its variance.
        """
        batch = self.descent.batch
        if batch is None or batch >= len(self.x):
            return 0.0
        layers, change = chain.joined, velocity(self.task, chain)
        moved = [a + 1e-6 * (b.T @ c) for a, b, c in zip(layers, *change, strict=True)]
        (_, P, c), (_, Q, d) = ahead(chain, layers), ahead(chain, moved)
        residual = output_gradient(self.loss, self.x @ P.T + c, self.y)
        drives = -np.sum(residual * (self.x @ (Q - P).T + (d - c)), axis=1)
        mean = float(drives.mean())
        if not mean > 0.0:
            return 0.0
        variation = float(drives.std()) / mean
        left = 1.0 - batch / len(self.x)
        return variation * math.sqrt(left / (batch * steps)) / math.log(10.0)


def gradient_size(case: Plateau, chain: Chain) -> float:
    """The largest entry of the gradient of the trained loss at a chain of the surrogate."""
    moving = tuple(case.unit if rate > 0.0 else 0.0 for rate in chain.rates)
    biases = tuple(case.unit if rate > 0.0 else 0.0 for rate in chain.bias_rates)
    left, right = velocity(case.task, replace(chain, rates=moving, bias_rates=biases))
    return max(float(np.max(np.abs(a.T @ b))) for a, b in zip(left, right, strict=True))
