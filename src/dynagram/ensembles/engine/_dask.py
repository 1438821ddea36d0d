"""Chunks on a Dask cluster: one that runs already, or one of local processes.

Its scheduler is asked for a sign of life, so that a run does not wait for one that is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from dynagram.ensembles.engine._executors import Elsewhere, interrupts_for_later
from dynagram.ensembles.engine._heartbeats import SILENCE
from dynagram.ensembles.store._durable import RunError
from dynagram.errors import InvalidValueError, MissingExtraError

# Seconds to wait for a scheduler to answer at first, between two questions, and for one answer;
# and for one of our own, which answers when the machine lets it.
PATIENCE = 10
_LOCAL_PATIENCE = 120
_ASK_EVERY = 10.0
_ANSWER = 5.0
# Workers may come late: clusters that a queue starts take their time.
NO_WORKERS = 600.0
# Seconds after which a local worker that is missing is replaced: one that dies while it starts is
# not started again by Dask. Twice as long each time until all are there: on a busy machine they
# take long to start, and longer the more of them there are.
_MISSING = 30.0

_OF_A_LOCAL_CLUSTER = {
    # Dask has its workers return freed memory to the system at once; a chunk would then spend a
    # tenth of its time on asking for the same memory again.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**30,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**30,
    # The schedule tries again by itself, one chunk at a time, and finds out who kills workers.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": f"{_LOCAL_PATIENCE}s",
    # Looked at every so often: a worker is given up after once or twice this time.
    "distributed.scheduler.worker-ttl": f"{SILENCE / 2:g}s",
}


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """What the client would say about a scheduler that is gone is said in one line, by `check`."""
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class DaskWorkers(Elsewhere):
    """A Dask cluster: one that runs already, at `address`, or one of `count` local processes."""

    def __init__(
        self, address: str | None = None, count: int | None = None, limit: float | int | None = None
    ):
        try:
            import dask.config
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise MissingExtraError("dask.distributed", "dask") from error
        self._close = contextlib.ExitStack()
        self._cluster: Any = None
        self._close.enter_context(_quiet(logging.getLogger("distributed.client")))
        patience = PATIENCE if address is not None else _LOCAL_PATIENCE
        try:
            if address is None:
                with interrupts_for_later(), dask.config.set(_OF_A_LOCAL_CLUSTER):
                    self._cluster = LocalCluster(
                        n_workers=count or os.cpu_count(),
                        threads_per_worker=1,
                        dashboard_address=None,  # pyright: ignore[reportArgumentType]
                        silence_logs=logging.CRITICAL,
                    )
                address = self._close.enter_context(self._cluster).scheduler_address
            self._client: Any = self._close.enter_context(Client(address, timeout=patience))
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            self._close.close()
            reason = " ".join(str(error).split())
            raise InvalidValueError(
                "executor", address, f"no Dask scheduler answers ({reason})"
            ) from error
        self._address = address
        self._asked = self._answered = self._served = self._manned = time.monotonic()
        threads = sum(self._client.ncores().values())
        self._wanted = threads if self._cluster is not None else 0
        self._wait = _MISSING
        executor = self._client.get_executor(pure=False)
        super().__init__(executor, window=max(2, 2 * threads), limit=limit)

    def died(self, error: BaseException) -> bool:
        """Whether an error tells that the worker of a chunk died, not that the chunk failed."""
        from distributed import KilledWorker

        return isinstance(error, KilledWorker) or super().died(error)

    def check(self) -> None:
        """Raise where the scheduler is gone, or has had no workers for long."""
        if self._client.status in ("closing", "closed"):
            raise self._lost(f"could not be reached again within {PATIENCE} s")
        now = time.monotonic()
        if now - self._asked < _ASK_EVERY:
            return
        self._asked = now
        try:
            about = self._client.sync(self._client.scheduler.identity, callback_timeout=_ANSWER)
        except (OSError, TimeoutError, RuntimeError, AttributeError):
            if time.monotonic() - self._answered > SILENCE:
                raise self._lost(f"has not answered for {SILENCE:g} s") from None
            return
        self._answered = time.monotonic()
        self._replace_missing(self._wanted - len(about.get("workers", ())))
        if about.get("workers"):
            self._served = self._answered
        elif self._answered - self._served > NO_WORKERS:
            raise self._lost(f"has had no worker for {NO_WORKERS:g} s")

    def _replace_missing(self, missing: int) -> None:
        """Start as many workers of a local cluster as have been missing for long."""
        if missing <= 0:
            self._manned, self._wait = self._answered, _MISSING
        elif self._answered - self._manned > self._wait:
            self._manned, self._wait = self._answered, 2 * self._wait
            self._cluster.scale(len(self._cluster.worker_spec) + missing)

    def _lost(self, what: str) -> RunError:
        return RunError(f"the Dask scheduler at {self._address} {what}: see to it, then resume")

    def stop(self, *, abandon: bool) -> None:
        """Leave the cluster, and end it if it was started here."""
        # What is left of a cluster that is gone, or abandoned, complains in many ways, of which
        # Dask's ClosedClientError is no OSError; the reason for leaving is told already.
        gone = contextlib.suppress(Exception)
        with gone if abandon else contextlib.nullcontext():
            self.executor.shutdown(wait=not abandon)
        with gone if abandon else contextlib.nullcontext():
            self._client.close(timeout=PATIENCE)
        with gone if abandon else contextlib.nullcontext():
            self._close.close()
