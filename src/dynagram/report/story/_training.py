"""Chapter (b): what training will do. Loss and outputs over time, predicted and trained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynagram.ensembles import train
from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import DynagramError, InvalidValueError, NonFiniteError
from dynagram.report._blocks import Block, Figure, Finding, Heading, Picture, Section, Table, Tile
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._curve_charts import learning_curves_chart
from dynagram.report._export import Chart
from dynagram.report._pictures import grey_picture, square_side
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.report.story._words import applies, kind_of, other_reasons, percent, with_error
from dynagram.results._comparison import compare
from dynagram.results._outputs import Outputs
from dynagram.theory._predict_outputs import has_closed_form, predict_outputs

TITLE = "What training will do"
# More samples than this at order 1/n take minutes; infinite width is told instead.
_MOST_SAMPLES = 32
_MOST_ROWS = 24
_MOVES = "no: the kernel moves"
# Of four-sample averages: what it leaves is in the errors, and less takes minutes.
_ACCURACY = 0.015


def tell_training(
    subject: Subject, effort: Effort, progress: Callable[[Progress], object]
) -> Section:
    """Predicted outputs beside those of trained networks, image by image."""
    predicted, left_out = _predicted(subject, effort)
    measured = subject.measured or _trained(subject, effort, progress)
    _require_comparable(predicted, measured)
    made = _made(subject, effort, predicted)
    rows = _right(subject, predicted, measured)
    regime = predicted.regime
    close, count = _closeness(predicted, measured)
    outputs = int(predicted.mean.size)
    agrees = count <= max(1, round(0.05 * outputs))
    kind = kind_of(regime) if agrees else "warn"
    tile = Tile(
        "Training",
        f"{outputs - count} of {outputs}",
        applies(regime).partition(":")[0],
        "outputs of unseen inputs after training are within 3 errors of what theory said "
        "before it.",
        kind,
    )
    seen = (
        f"{_end_loss(measured)}{measured.members} trained networks; {outputs - count} of {outputs} "
        "mean outputs within 3 standard errors (and the numerical error) of the prediction"
    )
    if predicted.of_one_network:
        seen = f"this network, trained on: its outputs are {close} away, root mean square"
        words = "is how far outputs after training are from what its own kernel, held fixed, says."
        tile = Tile("Training", close, tile.verdict if agrees else _MOVES, words, kind)
    finding = Finding(
        f"Before training, theory tells the mean output of unseen inputs to within {close}; "
        + rows,
        f"{_end_loss(predicted)}mean and spread of every output below, at order {predicted.order}"
        + (f" ({left_out})" if left_out else ""),
        seen,
        applies(regime) if agrees or not predicted.of_one_network else f"{_MOVES}; {regime}",
        kind,
        other_reasons(regime),
    )
    blocks: list[Block] = [finding]
    try:
        curves = learning_curves_chart(predicted, measured)
        caption = (
            "Loss over time: what theory said before the first step, and what trained networks "
            "did, ± 2 standard errors."
        )
        blocks += [Heading("Learning curves"), Figure(curves, caption, made)]
    except InvalidValueError:
        pass
    blocks += [
        Heading("Image by image" if _side(subject) else "Input by input"),
        Figure(
            _against(predicted, measured),
            "Each point is one output of an unseen input at the end: across, what theory says; up, "
            "the mean of trained networks, ± 2 standard errors. On the line they agree.",
            made,
        ),
        _table(subject, predicted, measured, made),
    ]
    return Section(TITLE, blocks, tile)


def _predicted(subject: Subject, effort: Effort) -> tuple[Outputs, str]:
    """The prediction at order 1/n, or at infinite width with the reason."""
    data, how = subject.data, subject.how
    samples = len(data.x) + len(data.test_x)
    if subject.model is not None:
        return predict_outputs(subject.model, data, how, order="infinite"), (
            "of these weights with their own tangent kernel held fixed"
        )
    if samples > _MOST_SAMPLES:
        reason = f"{samples} samples are many for order 1/n"
    elif not has_closed_form(how):
        reason = "order 1/n takes minutes for this loss: dynagram train-predict has it"
    else:
        try:
            return predict_outputs(
                subject.network, data, how, accuracy=_ACCURACY, seed=effort.seed
            ), ""
        except DynagramError as error:
            reason = str(error)
    return predict_outputs(subject.network, data, how, order="infinite"), reason


def _trained(subject: Subject, effort: Effort, progress: Callable[[Progress], object]) -> Outputs:
    network = subject.network if subject.model is None else subject.model
    members = effort.trained if subject.model is None else 1
    return train(
        network, subject.data, subject.how, members=members, seed=effort.seed,
        observables=_observed(subject), progress=progress,
    )  # fmt: skip


def _require_comparable(predicted: Outputs, measured: Outputs) -> None:
    """Refuse to hold nothing, or what is no number, against a prediction."""
    if not measured.mean.size or not predicted.mean.size:
        raise InvalidValueError("unseen inputs", 0, "none are given: test_x says what to predict")
    if not (np.all(np.isfinite(measured.mean)) and np.all(np.isfinite(predicted.mean))):
        raise NonFiniteError("outputs after training are not finite: scale the data, or lower eta")


def _observed(subject: Subject) -> list[str]:
    """What is recorded: the loss on unseen inputs where their targets are known."""
    has_targets = subject.data.test_y is not None and len(subject.data.test_y)
    return ["loss", *(["test_loss"] if has_targets else []), "outputs"]


def _end_loss(outputs: Outputs) -> str:
    """The loss on unseen inputs at the end, where it is known; a network alone has no error."""
    found = outputs.estimates.get("test_loss")
    if found is None or outputs.of_one_network:
        return ""
    value, error = float(found.value[-1]), float(found.standard_error[-1])
    infinite = outputs.estimates.get("test_loss_infinite")
    also = f" ({infinite.value[-1]:.3g} at infinite width)" if infinite is not None else ""
    return f"loss on unseen inputs {with_error(value, error)}{also}; "


def _scores(predicted: Outputs, measured: Outputs) -> np.ndarray:
    """Distances in errors; of one network, in units of what its output moved."""
    error = np.hypot(predicted.error, _error(measured))
    if predicted.of_one_network:
        error = np.maximum(error, 0.05 * float(np.abs(measured.mean).max()))
    return np.abs(measured.mean - predicted.mean) / np.maximum(error, 1e-300)


def _error(measured: Outputs) -> np.ndarray:
    """Standard errors of the means; one network has none."""
    return np.nan_to_num(measured.error, posinf=0.0)


def _closeness(predicted: Outputs, measured: Outputs) -> tuple[str, int]:
    """The root mean square distance of the means, and how many are beyond 3 errors."""
    distance = float(np.sqrt(np.mean((measured.mean - predicted.mean) ** 2)))
    size = float(np.sqrt(np.mean(measured.mean**2))) or 1.0
    try:
        beyond = int(np.sum(np.abs(compare(predicted, measured)["mean"].z) > 3.0))
    except DynagramError:
        beyond = int(np.sum(_scores(predicted, measured) > 3.0))
    if predicted.of_one_network:
        beyond = int(np.sum(_scores(predicted, measured) > 3.0))
    return percent(distance / size), beyond


def _right(subject: Subject, predicted: Outputs, measured: Outputs) -> str:
    """For how many the sign, or the largest output, is right, for targets that are classes."""
    targets = subject.data.test_y
    if targets is None or not len(targets):
        return "targets of the unseen inputs are not given."
    if targets.shape[1] == 1 and not np.all(np.abs(targets) == 1.0):
        return "the targets are numbers."
    decide = np.sign if targets.shape[1] == 1 else (lambda z: np.argmax(z, axis=1))
    expected, seen = (int(np.sum(decide(z.mean) == decide(targets))) for z in (predicted, measured))
    who = "this network" if predicted.of_one_network else "the mean over networks"
    return f"{who} is right for {seen} of {len(targets)} of them (expected: {expected})."


def _side(subject: Subject) -> int | None:
    return square_side(subject.network.input_size)


def _against(predicted: Outputs, measured: Outputs) -> Chart:
    across, up = predicted.mean.ravel(), measured.mean.ravel()
    points = {
        f"order {predicted.order}": Line(across, up, 2.0 * _error(measured).ravel()),
    }
    if predicted.order == "1/n":
        points["infinite width"] = Line(predicted.mean_infinite.ravel(), up)
    x, y = Axis("predicted mean output"), Axis("mean output of trained networks")
    return line_chart({}, x, y, points=points, diagonal=True)


def _table(subject: Subject, predicted: Outputs, measured: Outputs, made: str) -> Table:
    side, targets = _side(subject), subject.data.test_y
    several = predicted.mean.shape[1] > 1
    header = [
        "input", *(["output"] if several else []), "target", "expected, n = ∞",
        f"expected, {predicted.order}", "measured", "spread expected", "spread measured",
    ]  # fmt: skip
    rows: list[list[str | Picture]] = []
    spreads, seen = predicted.std, measured.std if measured.has_spread else None
    errors = _spread_errors(measured)
    for sample, output in list(np.ndindex(predicted.mean.shape))[:_MOST_ROWS]:
        at = (sample, output)
        name: str | Picture = f"test {sample}"
        if side is not None:
            pixels = predicted.inputs[sample].reshape(side, side)
            name = grey_picture(pixels, f"test image {sample}")
        alone = predicted.of_one_network
        rows.append(
            [
                name,
                *([str(output)] if several else []),
                "–" if targets is None else f"{targets[at]:g}",
                f"{predicted.mean_infinite[at]:.3f}",
                f"{predicted.mean[at]:.3f}",
                with_error(float(measured.mean[at]), float(measured.error[at])),
                "–" if alone else f"{spreads[at]:.3f}",
                "–" if alone or seen is None else with_error(float(seen[at]), float(errors[at])),
            ]
        )
    return Table(
        header,
        rows,
        "Mean over networks, and their spread: the standard deviation between them. ±: standard "
        "error of the number before it.",
        made,
    )


def _spread_errors(measured: Outputs) -> np.ndarray:
    """Standard errors of the standard deviations, from those of the variances; 0: not known."""
    if measured.covariance_errors is None or not measured.has_spread:
        return np.zeros(measured.mean.shape)
    error = np.einsum("titi->ti", measured.covariance_error)
    return np.nan_to_num(0.5 * error / np.maximum(measured.std, 1e-300), posinf=0.0)


def _made(subject: Subject, effort: Effort, predicted: Outputs) -> str:
    order = "" if predicted.order == "1/n" else ', order="infinite"'
    accuracy = f", accuracy={_ACCURACY}, seed={effort.seed}" if predicted.order == "1/n" else ""
    who = "model" if subject.model is not None else "network"
    members = 1 if subject.model is not None else effort.trained
    if subject.measured is not None:
        return (
            "from dynagram import compare, predict_outputs\n"
            f"y = predict_outputs(network, data, how{order}{accuracy})\n"
            "compare(y, subject.measured)                # the outputs that the run holds"
        )
    return (
        "from dynagram import compare, predict_outputs, train\n"
        f"y = predict_outputs({who}, data, how{order}{accuracy})\n"
        f"y_ = train({who}, data, how, members={members}, seed={effort.seed},\n"
        f"           observables={_observed(subject)})\n"
        "compare(y, y_)"
        + (
            f"\n# in a shell: dynagram train-predict problem.toml --simulate {members}"
            if subject.has_file
            else ""
        )
    )
