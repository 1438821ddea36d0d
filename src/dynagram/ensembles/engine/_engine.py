"""Running a job: chunks of members submitted to an executor, combined in the order of the members.

A *job* is any object that obeys the protocol `Job` of `dynagram.ensembles._jobs` (see there):
`run_chunk(first, size)` returns per name an array with one entry per member, or a `Moments`.
Chunks are computed in any order and combined in one, so that the same job gives the same bits
on every executor, interrupted or not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynagram.ensembles._jobs import FailedMember, Job, JobClass, Packed, join
from dynagram.ensembles.engine._combined import LARGEST_ENSEMBLE, Combined, Goal
from dynagram.ensembles.engine._executors import check_executor, open_workers
from dynagram.ensembles.engine._interrupts import interrupts
from dynagram.ensembles.engine._outcome import Outcome
from dynagram.ensembles.engine._progress import Progress, worst_relative_error
from dynagram.ensembles.engine._schedule import Schedule
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._members import StoredMembers
from dynagram.ensembles.store._records import DamagedChunkError
from dynagram.ensembles.store._specification import changed_versions
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError


def run_job(
    job: Job,
    *,
    members: int | None,
    executor: Executor | str | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    until_error: float | None = None,
    retries: int = 2,
    failures: int = 100,
    time_limit: float | int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Compute the members 0, …, `members` − 1 of a job, in chunks of `job.chunk_members`.

    A chunk that fails is tried again (not when its own error says that it would fail again), then
    halved until the members at fault are found. They are reported with their number and seed and
    left out. At most a few chunks per worker are on their way or waiting, so memory does not grow
    with the members, unless the job returns arrays per member and no `folder` is given.

    **Arguments:**

    - `job`: an object that obeys the protocol `Job`.
    - `members`: their number; with `until_error` the limit, or None.
    - `executor`: None for this process, "process:N" for N new ones, "dask" (or "dask:N") for a
        local Dask cluster, "tcp://host:port" for one that runs, or any
        `concurrent.futures.Executor`.
    - `folder`: a new folder that keeps the run, chunk by chunk.
    - `resume`: where `folder` holds a run of the same job, continue it.
    - `until_error`: stop after the first chunk at which the worst relative standard error of the
        estimates of all members so far is at most this. Where the limit of 2³² − 1 members would
        not do it, `AccuracyError` says so.
    - `retries`: how often a chunk that fails is tried again.
    - `failures`: how many members may fail; with 0 the first error is raised.
    - `time_limit`: seconds that a chunk may take on a worker, which is ended when it takes longer;
        the chunk is then halved until the members at fault are found. By default as long as it
        takes. A worker process that shows no sign of life for a minute is ended in any case.
    - `progress`: called with a `Progress` after every chunk.

    **Returns:** an `Outcome`: estimates, arrays by member, failures.
    """
    check_executor(executor, time_limit)
    _check_request(members, until_error, retries, failures)
    goal, how = Goal(job, members, until_error), _How(executor, retries, failures, time_limit)
    with contextlib.ExitStack() as stack:
        store = None
        if folder is not None:
            opened = _continue if resume and RunStore.is_run(Path(folder)) else RunStore.create
            request = {"members": members, "until_error": until_error}
            store = stack.enter_context(opened(Path(folder), job, **request))
        return _run(goal, store, how, progress)


@contextlib.contextmanager
def _continue(
    folder: Path, job: Job, *, members: int | None, until_error: float | None
) -> Iterator[RunStore]:
    store = RunStore.open(folder)
    store.require_same(job, members=members, until_error=until_error)
    with store.locked():
        yield store


def resume_job(
    folder: str | Path,
    *,
    job_class: JobClass | None = None,
    executor: Executor | str | None = None,
    retries: int = 2,
    failures: int = 100,
    time_limit: float | int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Continue a stored run, computing the chunks that are missing or damaged; see `run_job`.

    The outcome is the one an unbroken run gives, to the bit on the same device. A run that is
    complete is read and checked.

    **Arguments:**

    - `folder`: of the run.
    - `job_class`: needed for jobs of your own.
    - `executor`, `retries`, `failures`, `time_limit`, `progress`: as for `run_job`.

    **Returns:** an `Outcome`.
    """
    check_executor(executor, time_limit)
    store = RunStore.open(Path(folder))
    with store.locked():
        goal = _goal_of(store, job_class)
        _check_request(goal.members, goal.until_error, retries, failures)
        return _run(goal, store, _How(executor, retries, failures, time_limit), progress)


def read_job(folder: str | Path, *, job_class: JobClass | None = None) -> Outcome:
    """What a stored run gave up to now, every chunk checked; computes nothing.

    **Arguments:**

    - `folder`: of the run, finished or not: chunks are read up to the first that is missing.
    - `job_class`: needed for jobs of your own.

    **Returns:** an `Outcome`. Raises `DamagedChunkError` where a chunk does not match its record.
    """
    store = RunStore.open(Path(folder))
    combined = Combined(_goal_of(store, job_class), keep_arrays=False)
    for chunk, number in enumerate(store.chunks()):
        if number != chunk:
            break
        record, packed = store.load(chunk)
        with _from_the_store(store, chunk):
            combined.add(record.size, packed, record.failed)
    if combined.members == 0:
        raise RunError(f"{folder} holds no finished chunk yet")
    return _outcome(combined, store, complete=store.is_complete(combined.members))


def _goal_of(store: RunStore, job_class: JobClass | None) -> Goal:
    request = store.run.get("members"), store.run.get("until_error")
    return Goal(store.job(job_class), *request)


def _check_request(
    members: int | None, until_error: float | None, retries: int, failures: int
) -> None:
    for name, value, smallest in (
        ("members", 1 if members is None else members, 1),
        ("retries", retries, 0),
        ("failures", failures, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidTypeError(name, value, "expected an integer")
        if not smallest <= value <= LARGEST_ENSEMBLE:
            raise InvalidValueError(name, value, f"expected {smallest} to 2**32 − 1")
    if until_error is None and members is None:
        raise InvalidValueError("members", None, "needed unless until_error is given")
    if until_error is not None and not (0 < until_error < 1):
        raise InvalidValueError("until_error", until_error, "expected a fraction, such as 1e-3")


class _How(NamedTuple):
    """How chunks are computed."""

    executor: object
    retries: int
    failures: int
    time_limit: float | int | None


def _run(
    goal: Goal,
    store: RunStore | None,
    how: _How,
    report: Callable[[Progress], object] | None,
) -> Outcome:
    combined = Combined(goal, keep_arrays=store is None)
    recomputed: list[int] = []

    def write_status(state: str, reason: str | None = None) -> None:
        if store is not None:
            _write_status(store, combined, state, reason)

    with interrupts(lambda: write_status("interrupted")) as raise_lost_interrupt:
        state, reason = "stopped", None
        try:
            chunks = _chunks(goal, store, how, recomputed, raise_lost_interrupt)
            with contextlib.closing(chunks):  # which stops the workers at once
                for size, packed, failed in chunks:
                    raise_lost_interrupt()
                    with _from_the_store(store, combined.chunks):
                        combined.add(size, packed, failed)
                    progress = combined.progress()
                    if report is not None:
                        report(progress)
                    write_status("running")
                    if combined.finished(progress):
                        break
            if store is not None:
                store.drop_after(combined.chunks - 1, combined.members)
            state = "complete"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        except Exception as error:
            reason = str(error)
            raise
        finally:
            write_status(state, reason)
    return _outcome(combined, store, recomputed=tuple(recomputed))


@contextlib.contextmanager
def _from_the_store(store: RunStore | None, chunk: int | None = None) -> Iterator[None]:
    """Numbers that match their checksums may still be no results of this job, but forged."""
    try:
        yield
    except DynagramError:
        raise
    except (KeyError, ValueError, IndexError, TypeError) as error:
        if store is None:
            raise
        which = "its chunks" if chunk is None else f"chunk {chunk}"
        what = f"{which} of {store.folder} hold no results of this job: {error!r}"
        raise RunError(f"{what}; compute the run again in another folder") from error


def _outcome(
    combined: Combined,
    store: RunStore | None,
    *,
    recomputed: tuple[int, ...] = (),
    complete: bool = True,
) -> Outcome:
    job, notes = combined.goal.job, [] if store is None else changed_versions(store.run)
    if not combined.moments and 0 < combined.members == len(combined.failed):
        raise RunError(f"no member gave a result: {len(combined.failed)} failed, the first: "
                       f"{combined.failed[0]}")  # fmt: skip
    with _from_the_store(store):
        estimates = job.estimates(combined.moments) if combined.moments else {}
    if recomputed:
        notes.append(f"computed again, because damaged: chunks {', '.join(map(str, recomputed))}")
    if store is None:
        arrays = join(combined.pieces, 0, combined.members)
    else:
        arrays = StoredMembers(store, combined.chunks, combined.members)
    return Outcome(
        job=job,
        members=combined.members,
        estimates=estimates,
        arrays=arrays,
        moments=combined.moments,
        failed=tuple(combined.failed),
        worst=worst_relative_error(estimates, job.dims()) if estimates else None,
        until_error=combined.goal.until_error,
        recomputed=recomputed,
        complete=complete,
        notes=tuple(notes),
    )


def _chunks(
    goal: Goal,
    store: RunStore | None,
    how: _How,
    recomputed: list[int],
    awake: Callable[[], None],
) -> Generator[tuple[int, Packed, tuple[FailedMember, ...]], None, None]:
    """All chunks in order, from the store or computed and then stored; (size, arrays, failed)."""
    stored = set() if store is None else set(store.chunks())

    def write(chunk: int, packed: Packed, failed: tuple[FailedMember, ...]) -> None:
        if store is not None:
            store.commit(chunk, *goal.span(chunk), packed, failed, goal.job.dims())

    with contextlib.ExitStack() as stack:
        schedule: Schedule | None = None  # nothing is started for a run that is complete
        for chunk in range(goal.chunks):
            _, size = goal.span(chunk)
            if store is not None and chunk in stored:
                try:
                    record, packed = store.load(chunk)
                except DamagedChunkError:
                    recomputed.append(chunk)
                    if schedule is not None:
                        schedule.add(chunk)
                else:
                    yield size, packed, record.failed
                    continue
            if schedule is None:
                schedule = Schedule(goal.job, goal.span, retries=how.retries, failures=how.failures)
                workers = open_workers(how.executor, how.time_limit)
                stack.enter_context(schedule.running(workers))
                later = range(chunk + 1, goal.chunks)
                schedule.plan(itertools.chain([chunk], (n for n in later if n not in stored)))
            done = schedule.result(chunk, write, awake)
            yield size, done.packed, done.failed


def _write_status(store: RunStore, combined: Combined, state: str, reason: str | None) -> None:
    store.write_status(
        state=state,
        members=combined.members,
        of=combined.goal.members,
        chunks=combined.chunks,
        failed=[str(member) for member in combined.failed],
        error=reason,
    )
