"""`dynagram forecast`: is this network on a plateau near a saddle, and when will it leave?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from dynagram.cli._models import Batch, LayerNames, Skip, WeightsFile, load_model
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, print_json, print_list, working

if TYPE_CHECKING:
    from dynagram.theory.saddle._forecast_record import Forecast
    from dynagram.training import GradientDescent, Optax
else:
    Forecast = GradientDescent = Optax = object  # imported when the command runs: --help is quick


def forecast(
    weights: WeightsFile,
    data: Batch,
    activation: ActivationName,
    lr: Annotated[float, typer.Option("--lr", help="The learning rate.")],
    optimizer: Annotated[
        str | None,
        typer.Option(help="gd, momentum or adam; momentum where --momentum is given, else gd."),
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(help="β of momentum (0.9 unless given), or Adam's b1.")
    ] = None,
    eps: Annotated[float, typer.Option(help="Adam's ε.")] = 1e-8,
    loss: Annotated[
        str,
        typer.Option(
            help="What is trained and printed: mean (of squares over samples and outputs, as "
            "torch.nn.MSELoss), half-sum (½ sum over the batch), cross-entropy or logistic."
        ),
    ] = "mean",
    batch: Annotated[
        int | None, typer.Option(help="Samples per step; all unless given.", min=1)
    ] = None,
    fraction: Annotated[
        float, typer.Option(help="Part of the first stage's fall that counts as escape.")
    ] = 0.5,
    factor: Annotated[float, typer.Option(help="Rescaling tried on every layer in turn.")] = 2.0,
    layers: LayerNames = None,
    skip: Skip = None,
    as_json: Json = False,
) -> None:
    """Is this network on a plateau near a saddle, and when will it leave?

    Steps are counted from the given weights. The forecast ends where the loss has fallen by half
    of the first thing that a linear map can learn, unless --fraction says otherwise.
    """
    from dynagram.theory.saddle._forecast import forecast as predict_escape
    from dynagram.training import Training

    algorithm = _algorithm(optimizer, lr, momentum, eps)
    training = Training(algorithm, loss=loss, batch=batch)
    model, samples = load_model(weights, data, activation, layers, skip)
    with working("forecasting the escape"):
        answer = predict_escape(model, samples, training, fraction=fraction, factor=factor)
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)


def _algorithm(
    optimizer: str | None, lr: float, momentum: float | None, eps: float
) -> GradientDescent | Optax:
    from dynagram.errors import InvalidValueError
    from dynagram.training import GradientDescent, Optax

    if not (math.isfinite(lr) and lr > 0.0):
        raise InvalidValueError("--lr", lr, "a learning rate > 0 needed")
    kind = optimizer or ("momentum" if momentum else "gd")
    if kind == "momentum":
        return Optax("momentum", lr, momentum=0.9 if momentum is None else momentum)
    if kind == "adam":
        return Optax("adam", lr, b1=0.9 if momentum is None else momentum, eps=eps)
    if kind != "gd":
        raise InvalidValueError("--optimizer", kind, "expected gd, momentum or adam")
    if momentum:
        raise InvalidValueError("--momentum", momentum, "gd has none: --optimizer momentum")
    return GradientDescent(lr)


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
    for stage in answer.later:
        low, high = stage.interval
        out.print(
            f"Stage {stage.stage}: step {stage.step:.0f} ({low:.0f} to {high:.0f}), loss "
            f"{stage.loss:.4g}."
        )
    if answer.bounds is not None:
        upper = answer.bounds.upper
        above = f"to {upper:.0f} steps" if math.isfinite(upper) else "steps or more"
        line = f"Bounds of Theorem 11: {answer.bounds.lower:.0f} {above}."
        if answer.bootstrap_step is not None:
            line += " The small layers are too small for an escape until step "
            line += f"{answer.bootstrap_step:.0f}."
        out.print(line)
    out.print()
    out.print(answer.table())
    out.print()
    best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
    out.print(
        f"{answer.r} bottleneck layers. Multiplying layer {best.layer} by {best.factor:g} would "
        f"change the escape from {answer.escape_step:.0f} to {best.escape_step:.0f} steps."
    )
