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
from dynagram.report.story._words import applies, kind_of, percent
from dynagram.theory._critical_setup import CriticalSetup, critical_setup

TITLE = "Advice for this network"


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
    spread = setup.number("ntk_fluctuation")
    rate = max(advice.rates.layers)
    verdict = setup.regime.verdict
    tile = Tile(
        "Advice",
        f"lr {rate:.2g}",
        "depth fits the width" if verdict == "trust" else f"{verdict} with this depth",
        f"is the rate of plain SGD, measured on your data; learning differs by {percent(spread)} "
        "between draws of this width.",
        kind_of(setup.regime),
    )
    finding = Finding(
        advice.sentences[0].text,
        f"drawn at criticality, the tangent kernel of this depth and width differs by "
        f"{percent(spread)} between draws (order 1/n), and steps are stable below "
        f"{setup.number('largest_step') * setup.number('pytorch_factor'):.3g} for the mean loss",
        f"rates {per_layer_text(advice.rates.layers)}, from the curvature of the loss on "
        f"{len(subject.batch.x)} inputs",
        applies(setup.regime),
        kind_of(setup.regime),
    )
    blocks: list[Block] = [
        finding,
        _sentences(advice),
        _starts(advice),
        Heading("PyTorch"),
        Code(pytorch_recipe(advice)),
        Heading("JAX with optax"),
        Code(optax_recipe(advice)),
        Heading("What theory says of a draw at criticality"),
        _table(setup, subject),
    ]
    return Section(TITLE, blocks, tile)


def _sentences(advice: Advice) -> Table:
    rows = [[sentence.text, sentence.source] for sentence in advice.sentences]
    return Table(["advice", "where it comes from"], rows, "", "dynagram.advise(network, batch)")


def _starts(advice: Advice) -> Table:
    grid = advice.summary()
    caption = f"The usual initialisations of the same network on the same data. {ONE_DRAW}"
    rows = [list(row) for row in grid.rows]
    return Table(list(grid.headings), rows, caption, "dynagram.advise(network, batch).summary()")


def _table(setup: CriticalSetup, subject: Subject) -> Table:
    network = subject.network
    made = (
        "from dynagram.theory._critical_setup import critical_setup\n"
        f"critical_setup({network.activation.name!r}, width={network.width}, "
        f"depth={network.depth}, inputs={network.input_size}, x=data.x)\n"
        f"# in a shell: dynagram advise --activation {network.activation.name} "
        f"--width {network.width} --depth {network.depth} --why"
    )
    rows = []
    for statement in setup.statements:
        value = statement.value
        text = per_layer_text(value) if isinstance(value, tuple) else f"{value:.4g}"
        rows.append([statement.name, text, statement.meaning, statement.equation])
    header = ["quantity", "value", "what it means", "equation of the book"]
    return Table(header, rows, "", made)
