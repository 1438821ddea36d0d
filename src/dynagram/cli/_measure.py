"""`dynagram measure`: a user's own weights, measured layer by layer on a batch of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dynagram.cli._models import Batch, LayerNames, Skip, WeightsFile, load_model
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, narrow_table, print_json, print_list, short

if TYPE_CHECKING:
    from dynagram.observables._measure import Measurement
    from dynagram.observables.gram._linearity import Linearity
else:
    Measurement = Linearity = object  # imported when the command runs, so that --help stays quick


def measure(
    weights: WeightsFile,
    data: Batch,
    activation: ActivationName,
    layers: LayerNames = None,
    skip: Skip = "0",
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
    from dynagram.report.prose._measurement import paragraph

    result = measure_model(
        *load_model(weights, data, activation, layers, skip), loss=loss, seed=seed
    )
    if as_json:
        print_json(result.to_dict() | {"what_stands_out": paragraph(result)})
    else:
        _print(result)


def _print(result: Measurement) -> None:
    from dynagram.report.prose._measurement import paragraph

    out = console()
    out.print("With the data: tangent kernel, features after the layer, Gram of the layer")
    out.print(_data_table(result))
    out.print()
    out.print("In the weights: spectrum of WᵀW, and norms")
    out.print(_weight_table(result))
    out.print()
    out.print(paragraph(result), markup=False)
    print_list(out, result.notes)


def _data_table(result: Measurement) -> Table:
    table = narrow_table(
        "layer", "shape", "kernel share", "target linearity", "null", "Gram/VC", "null"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    table.add_row("input", "", "", *_score(result.input_linearity))
    for layer in result.layers:
        push = layer.alignment
        cosine = (
            ("–", "–") if push is None else (f"{push.value:.2f}", f"±{push.null.deviation:.2f}")
        )
        table.add_row(
            str(layer.layer),
            f"{layer.shape[0]}×{layer.shape[1]}",
            f"{100 * layer.kernel_share:.1f} %",
            *_score(layer.linearity),
            *cosine,
        )
    return table


def _score(linearity: Linearity) -> tuple[str, str]:
    null = linearity.null
    return f"{linearity.score:.3f}", f"{null.mean:.3f}±{null.deviation:.3f}"


def _weight_table(result: Measurement) -> Table:
    table = narrow_table(
        "layer", "effective rank", "tail α", "random α", "verdict", "norm²", "next − this"
    )
    for column in (*table.columns[1:4], *table.columns[5:]):
        column.justify = "right"
    for layer in result.layers:
        spectrum, tail = layer.spectrum, layer.spectrum.tail
        table.add_row(
            str(layer.layer),
            f"{spectrum.effective_rank:.1f} of {len(spectrum.eigenvalues)}",
            "–" if tail is None else f"{tail.exponent:.1f}±{tail.error:.1f}",
            short(spectrum.random_exponent, 2),
            f"{spectrum.spikes} spikes" if spectrum.verdict == "spikes" else spectrum.verdict,
            f"{layer.norm:.1f}",
            "" if layer.imbalance is None else f"{layer.imbalance:+.1f}",
        )
    return table
