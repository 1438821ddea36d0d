"""`dynagram simulate`: the tensors of a network measured on an ensemble of concrete draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli._archives import LETTERS, Archive, write_archive
from dynagram.cli._options import (
    BiasRate,
    BiasVariance,
    Json,
    Output,
    Skip,
    Tensors,
    WeightRate,
    WeightVariance,
    check_archive_path,
    letters,
    make_network,
)
from dynagram.cli._output import console, narrow_table, print_json, short, tell
from dynagram.data import load_array
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.ensembles.engine._engine import Outcome
    from dynagram.ensembles.initial._simulation import InitialJob
else:
    InitialJob = Outcome = object  # imported when the command runs, so that --help stays quick

_MEMBERS = 20_000

# What describes an ensemble is needed unless a stored run supplies it.
Inputs = Annotated[
    Path | None, typer.Option("--inputs", "-i", help="A .npy file, one input a row.")
]
Widths = Annotated[str | None, typer.Option(help="n_0,…,n_L, such as 3,20,20,2.")]
ActivationName = Annotated[
    str | None,
    typer.Option("--activation", help="A name such as tanh, or package.module:function."),
]
Members = Annotated[
    int | None,
    typer.Option(
        "--members", help=f"Networks, {_MEMBERS} by default; with --until-error the most allowed."
    ),
]
Run = Annotated[
    Path | None, typer.Option("--run", help="A new folder that keeps the run, chunk by chunk.")
]
Resume = Annotated[
    Path | None, typer.Option("--resume", help="Continue the run in this folder, and nothing else.")
]
ExecutorName = Annotated[
    str | None,
    typer.Option("--executor", help="process:N, dask, dask:N or tcp://host:port. Default: here."),
]
ChunkMembers = Annotated[
    int | None, typer.Option("--chunk", help="Networks per chunk. Default: about a second's work.")
]
UntilError = Annotated[
    float | None,
    typer.Option("--until-error", help="Go on until the worst relative standard error is this."),
]
_TENSORS = "K,V,G1"


def simulate(
    inputs: Inputs = None,
    widths: Widths = None,
    activation: ActivationName = None,
    cb: BiasVariance = None,
    cw: WeightVariance = None,
    lambda_b: BiasRate = "1",
    lambda_w: WeightRate = "1",
    skip: Skip = "0",
    tensors: Tensors = _TENSORS,
    output: Output = None,
    members: Members = None,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    run: Run = None,
    resume: Resume = None,
    executor: ExecutorName = None,
    chunk: ChunkMembers = None,
    until_error: UntilError = None,
    as_json: Json = False,
) -> None:
    """Draw networks and measure their tensors, with standard errors.

    K and Theta are here the measured means, which contain all orders in 1/n. K, G1 and V are
    measured in every layer, the others at the output, for which two outputs or more are needed.
    With --skip the hidden layers are residual blocks, of which K, G1, V and Theta are measured.
    """
    check_archive_path(output)
    if resume is not None:
        given = (inputs, widths, activation, cb, cw, members, run, chunk, until_error)
        same = (lambda_b, lambda_w, skip, tensors, seed) == ("1", "1", "0", _TENSORS, 0)
        if not same or any(value is not None for value in given):
            allowed = "has all its options in its folder; only --executor, -o and --json go with it"
            raise InvalidValueError("--resume", str(resume), allowed)
        with _continuable(resume):
            job, outcome = _resumed(resume, executor)
    else:
        job = _job(inputs, widths, activation, (cb, cw, lambda_b, lambda_w, skip), tensors, seed)
        if members is None and until_error is None:
            members = _MEMBERS
        with _continuable(run):
            outcome = _simulated(job, members, chunk, run, executor, until_error)
    for member in outcome.failed:
        tell(f"left out: {member}")
    archive = _archive(job, outcome)
    if output is not None:
        write_archive(output, archive)
    if as_json:
        print_json(_summary(archive))
    else:
        _print(str(job.network), archive)


@contextmanager
def _continuable(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None and folder.exists():
            tell(f"`dynagram simulate --resume {folder}` continues this run")
        raise


def _job(
    inputs: Path | None,
    widths: str | None,
    activation: str | None,
    options: tuple[str | None, str | None, str, str, str],
    tensors: str,
    seed: int,
) -> InitialJob:
    if inputs is None or widths is None or activation is None:
        given = {"--inputs": inputs, "--widths": widths, "--activation": activation}
        missing = next(name for name, value in given.items() if value is None)
        raise InvalidValueError(missing, None, "needed, unless --resume is given")
    x = load_array(inputs, "--inputs")
    network = make_network(widths, activation, *options)
    names = letters(tensors)
    if unknown := [name for name in names if name not in LETTERS]:
        raise InvalidValueError(
            "--tensors", ",".join(unknown), f"expected some of {','.join(LETTERS)}"
        )
    from dynagram.ensembles.initial._simulation import InitialJob

    return InitialJob(network, x, tuple(names), seed=seed)


def _simulated(
    job: InitialJob,
    members: int | None,
    chunk: int | None,
    run: Path | None,
    executor: str | None,
    until_error: float | None,
) -> Outcome:
    from dynagram.ensembles.engine._engine import run_job
    from dynagram.ensembles.engine._progress import terminal_bar
    from dynagram.ensembles.initial._batches import check_integers, chunk_for
    from dynagram.ensembles.initial._metric import SMALLEST_ENSEMBLE

    if members is not None and members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    if chunk is not None:
        check_integers(chunk=(chunk, 1))
    job = job.in_chunks(chunk_for(members, job.smallest_chunk) if chunk is None else chunk)
    with terminal_bar("measuring") as progress:
        return run_job(
            job,
            members=members,
            executor=executor,
            folder=run,
            until_error=until_error,
            failures=0 if run is None else 100,
            progress=progress,
        )


def _resumed(folder: Path, executor: str | None) -> tuple[InitialJob, Outcome]:
    from dynagram.ensembles.engine._engine import resume_run
    from dynagram.ensembles.engine._progress import terminal_bar
    from dynagram.ensembles.initial._simulation import InitialJob
    from dynagram.ensembles.store._store import RunStore, versions

    store = RunStore.open(folder)
    job = store.job()
    for name, version in versions().items():
        if store.run.get(name, version) != version:
            tell(f"begun with {name} {store.run[name]}, now {version}: expect other last digits")
    with terminal_bar("measuring") as progress:
        outcome = resume_run(folder, executor=executor, progress=progress)
    if outcome.recomputed:
        chunks = ", ".join(map(str, outcome.recomputed))
        tell(f"computed again, because they were damaged: chunks {chunks}")
    if not isinstance(job, InitialJob):
        tell(f"{folder} is complete ({outcome.members} members): read it with dynagram.open_run")
        raise typer.Exit
    return job, outcome


def _archive(job: InitialJob, outcome: Outcome) -> Archive:
    depth = job.network.depth
    found = {name: outcome.estimates[name] for name in job.tensors}
    output_only = [name for name, estimate in found.items() if "layer" not in job.dims()[name]]
    extra = {name: None if name in output_only else ... for name in found}
    everywhere = tuple(range(1, depth + 1))
    about: dict[str, Any] = {"members": outcome.members - len(outcome.failed), "seed": job.seed}
    if outcome.until_error is not None and outcome.worst is not None:
        about["worst"] = {"tensor": outcome.worst.name, "relative_error": outcome.worst.value}
    return Archive(
        kind="simulation",
        spec=job.network.to_toml(),
        widths=job.network.widths,
        x=job.x,
        tensors={name: estimate.value[extra[name]] for name, estimate in found.items()},
        errors={name: estimate.standard_error[extra[name]] for name, estimate in found.items()},
        layers={name: (depth,) if name in output_only else everywhere for name in found},
        about=about,
    )


def _diagonal(values: np.ndarray) -> np.ndarray:
    """All samples equal, shape (layer, sample)."""
    return np.einsum({3: "laa->la", 5: "laaaa->la"}[values.ndim], values)


def _summary(archive: Archive) -> dict[str, Any]:
    diagonals = {
        name: [
            {"layer": layer, "value": value, "standard_error": error}
            for layer, value, error in zip(
                archive.layers[name],
                _diagonal(archive.tensors[name]),
                _diagonal(archive.errors[name]),
                strict=True,
            )
        ]
        for name in archive.tensors
    }
    samples = archive.x.shape[0]
    return {"network": archive.spec, "samples": samples, **archive.about, "diagonals": diagonals}


def _print(network: str, archive: Archive) -> None:
    out = console()
    out.print(network, markup=False)
    table = narrow_table("tensor", "layer", "estimate", "standard error")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in (
        (name, index) for name in archive.tensors for index in range(len(archive.layers[name]))
    ):
        name, index = row
        value = float(_diagonal(archive.tensors[name])[index, 0])
        error = float(_diagonal(archive.errors[name])[index, 0])
        layer = archive.layers[name][index]
        table.add_row(name, str(layer), short(value), short(error, 2) if error else "exact")
    out.print(table)
    out.print()
    members, seed = archive.about["members"], archive.about["seed"]
    out.print(
        f"Entries of the first sample with itself, over {members} networks (seed {seed}), at all "
        "orders in 1/n. K and Theta are means; the others are to be divided by the fan-in n."
    )
    if worst := archive.about.get("worst"):
        error = short(worst["relative_error"], 2)
        out.print(f"Worst standard error: {error} of the size of {worst['tensor']}.")
