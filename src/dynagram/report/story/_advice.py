"""Chapter (f): advice. Initialisation and rates for this network and its data, as code to copy."""

from __future__ import annotations

from collections.abc import Callable

from dynagram.advice import Advice, advise
from dynagram.advice._advise import ONE_DRAW
from dynagram.ensembles.engine._progress import Progress
from dynagram.report._blocks import Block, Code, Finding, Heading, Section, Table, Tile
from dynagram.report.prose._recipes import optax_recipe, per_layer_text, pytorch_recipe
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.report.story._words import applies, kind_of, other_reasons, percent
from dynagram.theory._critical_setup import CriticalSetup, critical_setup

TITLE = "Advice for this network"
_MADE = """from dynagram import advise
advise(network, batch, loss={loss!r}, seed={seed})"""


def tell_advice(
    subject: Subject,
    effort: Effort,
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """What `advise` says of this network on its batch, and theory of one drawn at criticality."""
    network = subject.network
    loss = "cross-entropy" if subject.how.loss == "cross-entropy" else "mean"
    advice = advise(network, subject.batch, loss=loss, seed=effort.seed)
    setup = critical_setup(
        network.activation, width=network.width, depth=max(network.depth, 2),
        inputs=network.input_size, outputs=network.output_size, loss=loss, x=subject.data.x,
    )  # fmt: skip
    made = _MADE.format(loss=loss, seed=effort.seed)
    spread = setup.number("ntk_fluctuation")
    rate = max(advice.rates.layers)
    verdict = setup.regime.verdict
    tile = Tile(
        "Advice",
        f"lr {rate:.2g}",
        "depth fits the width" if verdict == "trust" else f"{verdict} with this depth",
        "is the largest rate to start plain SGD with, measured on your data; how fast draws of "
        f"this width learn differs by {percent(spread)}.",
        kind_of(setup.regime),
    )
    finding = Finding(
        advice.sentences[0].text,
        f"how fast draws of this depth and width learn differs by {percent(spread)} (spread of the "
        "tangent kernel at criticality, order 1/n), and steps are stable below "
        f"{setup.number('largest_step') * setup.number('pytorch_factor'):.3g} for the mean loss",
        f"rates {per_layer_text(advice.rates.layers)}, from the curvature of the loss on "
        f"{len(subject.batch.x)} inputs",
        applies(setup.regime),
        kind_of(setup.regime),
        other_reasons(setup.regime),
    )
    blocks: list[Block] = [
        finding,
        _sentences(advice, made),
        _starts(advice, made),
        Heading("PyTorch"),
        Code(pytorch_recipe(advice)),
        Heading("JAX with optax"),
        Code(optax_recipe(advice)),
        _table(setup, subject, loss),
    ]
    return Section(TITLE, blocks, tile)


def _sentences(advice: Advice, made: str) -> Table:
    rows = [[sentence.text, sentence.source] for sentence in advice.sentences]
    return Table(["advice", "where it comes from"], rows, "", made)


def _starts(advice: Advice, made: str) -> Table:
    grid = advice.summary()
    caption = (
        "The usual initialisations of the same network on the same data, before any step: outputs "
        f"that start small begin with a smaller loss, not with better features. {ONE_DRAW}"
    )
    rows = [list(row) for row in grid.rows]
    return Table(list(grid.headings), rows, caption, made)


def _table(setup: CriticalSetup, subject: Subject, loss: str) -> Table:
    network = subject.network
    made = (
        "from dynagram.theory._critical_setup import critical_setup\n"
        "critical_setup(\n"
        f"    network.activation, width={network.width}, depth={max(network.depth, 2)},\n"
        f"    inputs={network.input_size}, outputs={network.output_size}, loss={loss!r},\n"
        "    x=data.x)\n"
        f"# in a shell: dynagram advise --activation {network.activation.name} "
        f"--width {network.width} --depth {network.depth} --why"
    )
    rows = []
    for statement in setup.statements:
        value = statement.value
        text = per_layer_text(value) if isinstance(value, tuple) else f"{value:.4g}"
        rows.append([statement.name, text, statement.meaning, statement.equation])
    header = ["quantity", "value", "what it means", "equation of the book"]
    return Table(header, rows, "", made, "For theorists: a draw at criticality in numbers")
