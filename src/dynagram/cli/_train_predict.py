"""`dynagram train-predict`: what networks trained on the user's data will output."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dynagram.cli._options import Json
from dynagram.cli._output import (
    console,
    narrow_table,
    print_json,
    print_list,
    progress_bar,
    short,
    tell,
)

if TYPE_CHECKING:
    from dynagram.config import Config
    from dynagram.results import Outputs
    from dynagram.theory.training._finite import TrainedPrediction
else:
    # imported when the command runs, so that --help stays quick
    Config = Outputs = TrainedPrediction = object

_MOST_ROWS = 40


def train_predict(
    config: Annotated[Path, typer.Argument(help="A TOML file: [network], [data], [training].")],
    members: Annotated[
        int | None,
        typer.Option("--simulate", help="Also train this many networks (an even number)."),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Numerical error allowed in four-sample averages, relative."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of quadrature nodes and networks.")] = 0,
    as_json: Json = False,
) -> None:
    """Predict mean and spread of trained outputs at infinite width and to order 1/n.

    The networks of the file are trained on ½ Σ (z − y)², to zero error or for the `steps` of
    gradient descent or the `time` of flow under [training]. With --simulate, networks of that
    width are trained, and their mean and standard deviation stand beside the prediction.
    """
    from dynagram.config import read_config

    problem = read_config(config)
    prediction = _predicted(problem, accuracy, seed)
    show = partial(_show, problem, prediction, as_json)
    if members is None:
        show(None)
        return
    try:
        measured = _trained(problem, members, seed)
    except KeyboardInterrupt:
        tell("networks trained so far are not kept; the prediction was ready:")
        show(None)
        raise
    show(measured)


def _show(
    problem: Config,
    prediction: TrainedPrediction,
    as_json: bool,
    measured: Outputs | None,
) -> None:
    if as_json:
        print_json(_summary(problem, prediction, measured))
    else:
        _print(problem, prediction, measured)


def _predicted(problem: Config, accuracy: float | None, seed: int) -> TrainedPrediction:
    from dynagram.theory.training._finite import predict_trained
    from dynagram.theory.training._in_time import predict_in_time

    data = (problem.network, problem.train_x, problem.train_y, problem.test_x)
    how = {"algorithm": problem.algorithm, "eta": problem.eta, "accuracy": accuracy, "seed": seed}
    if problem.steps is None and problem.time is None:
        return predict_trained(*data, **how)
    return predict_in_time(*data, **how, steps=problem.steps, time=problem.time).test


def _trained(problem: Config, members: int, seed: int) -> Outputs:
    from dynagram import ensembles
    from dynagram.data import Data
    from dynagram.training import Training
    from dynagram.training._algorithms import algorithm_of_table

    data = Data(problem.train_x, problem.train_y, problem.test_x)
    algorithm = algorithm_of_table(problem.algorithm, problem.eta, {})
    how = Training(algorithm, steps=problem.steps, time=problem.time)
    with progress_bar("training networks") as progress:
        return ensembles.train(
            problem.network, data, how, members=members, seed=seed, pairs=True, progress=progress
        )


def _summary(
    problem: Config, prediction: TrainedPrediction, measured: Outputs | None
) -> dict[str, Any]:
    regime = prediction.regime
    found = {
        "network": problem.network.to_toml(),
        "algorithm": problem.algorithm,
        "eta": problem.eta,
        "steps": problem.steps,
        "time": problem.time,
        "width": prediction.width,
        "mean_infinite": prediction.mean_infinite,
        "mean_correction": prediction.mean_correction,
        "mean": prediction.mean,
        "covariance_infinite": prediction.covariance_infinite,
        "covariance_correction": prediction.covariance_correction,
        "std": prediction.std,
        "mean_correction_error": prediction.mean_error,
        "covariance_correction_error": prediction.covariance_error,
        "regime": {
            "verdict": regime.verdict,
            "reasons": regime.reasons,
            "numbers": regime.numbers,
        },
    }
    if problem.test_y is not None:
        found["test_loss"] = _test_loss(problem, prediction)
    if measured is not None:
        from dynagram.results._comparison import compare

        found["simulation"] = {
            "members": measured.members,
            "unfinished": measured.about.get("unfinished", 0),
            "largest_error": measured.about.get("largest_error"),
            "mean": measured.mean,
            "mean_standard_error": measured.error,
            "mean_z": compare(prediction.mean, measured.estimate("mean")).z,
            "mean_infinite_z": compare(prediction.mean_infinite, measured.estimate("mean")).z,
            "covariance": measured.covariance,
            "covariance_standard_error": measured.covariance_error,
            "covariance_z": compare(prediction.covariance, measured.estimate("covariance")).z,
        }
    return found


def _test_loss(problem: Config, prediction: TrainedPrediction) -> dict[str, Any]:
    from dynagram.theory.training._generalisation import expected_loss

    assert problem.test_y is not None
    return {
        order: {
            "bias": found.bias,
            "variance": found.variance,
            "total": found.total,
        }
        for order, found in expected_loss(prediction, problem.test_y).items()
    }


def _print(problem: Config, prediction: TrainedPrediction, measured: Outputs | None) -> None:
    out = console()
    out.print(str(problem.network), markup=False)
    how = problem.algorithm + (f", η = {short(problem.eta)}" if problem.eta is not None else "")
    if problem.steps is not None:
        how += f", {problem.steps} steps"
    elif problem.time is not None:
        how += f" until τ = {short(problem.time)}"
    samples, n = problem.train_x.shape[0], prediction.width
    out.print(f"trained by {how} on {samples} samples; n = {n}")
    out.print(_table(prediction, measured))
    if measured is not None:
        out.print()
        out.print(_spread_table(prediction, measured))
    shown = min(prediction.mean.size, _MOST_ROWS)
    if shown < prediction.mean.size:
        out.print(f"({prediction.mean.size - shown} more rows with --json)")
    out.print()
    out.print(
        "mean ± standard deviation over initialisations; ∞: infinite width; 1/n: with the first "
        "correction at this width."
    )
    if problem.test_y is not None:
        for order, found in _test_loss(problem, prediction).items():
            out.print(
                f"expected test loss ({order}): {short(found['total'])} = bias "
                f"{short(found['bias'])} + variance {short(found['variance'])}"
            )
    if measured is not None:
        out.print(
            f"measured: {measured.members} networks ± standard error; z: (measured − 1/n)/error."
        )
        if measured.about.get("unfinished"):
            out.print(
                f"{measured.about['unfinished']} pairs had not reached the tolerance: largest "
                f"error {measured.about['largest_error']:.1e}"
            )
    out.print(f"[bold]{prediction.regime.verdict}[/bold]")
    print_list(out, prediction.regime.reasons)


def _table(prediction: TrainedPrediction, measured: Outputs | None) -> Table:
    extra = ["measured", "z"] if measured is not None else []
    table = narrow_table("test", "output", "∞", "1/n", *extra)
    for column in table.columns:
        column.justify = "right"
    infinite = np.sqrt(np.einsum("titi->ti", prediction.covariance_infinite))
    for t, i in _rows(prediction):
        cells = [
            f"{prediction.mean_infinite[t, i]:.4f} ± {short(float(infinite[t, i]), 3)}",
            f"{prediction.mean[t, i]:.4f} ± {short(float(prediction.std[t, i]), 3)}",
        ]
        if measured is not None:
            value, error = measured.mean[t, i], measured.error[t, i]
            cells += _with_error(value, error, prediction.mean[t, i])
        table.add_row(str(t), str(i), *cells)
    return table


def _spread_table(prediction: TrainedPrediction, measured: Outputs) -> Table:
    table = narrow_table("test", "output", "std ∞", "std 1/n", "measured", "z")
    for column in table.columns:
        column.justify = "right"
    infinite = np.sqrt(np.einsum("titi->ti", prediction.covariance_infinite))
    variance = np.einsum("titi->ti", measured.covariance)
    error = np.einsum("titi->ti", measured.covariance_error)
    for t, i in _rows(prediction):
        std = float(np.sqrt(max(variance[t, i], 1e-300)))
        predicted = float(prediction.std[t, i])
        cells = [f"{infinite[t, i]:.4f}", short(predicted, 4)]
        cells += _with_error(std, error[t, i] / (2.0 * std), predicted)
        table.add_row(str(t), str(i), *cells)
    return table


def _rows(prediction: TrainedPrediction) -> list[tuple[int, ...]]:
    return list(np.ndindex(*prediction.mean.shape))[:_MOST_ROWS]


def _with_error(value: float, error: float, predicted: float) -> list[str]:
    """A measured number with its standard error, and how many of these it is off."""
    z = (value - predicted) / error if error > 0 else 0.0
    return [f"{value:.4f} ± {short(float(error), 2)}", f"{z:+.1f}"]
