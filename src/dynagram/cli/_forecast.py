"""`dynagram forecast` and `dynagram plateaus`: when a plateau will end, and where plateaus were."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from dynagram.cli._models import Batch, LayerNames, WeightsFile, load_model
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, narrow_table, print_json, print_list, short
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.networks import Model
    from dynagram.theory.saddle._forecast import Forecast
else:
    Forecast = Model = object  # imported when the command runs, so that --help stays quick


def forecast(
    weights: WeightsFile,
    data: Batch,
    activation: ActivationName,
    lr: Annotated[float, typer.Option("--lr", help="The learning rate.")],
    momentum: Annotated[float, typer.Option(help="Of gradient descent with momentum.")] = 0.0,
    loss: Annotated[
        str,
        typer.Option(
            help="What the rate belongs to: mean (of squares over samples and outputs, as "
            "torch.nn.MSELoss) or half-sum (½ sum over the batch)."
        ),
    ] = "mean",
    fraction: Annotated[
        float, typer.Option(help="Part of the small-signal fall that counts as escape.")
    ] = 0.5,
    factor: Annotated[float, typer.Option(help="Rescaling tried on every layer in turn.")] = 2.0,
    layers: LayerNames = None,
    as_json: Json = False,
) -> None:
    """Is this network on a plateau near a saddle, and when will it leave?

    Steps are counted from the given weights. The forecast ends where the loss has fallen half-way
    to the least loss of a linear map, unless --fraction says otherwise.
    """
    from dynagram.theory.saddle._forecast import forecast as predict_escape
    from dynagram.training import GradientDescent, Optax, Training

    algorithm = Optax("momentum", lr, momentum=momentum) if momentum else GradientDescent(lr)
    training = Training(algorithm, loss=loss)
    model, batch = load_model(weights, data, activation, layers, "0")
    answer = predict_escape(model, batch, training, fraction=fraction, factor=factor)
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer, model)


def plateaus(
    curve: Annotated[
        Path, typer.Argument(help="Losses: .npy, or text with one number or step,loss a line.")
    ],
    fall: Annotated[
        float, typer.Option(help="Largest part of the whole fall within a plateau.")
    ] = 0.05,
    contrast: Annotated[
        float, typer.Option(help="How many times longer than the next such fall it lasts.")
    ] = 3.0,
    as_json: Json = False,
) -> None:
    """Find the plateaus of a logged loss curve."""
    from dynagram.observables._plateaus import find_plateaus

    steps, losses = _load_curve(curve)
    found = find_plateaus(losses, steps, fall=fall, contrast=contrast)
    if as_json:
        print_json({"plateaus": [vars(plateau) for plateau in found]})
        return
    out = console()
    if not found:
        out.print("No plateau: the loss never stands still for long before it falls again.")
        return
    table = narrow_table("from step", "to step", "loss", "times the next fall", "")
    for plateau in found:
        table.add_row(
            f"{plateau.start:.0f}", f"{plateau.end:.0f}", short(plateau.level),
            short(plateau.contrast, 3), "left" if plateau.left else "the curve ends on it",
        )  # fmt: skip
    out.print(table)


def _load_curve(path: Path) -> tuple[np.ndarray | None, np.ndarray]:
    from dynagram.data import load_array

    values = load_array(path, "curve")
    if values.ndim == 1:
        return None, values
    if values.ndim == 2 and values.shape[1] in (1, 2):
        return (values[:, 0] if values.shape[1] == 2 else None), values[:, -1]
    raise InvalidValueError("curve", str(values.shape), "expected one column, or step and loss")


def _print(answer: Forecast, model: Model) -> None:
    out = console()
    if not answer.plateau or answer.escape_step is None or answer.interval is None:
        out.print("Not a small-signal plateau: no forecast.")
        print_list(out, answer.reasons)
        return
    low, high = answer.interval
    out.print(
        f"On a plateau. Escape in {answer.escape_step:.0f} steps "
        f"(90 % interval {low:.0f} to {high:.0f}), when the loss, now {answer.loss:.4g}, has "
        f"fallen to {answer.escape_loss:.4g}."
    )
    print_list(out, answer.reasons)
    out.print()
    table = narrow_table("layer", "name", "scale", "bottleneck", "nonlinear", "escape if scaled")
    for index, entry in enumerate(answer.counterfactuals):
        nonlinear = f"{answer.nonlinearity[index]:.1%}" if index < len(answer.nonlinearity) else "–"
        table.add_row(
            str(entry.layer), model.name_of(entry.layer), short(answer.scales[index], 3),
            "yes" if entry.layer in answer.bottleneck else "", nonlinear,
            f"{entry.escape_step:.0f} (× {entry.factor:g})",
        )  # fmt: skip
    out.print(table)
    out.print()
    best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
    out.print(
        f"{answer.r} bottleneck layers. Multiplying layer {best.layer} by {best.factor:g} would "
        f"change the escape from {answer.escape_step:.0f} to {best.escape_step:.0f} steps."
    )
