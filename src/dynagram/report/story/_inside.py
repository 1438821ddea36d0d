"""Chapter (e): inside one network, every number beside what chance gives."""

from __future__ import annotations

from collections.abc import Callable

from dynagram.ensembles.engine._progress import Progress
from dynagram.report._blocks import Finding, Section, Table, Text
from dynagram.report.prose import describe_measurement
from dynagram.report.story._models import trained_models
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.results._table import Grid

TITLE = "Inside one network"
_WITH_DATA = (
    "With the data. Kernel: the layer's part of what one step does to the outputs, at equal rates. "
    "Target linearity: the part of the targets that a linear readout of the layer explains. "
    "Gram/VC: do the data make the weights grow along what they are (the cosine of WᵀW and its "
    "virtual covariance)? Null and spread: the same for unrelated data."
)
_OF_WEIGHTS = (
    "The weights alone. Effective rank: how many directions WᵀW has. Tail α: the power of its "
    "largest eigenvalues, beside that of random weights; verdict: whether the two can be told "
    "apart. Norm²: sum of squared weights; next − this: its difference to the next layer, which "
    "gradient flow hardly changes."
)
_MADE = """from dynagram import measure
from dynagram.report.story import Effort, trained_models
measure(trained_models(subject, {effort!r}).models[0], batch)
# in a shell: dynagram measure weights.npz --data batch.npz --activation NAME"""


def tell_inside(
    subject: Subject,
    effort: Effort,
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """What `measure` says of one trained network."""
    result = trained_models(subject, effort).after[0]
    words = describe_measurement(result)
    sentences = [part.rstrip(".") + "." for part in words.split(". ")]
    first = sentences[1] if len(sentences) > 1 else sentences[0]
    plain = "What a linear readout explains of the targets"
    first = first.replace("Target linearity", plain, 1)
    right = "" if result.accuracy is None else f", {100 * result.accuracy:.0f} % right"
    finding = Finding(
        first,
        "if nothing was learned: what unrelated targets or random weights of this size give, in "
        "the columns called null, with its spread",
        f"one network on {result.samples} inputs, {result.loss_name} loss {result.loss:.4g}{right}",
        "no theory is needed: these are measurements, and a number within a few spreads of its "
        "null says nothing",
        "good",
    )
    made = _MADE.format(effort=effort)
    blocks = [
        finding,
        Text(words),
        _table(result.summary(), _WITH_DATA, made),
        _table(result.weight_summary(), _OF_WEIGHTS, made),
    ]
    return Section(TITLE, blocks)


def _table(grid: Grid, caption: str, made: str) -> Table:
    return Table(list(grid.headings), [list(row) for row in grid.rows], caption, made)
