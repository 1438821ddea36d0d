"""Where chunks are computed: here, in a process pool, on Dask, or on any executor passed in.

The interface is `concurrent.futures.Executor`. What is sent to it is one function of this module
with plain arguments: texts, arrays and integers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np

from dynagram.ensembles._jobs import Job, Packed, import_job, job_path, pack
from dynagram.ensembles.store._durable import RunError
from dynagram.errors import InvalidTypeError, InvalidValueError, MissingExtraError

_ALLOWED = "expected process:N, dask, dask:N, tcp://host:port or a concurrent.futures.Executor"
_PATTERNS = (r"process:[1-9]\d{0,3}", r"dask(:[1-9]\d{0,3})?", r"(tcp|tls)://\S+")
# Seconds to wait for a scheduler to answer.
_PATIENCE = 10


# --- what runs in a worker --------------------------------------------------------------------


def work(path: str, spec: str, arrays: Mapping[str, np.ndarray], first: int, size: int) -> Packed:
    """Make the job of a specification and run one chunk of it; called in worker processes."""
    return pack(_remembered(path, spec, arrays).run_chunk(first, size))


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


def _begin_worker() -> None:
    # Ctrl-C ends workers at once and in silence; the run they worked for tells the user.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
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

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Begin a chunk of the job."""
        raise NotImplementedError

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

    def __init__(self, executor: Executor, window: int):
        self.executor = executor
        self.window = window
        self._sent: tuple[Job, tuple[str, str, dict[str, np.ndarray]]] | None = None

    def submit(self, job: Job, first: int, size: int) -> Future[Packed]:
        """Send the chunk to the executor."""
        if self._sent is None or self._sent[0] is not job:
            self._sent = job, (job_path(job), job.to_toml(), job.arrays())
        return self.executor.submit(work, *self._sent[1], first, size)


class Processes(Elsewhere):
    """A pool of `count` processes, started afresh (never forked: JAX has threads)."""

    def __init__(self, count: int):
        self._count = count
        self._context = _RememberingContext()
        super().__init__(self._start(), window=2 * count)

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, self._context, initializer=_begin_worker)

    def renew(self) -> None:
        """A new pool, without what is left of the old one."""
        self.stop(abandon=True)
        self.executor = self._start()

    def stop(self, *, abandon: bool) -> None:
        """End the processes."""
        if abandon:
            for process in self._context.started:
                process.terminate()
        self.executor.shutdown(wait=True, cancel_futures=True)
        self._context.started.clear()


class _RememberingContext(SpawnContext):
    """Keeps the processes it starts, so that an interrupted run can end them."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def Process(self, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore
        process = SpawnContext.Process(*args, **kwargs)
        self.started.append(process)
        return process


@contextlib.contextmanager
def _interrupts_for_later() -> Iterator[None]:
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


# Dask has its workers return freed memory to the system at once; a chunk would then spend a tenth
# of its time on asking for the same memory again.
_KEEP_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**30,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**30,
}


class DaskWorkers(Elsewhere):
    """A Dask cluster: one that runs already, at `address`, or one of `count` local processes."""

    def __init__(self, address: str | None = None, count: int | None = None):
        try:
            import dask.config
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise MissingExtraError("dask.distributed", "dask") from error
        self._close = contextlib.ExitStack()
        try:
            if address is None:
                with _interrupts_for_later(), dask.config.set(_KEEP_MEMORY):
                    cluster: Any = LocalCluster(
                        n_workers=count or os.cpu_count(),
                        threads_per_worker=1,
                        dashboard_address=None,  # pyright: ignore[reportArgumentType]
                        silence_logs=logging.ERROR,
                    )
                address = self._close.enter_context(cluster).scheduler_address
            client: Any = self._close.enter_context(Client(address, timeout=_PATIENCE))
        except (OSError, TimeoutError) as error:
            self._close.close()
            raise InvalidValueError("executor", address, "no Dask scheduler answers") from error
        threads = sum(client.ncores().values())
        super().__init__(client.get_executor(pure=False), window=max(2, 2 * threads))

    def stop(self, *, abandon: bool) -> None:
        """Leave the cluster, and end it if it was started here."""
        self.executor.shutdown(wait=not abandon)
        self._close.close()


def check_executor(executor: object) -> None:
    """Refuse what `open_workers` does not understand, before anything is begun."""
    if executor is None or isinstance(executor, Executor):
        return
    if not isinstance(executor, str):
        raise InvalidTypeError("executor", executor, _ALLOWED)
    if not any(re.fullmatch(pattern, executor) for pattern in _PATTERNS):
        raise InvalidValueError("executor", executor, _ALLOWED)


def open_workers(executor: object) -> Workers:
    """The workers that `executor` means: None (here), a text, or an executor, which stays open.

    >>> type(open_workers(None)).__name__, open_workers(None).window
    ('Here', 1)
    """
    check_executor(executor)
    if executor is None:
        return Here()
    if isinstance(executor, Executor):
        return Elsewhere(executor, window=2 * (os.cpu_count() or 1))
    words = str(executor)
    if "://" in words:
        return DaskWorkers(address=words)
    kind, _, count = words.partition(":")
    if kind == "dask":
        return DaskWorkers(count=int(count) if count else None)
    return Processes(int(count))
