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
_MADE = """from dynagram import measure
measure(model, batch)
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
    right = "" if result.accuracy is None else f", {100 * result.accuracy:.0f} % right"
    finding = Finding(
        first,
        "for every alignment and spectrum: what unrelated data or random weights of this size "
        "give, in the columns called null",
        f"one network on {result.samples} inputs, {result.loss_name} loss {result.loss:.4g}{right}",
        "no theory is needed: these are measurements, and a number within a few spreads of its "
        "null says nothing",
        "good",
    )
    blocks = [
        finding,
        Text(words),
        _table(result.summary(), "With the data: share of the tangent kernel, target linearity and "
               "the cosine of the layer's Gram with its virtual covariance (Gram/VC)."),
        _table(result.weight_summary(), "In the weights: spectrum of WᵀW and norms."),
    ]  # fmt: skip
    return Section(TITLE, blocks)


def _table(grid: Grid, caption: str) -> Table:
    return Table(list(grid.headings), [list(row) for row in grid.rows], caption, _MADE)
