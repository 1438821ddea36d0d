"""Chapter (c): what is learned. Kernel change, target linearity, Gram matrices, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dynagram.ensembles.engine._progress import Progress
from dynagram.observables import Measurement
from dynagram.report._blocks import Block, Figure, Finding, Heading, Section, Table, Tile
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart
from dynagram.report.story._models import Trained, trained_models
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.report.story._words import percent, with_error

TITLE = "What is learned"
_MADE = """from dynagram import MLP, Model, measure, train
how = Training(GradientDescent({eta:.4g}), loss={loss!r}, steps={steps})
y = train(network, batch, how, members={models}, observables=["loss", "ntk"], keep_parameters=True)
y["ntk"]                                            # (member, moment, input, output, …)
measure(network.init(seed), batch).summary()        # before
measure(Model(network, parameters), batch).summary()   # after"""


def tell_learning(
    subject: Subject,
    effort: Effort,
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """How far training moves the tangent kernel and the features, against what chance gives."""
    trained = trained_models(subject, effort)
    made = _MADE.format(
        eta=trained.training.eta, loss=trained.training.loss, steps=trained.training.steps,
        models=effort.models,
    )  # fmt: skip
    expected = float(subject.network.width) ** -0.5
    start, end = (_linearity(side)[0][-2] for side in (trained.before, trained.after))
    start_error, end_error = (_linearity(s)[1][-2] for s in (trained.before, trained.after))
    null = trained.after[0].layers[-2].linearity.null if len(trained.after[0].layers) > 1 else None
    blocks: list[Block] = []
    change = _change(trained)
    moved, moved_error = (change[0][-1], change[1][-1]) if change is not None else (None, 0.0)
    lazy = moved is not None and moved < 0.1
    better = bool(end > start + 2 * np.hypot(start_error, end_error))
    words = (
        "The last hidden layer tells the targets "
        f"{'better' if better else 'no better'} after "
        f"training: linear readout of it explains {percent(end)} of them, {percent(start)} before."
    )
    tile = Tile(
        "Learned",
        "–" if moved is None else percent(float(moved)),
        _moved_words(lazy=lazy, better=better),
        "is how far training moved the tangent kernel; at infinite width it would not move.",
        "good" if better and not lazy else "warn",
    )
    if moved is None:
        tile = Tile("Learned", percent(end), "of the targets", words, "good")
    finding = Finding(
        words,
        "at infinite width features stand still and the kernel does not move; at this width it "
        f"moves by powers of 1/√n = {percent(expected)} (no number is predicted here)",
        (f"the kernel moved by {percent(float(moved), float(moved_error))}; " if moved is not None
         else "")
        + f"target linearity of the last hidden layer {with_error(start, start_error)} before and "
        f"{with_error(end, end_error)} after",
        _null_words(null),
        "good",
    )  # fmt: skip
    blocks.append(finding)
    if change is not None:
        blocks += [
            Heading("The kernel moves"),
            Figure(
                _change_chart(trained, change, expected),
                "How far the tangent kernel has moved, relative to its size. Points: mean of "
                f"{effort.models} networks, ± 2 standard errors.",
                made,
            ),
        ]
    blocks += [
        Heading("Features, layer by layer"),
        Figure(
            _linearity_chart(trained),
            "Target linearity: the part of the targets of held-out inputs that a linear readout of "
            "the layer explains. Dashed: what features without any relation to the targets reach.",
            made,
        ),
        _table(trained, made),
    ]
    return Section(TITLE, blocks, tile)


def _moved_words(*, lazy: bool, better: bool) -> str:
    """The verdict of the tile, which says the same as the sentence of the chapter."""
    if lazy:
        return "lazy: features hardly move"
    return "features are learned" if better else "features move, no better to read"


def _null_words(null: object) -> str:
    mean, deviation = getattr(null, "mean", None), getattr(null, "deviation", 0.0)
    if mean is None:
        return "a network without hidden layers has no features"
    return (
        "measures need no theory; independent targets would give a linearity of "
        f"{mean:.2f} with a spread of {deviation:.2f}"
    )


def _change(trained: Trained) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean over networks and standard error of |H(t) − H(0)|/|H(0)|, at every moment."""
    if trained.outputs is None:
        return None
    kernels = np.asarray(trained.outputs["ntk"])
    flat = kernels.reshape(*kernels.shape[:2], -1)
    relative = np.linalg.norm(flat - flat[:, :1], axis=2) / np.linalg.norm(flat[:, :1], axis=2)
    error = relative.std(axis=0, ddof=1) if len(relative) > 1 else np.zeros(relative.shape[1])
    return relative.mean(axis=0), error / np.sqrt(len(relative))


def _change_chart(
    trained: Trained, change: tuple[np.ndarray, np.ndarray], expected: float
) -> Chart:
    guides = {"1/√n": expected}
    line = Line(trained.steps, change[0], 2.0 * change[1])
    x = Axis("step", scale="symlog", domain=(0, trained.steps[-1]))
    y = Axis("relative change of the kernel", zero=True, guides=guides)
    return line_chart({"networks": line}, x, y)


def _linearity(side: Sequence[Measurement]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over networks of the score at the input and after each layer."""
    scores = np.array(
        [[m.input_linearity.score, *(x.linearity.score for x in m.layers)] for m in side]
    )
    error = scores.std(axis=0, ddof=1) if len(scores) > 1 else np.zeros(scores.shape[1])
    return scores.mean(axis=0), error / np.sqrt(len(scores))


def _linearity_chart(trained: Trained) -> Chart:
    after = trained.after[0]
    places = list(range(len(after.layers) + 1))
    nulls = [after.input_linearity.null.mean, *(x.linearity.null.mean for x in after.layers)]
    lines = {
        name: Line(places, values, 2.0 * errors)
        for name, (values, errors) in (
            ("before training", _linearity(trained.before)),
            ("after training", _linearity(trained.after)),
        )
    }
    lines["unrelated targets"] = Line(places, nulls)
    x = Axis("layer (0: the input)", ticks=places, format="d")
    return line_chart(lines, x, Axis("target linearity"))


def _table(trained: Trained, made: str) -> Table:
    rows = []
    sides = (trained.before, trained.after)
    for index, layer in enumerate(trained.after[0].layers):
        score = [(_linearity(side)[0][index + 1], _linearity(side)[1][index + 1]) for side in sides]
        ranks = [np.mean([m.layers[index].spectrum.effective_rank for m in side]) for side in sides]
        pushes = [[m.layers[index].alignment for m in side] for side in sides]
        cosines = [
            np.mean([p.value for p in push if p is not None]) if any(push) else None
            for push in pushes
        ]
        null = layer.alignment.null if layer.alignment else None
        rows.append(
            [
                f"{layer.layer}, {layer.shape[0]} × {layer.shape[1]}",
                *(with_error(float(value), float(error)) for value, error in score),
                f"{layer.linearity.null.mean:.2f}",
                *("–" if c is None else f"{c:.2f}" for c in cosines),
                "–" if null is None else f"{null.mean:.0f}, {null.deviation:.2f}",
                *(f"{rank:.1f}" for rank in ranks),
            ]
        )
    return Table(
        [
            "layer", "linearity before", "after", "chance", "Gram push before", "after ",
            "chance, spread", "rank before", "after  ",
        ],
        rows,
        "Linearity: of the targets in the features. Gram push: the cosine between WᵀW of a layer "
        "and its virtual covariance, where the data "
        "push it at that moment. Rank: effective, of WᵀW. ±: standard error over networks.",
        made,
    )  # fmt: skip
