"""`dynagram train`: many networks trained on the user's data, stored and continued at will."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import (
    WITH_RESUME,
    ChunkMembers,
    ExecutorName,
    Json,
    NetworkTable,
    Output,
    Resume,
    Run,
    TimeLimit,
    Trust,
    check_archive_path,
)
from dynagram.cli._output import continuable, progress_bar, show_result, telling_warnings
from dynagram.errors import InvalidValueError


def train(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with tables network, data and training.")
    ] = None,
    network: NetworkTable = None,
    members: Annotated[int | None, typer.Option(help="How many networks to train.")] = None,
    run: Run = None,
    resume: Resume = None,
    executor: ExecutorName = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Train in pairs, to see corrections of order 1/n.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    chunk: ChunkMembers = None,
    time_limit: TimeLimit = None,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Train networks and measure mean and spread of their outputs, with standard errors.

    The test inputs of the file are asked at the moments that its table training records; without
    a length networks are trained to zero error. With --run, the same command continues a run that
    was stopped, and so does --resume from the folder alone.
    """
    from dynagram import ensembles
    from dynagram.config import read_config
    from dynagram.training import Training

    check_archive_path(output)
    given = (config, network, members, run, chunk)
    if resume is not None and (given != (None,) * 5 or pairs or seed):
        allowed = f"has all its options in its folder; only {WITH_RESUME} go with it"
        raise InvalidValueError("--resume", str(resume), allowed)
    folder = run if resume is None else resume
    with continuable(folder, "train"), telling_warnings(), progress_bar("training") as bar:
        if resume is not None:
            outputs = ensembles.resume_run(
                resume, executor=executor, time_limit=time_limit, progress=bar
            )
        elif config is None:
            raise InvalidValueError("CONFIG", None, "needed, unless --resume is given")
        else:
            problem = read_config(config, network=network)
            if not isinstance(problem.how, Training):
                raise InvalidValueError("config", str(config), "a table [training] is needed")
            outputs = ensembles.train(
                problem.network,
                problem.data,
                problem.how,
                members=members,
                seed=seed,
                pairs=pairs,
                run=run,
                executor=executor,
                chunk_members=chunk,
                time_limit=time_limit,
                progress=bar,
            )
    show_result(outputs, output, as_json=as_json)
