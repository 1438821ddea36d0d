"""`dynagram measure`: a user's own weights, measured layer by layer on a batch of data."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, narrow_table, print_json, print_list, short
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.observables._measure import LayerMeasurement, NetworkMeasurement
    from dynagram.observables.gram._linearity import Linearity
else:
    # imported when the command runs, so that --help stays quick
    LayerMeasurement = NetworkMeasurement = Linearity = object

_LOSSES = ("auto", "cross-entropy", "mse")


def measure(
    weights: Annotated[Path, typer.Argument(help="A .npz, .safetensors or PyTorch state dict.")],
    data: Annotated[
        Path, typer.Option("--data", help="A .npz file with x and y, perhaps x_test and y_test.")
    ],
    activation: ActivationName,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="Names of the weight matrices in order, by commas."),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="auto (by the type of y), cross-entropy or mse.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of the nulls.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure a network layer by layer: tangent kernel, target linearity, Gram, spectrum, norms.

    Every alignment comes with what independent data or random weights give.
    """
    if loss not in _LOSSES:
        raise InvalidValueError("--loss", loss, f"expected {', '.join(_LOSSES)}")
    arrays = _load(data)
    from dynagram.networks._weights import load_weights
    from dynagram.observables._measure import measure_network

    names = None if layers is None else [name.strip() for name in layers.split(",")]
    network = load_weights(weights, inputs=arrays["x"].shape[1], layers=names)
    test = (arrays["x_test"], arrays["y_test"]) if "x_test" in arrays else None
    found = measure_network(
        network, activation, arrays["x"], arrays["y"],
        test=test, loss=loss, seed=seed,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)


def _load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the batch, inputs flattened to rows; nothing is unpickled."""
    if not path.is_file():
        raise InvalidValueError("--data", str(path), "no such file")
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidValueError(
            "--data", str(path), "not an archive of arrays saved with numpy.savez"
        ) from error
    for name in ("x", "y"):
        if name not in arrays:
            raise InvalidValueError("--data", ", ".join(arrays), f"no array {name} in this file")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise InvalidValueError("--data", ", ".join(arrays), "x_test and y_test go together")
    for name in ("x", "x_test"):
        if name in arrays:
            if arrays[name].ndim < 2:
                raise InvalidValueError(
                    f"shape of {name}", arrays[name].shape, "expected (samples, …)"
                )
            arrays[name] = arrays[name].reshape(arrays[name].shape[0], -1)
    return arrays


def _as_json(found: NetworkMeasurement) -> dict[str, Any]:
    from dynagram.report.prose._measurement import paragraph

    return {
        "samples": found.samples,
        "loss": {found.loss_name: found.loss},
        "accuracy": found.accuracy,
        "input": {"target_linearity": _linearity(found.input_linearity)},
        "layers": [_layer(layer) for layer in found.layers],
        "what_stands_out": paragraph(found),
        "notes": found.notes,
    }


def _layer(layer: LayerMeasurement) -> dict[str, Any]:
    spectrum, push = layer.spectrum, layer.alignment
    return {
        "layer": layer.layer,
        "name": layer.name,
        "shape": layer.shape,
        "kernel_share": layer.kernel_share,
        "target_linearity": _linearity(layer.linearity),
        "gram_alignment": None if push is None else {"value": push.value, "null": vars(push.null)},
        "effective_rank": spectrum.effective_rank,
        "spectrum": {
            "verdict": spectrum.verdict,
            "words": spectrum.sentence,
            "spikes": spectrum.spikes,
            "distance": spectrum.distance,
            "distance_null": None
            if spectrum.distance_null is None
            else vars(spectrum.distance_null),
            "tail": None if spectrum.tail is None else vars(spectrum.tail),
            "random_exponent": spectrum.random_exponent,
        },
        "squared_norm": layer.norm,
        "imbalance_to_next": layer.imbalance,
        "dead_units": layer.dead,
    }


def _linearity(found: Linearity) -> dict[str, Any]:
    return {
        "score": found.score,
        "null": vars(found.null),
        "rank": found.rank,
        "fitted": found.samples,
        "scored": found.scored,
    }


def _print(found: NetworkMeasurement) -> None:
    from dynagram.report.prose._measurement import paragraph

    out = console()
    out.print("With the data: tangent kernel, features after the layer, Gram of the layer")
    out.print(_data_table(found))
    out.print()
    out.print("In the weights: spectrum of WᵀW, and norms")
    out.print(_weight_table(found))
    out.print()
    out.print(paragraph(found), markup=False)
    print_list(out, found.notes)


def _data_table(found: NetworkMeasurement) -> Table:
    table = narrow_table(
        "layer", "shape", "kernel share", "target linearity", "null", "Gram/VC", "null"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    table.add_row("input", "", "", *_score(found.input_linearity))
    for layer in found.layers:
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


def _score(found: Linearity) -> tuple[str, str]:
    return f"{found.score:.3f}", f"{found.null.mean:.3f}±{found.null.deviation:.3f}"


def _weight_table(found: NetworkMeasurement) -> Table:
    table = narrow_table(
        "layer", "effective rank", "tail α", "random α", "verdict", "norm²", "next − this"
    )
    for column in (*table.columns[1:4], *table.columns[5:]):
        column.justify = "right"
    for layer in found.layers:
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
