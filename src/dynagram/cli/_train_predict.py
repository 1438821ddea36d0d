"""`dynagram train-predict`: what networks trained on the user's data will output."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagram.cli._options import Json, NetworkTable, Trust
from dynagram.cli._output import console, print_json, print_list, progress_bar, short, tell, working
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.config import Config
    from dynagram.results import Outputs
else:
    # imported when the command runs, so that --help stays quick
    Config = Outputs = object


def train_predict(
    config: Annotated[
        Path,
        typer.Argument(help="A TOML file with tables network, data and training or posterior."),
    ],
    network: NetworkTable = None,
    order: Annotated[str, typer.Option(help="infinite, or 1/n.")] = "1/n",
    members: Annotated[
        int | None,
        typer.Option("--simulate", help="Also train this many networks (an even number)."),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Numerical error allowed in four-sample averages, relative."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of quadrature nodes and networks.")] = 0,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the trained networks: the same command continues."),
    ] = None,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    as_json: Json = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw the learning curves: .svg, .png or .html."),
    ] = None,
) -> None:
    """Predict mean and spread of trained outputs at infinite width and to order 1/n.

    The networks of the file are trained to the end, or for the `steps` or the `time` of its table
    training, and looked at whenever `record` says. With --simulate, networks of that width are
    trained, and their mean and standard deviation stand beside the prediction. Losses and, of
    classes, the fraction right are given at every moment.
    """
    from dynagram.config import read_config
    from dynagram.theory._predict_outputs import predict_outputs

    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    if run is not None and members is None:
        allowed = "keeps trained networks: say how many with --simulate"
        raise InvalidValueError("--run", str(run), allowed)
    problem = read_config(config, network=network)
    if members is not None:
        _check_members(problem, members)
    with working(f"predicting outputs at order {order}"):
        outputs = predict_outputs(
            problem.network, problem.data, problem.how, order=order, accuracy=accuracy, seed=seed
        )
    show = partial(_show, problem, outputs, as_json, plot)
    if members is None:
        show(None)
        return
    try:
        measured = _train(problem, members, seed, run)
    except KeyboardInterrupt:
        if run is None:
            tell("nothing was kept: with --run DIR networks trained so far would be")
        else:
            tell(f"networks trained so far are kept in {run}: the same command continues")
        tell("the prediction was ready:")
        show(None)
        raise
    show(measured)


def _check_members(problem: Config, members: int) -> None:
    """What would be refused later is refused before anything is predicted."""
    from dynagram.ensembles.trained._checks import check_members
    from dynagram.theory._predict_outputs import has_closed_form
    from dynagram.training import Training

    how = problem.how
    pairs = isinstance(how, Training) and has_closed_form(how)
    check_members(members, pairs=pairs, name="--simulate")


def _show(
    problem: Config,
    outputs: Outputs,
    as_json: bool,
    plot: Path | None,
    measured: Outputs | None,
) -> None:
    if plot is not None:
        from dynagram.report import learning_curves_chart, save

        chart = learning_curves_chart(outputs, measured)
        tell(f"wrote {save(chart, plot, title='Learning curves')}")
    if as_json:
        print_json(_as_dict(problem, outputs, measured))
    else:
        _print(problem, outputs, measured)


def _train(problem: Config, members: int, seed: int, run: Path | None) -> Outputs:
    """The same outputs, measured: networks drawn and trained, or weighted by their likelihood."""
    from dynagram import ensembles
    from dynagram.theory._predict_outputs import has_closed_form
    from dynagram.training import Posterior

    network, data, how = problem.network, problem.data, problem.how
    with progress_bar("training networks") as progress:
        if isinstance(how, Posterior):
            return ensembles.exact_posterior(
                network, data, how, members=members, seed=seed, progress=progress
            )
        options: dict[str, Any] = {"pairs": True}
        if not has_closed_form(how):
            options = {"observables": _observables(problem), "keep_members": False}
        return ensembles.train(
            network, data, how, members=members, seed=seed, run=run, progress=progress, **options
        )


def _observables(problem: Config) -> list[str]:
    """What stands beside a prediction without closed forms: outputs, losses, fractions right."""
    known = problem.data.test_y is not None
    classes = getattr(problem.how, "loss", None) in ("cross-entropy", "logistic")
    names = ["loss", *(["test_loss"] if known else []), *(["accuracy"] if classes else [])]
    return [*names, *(["test_accuracy"] if classes and known else []), "outputs"]


def _as_dict(problem: Config, outputs: Outputs, measured: Outputs | None) -> dict[str, Any]:
    from dynagram.results import compare

    result = outputs.to_dict()
    if (losses := _test_losses(problem, outputs)) is not None:
        result["expected_test_loss"] = losses
    if measured is not None:
        agreement = compare(outputs, measured)
        scores = {f"{label}_z": agreement[label].z for label in ("mean", "covariance")}
        result["simulation"] = measured.to_dict() | scores
    return result


def _test_losses(problem: Config, outputs: Outputs) -> dict[str, Any] | None:
    from dynagram.theory.training import expected_loss
    from dynagram.training import Posterior
    from dynagram.training._losses import SQUARED

    how = problem.how
    squared = isinstance(how, Posterior) or how.loss in SQUARED
    if problem.data.test_y is None or not squared:
        return None
    losses = expected_loss(outputs, problem.data.test_y)
    return {
        order: {"bias": loss.bias, "variance": loss.variance, "total": loss.total}
        for order, loss in losses.items()
    }


def _print(problem: Config, outputs: Outputs, measured: Outputs | None) -> None:
    from dynagram.results import compare

    out = console()
    out.print(str(problem.network), markup=False)
    out.print(f"{_words(problem)}; n = {outputs.width}")
    _print_table(out, outputs)
    for order, loss in (_test_losses(problem, outputs) or {}).items():
        parts = f"bias {short(loss['bias'])} + variance {short(loss['variance'])}"
        out.print(f"expected test loss, {order}: {short(loss['total'])} = {parts}")
    if "log_evidence" in outputs.about:
        out.print(f"log evidence: {short(outputs.about['log_evidence'])}")
    if measured is not None:
        out.print()
        out.print(f"{measured.members} networks")
        _print_table(out, measured)
        if unfinished := measured.about.get("unfinished"):
            worst = measured.about["largest_error"]
            out.print(f"{unfinished} pairs were not yet trained: largest error {worst:.1e}")
        out.print()
        out.print(compare(outputs, measured).table())
    for regime in (side.regime for side in (outputs, measured) if side is not None):
        if regime is not None:
            out.print(f"[bold]{regime.verdict}[/bold]")
            print_list(out, regime.reasons)


def _print_table(out: Any, outputs: Outputs) -> None:
    out.print(outputs.table())
    if (curves := outputs.curves()) is not None:
        out.print(curves.rich())
    for note in outputs.summary().notes:
        out.print(note, markup=False)


def _words(problem: Config) -> str:
    from dynagram.training import Posterior

    how, samples = problem.how, f"{len(problem.data.x)} samples"
    if isinstance(how, Posterior):
        return f"given {samples} with noise variance {short(how.noise)}"
    words = how.name + (f", η = {short(how.eta)}" if how.eta is not None else "")
    if how.steps is not None:
        words += f", {how.steps} steps"
    elif how.time is not None:
        words += f" until τ = {short(how.time)}"
    loss = "" if how.loss == "half-sum" else f", loss {how.loss}"
    return f"trained by {words} on {samples}{loss}"
