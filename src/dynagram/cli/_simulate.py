"""`dynagram simulate`: the tensors of a network measured on an ensemble of concrete draws."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import (
    WITH_RESUME,
    BiasRate,
    BiasVariance,
    ChunkMembers,
    ExecutorName,
    Json,
    NamedActivation,
    NetworkFile,
    Output,
    Resume,
    Run,
    Skip,
    Tensors,
    TimeLimit,
    Trust,
    UntilError,
    WeightRate,
    WeightVariance,
    Widths,
    check_archive_path,
    letters,
    make_network,
    row_size,
)
from dynagram.cli._output import continuable, show_result, tell, telling_warnings
from dynagram.data import load_array
from dynagram.errors import InvalidValueError

_TENSORS = "K,V,G1"


def simulate(
    # What describes an ensemble is needed unless a stored run supplies it.
    inputs: Annotated[
        Path | None, typer.Option("--inputs", "-i", help="A .npy file, one input a row.")
    ] = None,
    widths: Widths = None,
    activation: NamedActivation = None,
    network: NetworkFile = None,
    cb: BiasVariance = None,
    cw: WeightVariance = None,
    lambda_b: BiasRate = "1",
    lambda_w: WeightRate = "1",
    skip: Skip = "0",
    tensors: Tensors = _TENSORS,
    output: Output = None,
    members: Annotated[
        int | None,
        typer.Option(help="Networks, 20000 by default; with --until-error the most allowed."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    sampler: Annotated[
        str,
        typer.Option(help="weights, metric (without weights, the same law), or auto: the faster."),
    ] = "auto",
    run: Run = None,
    resume: Resume = None,
    executor: ExecutorName = None,
    chunk: ChunkMembers = None,
    until_error: UntilError = None,
    time_limit: TimeLimit = None,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    as_json: Json = False,
) -> None:
    """Draw networks and measure their tensors, with standard errors.

    K and Theta are here the measured means, which contain all orders in 1/n. K, G1 and V are
    measured in every layer, the tangent tensors at the output, most of them off two outputs.
    With --skip the hidden layers are residual blocks z' = b + W σ(z) + γ z. With --network the
    network is that of a file, made of blocks or not; of blocks the output alone is measured.
    """
    from dynagram import ensembles
    from dynagram.cli._output import progress_bar

    check_archive_path(output)
    folder = run if resume is None else resume
    if resume is not None:
        given = (inputs, widths, activation, network, cb, cw, members, run, chunk, until_error)
        usual = (lambda_b, lambda_w, skip, tensors, seed, sampler)
        same = usual == ("1", "1", "0", _TENSORS, 0, "auto")
        if not same or any(value is not None for value in given):
            allowed = f"has all its options in its folder; only {WITH_RESUME} go with it"
            raise InvalidValueError("--resume", str(resume), allowed)
    with continuable(folder, "simulate"), telling_warnings(), progress_bar("measuring") as bar:
        if resume is not None:
            result = ensembles.resume_run(
                resume, executor=executor, time_limit=time_limit, progress=bar
            )
        else:
            if inputs is None:
                raise InvalidValueError("--inputs", None, "needed, unless --resume is given")
            x = load_array(inputs, "--inputs")
            described = make_network(
                network, row_size(x), widths, activation, cb, cw, lambda_b, lambda_w, skip
            )
            result = ensembles.simulate(
                described,
                x,
                letters(tensors),
                members=members,
                seed=seed,
                until_error=until_error,
                sampler=sampler,
                run=run,
                executor=executor,
                chunk_members=chunk,
                time_limit=time_limit,
                progress=bar,
            )
    for member in result.about.get("failed", ()):
        tell(f"left out: {member}")
    show_result(result, output, as_json=as_json)
