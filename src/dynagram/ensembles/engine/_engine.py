"""Running a job: chunks of members submitted to an executor, combined in the order of the members.

A *job* is any object that obeys the protocol `Job` of `dynagram.ensembles._jobs` (see there):
`run_chunk(first, size)` returns per name an array with one entry per member, or a `Moments`.
Chunks are computed in any order and combined in one, so that the same job gives the same bits
on every executor, interrupted or not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dynagram.ensembles._jobs import Chunk as Chunk
from dynagram.ensembles._jobs import FailedMember, JobClass, Packed, join, unpack
from dynagram.ensembles._jobs import Job as Job
from dynagram.ensembles.engine._executors import check_executor, open_workers
from dynagram.ensembles.engine._interrupts import interrupts
from dynagram.ensembles.engine._progress import Progress, WorstError, worst_relative_error
from dynagram.ensembles.engine._schedule import Schedule
from dynagram.ensembles.store._records import DamagedChunkError
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import AccuracyError, InvalidTypeError, InvalidValueError
from dynagram.results._estimate import BATCHES, Estimate, Moments

# Members are numbered by 32-bit integers, which is what random keys are folded with.
LARGEST_ENSEMBLE = 2**32 - 1
# Fewer give standard errors that are too uncertain to stop on.
_FEWEST_MEMBERS = 2 * BATCHES


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run gave: estimates with standard errors, and the arrays with one entry per member.

    `members` counts those computed and those that failed. Of a stored run `arrays` is empty:
    `dynagram.open_run` reads them. `worst` is the worst relative standard error, to be compared
    with the `until_error` asked for; `recomputed` are the chunks found damaged when resuming.
    """

    members: int
    estimates: dict[str, Estimate]
    arrays: dict[str, np.ndarray]
    moments: dict[str, Moments]
    failed: tuple[FailedMember, ...]
    worst: WorstError | None
    until_error: float | None
    recomputed: tuple[int, ...]


def run_job(
    job: Job,
    *,
    members: int | None,
    executor: Executor | str | None = None,
    folder: str | Path | None = None,
    until_error: float | None = None,
    retries: int = 2,
    failures: int = 100,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Compute the members 0, …, `members` − 1 of a job, in chunks of `job.chunk_members`.

    `executor` is None for this process, "process:N" for N new ones, "dask" (or "dask:N") for a
    local Dask cluster, "tcp://host:port" for one that runs, or any `concurrent.futures.Executor`.
    With `folder` the run is kept there, chunk by chunk, and `resume_run` continues it.

    `until_error` stops after the first chunk at which the worst relative standard error (see
    `progress.worst_relative_error`) of the estimates of all members so far is at most this;
    `members` is then the limit, or None. Where the limit of 2³² − 1 members would not do it,
    `AccuracyError` says so.

    A chunk that fails is tried again `retries` times (not when its own error says that it would
    fail again), then halved until the members at fault are found. They are reported with their
    number and seed and left out, up to `failures` of them; with 0 the first error is raised.
    At most a few chunks per worker are on their way or waiting, so memory does not grow with the
    members, unless the job returns arrays per member and no `folder` is given.
    """
    check_executor(executor)
    _check_request(members, until_error, retries, failures)
    goal = _Goal(job, members, until_error)
    with contextlib.ExitStack() as stack:
        store = None
        if folder is not None:
            store = stack.enter_context(
                RunStore.create(Path(folder), job, members=members, until_error=until_error)
            )
        return _run(goal, store, executor, retries, failures, progress)


def resume_run(
    folder: str | Path,
    *,
    job_class: JobClass | None = None,
    executor: Executor | str | None = None,
    retries: int = 2,
    failures: int = 100,
    progress: Callable[[Progress], object] | None = None,
) -> Outcome:
    """Continue a stored run, computing the chunks that are missing or damaged; see `run_job`.

    The result is the one an unbroken run gives, to the bit on the same device. `job_class` is
    needed for jobs of your own. A run that is complete is read and checked.
    """
    check_executor(executor)
    store = RunStore.open(Path(folder))
    with store.locked():
        goal = _Goal(store.job(job_class), store.run.get("members"), store.run.get("until_error"))
        _check_request(goal.members, goal.until_error, retries, failures)
        return _run(goal, store, executor, retries, failures, progress)


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


@dataclass(frozen=True)
class _Goal:
    """The chunks of a run, and when it is over."""

    job: Job
    members: int | None
    until_error: float | None

    @property
    def limit(self) -> int:
        return LARGEST_ENSEMBLE if self.members is None else self.members

    @property
    def chunks(self) -> int:
        return -(-self.limit // self.job.chunk_members)

    def span(self, chunk: int) -> tuple[int, int]:
        """The first member of a chunk and their number."""
        first = chunk * self.job.chunk_members
        return first, min(self.job.chunk_members, self.limit - first)


@dataclass
class _Sofar:
    """The chunks 0, …, `chunks` − 1 combined."""

    goal: _Goal
    keep_arrays: bool
    chunks: int = 0
    members: int = 0
    failed: list[FailedMember] = field(default_factory=list)
    moments: dict[str, Moments] = field(default_factory=dict)
    pieces: dict[int, Packed] = field(default_factory=dict)  # arrays by first member

    def add(self, size: int, packed: Packed, failed: tuple[FailedMember, ...]) -> None:
        arrays: Packed = {}
        for name, value in unpack(packed).items():
            if isinstance(value, Moments):
                mine = self.moments.get(name)
                self.moments[name] = value if mine is None else mine.merge(value)
            else:
                arrays[name] = value
        if self.keep_arrays:
            self.pieces[self.members] = arrays
        self.failed.extend(failed)
        self.chunks += 1
        self.members += size

    def worst(self) -> WorstError | None:
        if not self.moments:
            return None
        if self.members - len(self.failed) < _FEWEST_MEMBERS:
            return WorstError("", np.inf)
        job = self.goal.job
        return worst_relative_error(job.estimates(self.moments), job.dims())

    def progress(self) -> Progress:
        return Progress(
            self.members, self.goal.members, self.goal.until_error, len(self.failed), self.worst
        )

    def finished(self, progress: Progress) -> bool:
        """Whether the goal is reached; judged after every chunk, in order, so the same always."""
        if self.chunks >= self.goal.chunks:
            return True
        target = self.goal.until_error
        if target is None:
            return False
        worst = progress.worst
        if worst is None:
            raise InvalidValueError("until_error", target, "this job makes no estimates")
        if worst.value <= target:
            return True
        needed = self.members * (worst.value / target) ** 2
        if np.isfinite(worst.value) and self.goal.members is None and needed > LARGEST_ENSEMBLE:
            raise AccuracyError(
                f"{worst.name} is known to {worst.value:.2g} of its size after {self.members} "
                f"members; {target:g} would take {needed:.1g}: ask for less, or set members"
            )
        return False


def _run(
    goal: _Goal,
    store: RunStore | None,
    executor: object,
    retries: int,
    failures: int,
    report: Callable[[Progress], object] | None,
) -> Outcome:
    sofar = _Sofar(goal, keep_arrays=store is None)
    recomputed: list[int] = []
    state, reason = "stopped", None
    try:
        chunks = _chunks(goal, store, executor, retries, failures, recomputed)
        # Closing stops the workers at once.
        with interrupts() as raise_lost_interrupt, contextlib.closing(chunks):
            for size, packed, failed in chunks:
                raise_lost_interrupt()
                sofar.add(size, packed, failed)
                progress = sofar.progress()
                if report is not None:
                    report(progress)
                if store is not None:
                    _write_status(store, sofar, "running", None)
                if sofar.finished(progress):
                    break
        if store is not None:
            store.drop_after(sofar.chunks - 1, sofar.members)
        state = "complete"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except Exception as error:
        reason = str(error)
        raise
    finally:
        if store is not None:
            _write_status(store, sofar, state, reason)
    estimates = goal.job.estimates(sofar.moments) if sofar.moments else {}
    return Outcome(
        members=sofar.members,
        estimates=estimates,
        arrays=join(sofar.pieces, 0, sofar.members),
        moments=sofar.moments,
        failed=tuple(sofar.failed),
        worst=worst_relative_error(estimates, goal.job.dims()) if estimates else None,
        until_error=goal.until_error,
        recomputed=tuple(recomputed),
    )


def _chunks(
    goal: _Goal,
    store: RunStore | None,
    executor: object,
    retries: int,
    failures: int,
    recomputed: list[int],
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
                schedule = Schedule(goal.job, goal.span, retries=retries, failures=failures)
                stack.enter_context(schedule.running(open_workers(executor)))
                later = range(chunk + 1, goal.chunks)
                schedule.plan(itertools.chain([chunk], (n for n in later if n not in stored)))
            done = schedule.result(chunk, write)
            yield size, done.packed, done.failed


def _write_status(store: RunStore, sofar: _Sofar, state: str, reason: str | None) -> None:
    store.write_status(
        state=state,
        members=sofar.members,
        of=sofar.goal.members,
        chunks=sofar.chunks,
        failed=[str(member) for member in sofar.failed],
        error=reason,
    )
