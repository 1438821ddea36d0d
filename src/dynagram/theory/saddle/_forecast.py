"""When will this network leave its plateau? A forecast from its weights and one batch.

The deep-linear surrogate with the measured mean slopes of the activations is integrated from the
current weights until its loss has fallen by the asked fraction of what a linear map can gain.
Gradient descent lags behind the flow by (1+β)/(2(1−β)) · log of the growth of the velocity, in
steps, β being the momentum; the forecast includes it. Derivation:
docs/derivations/surrogate-flow.md (D4.5), (D4.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Model
from dynagram.networks._model import takes_model
from dynagram.observables._signal import LayerSignals, layer_signals, mean_slopes
from dynagram.results._regime import Judge, Regime
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._forecast_record import Counterfactual, Forecast
from dynagram.theory.saddle._surrogate import RTOL, LinearTask, surrogate_escape
from dynagram.training import GradientDescent, Optax, Training
from dynagram.training._losses import half_sum_factor

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


@takes_model
def forecast(
    model: Model,
    data: Data,
    training: Training,
    *,
    fraction: float = FRACTION,
    factor: float = 2.0,
    seed: int = 0,
) -> Forecast:
    """Forecast the end of a plateau under gradient descent (or SGD) from the present weights.

    **Arguments:**

    - `model`: the network as it stands, with its learning rates; without skips.
    - `data`: a batch of what it trains on.
    - `training`: gradient descent, perhaps with momentum, on a squared error.
    - `fraction`: the part of the fall to the least loss of a linear map that counts as escape.
    - `factor`: by which the counterfactuals rescale a layer.
    - `seed`: of the sub-batches behind the interval.

    **Returns:** `Forecast`. Cost: L + 5 surrogate flows, below two seconds for 8 layers of 256
    units.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 8))
    >>> sizes = (32, 8), (32, 32), (32, 32), (1, 32)
    >>> weights = [0.1 * rng.normal(size=s) * np.sqrt(2 / s[1]) for s in sizes]
    >>> how = Training(GradientDescent(0.025), loss="mean")
    >>> answer = forecast(Model.of_matrices(weights, "tanh"), Data(x, np.tanh(x[:, 0])), how)
    >>> answer.plateau, answer.r, answer.counterfactuals[0].escape_step < answer.escape_step
    (True, 4, True)
    """
    _check(fraction, factor)
    model, x, y = model.in_float64(), data.check(model.network).x, data.y
    state = layer_signals(model, x, y)
    kind = classify(model.network.activation)
    is_centred = kind.offset != 0.0 or any(np.any(layer.b) for layer in model.params)
    unit = _loss_unit(training, data)
    run = _Run(
        model,
        math.prod(state.gains),
        [unit * rate for rate in _relative_rates(model, training)],
        _learning_rate(training),
        _momentum(training),
        fraction,
    )
    task = LinearTask.of(x, y, centred=is_centred)
    present, silent = _losses(state, x, y, task, is_centred)
    stages, null = _stages(task, len(x))
    judge = Judge()
    judge.numbers |= {"loss": unit * present, "silent_loss": unit * silent, "stages": float(stages)}
    _judge_signal(judge, state, kind.label, present, silent, unit, task, stages, null)
    answer = None if judge.level else run.steps(task, present, parts=(2 * _EARLY, 1.0))
    if answer is not None and math.isfinite(answer.half):
        judge.measure(
            "early_fall", 1.0 - answer.early_share, 1.0 - _EARLY_SHARE, 1.0 - _EARLY_SHARE,
            f"the loss is already falling: a tenth of the fall takes {answer.early_share:.0%} of "
            "the time to the half, on a plateau most of it",
        )  # fmt: skip
        answer = None if judge.level else answer
    if answer is None:
        counterfactuals, interval = (), None
    else:
        spread = _batch_spread(run, x, y, is_centred, answer.half, seed)
        interval = _interval(answer.half, spread, state, kind.q)
        sample = x[:: max(len(x) // _GAIN_SAMPLES, 1)]
        counterfactuals = tuple(
            run.rescale(
                layer, factor, task, present,
                lambda changed: math.prod(mean_slopes(changed, sample)),
            )
            for layer in range(1, model.network.depth + 1)
        )  # fmt: skip
    return Forecast(
        regime=_regime(judge, state, unit * present, unit * silent, stages),
        escape_step=None if answer is None else answer.half,
        interval=interval,
        loss=unit * present,
        escape_loss=unit * (present + fraction * (task.minimum - present)),
        names=tuple(model.name_of(layer) for layer in range(1, model.network.depth + 1)),
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
    """A network and training settings; a task turns them into a number of steps.

    `rates` are those of the layers, in the convention ½E|f − y|².
    """

    model: Model
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
        weights = [np.asarray(layer.W) for layer in self.model.params]
        escape = surrogate_escape(
            task, weights, gain=self.gain, levels=levels, rates=self.rates, rtol=rtol
        )
        early, half = escape.times[0], escape.times[-1]
        if not math.isfinite(half):
            return _Answer(math.inf, 1.0)
        per_time = (1.0 - self.momentum) / self.learning_rate
        lag = 0.5 * (1.0 + self.momentum) / (1.0 - self.momentum) * escape.velocity_growth
        return _Answer(half * per_time + max(lag, 0.0) + 0.5, early / half if half else 0.0)

    def rescale(
        self,
        layer: int,
        factor: float,
        task: LinearTask,
        present: float,
        gain_of: Callable[[Model], float],
    ) -> Counterfactual:
        """The forecast with one layer multiplied; its signals are larger, so the slopes differ."""
        params = tuple(
            part._replace(W=factor * part.W) if number == layer else part
            for number, part in enumerate(self.model.params, start=1)
        )
        changed = self.model.with_params(params)
        other = replace(self, model=changed, gain=gain_of(changed))
        return Counterfactual(layer, factor, other.steps(task, present, rtol=_QUICK_RTOL).half)


def _check(fraction: float, factor: float) -> None:
    if not (math.isfinite(factor) and factor > 0):
        raise InvalidValueError("factor", factor, "a finite number > 0 needed")
    if not 0.0 < fraction < 1.0:
        raise InvalidValueError("fraction", fraction, "expected 0 < fraction < 1")


def _learning_rate(training: Training) -> float:
    """η, refused for what a plateau forecast does not know how to follow."""
    if not isinstance(training, Training):
        raise InvalidTypeError("training", type(training).__name__, "expected a Training")
    is_momentum = isinstance(training.algorithm, Optax) and training.name == "momentum"
    if training.eta is None or not (isinstance(training.algorithm, GradientDescent) or is_momentum):
        allowed = 'forecasts follow GradientDescent(eta) or Optax("momentum", eta)'
        raise InvalidValueError("algorithm", training.name, allowed)
    if training.weight_decay != 0.0:
        allowed = "a forecast is without weight decay"
        raise InvalidValueError("weight_decay", training.weight_decay, allowed)
    return training.eta


def _momentum(training: Training) -> float:
    if not isinstance(training.algorithm, Optax):
        return 0.0
    options = dict(training.algorithm.options)
    if options.get("nesterov", False):
        raise InvalidValueError("nesterov", True, "a forecast is for plain momentum")
    momentum = float(options.get("momentum", 0.9))
    if not 0.0 <= momentum < 1.0:
        raise InvalidValueError("momentum", momentum, "expected 0 ≤ momentum < 1")
    return momentum


def _loss_unit(training: Training, data: Data) -> float:
    """The loss that `training` names over ½E|f − y|²."""
    return len(data.x) * half_sum_factor(training.loss, len(data.x), data.outputs)


def _relative_rates(model: Model, training: Training) -> list[float]:
    """λ_W/n_{ℓ-1} of the layers, 0 for those that stay as they are."""
    rates = zip(model.network.lambda_W, model.network.widths[:-1], strict=True)
    return [
        0.0 if layer in training.fixed else rate / n
        for layer, (rate, n) in enumerate(rates, start=1)
    ]


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
    alive = values > 1e-12 * max(float(values[-1]), 0.0)
    whitened = (task.cross_moment @ vectors[:, alive]) / np.sqrt(values[alive])
    squares = np.linalg.svd(whitened, compute_uv=False) ** 2
    inputs = int(alive.sum())
    null = (inputs + 3.0 * math.sqrt(2.0 * inputs)) * task.power / samples
    return int(np.sum(squares > null)), null


def _judge_signal(
    judge: Judge,
    state: LayerSignals,
    label: str,
    present: float,
    silent: float,
    unit: float,
    task: LinearTask,
    stages: int,
    null: float,
) -> None:
    """Is the signal small, the output silent, and is there something linear to learn?"""
    worst = max(state.nonlinearity, default=0.0)
    layer = 1 + int(np.argmax(state.nonlinearity))
    judge.measure(
        "nonlinearity", worst, _LARGEST_NONLINEARITY, _LARGEST_NONLINEARITY,
        "the activation has a kink at 0: however small, the signal is not linear"
        if label == "A" else
        f"the signal is not small: {worst:.0%} of layer {layer}'s activation is nonlinear "
        f"(largest allowed {_LARGEST_NONLINEARITY:.0%})",
    )  # fmt: skip
    spread = state.outputs - state.outputs.mean(axis=0)
    output = float(np.sum(spread * spread)) / len(spread) / max(task.power, 1e-300)
    fallen = 1.0 - present / silent if silent > 0.0 else 0.0
    judge.measure(
        "output", max(output, fallen), _LARGEST_OUTPUT, _LARGEST_OUTPUT,
        f"the output is not small: its power is {output:.0%} of the targets' and the loss "
        f"{unit * present:.4g} against {unit * silent:.4g} of a silent network",
    )  # fmt: skip
    if stages == 0:
        share = null / max(task.power, 1e-300)
        judge.object(
            2,
            "the targets show no linear signal beyond chance in this batch "
            f"(threshold {share:.0%} of their power)",
        )


def _regime(
    judge: Judge, state: LayerSignals, present: float, silent: float, stages: int
) -> Regime:
    regime = judge.regime("small signal", "on a plateau")
    if judge.level:
        return regime
    escapes = "one escape" if stages == 1 else f"{stages} escapes, one per output direction"
    reasons = (
        f"the loss {present:.4g} is that of a silent network, {silent:.4g}",
        f"at most {max(state.nonlinearity, default=0.0):.1%} of an activation is nonlinear",
        f"a linear signal is there: {escapes}; what comes after it is not forecast",
    )
    return replace(regime, reasons=reasons)


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
