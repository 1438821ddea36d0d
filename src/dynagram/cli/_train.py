"""`dynagram train`: many networks trained on the user's data, stored and continued at will."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagram.cli._options import Json
from dynagram.cli._output import console, print_json, print_list, progress_bar, short, tell
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.results import Outputs
else:
    Outputs = object  # imported when the command runs, so that --help stays quick


def train(
    config: Annotated[Path, typer.Argument(help="A TOML file: [network], [data], [training].")],
    members: Annotated[int, typer.Option("--members", help="How many networks to train.")],
    run: Annotated[
        Path | None, typer.Option("--run", help="A new folder that keeps the run, chunk by chunk.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --run, where it holds one.")
    ] = False,
    executor: Annotated[
        str | None,
        typer.Option("--executor", help="process:N, dask, dask:N or tcp://host:port."),
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Train in pairs, to see corrections of order 1/n.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    chunk: Annotated[
        int | None, typer.Option("--chunk", help="Networks per chunk. Default: some seconds' work.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .npz file for the result.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train networks and measure mean and spread of their outputs, with standard errors.

    The test inputs of the file are asked at the moments that [training] records. With --resume the
    same command continues a run that was stopped, and reads one that is complete.
    """
    from dynagram import ensembles

    if output is not None and output.suffix != ".npz":
        raise InvalidValueError("--output", str(output), "the file name must end in .npz")
    try:
        with progress_bar("training networks") as progress:
            outputs = ensembles.train(
                *_problem(config), members=members, seed=seed, pairs=pairs, run=run,
                resume=resume, executor=executor, chunk_members=chunk, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        if run is not None and run.exists():
            words = ["dynagram", "train", str(config), "--members", str(members), "--run", str(run)]
            words += ["--resume", *(["--pairs"] if pairs else [])]
            words += ["--seed", str(seed)] if seed else []
            words += ["--chunk", str(chunk)] if chunk is not None else []
            tell(f"`{shlex.join(words)}` continues this run")
        raise
    if output is not None:
        outputs.save(output)
    if as_json:
        print_json(outputs.to_dict())
    else:
        _print(outputs)


def _problem(path: Path) -> tuple[Any, Any, Any]:
    """Network, data and training of a TOML file."""
    from dynagram import config
    from dynagram.data import Data
    from dynagram.networks import network_from_toml
    from dynagram.training import Training

    tables, text = config._parsed(path)
    network = network_from_toml(text)
    data = Data(*config._data(tables.get("data", {}), path.parent, network))
    return network, data, Training.from_toml(text)


def _print(outputs: Outputs) -> None:
    out = console()
    out.print(str(outputs.network), markup=False)
    out.print(repr(outputs), markup=False)
    out.print(outputs.table())
    out.print()
    if "loss" in outputs.estimates:
        loss = outputs.estimates["loss"]
        value, error = (float(part[-1]) for part in (loss.value, loss.standard_error))
        out.print(f"loss at the last moment: {short(value)} ± {short(error, 2)}")
    if outputs.about.get("unfinished"):
        left = short(outputs.about["largest_error"], 2)
        out.print(f"{outputs.about['unfinished']} had not reached the tolerance: error {left}")
    print_list(out, outputs.summary().notes)
