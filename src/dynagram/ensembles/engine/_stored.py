"""Runs in folders: begun, continued if they are there already, read back as computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from dynagram.ensembles._jobs import FailedMember, Job, Packed, join, unpack
from dynagram.ensembles.engine._engine import Outcome, resume_run, run_job
from dynagram.ensembles.engine._progress import Progress, worst_relative_error
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import InvalidValueError
from dynagram.results._estimate import Moments


def run_or_continue(
    job: Job,
    *,
    folder: str | Path | None,
    resume: bool,
    members: int | None,
    executor: Executor | str | None = None,
    until_error: float | None = None,
    failures: int = 100,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Run a job, in `folder` if one is given, where the same run is continued if it is there.

    A run that is complete is read and checked. With `resume` there must be one. The outcome holds
    the arrays of the members either way.
    """
    options = {"executor": executor, "failures": failures, "progress": progress}
    if folder is None:
        if resume:
            raise InvalidValueError("resume", resume, "needs the folder of a run")
        return run_job(job, members=members, until_error=until_error, **options)
    if resume or (Path(folder) / "spec.toml").exists():
        RunStore.open(Path(folder)).require_same(job, members=members, until_error=until_error)
        resume_run(folder, job_class=type(job), **options)
    else:
        run_job(job, members=members, until_error=until_error, folder=folder, **options)
    return read_outcome(RunStore.open(Path(folder)), job)


def read_outcome(store: RunStore, job: Job) -> Outcome:
    """What a stored run holds, up to the first chunk that is missing, all of it in memory."""
    moments: dict[str, Moments] = {}
    pieces: dict[int, Packed] = {}
    failed: list[FailedMember] = []
    members = 0
    for chunk, number in enumerate(store.chunks()):
        if number != chunk:
            break
        record, packed = store.load(chunk)
        arrays: Packed = {}
        for name, value in unpack(packed).items():
            if isinstance(value, Moments):
                moments[name] = moments[name].merge(value) if name in moments else value
            else:
                arrays[name] = value
        pieces[members] = arrays
        failed.extend(record.failed)
        members += record.size
    if members == 0:
        raise RunError(f"{store.folder} holds no finished chunk yet")
    estimates = job.estimates(moments) if moments else {}
    return Outcome(
        members=members,
        estimates=estimates,
        arrays=join(pieces, 0, members),
        moments=moments,
        failed=tuple(failed),
        worst=worst_relative_error(estimates, job.dims()) if estimates else None,
        until_error=store.run.get("until_error"),
        recomputed=(),
    )
