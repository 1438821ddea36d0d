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
from dynagram.results._estimate import Estimate

TITLE = "What is learned"
# A kernel that surely moves by less than this part of its size stands still.
_LAZY = 0.1
_MADE = """from dynagram.report.story import Effort, trained_models
found = trained_models(subject, {effort!r})
found.outputs["ntk"]                        # of `train`: (member, moment, input, output, …)
[m.summary() for m in found.before]         # `measure` of every network, drawn
[m.summary() for m in found.after]          # and trained"""
_MADE_OF_ONE = """from dynagram.report.story import Effort, trained_models
found = trained_models(subject, {effort!r})
[m.summary() for m in found.before]         # `measure` of networks of the same variances
[m.summary() for m in found.after]          # and of the weights that are given"""


def tell_learning(
    subject: Subject,
    effort: Effort,
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """How far training moves the tangent kernel and the features, against what chance gives."""
    trained = trained_models(subject, effort)
    made = (_MADE if trained.outputs is not None else _MADE_OF_ONE).format(effort=effort)
    expected = float(subject.network.width) ** -0.5
    start, end = (_linearity(side)[0][-2] for side in (trained.before, trained.after))
    start_error, end_error = (_linearity(s)[1][-2] for s in (trained.before, trained.after))
    null = trained.after[0].layers[-2].linearity.null if len(trained.after[0].layers) > 1 else None
    blocks: list[Block] = []
    change = _change(trained)
    moved, moved_error = (change[0][-1], change[1][-1]) if change is not None else (None, 0.0)
    lazy = moved is not None and bool(moved + 2.0 * moved_error < _LAZY)
    better = bool(end > start + 2 * np.hypot(start_error, end_error))
    than, others = "after training", "before"
    if trained.outputs is None:
        than, others = "than in random networks of its variances", "in those"
    words = (
        "The targets can be read off the last hidden layer "
        f"{'better' if better else 'no better'} {than}: a linear readout explains "
        f"{percent(end)} of them, {percent(start)} {others}."
    )
    kind = "good" if better and not lazy else "warn"
    tile = Tile(
        "Learned",
        "–" if moved is None else percent(float(moved), float(moved_error)),
        _moved_words(lazy=lazy, better=better),
        "is how much training changed the way this network responds to a step (its tangent "
        "kernel); an infinitely wide one would not change.",
        kind,
    )
    if moved is None:
        kind = "good" if better else "warn"
        tile = Tile("Learned", percent(end), "of the targets", words, kind)
    finding = Finding(
        words,
        "at infinite width features stand still and the kernel does not move; at this width it "
        f"moves by an amount of the order 1/√n = {percent(expected)} (a size, not a prediction)",
        (f"the kernel moved by {percent(float(moved), float(moved_error))}; " if moved is not None
         else "")
        + f"target linearity of the last hidden layer {with_error(start, start_error)} before and "
        f"{with_error(end, end_error)} after",
        _null_words(null),
        kind,
    )  # fmt: skip
    blocks.append(finding)
    if change is not None:
        blocks += [
            Heading("The kernel moves"),
            Figure(
                _change_chart(trained, change, expected),
                "How far the tangent kernel (what one step does to every output) has moved, "
                f"relative to its size. Points: mean of {effort.models} networks, ± 2 standard "
                "errors.",
                made,
            ),
        ]
    blocks += [
        Heading("Features, layer by layer"),
        Figure(
            _linearity_chart(trained),
            "Target linearity: the part of the targets of held-out inputs that a linear readout of "
            "the layer explains; the last layer is the output. Unrelated targets: what features "
            "without any relation to the targets reach. Bars: ± 2 standard errors.",
            made,
        ),
        *_tables(trained, made),
    ]
    return Section(TITLE, blocks, tile)


def _moved_words(*, lazy: bool, better: bool) -> str:
    """The verdict of the tile, which says the same as the sentence of the chapter."""
    if lazy:
        return "lazy: features hardly move"
    return "features are learned" if better else "features move, targets no clearer"


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


def _tables(trained: Trained, made: str) -> list[Table]:
    """Linearity before, after and by chance; then what the data do to the weights."""
    sides = (trained.before, trained.after)
    scores = [_linearity(side) for side in sides]
    read, pushed = [], []
    for index, layer in enumerate(trained.after[0].layers):
        name = f"{layer.layer}, {layer.shape[0]} × {layer.shape[1]}"
        chance, null = layer.linearity.null, layer.alignment.null if layer.alignment else None
        read.append(
            [
                name,
                *(
                    with_error(float(mean[index + 1]), float(err[index + 1]))
                    for mean, err in scores
                ),
                f"{chance.mean:.2f}, {chance.deviation:.2f}",
            ]
        )
        pushed.append(
            [
                name,
                *(_over_networks([_push(m, index) for m in side]) for side in sides),
                "–" if null is None else f"{null.mean:.0f}, {null.deviation:.2f}",
                *(
                    _over_networks([m.layers[index].spectrum.effective_rank for m in side])
                    for side in sides
                ),
            ]
        )
    return [
        Table(
            ["layer", "linearity before", "linearity after", "chance, spread"],
            read,
            "The part of the targets that a linear readout explains, by layer. ±: standard error "
            "over networks; chance: mean and spread for unrelated features.",
            made,
        ),
        Table(
            [
                "layer", "push before", "push after", "chance, spread", "rank before", "rank after",
            ],
            pushed,
            "Push: do the data make a layer's weights grow along what they are? The cosine between "
            "its Gram matrix WᵀW and its virtual covariance, the direction in which the data move "
            "that matrix (1: it only grows, −1: it only shrinks, 0: neither). Rank: how many "
            "directions WᵀW effectively has. ±: standard error over networks.",
            made,
        ),
    ]  # fmt: skip


def _push(measured: Measurement, index: int) -> float | None:
    alignment = measured.layers[index].alignment
    return None if alignment is None else alignment.value


def _over_networks(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    found = Estimate.of_samples(known)
    return with_error(float(found.value), float(found.standard_error))
