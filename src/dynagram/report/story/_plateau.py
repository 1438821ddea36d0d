"""Chapter (d): plateaus. The forecast against what happened, and which layer to rescale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynagram.data import Data
from dynagram.ensembles import train
from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import DynagramError
from dynagram.networks import Model
from dynagram.report._blocks import (
    Block,
    Figure,
    Finding,
    Heading,
    Notice,
    Section,
    Table,
    Text,
    Tile,
)
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject, equal_rates, stable_rate
from dynagram.report.story._words import KIND, applies, other_reasons, percent
from dynagram.theory.saddle import Forecast, forecast
from dynagram.training import GradientDescent, Training

TITLE = "Plateaus"
# Weights are made smaller in these steps until the forecast sees a plateau that lasts.
_FACTORS = (0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08)
_SHORTEST = 40
# Samples of the batch that are used, and how much faster than the full-size network, whose loss is
# sharper, a small one may step.
_SAMPLES = 96
_FASTER = 8.0
_POINTS = 160
_MADE = """from dynagram import Data, GradientDescent, Model, Training, forecast, train
small = {small}
part = Data(batch.x[:{samples}], batch.y[:{samples}])
plain = GradientDescent({rate!r})
answer = forecast(small, part, Training(plain, loss="mean"))               # before any step
slow = Training(plain, loss="mean", steps={steps}, record=100, dtype="float32")
curve = train(small, part, slow, members=1, observables=["loss"])["loss"]  # what happened
answer.escape_step, answer.interval, answer.counterfactuals"""


@dataclass(frozen=True, eq=False)
class _Case:
    """A model on a plateau, what is forecast of it, and the factor that put it there."""

    model: Model
    answer: Forecast
    rate: float
    factor: float


def tell_plateau(
    subject: Subject,
    effort: Effort,
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """Is there a plateau, when does it end, and what would shorten it?"""
    batch = _part(subject.batch)
    rate = stable_rate(equal_rates(subject.network), batch, "mean")
    how = Training(GradientDescent(rate), loss="mean")
    start = subject.model or _without_biases(subject.network.init(seed=effort.seed), 1.0)
    answer = forecast(start, batch, how)
    blocks: list[Block] = []
    case = _Case(start, answer, rate, 1.0) if answer.plateau else None
    if case is None:
        lead = "As it is, this network starts to learn at once: no plateau is forecast."
        blocks.append(Notice(lead, answer.reasons, "good"))
        case = _smaller(subject, batch, effort, _FASTER * rate)
    if case is None:
        tile = Tile("Plateaus", "none", "learns at once", answer.reasons[0], "good")
        return Section(TITLE, blocks, tile)
    curve, step = _trained(case, batch, effort)
    best = min(case.answer.counterfactuals, key=lambda entry: entry.escape_step)
    other = _rescaled(case.model, best.layer, best.factor)
    faster, faster_step = _trained(dataclasses.replace(case, model=other), batch, effort)
    low, high = case.answer.interval or (np.nan, np.nan)
    expected = case.answer.escape_step or np.nan
    hit = step is not None and low <= step <= high
    what = "this network" if case.factor == 1.0 else (
        f"the same network with weights {case.factor:g} times as large and no biases"
    )  # fmt: skip
    made = _made(subject, effort, case, int(curve.x[-1]))
    blocks += [
        Finding(
            f"On the plateau of {what}, the forecast said {expected:.0f} steps; it took "
            f"{'more than were tried' if step is None else f'{step:.0f}'}. Doubling layer "
            f"{best.layer} ends it after "
            f"{'more' if faster_step is None else f'{faster_step:.0f}'}.",
            f"{expected:.0f} steps, with 90 % probability between {low:.0f} and {high:.0f}; with "
            f"layer {best.layer} × {best.factor:g}: {best.escape_step:.0f}",
            f"{'not within ' + str(len(curve.x)) if step is None else f'{step:.0f} steps'}; with "
            f"layer {best.layer} × {best.factor:g}: "
            f"{'not reached' if faster_step is None else f'{faster_step:.0f} steps'}",
            applies(case.answer.regime),
            KIND[case.answer.regime.verdict] if hit else "warn",
            other_reasons(case.answer.regime),
        ),
        Figure(
            _chart(curve, faster, case.answer, best.layer),
            f"Loss of {what}. Dashed: when the forecast made before the first step lets it leave "
            "the plateau, and its 90 % interval. Left means here: fallen to "
            f"{case.answer.escape_loss:.3g}.",
            made,
        ),
        Heading("Which layer to rescale"),
        Text(
            f"In {what}, {_layers(case.answer)} the signal back. Each row says when the plateau "
            "would end if that layer alone were doubled."
        ),
        _table(case.answer, made),
    ]
    own = "none" if case.factor != 1.0 else f"{expected:.0f} steps"
    words = (
        f"Starting {1 / case.factor:.2g} times smaller would cost {expected:.0f} steps; measured "
        f"{'more' if step is None else f'{step:.0f}'}."
        if case.factor != 1.0 else f"Measured: {'more' if step is None else f'{step:.0f}'} steps."
    )  # fmt: skip
    verdict = "learns at once" if case.factor != 1.0 else "on a plateau"
    tile = Tile("Plateaus", own, verdict, words, "good" if case.factor != 1.0 else "warn")
    return Section(TITLE, blocks, tile)


def _layers(answer: Forecast) -> str:
    """Which layers are the bottleneck, as the start of a sentence's verb."""
    names = [str(number) for number in answer.bottleneck]
    if len(names) < 2:
        return f"layer {names[0]} holds" if names else "no layer holds"
    return f"layers {', '.join(names[:-1])} and {names[-1]} hold"


def _made(subject: Subject, effort: Effort, case: _Case, steps: int) -> str:
    drawn = "model" if subject.model is not None else f"network.init(seed={effort.seed})"
    skip = f", skip={subject.network.skip!r}" if subject.network.has_skips else ""
    weights = f"[{case.factor:g} * layer.W for layer in {drawn}.params]"
    small = f"Model.of_matrices({weights}, network.activation{skip})"
    if case.model is subject.model:
        small = "model"
    return _MADE.format(small=small, samples=_SAMPLES, rate=case.rate, steps=steps)


def _part(batch: Data) -> Data:
    return Data(batch.x[:_SAMPLES], batch.y[:_SAMPLES])


def _without_biases(model: Model, factor: float) -> Model:
    weights = [factor * np.asarray(layer.W, dtype=np.float64) for layer in model.params]
    return Model.of_matrices(weights, model.network.activation, skip=model.network.skip or 0.0)


def _rescaled(model: Model, layer: int, factor: float) -> Model:
    params = tuple(
        part._replace(W=factor * part.W) if number == layer else part
        for number, part in enumerate(model.params, start=1)
    )
    return model.with_params(params)


def _smaller(subject: Subject, batch: Data, effort: Effort, rate: float) -> _Case | None:
    """The largest of the smaller starts whose plateau lasts a while, and not too long."""
    drawn = subject.model or subject.network.init(seed=effort.seed)
    how = Training(GradientDescent(rate), loss="mean")
    for factor in _FACTORS:
        model = _without_biases(drawn, factor)
        try:
            answer = forecast(model, batch, how)
        except DynagramError:
            continue
        if answer.escape_step is not None and answer.escape_step >= _SHORTEST:
            return (
                _Case(model, answer, rate, factor) if answer.escape_step < effort.longest else None
            )
    return None


def _trained(case: _Case, batch: Data, effort: Effort) -> tuple[Line, float | None]:
    """The loss over steps, and the step at which it has fallen as far as the forecast means."""
    high = case.answer.interval[1] if case.answer.interval else effort.longest
    steps = int(min(effort.longest, max(1.3 * high, 4 * _SHORTEST)))
    how = Training(
        GradientDescent(case.rate), loss="mean", steps=steps, dtype="float32",
        record=np.unique(np.linspace(0, steps, min(_POINTS, steps + 1)).astype(int)).tolist(),
    )  # fmt: skip
    outputs = train(case.model, batch, how, members=1, observables=["loss"])
    losses, moments = outputs["loss"][0], np.array(how.recorded, dtype=np.float64)
    below = np.flatnonzero(losses <= case.answer.escape_loss)
    step = None
    if below.size and below[0] > 0:
        at = int(below[0])
        part = (losses[at - 1] - case.answer.escape_loss) / (losses[at - 1] - losses[at])
        step = float(moments[at - 1] + part * (moments[at] - moments[at - 1]))
    return Line(moments, losses), step


def _chart(curve: Line, faster: Line, answer: Forecast, layer: int) -> Chart:
    low, high = answer.interval or (np.nan, np.nan)
    guides = {"earliest": low, "forecast": answer.escape_step or np.nan, "latest": high}
    lines = {"as it starts": curve, f"layer {layer} doubled": faster}
    return line_chart(lines, Axis("step", guides=guides), Axis("loss", zero=True))


def _table(answer: Forecast, made: str) -> Table:
    rows = [
        [
            name,
            f"{scale:.3g}",
            "yes" if number in answer.bottleneck else "no",
            percent(answer.nonlinearity[number - 1]) if number <= len(answer.nonlinearity) else "–",
            f"{other.escape_step:.0f}",
        ]
        for number, (name, scale, other) in enumerate(
            zip(answer.names, answer.scales, answer.counterfactuals, strict=True), start=1
        )
    ]
    header = ["layer", "gain of the layer", "holds back", "nonlinear part", "steps if doubled"]
    caption = (
        "Gain: the factor by which the layer multiplies the size of a signal. Nonlinear part: "
        "how much of its activation is not linear at this size of signal."
    )
    return Table(header, rows, caption, made)
