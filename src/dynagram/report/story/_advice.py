"""Chapter (f): advice. Initialisation, rates and depth for this width, as code to copy."""

from __future__ import annotations

from collections.abc import Callable

from dynagram.ensembles.engine._progress import Progress
from dynagram.report._blocks import Code, Finding, Heading, Section, Table, Text, Tile
from dynagram.report.prose._recipes import in_words, optax_recipe, per_layer_text, pytorch_recipe
from dynagram.report.story._stages import Effort
from dynagram.report.story._subject import Subject
from dynagram.report.story._words import applies, kind_of, percent
from dynagram.theory._advice import Advice, advise

TITLE = "Advice for this width and depth"


def tell_advice(
    subject: Subject,
    effort: Effort,  # noqa: ARG001
    progress: Callable[[Progress], object],  # noqa: ARG001
) -> Section:
    """What `advise` says of this activation, width and depth on these inputs."""
    network = subject.network
    loss = "cross-entropy" if subject.how.loss == "cross-entropy" else "mean"
    advice = advise(
        network.activation, width=network.width, depth=max(network.depth, 2),
        inputs=network.input_size, outputs=network.output_size, loss=loss, x=subject.data.x,
    )  # fmt: skip
    spread = advice.number("ntk_fluctuation")
    step = advice.number("step") * advice.number("pytorch_factor")
    made = (
        "from dynagram import advise\n"
        f"advise({network.activation.name!r}, width={network.width}, depth={network.depth}, "
        f"inputs={network.input_size}, x=data.x)\n"
        f"# in a shell: dynagram advise --activation {network.activation.name} "
        f"--width {network.width} --depth {network.depth}"
    )
    tile = Tile(
        "Advice",
        f"lr {step:.2g}",
        advice.sweet_spot.partition(":")[0],
        f"for weights with C_W = {advice.network.C_W[-1]:.3g}; learning differs by "
        f"{percent(spread)} between draws.",
        kind_of(advice.regime),
    )
    finding = Finding(
        f"This depth is {advice.sweet_spot}.",
        f"draw weights with variance {advice.network.C_W[-1]:.4g}/fan-in and biases with "
        f"{advice.network.C_b[-1]:.4g}; the largest stable step is "
        f"{advice.number('largest_step') * advice.number('pytorch_factor'):.4g} for the mean loss",
        f"this network has C_W = {per_layer_text(network.C_W)} and C_b = "
        f"{per_layer_text(network.C_b)}",
        applies(advice.regime),
        kind_of(advice.regime),
    )
    blocks = [
        finding,
        Text(in_words(advice)),
        Heading("PyTorch"),
        Code(pytorch_recipe(advice)),
        Heading("JAX with optax"),
        Code(optax_recipe(advice)),
        Heading("Where each number comes from"),
        _table(advice, made),
    ]
    return Section(TITLE, blocks, tile)


def _table(advice: Advice, made: str) -> Table:
    rows = []
    for statement in advice.statements:
        value = statement.value
        text = per_layer_text(value) if isinstance(value, tuple) else f"{value:.4g}"
        rows.append([statement.name, text, statement.meaning, statement.equation])
    header = ["quantity", "value", "what it means", "equation of the book"]
    return Table(header, rows, "", made)
