"""When will this network leave its plateau? A forecast from its weights and one batch.

The affine surrogate with the measured slopes and offsets of the activations is integrated from the
current weights until its loss has fallen by the asked fraction of its first stage. Gradient descent
lags behind the flow by (1+β)/(2(1−β)) · log of the growth of the velocity, in steps, β being the
momentum; the forecast includes it. Derivation: docs/derivations/surrogate-flow.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dynagram.data import Data
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import Model
from dynagram.networks._model import takes_model
from dynagram.observables._signal import LayerSignals, layer_signals
from dynagram.results._regime import Judge, Regime
from dynagram.theory.saddle._bounds import escape_bounds
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._descent import Descent
from dynagram.theory.saddle._forecast_record import Bounds, Counterfactual, Forecast, LaterStage
from dynagram.theory.saddle._interval import (
    batch_spreads,
    corrected,
    interval_of,
    later_stages,
    neglected_curvature,
)
from dynagram.theory.saddle._plateau import Escape, Plateau, gradient_size
from dynagram.theory.saddle._stages import count_stages
from dynagram.theory.saddle._surrogate import sharpness, surrogate_escape
from dynagram.theory.saddle._tasks import SAMPLED, output_curvature
from dynagram.training import LOSSES, Training
from dynagram.training._losses import SQUARED, check_loss_targets, half_sum_factor

FRACTION = 0.5
COVERAGE = 0.9  # of the interval, as calibrated by the experiment saddle-forecast-calibration

# What still counts as a small signal, and as a loss near that of a silent network.
_LARGEST_NONLINEARITY = 0.35
_LARGEST_OUTPUT = 0.1
# On a plateau most of the time passes before the first tenth of the fall; in an ordinary decay
# e^{−t} it is 0.15 of the time to the half.
_EARLY_SHARE = 0.5
# Gradients below this part of Adam's ε leave it gradient descent at the rate η/ε.
_BELOW_EPSILON = 0.1
_GAIN_SAMPLES = 256  # enough for the mean slopes of a rescaled network


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
    - `training`: gradient descent, perhaps with momentum and mini-batches, on one of `LOSSES`;
        Adam where its ε is above all gradients, elsewhere the forecast abstains.
    - `fraction`: the part of the first stage's fall that counts as escape.
    - `factor`: by which the counterfactuals rescale a layer.
    - `seed`: of the sub-batches behind the interval.

    **Returns:** `Forecast`. Cost: L + 9 surrogate flows and one flow of the network itself on a
    part of the batch, a few seconds for 8 layers of 256 units.

    >>> from dynagram.training import GradientDescent
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
    descent, unit = Descent.of(training), _loss_unit(training, data)
    with np.errstate(over="ignore", invalid="ignore"):
        state = layer_signals(model, x, y)
    _require_range(x, y, state.outputs)
    kind = classify(model.network.activation)
    case = Plateau.of(
        model, x, y, descent, loss=training.loss, unit=unit, fraction=fraction,
        fixed=training.fixed, is_offset=kind.offset != 0.0,
    )  # fmt: skip
    count, noise = count_stages(
        training.loss, x, y, case.stages.constant, centred=case.learns_constants
    )
    judge = Judge()
    present = case.loss_of(state.outputs)
    judge.numbers |= {
        "loss": unit * present,
        "silent_loss": unit * case.stages.loss,
        "stages": float(count),
    }
    _judge_signal(judge, state, kind.label, case, count, noise)
    escape = None if judge.level else case.escape()
    if escape is not None and math.isfinite(escape.time):
        judge.measure(
            "early_fall", 1.0 - escape.early_share, 1.0 - _EARLY_SHARE, 1.0 - _EARLY_SHARE,
            f"the loss is already falling: a tenth of the fall takes {escape.early_share:.0%} of "
            "the time to the half, on a plateau most of it",
        )  # fmt: skip
        if descent.epsilon is not None:
            _judge_adam(judge, gradient_size(case, escape.early), descent.epsilon)
        if not judge.level:
            _judge_step(judge, case, escape)
        escape = None if judge.level else escape
    counterfactuals, interval, later, bounds, bootstrap = (), None, (), None, None
    if escape is not None:
        # With σ''(0) ≠ 0 squares of the inputs are learnt by the time of the later stages.
        last = 1 if kind.q == 2 else case.followed(escape, count, _LARGEST_NONLINEARITY)
        whole = case.quick_steps(escape.quick, last)
        spreads = batch_spreads(case, escape, whole, seed)
        ratios = case.curvature_ratios(escape, kind.q, last)
        judge.numbers["curvature_ratio"] = ratios[0]
        worst = max(state.nonlinearity, default=0.0)
        neglected = [neglected_curvature(ratio, worst, kind.q) for ratio in ratios]
        first = escape
        escape = replace(escape, steps=corrected(escape.steps, ratios[0]))
        interval = interval_of(case, escape, escape.steps, spreads[0], neglected[0])
        counterfactuals = tuple(
            _counterfactual(case, escape, whole[0], layer, factor)
            for layer in range(1, model.network.depth + 1)
        )
        bounds, bootstrap = _bounds(case, state, escape)
        later = later_stages(case, first, escape, ratios, spreads, neglected)
    return Forecast(
        regime=_regime(judge, state, case, present, count, escape, later),
        escape_step=None if escape is None else escape.steps,
        interval=interval,
        loss=unit * present,
        plateau_loss=unit * case.stages.loss,
        plateau_step=0.0 if escape is None else escape.arrival,
        escape_loss=unit * case.stages.level(fraction),
        names=tuple(model.name_of(layer) for layer in range(1, model.network.depth + 1)),
        bottleneck=state.bottleneck,
        scales=state.scales,
        nonlinearity=state.nonlinearity,
        stages=count,
        later=later,
        bounds=bounds,
        bootstrap_step=bootstrap,
        counterfactuals=counterfactuals,
    )


def _require_range(*signals: np.ndarray) -> None:
    """Refuse signals whose powers leave float64: laws of means and of moments say nothing then."""
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = [float(np.sum(np.square(signal))) for signal in signals]
        whole = math.prod(sizes)
    if not math.isfinite(whole):
        names = ("inputs", "targets", "outputs")
        worst = names[int(np.argmax([-1.0 if size < math.inf else size for size in sizes]))]
        raise NonFiniteError(f"squares of the {worst} leave the range of float64: scale them down")


def _check(fraction: float, factor: float) -> None:
    if not (math.isfinite(factor) and factor > 0):
        raise InvalidValueError("factor", factor, "a finite number > 0 needed")
    if not 0.0 < fraction < 1.0:
        raise InvalidValueError("fraction", fraction, "expected 0 < fraction < 1")


def _loss_unit(training: Training, data: Data) -> float:
    """The loss that `training` names over ½E|f − y|², or over that of a sample."""
    samples = min(training.batch_size or len(data.x), len(data.x))
    check_loss_targets(training.loss, data.y)
    if training.loss in SAMPLED:
        return 1.0 / data.outputs if training.loss == "logistic" else 1.0
    if training.loss not in SQUARED:
        raise InvalidValueError("loss", training.loss, f"expected one of {', '.join(LOSSES)}")
    return samples * half_sum_factor(training.loss, samples, data.outputs)


def _judge_signal(
    judge: Judge, state: LayerSignals, label: str, case: Plateau, count: int, noise: float
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
    mean = state.outputs.mean(axis=0)
    silent = case.loss_of(np.broadcast_to(mean, state.outputs.shape))
    present, whole = case.loss_of(state.outputs), max(case.stages.loss, 1e-300)
    bend = output_curvature(case.loss, state.outputs, case.y, state.outputs - mean)
    output, fallen = 0.5 * bend / whole, (silent - present) / whole
    judge.measure(
        "output", max(output, fallen), _LARGEST_OUTPUT, _LARGEST_OUTPUT,
        f"the output is not small: its power is {output:.0%} of the targets' and the loss "
        f"{case.unit * present:.4g} against {case.unit * silent:.4g} of a silent network",
    )  # fmt: skip
    if count == 0:
        judge.object(
            2,
            "the targets show no linear signal beyond chance in this batch "
            f"(threshold {noise:.0%} of their power)",
        )


def _judge_step(judge: Judge, case: Plateau, escape: Escape) -> None:
    """Steps beyond the limit of stability overshoot, and leave other weights than the flow."""
    descent = case.descent
    sharpest = max(sharpness(case.task, chain) for chain in (case.chain, escape.early))
    size = descent.step_size(sharpest, escape.steps)
    rate = descent.rate if descent.epsilon is None else descent.rate * descent.epsilon
    when = "while the mean of the targets is learnt" if case.learns_constants else "here"
    judge.measure(
        "step_over_limit", size, 1.0, 1.0,
        f"the steps are too large: {size:.2g} times the size at which descent becomes unstable "
        f"{when}. Forecast it with a learning rate below {rate / max(size, 1e-300):.2g}",
    )  # fmt: skip


def _judge_adam(judge: Judge, gradient: float, epsilon: float) -> None:
    """While gradients are below ε Adam is descent at the rate η/ε; above, there is no plateau."""
    judge.measure(
        "gradient_over_epsilon", gradient / epsilon, _BELOW_EPSILON, _BELOW_EPSILON,
        f"Adam divides gradients by their size, here up to {gradient:.2g}, as soon as they exceed "
        f"eps = {epsilon:.2g}: small ones no longer mean small steps, and the plateau of gradient "
        "descent is not there. Forecast it with momentum, or with eps above "
        f"{gradient / _BELOW_EPSILON:.2g}",
    )  # fmt: skip


def _regime(
    judge: Judge,
    state: LayerSignals,
    case: Plateau,
    present: float,
    count: int,
    escape: Escape | None,
    later: tuple[LaterStage, ...],
) -> Regime:
    regime = judge.regime("small signal", "on a plateau")
    if judge.level:
        return regime
    loss, now = case.unit * case.stages.loss, case.unit * present
    arrival = 0.0 if escape is None else escape.arrival
    if arrival > 0.0:
        first = f"the mean of the targets comes first, in {arrival:.0f} steps: from {now:.4g} the "
        first += f"loss falls to the plateau at {loss:.4g}"
    else:
        first = f"the loss {now:.4g} is that of a silent network, {loss:.4g}"
    escapes = "one escape" if count == 1 else f"{count} escapes, one per output direction"
    rest = "what comes after it is not forecast"
    if later:
        rest = f"{len(later)} of the later ones are forecast"
    elif count > 1:
        rest = "the later ones are not forecast: by then more than the linear part is learnt"
    reasons = (
        first,
        f"at most {max(state.nonlinearity, default=0.0):.1%} of an activation is nonlinear",
        f"a linear signal is there: {escapes}; {rest}",
    )
    return replace(regime, reasons=reasons)


def _counterfactual(
    case: Plateau, escape: Escape, whole: float, layer: int, factor: float
) -> Counterfactual:
    """By as much sooner as the surrogate with one layer rescaled leaves."""
    if not math.isfinite(whole):
        return Counterfactual(layer, factor, math.inf)
    (changed,) = case.rescaled(layer, factor, _GAIN_SAMPLES).quick_steps(escape.quick)
    return Counterfactual(layer, factor, escape.steps * changed / whole)


def _bounds(
    case: Plateau, state: LayerSignals, escape: Escape
) -> tuple[Bounds | None, float | None]:
    """Theorem 11 and Proposition 22 in steps, where nothing but the plateau is learnt."""
    if case.learns_constants:
        return None, None
    fall = case.fraction * case.stages.falls[0]
    times = escape_bounds(case.chain, case.stages.drive, fall, state.bottleneck)
    steps = case.descent.steps
    bounds = Bounds(steps(times.lower), steps(times.upper))
    layers = [layer - 1 for layer in state.bottleneck]

    def size(chain: Chain) -> float:
        """−log of M^r times the other layers, which grow too: an escape needs m_0^r of it."""
        norms = [float(np.linalg.norm(W, 2)) for W in chain.weights]
        others = sum(math.log(norm) for index, norm in enumerate(norms) if index not in layers)
        return -len(layers) * math.log(max(norms[index] for index in layers)) - others

    largest = max(float(np.linalg.norm(case.chain.weights[index], 2)) for index in layers)
    if not (math.isfinite(times.scale + escape.time) and largest > 0.0):
        return bounds, None
    needed = size(case.chain) - len(layers) * math.log(times.scale / largest)
    if size(escape.last) > needed:  # the solver would look for it in vain
        return bounds, None
    found = surrogate_escape(case.task, case.chain, [needed], rtol=1e-3, measure=size)
    return bounds, steps(found.times[0])
