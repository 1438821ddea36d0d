"""`dynagram predict`: the tensors of a network at initialisation for the user's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dynagram.cli._archives import Archive, write_archive
from dynagram.cli._options import (
    ActivationName,
    BiasRate,
    BiasVariance,
    Inputs,
    Json,
    Output,
    Skip,
    WeightRate,
    WeightVariance,
    Widths,
    check_archive_path,
    letters,
    make_network,
)
from dynagram.cli._output import console, narrow_table, print_json, print_list, short, tell
from dynagram.data import load_array
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.results import Tensors as Prediction
else:
    Prediction = object  # imported when a command runs, so that --help stays quick

_TENSORS_PER_TABLE = 4  # fits a terminal of 80 columns


def predict(
    inputs: Inputs,
    widths: Widths,
    activation: ActivationName,
    cb: BiasVariance = None,
    cw: WeightVariance = None,
    lambda_b: BiasRate = "1",
    lambda_w: WeightRate = "1",
    tensors: Annotated[
        str | None,
        typer.Option(
            "--tensors",
            help="Some of K,G1,V,Theta,H1,A,B,D,F,P,Q,R,S,T,U, separated by commas; with --skip of "
            "K,G1,V,Theta. Default: K,V,G1.",
        ),
    ] = None,
    skip: Skip = "0",
    vertex: Annotated[
        str, typer.Option(help="V of residual blocks: corrected, or published as in (B.25).")
    ] = "corrected",
    output: Output = None,
    accuracy: Annotated[
        float, typer.Option(help="Numerical error allowed in four-sample averages, relative.")
    ] = 1e-4,
    seed: Annotated[int, typer.Option(help="Of the quadrature nodes.")] = 0,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: .svg, .png or .html.")
    ] = None,
) -> None:
    """Predict the tensors of a network at initialisation, layer by layer, for your inputs.

    K and Theta are the kernel and the NTK at infinite width; the others are of order 1/n and are
    to be divided by n. Arrays have the layer first, then the samples in the order of the book.
    With --skip the hidden layers are residual blocks z' = b + W σ(z) + γ z.
    """
    check_archive_path(output)
    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    x = load_array(inputs, "--inputs")
    if tensors is None:
        tensors = "K,V" if vertex == "published" else "K,V,G1"
    names = letters(tensors)
    if plot is not None and "K" not in names:
        raise InvalidValueError("--tensors", tensors, "a figure needs K among them")
    network = make_network(widths, activation, cb, cw, lambda_b, lambda_w, skip)
    from dynagram.theory._predict import predict as predict_tensors

    prediction = predict_tensors(network, x, names, vertex=vertex, accuracy=accuracy, seed=seed)
    if output is not None:
        write_archive(output, _archive(prediction, x, accuracy, seed))
    if plot is not None:
        _draw(prediction, plot)
    if as_json:
        print_json(_summary(prediction))
    else:
        _print(prediction)


def _archive(prediction: Prediction, x: np.ndarray, accuracy: float, seed: int) -> Archive:
    network, regime = prediction.network, prediction.regime
    layers = tuple(range(1, network.depth + 1))
    return Archive(
        kind="prediction",
        spec=network.to_toml(),
        widths=network.widths,
        x=np.asarray(x, dtype=np.float64),
        tensors=prediction.values,
        errors=prediction.errors,
        layers=dict.fromkeys(prediction.values, layers),
        about={
            "accuracy": accuracy,
            "seed": seed,
            "verdict": regime.verdict,
            "reasons": regime.reasons,
            "numbers": regime.numbers,
        }
        | _choice(prediction),
    )


def _choice(prediction: Prediction) -> dict[str, str]:
    """The vertex, where there is a choice."""
    return {"vertex": prediction.about["vertex"]} if prediction.network.has_skips else {}


def _diagonals(prediction: Prediction) -> dict[str, np.ndarray]:
    """Each tensor with all samples equal, shape (layer, sample)."""
    patterns = {3: "laa->la", 5: "laaaa->la"}
    return {
        name: np.einsum(patterns[values.ndim], values) for name, values in prediction.values.items()
    }


def _summary(prediction: Prediction) -> dict[str, Any]:
    diagonals = _diagonals(prediction)
    regime = prediction.regime
    return {
        "network": prediction.network.to_toml(),
        **_choice(prediction),
        "samples": next(iter(diagonals.values())).shape[1],
        "order": {name: prediction.order_of(name) for name in diagonals},
        "diagonals": [
            {
                "layer": index + 1,
                "fan_in": prediction.network.widths[index],
                **{name: values[index] for name, values in diagonals.items()},
            }
            for index in range(prediction.network.depth)
        ],
        "largest_error": {name: values.max() for name, values in prediction.errors.items()},
        "regime": {
            "verdict": regime.verdict,
            "reasons": regime.reasons,
            "numbers": regime.numbers,
        },
    }


def _print(prediction: Prediction) -> None:
    network, diagonals = prediction.network, _diagonals(prediction)
    out = console()
    out.print(str(network), markup=False)
    names = list(diagonals)
    for first in range(0, len(names), _TENSORS_PER_TABLE):
        group = names[first : first + _TENSORS_PER_TABLE]
        out.print(_table(prediction, {name: diagonals[name] for name in group}))
        out.print()
    samples = next(iter(diagonals.values())).shape[1]
    out.print(
        "Diagonal entries (all samples equal)"
        + (f", averaged over the {samples} samples" if samples > 1 else "")
        + ". With /n: order 1/n, else infinite width. error/n: the largest numerical error."
    )
    if vertex := _choice(prediction).get("vertex"):
        meaning = {
            "corrected": "what one neuron's past does to the others is kept in full",
            "published": "(B.25) as printed, off by tens of per cent for ReLU-like σ",
        }
        out.print(f"Vertex V: {vertex}, {meaning[vertex]}.")
    out.print(f"[bold]{prediction.regime.verdict}[/bold]")
    print_list(out, prediction.regime.reasons)


def _table(prediction: Prediction, diagonals: dict[str, np.ndarray]) -> Table:
    errors = {name: prediction.errors[name] for name in diagonals if name in prediction.errors}
    headings = [name if prediction.order_of(name) == "∞" else f"{name}/n" for name in diagonals]
    table = narrow_table("layer", "fan-in n", *headings, *(["error/n"] if errors else []))
    for column in table.columns:
        column.justify = "right"
    for index in range(prediction.network.depth):
        n = prediction.network.widths[index]
        cells = []
        for name, values in diagonals.items():
            mean = float(values[index].mean()) / (1 if prediction.order_of(name) == "∞" else n)
            rounding = 1e-14 * float(np.max(np.abs(prediction[name])))
            cells.append(short(mean if abs(mean) > rounding else 0.0))
        if errors:
            worst = max(float(values[index].max()) for values in errors.values())
            largest = max(float(np.max(np.abs(prediction[name]))) for name in errors)
            cells.append(short(worst / n, 2) if worst > 1e-10 * largest else "rounding")
        table.add_row(str(index + 1), str(n), *cells)
    return table


def _draw(prediction: Prediction, path: Path) -> None:
    from dynagram.report._export import alt, save
    from dynagram.report._figures import flow

    network, diagonals = prediction.network, _diagonals(prediction)
    K = diagonals["K"]
    layers = np.arange(1, network.depth + 1)
    corrected = None
    if "G1" in diagonals:
        finite = np.einsum("laa->la", prediction.metric).mean(axis=1)
        corrected = ("K + G1/n (these widths)", finite)
    signal = {"K (infinite width)": K.mean(axis=1)}
    charts = [flow(layers, signal, y_title="variance of a preactivation", law=corrected, width=400)]
    alive = K[0] > 0  # a zero input without biases has no signal to compare with
    if "V" in diagonals and np.any(alive):
        fan_in = np.array(network.widths[:-1], dtype=np.float64)[:, None]
        relative = diagonals["V"][:, alive] / (fan_in * K[:, alive] ** 2)
        series = {"V / (n K²)": relative.mean(axis=1)}
        title = "relative variance between draws"
        charts.append(flow(layers, series, y_title=title, width=400))
    chart = alt.hconcat(*charts).resolve_scale(color="independent", strokeDash="independent")
    tell(f"wrote {save(chart, path, title='dynagram predict')}")
