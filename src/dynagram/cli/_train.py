"""`dynagram train`: many networks trained on the user's data, stored and continued at will."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dynagram.cli._options import (
    ChunkMembers,
    ExecutorName,
    Json,
    Output,
    Resume,
    Run,
    check_archive_path,
)
from dynagram.cli._output import continuable, progress_bar, show_result, telling_warnings
from dynagram.errors import InvalidValueError


def train(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file: [network], [data], [training].")
    ] = None,
    members: Annotated[int | None, typer.Option(help="How many networks to train.")] = None,
    run: Run = None,
    resume: Resume = None,
    executor: ExecutorName = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Train in pairs, to see corrections of order 1/n.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    chunk: ChunkMembers = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Train networks and measure mean and spread of their outputs, with standard errors.

    The test inputs of the file are asked at the moments that [training] records; without a length
    networks are trained to zero error. With --run, the same command continues a run that was
    stopped, and so does --resume from the folder alone.
    """
    from dynagram import ensembles

    check_archive_path(output)
    if resume is not None and (config, members, run, pairs, seed, chunk) != (None,) * 3 + (
        False, 0, None,
    ):  # fmt: skip
        allowed = "has all its options in its folder; only --executor, -o and --json go with it"
        raise InvalidValueError("--resume", str(resume), allowed)
    folder = run if resume is None else resume
    with continuable(folder, "train"), telling_warnings(), progress_bar("training") as bar:
        if resume is not None:
            outputs = ensembles.resume_run(resume, executor=executor, progress=bar)
        elif config is None:
            raise InvalidValueError("CONFIG", None, "needed, unless --resume is given")
        else:
            outputs = ensembles.train(
                *_problem(config),
                members=members,
                seed=seed,
                pairs=pairs,
                run=run,
                executor=executor,
                chunk_members=chunk,
                progress=bar,
            )
    show_result(outputs, output, as_json=as_json)


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
