"""`dynagram measure`: a user's own weights, measured layer by layer on a batch of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dynagram.cli._models import Batch, LayerNames, Skip, WeightsFile, load_model
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, print_json, print_list

if TYPE_CHECKING:
    from dynagram.observables._measurement import Measurement
else:
    Measurement = object  # imported when the command runs, so that --help stays quick


def measure(
    weights: WeightsFile,
    data: Batch,
    activation: ActivationName,
    layers: LayerNames = None,
    skip: Skip = None,
    loss: Annotated[
        str,
        typer.Option(
            help="auto (by the type of y), cross-entropy, mean (squared error), half-sum."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of the nulls.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure a network layer by layer: tangent kernel, target linearity, Gram, spectrum, norms.

    Every alignment comes with what independent data or random weights give.
    """
    from dynagram.observables._measure import measure as measure_model
    from dynagram.report.prose import describe_measurement

    result = measure_model(
        *load_model(weights, data, activation, layers, skip), loss=loss, seed=seed
    )
    if as_json:
        print_json(result.to_dict() | {"what_stands_out": describe_measurement(result)})
    else:
        _print(result, describe_measurement(result))


def _print(result: Measurement, words: str) -> None:
    out = console()
    out.print("With the data: tangent kernel, features after the layer, Gram of the layer")
    out.print(result.table())
    out.print()
    out.print("In the weights: spectrum of WᵀW, and norms")
    out.print(result.weight_summary().rich())
    out.print()
    out.print(words, markup=False)
    print_list(out, result.notes)
