"""`dynagram forecast`: is this network on a plateau near a saddle, and when will it leave?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dynagram.cli._models import Batch, LayerNames, Skip, WeightsFile, load_model
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, print_json, print_list

if TYPE_CHECKING:
    from dynagram.theory.saddle._forecast_record import Forecast
else:
    Forecast = object  # imported when the command runs, so that --help stays quick


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
    skip: Skip = None,
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
    model, batch = load_model(weights, data, activation, layers, skip)
    answer = predict_escape(model, batch, training, fraction=fraction, factor=factor)
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)


def _print(answer: Forecast) -> None:
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
    out.print(answer.table())
    out.print()
    best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
    out.print(
        f"{answer.r} bottleneck layers. Multiplying layer {best.layer} by {best.factor:g} would "
        f"change the escape from {answer.escape_step:.0f} to {best.escape_step:.0f} steps."
    )
