"""`dynagram advise`: how to initialise and train a network of this activation, width and depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
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
from dynagram.data import Data, load_array, load_data
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.advice import Advice
    from dynagram.theory._critical_setup import CriticalSetup
else:
    Advice = CriticalSetup = object  # imported when the command runs, so that --help stays quick


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
    inputs: Annotated[
        int | None, typer.Option(help="Inputs of the network; the width without --data.", min=1)
    ] = None,
    loss: Annotated[
        str, typer.Option(help="mean (squared error), cross-entropy, half-sum or logistic.")
    ] = "mean",
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, adam or adamw.")] = "sgd",
    batch: Annotated[int | None, typer.Option(help="Samples in a step; all by default.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="What is trained on: .npz with x and y (or labels), or .npy of inputs."),
    ] = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="Every hidden layer after the first has a skip.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the weights.", min=0)] = 0,
    why: Annotated[
        bool, typer.Option("--why", help="What the theory says of it, number by number.")
    ] = False,
    as_json: Json = False,
) -> None:
    """How to initialise and train this network: in ten lines, each with its source.

    Weights are set up on the data and learning rates measured on them; without data, on random
    inputs and targets. Beside it stands what PyTorch's default, Kaiming, Xavier and orthogonal
    initialisation would do. With --why also the network of the effective theory, drawn at
    criticality: variances, rates, fluctuations, each with its equation. With --arch (or --network
    FILE) a transformer, a residual or a convolutional network is judged before training, as by
    `dynagram critical --arch`; of the file of an MLP its activation, width and depth are taken.
    """
    from dynagram.advice import advise as find_advice
    from dynagram.networks import Architecture

    if arch is not None:
        if activation is not None:
            raise InvalidValueError("--activation", activation, "--arch has its own")
        described = _described(arch)
        if described is None:
            given = {"--data": data, "--inputs": inputs, "--batch": batch, "--residual": residual,
                     "--why": why, "--loss": loss != "mean" and loss,
                     "--optimizer": optimizer != "sgd" and optimizer}  # fmt: skip
            for name, value in given.items():
                if value is not None and value is not False:
                    allowed = "is for MLPs: other networks are judged before training"
                    raise InvalidValueError(name, str(value), allowed)
            show_architecture(arch, tokens, width, depth, bands, as_json=as_json)
            return
        activation, width, depth, outputs = described
    for name, value in {"--activation": activation, "--width": width, "--depth": depth}.items():
        if value is None:
            raise InvalidValueError(name, None, "needed, unless --arch is given")
    assert activation is not None
    assert width is not None
    assert depth is not None
    if width < 1:
        raise InvalidValueError("--width", width, "expected 1 or more")
    if width > 2**31:
        raise InvalidValueError("--width", width, "at most 2**31")
    if not 2 <= depth <= DEEPEST:
        raise InvalidValueError("--depth", depth, f"expected 2 to {DEEPEST}")
    x, y = (None, None) if data is None else _arrays(data, outputs)
    n_0, n_L = (
        (inputs or width if x is None else x.shape[1]),
        (outputs if y is None else y.shape[1]),
    )
    if inputs is not None and inputs != n_0:
        raise InvalidValueError("--inputs", inputs, f"--data has {n_0} columns")
    require_memory("--width", width, 64.0 * width, "a layer is too wide")
    require_memory("--width", width, 64.0 * width * width * depth, "it has too many weights")
    samples = 1 if x is None else len(x)
    if why:
        # Its kernels of all inputs are kept, layer by layer.
        require_memory("--data", samples, 8.0 * 8 * depth * samples**2, "give fewer inputs")
    network = Architecture(
        [n_0, *[width] * (depth - 1), n_L], activation, skip=1.0 if residual else 0.0
    )
    problem = None if x is None else _problem(x, y, n_L, loss, seed)
    with working("working out advice"):
        advice = find_advice(
            network, problem, loss=loss, optimizer=optimizer, batch=batch, seed=seed
        )
    setup = _setup(activation, width, depth, n_L, loss, x, n_0) if why else None
    if as_json:
        print_json(_as_json(advice, setup, batch))
    else:
        _print(advice, setup, batch)


def _arrays(path: Path, outputs: int) -> tuple[Any, Any]:
    """Inputs, and targets if the file has any."""
    if path.suffix == ".npz":
        given = load_data(path, "--data", outputs=outputs if outputs > 1 else None)
        return given.x, given.y
    x = load_array(path, "--data")
    if x.ndim != 2 or not x.size:
        raise InvalidValueError("shape of --data", x.shape, "expected one input a row")
    return x, None


def _problem(x: Any, y: Any, outputs: int, loss: str, seed: int) -> Data:
    if y is not None:
        return Data(x, y)
    rng = np.random.default_rng(seed)
    if loss == "cross-entropy":
        return Data(x, np.eye(outputs)[rng.integers(outputs, size=len(x))])
    if loss == "logistic":
        return Data(x, rng.choice([-1.0, 1.0], size=(len(x), outputs)))
    return Data(x, rng.normal(size=(len(x), outputs)))


def _setup(
    activation: str, width: int, depth: int, outputs: int, loss: str, x: Any, inputs: int
) -> CriticalSetup:
    from dynagram.theory._critical_setup import critical_setup

    return critical_setup(activation, width, depth, outputs=outputs, inputs=inputs, loss=loss, x=x)


def _described(arch: str) -> tuple[str, int, int, int] | None:
    """Activation, width, depth and outputs of the file of an MLP; None for anything else."""
    from dynagram.networks import MLP, load_network
    from dynagram.networks._architectures import ARCHITECTURES
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


def _as_json(advice: Advice, setup: CriticalSetup | None, batch: int | None) -> dict[str, Any]:
    from dynagram.report.prose._recipes import optax_recipe, pytorch_recipe

    code = {"pytorch": pytorch_recipe(advice, batch), "optax": optax_recipe(advice, batch)}
    return advice.to_dict() | code | {"why": None if setup is None else _setup_json(setup)}


def _setup_json(setup: CriticalSetup) -> dict[str, Any]:
    return {
        "network": setup.network.to_toml(),
        "class": setup.point.kind,
        "statements": {
            statement.name: {
                "value": statement.value,
                "meaning": statement.meaning,
                "equation": statement.equation,
            }
            for statement in setup.statements
        },
        "depth": setup.sweet_spot,
        "regime": {
            "verdict": setup.regime.verdict,
            "reasons": setup.regime.reasons,
            "numbers": setup.regime.numbers,
        },
        "notes": setup.notes,
    }


def _print(advice: Advice, setup: CriticalSetup | None, batch: int | None) -> None:
    from dynagram.advice._advise import ONE_DRAW
    from dynagram.report.prose._recipes import optax_recipe, pytorch_recipe

    out, network = console(), advice.model.network
    skips = ", skips" if network.has_skips else ""
    out.print(
        f"[bold]{network.activation.name}[/bold], depth {network.depth}, width "
        f"{network.widths[1]}{skips}, outputs {network.widths[-1]}, loss {advice.rates.loss}, "
        f"{advice.rates.optimizer}\n"
    )
    for sentence in advice.sentences:
        out.print(Text(f"{sentence.text}  [{sentence.source}]"))
    if advice.starts:
        out.print("\nBeside it, the same network on the same data")
        out.print(advice.table())
        out.print(ONE_DRAW)
    if setup is not None:
        _print_setup(setup)
    out.print("\n[bold]PyTorch[/bold], with your model and tensors x, y")
    print(pytorch_recipe(advice, batch))
    out.print("\n[bold]JAX[/bold] with optax, with your arrays x, y")
    print(optax_recipe(advice, batch))


def _print_setup(setup: CriticalSetup) -> None:
    from dynagram.report.prose._recipes import per_layer_text

    out = console()
    table = narrow_table(Column("quantity", no_wrap=True), Column("value", no_wrap=True), "formula")
    for statement in setup.statements:
        value = statement.value
        shown = per_layer_text(value) if isinstance(value, tuple) else short(value)
        table.add_row(statement.name, shown, Text(f"{statement.meaning}  {statement.equation}"))
    out.print("\n[bold]Why[/bold]: the effective theory of it, drawn at criticality")
    out.print(table)
    out.print(f"Drawn so, it is {setup.sweet_spot}.")
    out.print(f"Can the 1/n theory be used there? [bold]{setup.regime.verdict}[/bold]")
    print_list(out, (*setup.regime.reasons, *setup.notes))
