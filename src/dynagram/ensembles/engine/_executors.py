"""Where chunks are computed: here, in a process pool, on Dask, or on any executor passed in.

The interface is `concurrent.futures.Executor`. What is sent to it is one function of this module
with plain arguments: texts, arrays and integers.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

import numpy as np

from dynagram._trust import trust, trusted
from dynagram.ensembles._jobs import Job, Packed, import_job, job_path, pack
from dynagram.ensembles.engine._heartbeats import Heartbeats, start_beating
from dynagram.ensembles.store._durable import RunError
from dynagram.errors import InvalidTypeError, InvalidValueError

_ALLOWED = "expected process:N, dask, dask:N, tcp://host:port or a concurrent.futures.Executor"
_PATTERNS = (r"process:[1-9]\d{0,3}", r"dask(:[1-9]\d{0,3})?", r"(tcp|tls)://\S+")
# Seconds in which a pool should have noticed that a worker died.
_MOURNING = 5.0


# --- what runs in a worker --------------------------------------------------------------------


def work(sent: Sent, first: int, size: int) -> Packed:
    """Make the job of a specification and run one chunk of it; called in worker processes."""
    with _limited(sent.limit):
        trust(*sent.trusted)
        return pack(_remembered(sent.path, sent.spec, sent.arrays).run_chunk(first, size))


class Sent(NamedTuple):
    """What travels to a worker: a job, the code its user trusts, the seconds a chunk may take."""

    path: str
    spec: str
    arrays: Mapping[str, np.ndarray]
    trusted: tuple[str, ...]
    limit: float | int | None


@contextlib.contextmanager
def _limited(seconds: float | int | None) -> Iterator[None]:
    """A process that takes longer is ended: nothing else stops a computation from outside."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_memory: dict[tuple[str, str], tuple[dict[str, np.ndarray], Job]] = {}


def _remembered(path: str, spec: str, arrays: Mapping[str, np.ndarray]) -> Job:
    """The job, made once per process: it may keep what is costly to set up."""
    known = _memory.get((path, spec))
    if known is None or not _same(known[0], arrays):
        known = dict(arrays), import_job(path).from_toml(spec, arrays)
        _memory.clear()
        _memory[path, spec] = known
    return known[1]


def _same(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> bool:
    return mine.keys() == theirs.keys() and all(
        np.array_equal(mine[name], theirs[name]) for name in mine
    )


def _begin_worker(counters: Any) -> None:
    # Ctrl-C ends workers at once and in silence; the run they worked for tells the user.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    start_beating(counters)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Workers of a process that was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


# --- workers ----------------------------------------------------------------------------------


class Workers:
    """An executor, how many chunks to keep on their way, and how to renew it when it breaks."""

    window = 1
    limit: float | int | None = None  # seconds that a chunk may take
    takes_back = True  # whether work on its way may be cancelled

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Begin a chunk of the job."""
        raise NotImplementedError

    def check(self) -> None:
        """Called while waiting: see whether the workers still live."""

    def died(self, error: BaseException) -> bool:
        """Whether an error tells that the worker of a chunk died, not that the chunk failed."""
        return isinstance(error, BrokenExecutor)

    def renew(self) -> None:
        """Replace an executor that broke, because a worker died."""
        raise RunError("the executor broke and cannot be restarted: resume the run")

    def stop(self, *, abandon: bool) -> None:
        """Release all that was started; with `abandon` without waiting for work on its way."""


class Here(Workers):
    """This process, one chunk after the other."""

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Run the chunk before returning."""
        future: Future[Packed] = Future()
        try:
            future.set_result(pack(job.run_chunk(first, size)))
        except Exception as error:
            future.set_exception(error)
        return future


class Elsewhere(Workers):
    """Any executor; the job travels as its specification."""

    def __init__(self, executor: Executor, window: int, limit: float | int | None = None):
        self.executor = executor
        self.window = window
        self.limit = limit
        self._sent: tuple[Job, Sent] | None = None

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Send the chunk to the executor."""
        if self._sent is None or self._sent[0] is not job:
            parts = job_path(job), job.to_toml(), job.arrays()
            self._sent = job, Sent(*parts, trusted(), self.limit)
        return self.executor.submit(work, self._sent[1], first, size)


class Processes(Elsewhere):
    """A pool of `count` processes, started afresh (never forked: JAX has threads)."""

    takes_back = (
        False  # a pool whose processes are killed stumbles over futures that were cancelled
    )

    def __init__(self, count: int, limit: float | int | None = None):
        self._count = count
        super().__init__(self._start(), window=2 * count, limit=limit)

    def _start(self) -> ProcessPoolExecutor:
        self._context = _RememberingContext(self._count)
        self._whole = time.monotonic()
        beats = self._context.beats.counters
        return ProcessPoolExecutor(
            self._count, self._context, initializer=_begin_worker, initargs=(beats,)
        )

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Send the chunk to the pool, which may start a process for it."""
        with interrupts_for_later():
            return super().submit(job, first, size)

    def check(self) -> None:
        """End the processes that show no sign of life, which breaks the pool.

        A pool whose worker was killed in the middle of a result waits for the rest of it and does
        not notice: raises `BrokenExecutor` in its place.
        """
        for process in self._context.beats.silent(self._context.started):
            process.kill()
        running = [process.sentinel for process in self._context.started if process.pid is not None]
        now = time.monotonic()
        if not wait(running, timeout=0):
            self._whole = now
        elif now - self._whole > _MOURNING:
            raise BrokenExecutor("a worker died, and its pool did not notice")

    def renew(self) -> None:
        """A new pool, without what is left of the old one."""
        self.stop(abandon=True)
        self.executor = self._start()

    def stop(self, *, abandon: bool) -> None:
        """End the processes."""
        if abandon:
            begun = [process for process in self._context.started if process.pid is not None]
            for process in begun:
                process.kill()  # which ends those that were stopped as well
            for process in begun:
                wait([process.sentinel])
            # The pool may wait for the rest of a result that nobody writes any more.
            with contextlib.suppress(AttributeError, OSError):
                self.executor._result_queue._writer.close()  # pyright: ignore
        self.executor.shutdown(wait=True, cancel_futures=True)


class _RememberingContext(SpawnContext):
    """Keeps the processes it starts, so that an interrupted run can end them, and hears them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.started: list[Any] = []
        self.beats = Heartbeats(self, count)

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore
        name = self.beats.name_of(len(self.started))
        process = SpawnContext.Process(*args, **kwargs, name=name)
        self.started.append(process)
        return process


@contextlib.contextmanager
def interrupts_for_later() -> Iterator[None]:
    """Threads and processes that begin meanwhile never see Ctrl-C; this one does afterwards."""
    if os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()  # its start would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_executor(executor: object, limit: float | int | None = None) -> None:
    """Refuse what `open_workers` does not understand, before anything is begun."""
    if limit is not None:
        if not isinstance(limit, int | float) or not limit > 0:
            raise InvalidValueError("time_limit", limit, "expected seconds > 0")
        if not isinstance(executor, str):
            allowed = "needs workers that can be ended: process:N, dask or tcp://host:port"
            raise InvalidValueError("time_limit", limit, allowed)
    if executor is None or isinstance(executor, Executor):
        return
    if not isinstance(executor, str):
        raise InvalidTypeError("executor", executor, _ALLOWED)
    if not any(re.fullmatch(pattern, executor) for pattern in _PATTERNS):
        raise InvalidValueError("executor", executor, _ALLOWED)


def open_workers(executor: object, limit: float | int | None = None) -> Workers:
    """The workers that `executor` means: None (here), a text, or an executor, which stays open.

    A chunk that takes longer than `limit` seconds costs its worker the life.

    >>> type(open_workers(None)).__name__, open_workers(None).window
    ('Here', 1)
    """
    check_executor(executor, limit)
    if executor is None:
        return Here()
    if isinstance(executor, Executor):
        return Elsewhere(executor, window=2 * (os.cpu_count() or 1))
    words = str(executor)
    kind, _, count = words.partition(":")
    if kind == "process":
        return Processes(int(count), limit)
    from dynagram.ensembles.engine._dask import DaskWorkers  # which builds on this module

    if "://" in words:
        return DaskWorkers(address=words, limit=limit)
    return DaskWorkers(count=int(count) if count else None, limit=limit)
