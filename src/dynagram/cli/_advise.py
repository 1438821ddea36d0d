"""`dynagram advise`: how to initialise and train a network of this activation, width and depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column
from rich.text import Text

from dynagram._memory import require_memory
from dynagram.cli._architecture import show_architecture
from dynagram.cli._options import (
    DEEPEST,
    ArchitectureName,
    GradientBands,
    Json,
    NamedActivation,
    Tokens,
    Trust,
)
from dynagram.cli._output import console, narrow_table, print_json, print_list, short, working
from dynagram.data import load_array
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.theory._advice import Advice
else:
    Advice = object  # imported when the command runs, so that --help stays quick


def advise(
    activation: NamedActivation = None,
    width: Annotated[int | None, typer.Option(help="Neurons in a hidden layer.")] = None,
    depth: Annotated[
        int | None, typer.Option(help="Weight matrices: hidden layers and one; of --arch, layers.")
    ] = None,
    arch: ArchitectureName = None,
    tokens: Tokens = 4,
    bands: GradientBands = "cheap",
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    outputs: Annotated[int, typer.Option(help="Outputs of the network.")] = 1,
    loss: Annotated[str, typer.Option(help="mean (squared error) or cross-entropy.")] = "mean",
    data: Annotated[
        Path | None, typer.Option(help="A .npy file of training inputs, one a row, for the step.")
    ] = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="Also tell what skip connections would change.")
    ] = False,
    as_json: Json = False,
) -> None:
    """How to initialise and train this network: variances, learning rates, what to expect.

    Without data the step is that of one input with a mean square of 1 per component. The depth is
    held against the width: L/n against r*, the expected fluctuations, and with --residual skips.
    With --arch (or --network FILE) a transformer, a residual or a convolutional network is judged
    before training, as by `dynagram critical --arch`; of the file of an MLP its activation, width
    and depth are taken.
    """
    from dynagram.theory._advice import advise as find_advice

    if arch is not None:
        if activation is not None:
            raise InvalidValueError("--activation", activation, "--arch has its own")
        described = _described(arch)
        if described is None:
            show_architecture(arch, tokens, width, depth, bands, as_json=as_json)
            return
        activation, width, depth, outputs = described
    for name, value in {"--activation": activation, "--width": width, "--depth": depth}.items():
        if value is None:
            raise InvalidValueError(name, None, "needed, unless --arch is given")
    assert activation is not None
    assert width is not None
    assert depth is not None
    if depth > DEEPEST:
        raise InvalidValueError("--depth", depth, f"at most {DEEPEST}")
    x = None if data is None else load_array(data, "--data")
    # Without data there is one input of as many components; with them their kernels are kept.
    samples = 1 if x is None else len(x)
    require_memory("--width", width, 64.0 * width, "a layer is too wide")
    require_memory("--data", samples, 8.0 * 8 * depth * samples**2, "give fewer inputs")
    # The pasted code reads the fan-in of each layer off the model, so that n_0 may be any.
    inputs = width if x is None else None
    with working("working out advice"):
        advice = find_advice(
            activation, width, depth,
            outputs=outputs, inputs=inputs, loss=loss, x=x, residual=residual,
        )  # fmt: skip
    if as_json:
        print_json(_as_json(advice))
    else:
        _print(advice)


def _described(arch: str) -> tuple[str, int, int, int] | None:
    """Activation, width, depth and outputs of the file of an MLP; None for anything else."""
    from dynagram.networks import ARCHITECTURES, MLP, load_network
    from dynagram.networks._files import is_config

    if arch in ARCHITECTURES or not Path(arch).is_file() or is_config(arch, "--arch"):
        return None
    network = load_network(arch, name="--arch")
    if not isinstance(network, MLP):
        return None
    hidden = set(network.widths[1:-1])
    if len(hidden) != 1:
        allowed = f"advice is for hidden layers of one width, not {sorted(hidden)}"
        raise InvalidValueError("--arch", arch, allowed)
    return network.activation.name, hidden.pop(), network.depth, network.widths[-1]


def _as_json(advice: Advice) -> dict[str, Any]:
    from dynagram.report.prose._recipes import optax_recipe, pytorch_recipe

    standard = advice.pytorch
    return {
        "network": advice.network.to_toml(),
        "loss": advice.loss,
        "class": advice.point.kind,
        "statements": {
            statement.name: {
                "value": statement.value,
                "meaning": statement.meaning,
                "equation": statement.equation,
            }
            for statement in advice.statements
        },
        "sweet_spot": advice.sweet_spot,
        "depth_verdict": advice.depth_verdict,
        "residual": None if advice.residual is None else vars(advice.residual),
        "regime": {
            "verdict": advice.regime.verdict,
            "reasons": advice.regime.reasons,
            "numbers": advice.regime.numbers,
        },
        "notes": advice.notes,
        "standard_parametrisation": {
            name: getattr(standard, name) for name in ("std_b", "std_W", "rate_b", "rate_W")
        },
        "pytorch": pytorch_recipe(advice),
        "optax": optax_recipe(advice),
    }


def _print(advice: Advice) -> None:
    from dynagram.report.prose._recipes import (
        in_words,
        optax_recipe,
        per_layer_text,
        pytorch_recipe,
    )

    out, network = console(), advice.network
    table = narrow_table(Column("quantity", no_wrap=True), Column("value", no_wrap=True), "formula")
    for statement in advice.statements:
        value = statement.value
        shown = per_layer_text(value) if isinstance(value, tuple) else short(value)
        table.add_row(statement.name, shown, Text(f"{statement.meaning}  {statement.equation}"))
    out.print(
        f"[bold]{network.activation.name}[/bold], depth {network.depth}, width "
        f"{network.widths[1]}, outputs {network.widths[-1]}, loss {advice.loss}"
    )
    out.print(table)
    out.print()
    out.print(in_words(advice), markup=False)
    out.print(f"Is the depth right for the width? {advice.depth_verdict}.")
    if advice.residual is not None:
        skips = str(advice.residual)
        out.print(f"What would skips change? {skips[0].upper()}{skips[1:]}.", markup=False)
    out.print(f"Can the 1/n theory be used here? [bold]{advice.regime.verdict}[/bold]")
    print_list(out, (*advice.regime.reasons, *advice.notes))
    out.print("\n[bold]PyTorch[/bold], after the model is built")
    print(pytorch_recipe(advice))
    out.print("\n[bold]JAX[/bold] with optax, parameters as a list of (W, b), W of shape (in, out)")
    print(optax_recipe(advice))
