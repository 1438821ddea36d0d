"""When will this network leave its plateau? A forecast from its weights and one batch.

The deep-linear surrogate with the measured mean slopes of the activations is integrated from the
current weights until its loss has fallen by the asked fraction of what a linear map can gain.
Gradient descent lags behind the flow by (1+β)/(2(1−β)) · log of the growth of the velocity, in
steps, β being the momentum; the forecast includes it. Derivation:
docs/derivations/surrogate-flow.md (D4.5), (D4.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike, Layer
from dynagram.observables._signal import LayerSignals, layer_signals, matrices, mean_slopes
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._surrogate import RTOL, LinearTask, surrogate_escape

LOSSES = ("half", "mse", "book")
FRACTION = 0.5
COVERAGE = 0.9  # of the interval, as calibrated by the experiment saddle-forecast-calibration

# What still counts as a small signal, and as a loss near that of a silent network.
_LARGEST_NONLINEARITY = 0.35
_LARGEST_OUTPUT = 0.1
# On a plateau most of the time passes before the first tenth of the fall; in an ordinary decay
# e^{−t} it is 0.15 of the time to the half.
_EARLY, _EARLY_SHARE = 0.1, 0.5
# Error of log10(steps) per unit of nonlinearity, by the order q of the first nonlinear term, and
# of a step that is not observed: fitted to trained networks, see the experiment.
_NEGLECTED = {2: 0.45, 3: 0.12}
_SUBBATCHES = 4
# 90 % quantiles: of a Gaussian, and of Student's t for a spread known from four sub-batches only.
_GAUSSIAN, _STUDENT = 1.645, 2.132
_GAIN_SAMPLES = 256  # enough for the mean slopes of a rescaled network
_QUICK_RTOL = 1e-3


@dataclass(frozen=True)
class Counterfactual:
    """The forecast if the weights of one layer were multiplied by a factor."""

    layer: int
    factor: float
    escape_step: float


@dataclass(frozen=True)
class Forecast:
    """Whether a network sits on a small-signal plateau, and when it will leave it.

    `escape_step` counts steps from the given weights (None without a plateau, inf if no descent is
    possible), `interval` contains it with 90 % probability. `reasons` says in words what the
    verdict rests on. `stages` is the number of separate escapes a linear network would make: one
    per singular value of Σ^{−1/2}E[xyᵀ] above the noise of the batch.
    """

    plateau: bool
    reasons: tuple[str, ...]
    escape_step: float | None
    interval: tuple[float, float] | None
    loss: float
    escape_loss: float
    r: int
    bottleneck: tuple[int, ...]
    scales: tuple[float, ...]
    nonlinearity: tuple[float, ...]
    stages: int
    counterfactuals: tuple[Counterfactual, ...]


def forecast(
    params: Sequence[Layer | np.ndarray],
    batch: tuple[np.ndarray, np.ndarray],
    activation: ActivationLike,
    learning_rate: float,
    *,
    momentum: float = 0.0,
    loss: str = "half",
    rates: Sequence[float] | None = None,
    fraction: float = FRACTION,
    factor: float = 2.0,
    seed: int = 0,
) -> Forecast:
    """Forecast the end of a plateau under gradient descent (or SGD) from the present weights.

    `params` holds a matrix (n_l, n_{l−1}) or a `Layer` per layer, `batch` inputs (samples, n_0) and
    targets (samples, outputs). `loss` is what `learning_rate` belongs to: "half" ½ mean over
    samples of |f − y|², "mse" the mean over samples and outputs, "book" ½ of the sum over the
    batch. `rates` are relative learning rates of the layers. `factor` is that of the
    counterfactuals. Cost: L + 5 surrogate flows, below two seconds for 8 layers of 256 units.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 8))
    >>> sizes = (32, 8), (32, 32), (32, 32), (1, 32)
    >>> weights = [0.1 * rng.normal(size=s) * np.sqrt(2 / s[1]) for s in sizes]
    >>> found = forecast(weights, (x, np.tanh(x[:, :1])), "tanh", 0.05)
    >>> found.plateau, found.r, found.counterfactuals[0].escape_step < found.escape_step
    (True, 4, True)
    """
    x, y = (np.asarray(part, dtype=np.float64) for part in batch)
    _check(learning_rate, momentum, loss, fraction, factor)
    state = layer_signals(params, x, y, activation)
    weights, biases = matrices(params)
    kind = classify(activation)
    centred = kind.offset != 0.0 or any(bias is not None for bias in biases)
    pace = _paces(rates, len(weights), loss, x, y)
    run = _Run(weights, math.prod(state.gains), pace, learning_rate, momentum, fraction)
    sample = x[:: max(len(x) // _GAIN_SAMPLES, 1)]
    task = LinearTask.of(x, y, centred=centred)
    present, silent = _losses(state, x, y, task, centred)
    target = present + fraction * (task.minimum - present)
    stages, null = _stages(task, len(x))
    complaints = _complaints(state, kind.label, present, silent, task, stages, null)
    answer = None if complaints else run.steps(task, present, parts=(2 * _EARLY, 1.0))
    if answer is not None and math.isfinite(answer.half) and answer.early_share < _EARLY_SHARE:
        complaints.append(
            f"the loss is already falling: a tenth of the fall takes {answer.early_share:.0%} of "
            "the time to the half, on a plateau most of it"
        )
        answer = None
    if answer is None:
        counterfactuals, interval = (), None
    else:
        spread = _batch_spread(run, x, y, centred, answer.half, seed)
        interval = _interval(answer.half, spread, state, kind.q)
        counterfactuals = tuple(
            run.rescaled(
                index, factor, task, present,
                lambda changed: math.prod(mean_slopes(changed, biases, sample, activation)),
            )
            for index in range(len(weights))
        )  # fmt: skip
    return Forecast(
        plateau=answer is not None,
        reasons=tuple(complaints) if complaints else _praise(state, present, silent, stages),
        escape_step=None if answer is None else answer.half,
        interval=interval,
        loss=present,
        escape_loss=target,
        r=state.r,
        bottleneck=state.bottleneck,
        scales=state.scales,
        nonlinearity=state.nonlinearity,
        stages=stages,
        counterfactuals=counterfactuals,
    )


@dataclass(frozen=True)
class _Answer:
    half: float
    early_share: float


@dataclass(frozen=True, eq=False)
class _Run:
    """Weights and training settings; a task turns them into a number of steps."""

    weights: list[np.ndarray]
    gain: float
    rates: list[float]
    learning_rate: float
    momentum: float
    fraction: float

    def steps(
        self,
        task: LinearTask,
        present: float,
        rtol: float = RTOL,
        parts: tuple[float, ...] = (1.0,),
    ) -> _Answer:
        """Steps until all `parts` of the fall are done, and the share of them of the first one."""
        fall = self.fraction * (task.minimum - present)
        levels = [present + part * fall for part in parts]
        found = surrogate_escape(
            task, self.weights, gain=self.gain, levels=levels, rates=self.rates, rtol=rtol
        )
        early, half = found.times[0], found.times[-1]
        if not math.isfinite(half):
            return _Answer(math.inf, 1.0)
        per_time = (1.0 - self.momentum) / self.learning_rate
        lag = 0.5 * (1.0 + self.momentum) / (1.0 - self.momentum) * found.velocity_growth
        return _Answer(half * per_time + max(lag, 0.0) + 0.5, early / half if half else 0.0)

    def rescaled(
        self,
        index: int,
        factor: float,
        task: LinearTask,
        present: float,
        gain_of: Callable[[list[np.ndarray]], float],
    ) -> Counterfactual:
        """The forecast with one layer multiplied; its signals are larger, so the slopes differ."""
        changed = [factor * w if i == index else w for i, w in enumerate(self.weights)]
        other = replace(self, weights=changed, gain=gain_of(changed))
        answer = other.steps(task, present, rtol=_QUICK_RTOL)
        return Counterfactual(index + 1, factor, answer.half)


def _check(learning_rate: float, momentum: float, loss: str, fraction: float, factor: float):
    for name, value in {"learning_rate": learning_rate, "factor": factor}.items():
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(name, value, "a finite number > 0 needed")
    if not 0.0 <= momentum < 1.0:
        raise InvalidValueError("momentum", momentum, "expected 0 ≤ momentum < 1")
    if not 0.0 < fraction < 1.0:
        raise InvalidValueError("fraction", fraction, "expected 0 < fraction < 1")
    if loss not in LOSSES:
        raise InvalidValueError("loss", loss, f"expected one of {', '.join(LOSSES)}")


def _paces(
    rates: Sequence[float] | None, depth: int, loss: str, x: np.ndarray, y: np.ndarray
) -> list[float]:
    """Relative learning rates of the layers, in the convention ½E|f − y|²."""
    common = {"half": 1.0, "mse": 2.0 / y.shape[1], "book": float(len(x))}[loss]
    if rates is None:
        return [common] * depth
    if len(rates) != depth or not all(math.isfinite(rate) and rate >= 0 for rate in rates):
        raise InvalidValueError("rates", list(rates), f"{depth} finite numbers ≥ 0 needed")
    return [common * float(rate) for rate in rates]


def _losses(
    state: LayerSignals, x: np.ndarray, y: np.ndarray, task: LinearTask, centred: bool
) -> tuple[float, float]:
    """The present loss, and that of a network whose output does not depend on the input."""
    miss = state.outputs - y
    if centred:
        miss = miss - miss.mean(axis=0)
    return 0.5 * float(np.sum(miss * miss)) / len(x), 0.5 * task.power


def _stages(task: LinearTask, samples: int) -> tuple[int, float]:
    """Singular values of Σ^{−1/2}Cᵀ above what targets without a signal give at this size.

    For independent targets of the same power the squares sum to n_0 E|y|²/samples on average, with
    a spread of √(2 n_0) E|y|²/samples; half of that spread three times over is the margin.
    """
    values, vectors = np.linalg.eigh(task.second_moment)
    kept = values > 1e-12 * max(float(values[-1]), 0.0)
    whitened = (task.cross_moment @ vectors[:, kept]) / np.sqrt(values[kept])
    found = np.linalg.svd(whitened, compute_uv=False) ** 2
    inputs = int(kept.sum())
    null = (inputs + 3.0 * math.sqrt(2.0 * inputs)) * task.power / samples
    return int(np.sum(found > null)), null


def _complaints(
    state: LayerSignals,
    label: str,
    present: float,
    silent: float,
    task: LinearTask,
    stages: int,
    null: float,
) -> list[str]:
    """Why this is not a small-signal plateau; empty when it is."""
    found = []
    worst = max(state.nonlinearity, default=0.0)
    if label == "A" and worst > _LARGEST_NONLINEARITY:
        found.append("the activation has a kink at 0: however small, the signal is not linear")
    elif worst > _LARGEST_NONLINEARITY:
        layer = 1 + int(np.argmax(state.nonlinearity))
        found.append(
            f"the signal is not small: {worst:.0%} of layer {layer}'s activation is nonlinear "
            f"(largest allowed {_LARGEST_NONLINEARITY:.0%})"
        )
    spread = state.outputs - state.outputs.mean(axis=0)
    output = float(np.sum(spread * spread)) / len(spread) / max(task.power, 1e-300)
    if output > _LARGEST_OUTPUT or present < (1.0 - _LARGEST_OUTPUT) * silent:
        found.append(
            f"the output is not small: its power is {output:.0%} of the targets' and the loss "
            f"{present:.4g} against {silent:.4g} of a silent network"
        )
    if stages == 0:
        found.append(
            "the targets show no linear signal beyond chance in this batch "
            f"(threshold {null / max(task.power, 1e-300):.0%} of their power)"
        )
    return found


def _praise(state: LayerSignals, present: float, silent: float, stages: int) -> tuple[str, ...]:
    words = "one escape" if stages == 1 else f"{stages} escapes, one per output direction"
    return (
        f"the loss {present:.4g} is that of a silent network, {silent:.4g}",
        f"at most {max(state.nonlinearity, default=0.0):.1%} of an activation is nonlinear",
        f"a linear signal is there: {words}; what comes after it is not forecast",
    )


def _batch_spread(
    run: _Run, x: np.ndarray, y: np.ndarray, centred: bool, steps: float, seed: int
) -> float:
    """Root-mean-square change of log10(steps) on random halves of the batch.

    A half differs from the whole by as much as the whole from the population.
    """
    if not math.isfinite(steps):
        return 0.0
    rng = np.random.default_rng(seed)
    changes = []
    for _ in range(_SUBBATCHES):
        rows = rng.permutation(len(x))[: max(len(x) // 2, 1)]
        task = LinearTask.of(x[rows], y[rows], centred=centred)
        present = 0.5 * task.power
        half = run.steps(task, present, rtol=_QUICK_RTOL).half
        changes.append(math.log10(half / steps))
    return math.sqrt(float(np.mean(np.square(changes))))


def _interval(
    steps: float, spread: float, state: LayerSignals, q: int | None
) -> tuple[float, float]:
    if not math.isfinite(steps):
        return (math.inf, math.inf)
    neglected = _NEGLECTED[2 if q == 2 else 3] * max(state.nonlinearity, default=0.0)
    width = math.hypot(_STUDENT * spread, _GAUSSIAN * neglected, _GAUSSIAN * 0.3 / steps)
    return steps * 10.0**-width, steps * 10.0**width
