"""The order in which chunks are sent to workers, and what happens when some of them fail.

Only a few chunks are on their way or waiting to be taken (back pressure). A chunk that fails is
tried again and then halved until the members at fault are alone. When a worker dies, a process
pool loses all its chunks without saying which one killed it; each of them is then run alone.
Workers are looked at every second: those that can be seen to be stuck are ended, and count as
dead.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    wait,
)
from dataclasses import dataclass, field

from dynagram.ensembles._jobs import FailedMember, Job, Packed, join
from dynagram.ensembles.engine._executors import Workers
from dynagram.ensembles.store._durable import RunError
from dynagram.errors import (
    DynagramError,
    InvalidTypeError,
    InvalidValueError,
    MissingExtraError,
)

# Seconds between two looks at the workers.
_LOOK = 1.0


@dataclass
class Done:
    """A finished chunk."""

    packed: Packed
    failed: tuple[FailedMember, ...]


@dataclass
class _Piece:
    """Consecutive members of a chunk, sent as one task."""

    chunk: int
    first: int
    size: int
    attempts: int = 0


@dataclass
class _Assembly:
    """The pieces of a chunk that are finished, and how many are not."""

    first: int
    size: int
    open: int = 1
    pieces: dict[int, Packed] = field(default_factory=dict)
    failed: list[FailedMember] = field(default_factory=list)


class Schedule:
    """Computes planned chunks on workers; `result` hands them out in the order asked for."""

    def __init__(
        self, job: Job, span: Callable[[int], tuple[int, int]], *, retries: int, failures: int
    ):
        self._job, self._span = job, span
        self._retries, self._failures = retries, failures
        self._workers: Workers
        self._todo: Iterator[int] = iter(())
        self._ready: deque[_Piece] = deque()  # pieces to be sent before any new chunk
        self._suspects: deque[_Piece] = deque()  # pieces that may have killed a worker
        self._flying: dict[Future[Packed], _Piece] = {}
        self._assemblies: dict[int, _Assembly] = {}
        self._done: dict[int, Done] = {}
        self._failed: list[FailedMember] = []

    @contextlib.contextmanager
    def running(self, workers: Workers) -> Iterator[None]:
        """Use these workers, and stop them at the end."""
        self._workers = workers
        abandon = True
        try:
            yield
            abandon = bool(self._flying)  # chunks behind the end of the run
        finally:
            if workers.takes_back:
                for future in self._flying:
                    future.cancel()
            workers.stop(abandon=abandon)

    def plan(self, chunks: Iterable[int]) -> None:
        """The chunks to compute, in this order."""
        self._todo = iter(chunks)

    def add(self, chunk: int) -> None:
        """One more chunk, before all others."""
        self._begin(chunk, front=True)

    def result(
        self, chunk: int, write: Callable[..., None], awake: Callable[[], None] = lambda: None
    ) -> Done:
        """Wait for a planned chunk; `write` is called for every chunk as soon as it is there.

        `awake` is called every second, to raise what may have come meanwhile.
        """
        while chunk not in self._done:
            self._send()
            finished, _ = wait(self._flying, timeout=_LOOK, return_when=FIRST_COMPLETED)
            awake()
            for number in self._collect(finished):
                done = self._done[number]
                write(number, done.packed, done.failed)
            self._look()
        return self._done.pop(chunk)

    # --- sending ------------------------------------------------------------------------------

    def _begin(self, chunk: int, *, front: bool = False) -> None:
        first, size = self._span(chunk)
        self._assemblies[chunk] = _Assembly(first, size)
        piece = _Piece(chunk, first, size)
        self._ready.appendleft(piece) if front else self._ready.append(piece)

    def _send(self) -> None:
        while self._suspects:
            if self._flying:
                return
            if not self._submit(self._suspects.popleft()):
                continue
            return
        while len(self._flying) < self._workers.window:
            if not self._ready:
                if len(self._assemblies) + len(self._done) >= self._workers.window:
                    return
                chunk = next(self._todo, None)
                if chunk is None:
                    return
                self._begin(chunk)
            if not self._submit(self._ready.popleft()):
                return

    def _submit(self, piece: _Piece) -> bool:
        try:
            future = self._workers.submit(self._job, piece.first, piece.size)
        except BrokenExecutor:
            self._suspects.append(piece)
            self._broken()
            return False
        self._flying[future] = piece
        return True

    # --- receiving ----------------------------------------------------------------------------

    def _collect(self, finished: set[Future[Packed]]) -> Iterator[int]:
        """Take finished tasks; the numbers of the chunks that are complete."""
        alone, broken = len(self._flying) == 1, False
        for future in finished:
            piece = self._flying.pop(future)
            assembly = self._assemblies[piece.chunk]
            try:
                assembly.pieces[piece.first] = future.result()
                assembly.open -= 1
            except CancelledError as error:
                self._given_up(piece, error)
            except Exception as error:
                broken = broken or isinstance(error, BrokenExecutor)
                if self._workers.died(error) and not alone:
                    self._suspects.append(piece)
                else:
                    self._failure(piece, error)
            if assembly.open == 0:
                yield self._assembled(piece.chunk)
        if broken:
            self._broken()

    def _look(self) -> None:
        """See to the workers; what an executor has lost without a word is lost as in any other."""
        try:
            self._workers.check()
        except BrokenExecutor as error:
            if len(self._flying) == 1:
                (piece,) = self._flying.values()
                self._flying.clear()
                self._failure(piece, error)
            self._broken()

    def _given_up(self, piece: _Piece, error: CancelledError) -> None:
        """The executor lost a task, as Dask does when its scheduler restarts."""
        piece.attempts += 1
        if piece.attempts > self._retries:
            raise RunError(
                f"the executor gave up chunk {piece.chunk} {piece.attempts} times: "
                "see to its workers, then resume"
            ) from error
        self._ready.append(piece)

    def _broken(self) -> None:
        """All that was on its way is lost with the executor, guilty or not."""
        self._suspects.extend(self._flying.values())
        self._flying.clear()
        self._workers.renew()

    def _failure(self, piece: _Piece, error: Exception) -> None:
        if isinstance(error, InvalidValueError | InvalidTypeError | MissingExtraError):
            raise error
        if isinstance(error, ImportError):
            raise RunError(f"a worker cannot import what it needs: {_words(error)}") from error
        piece.attempts += 1
        died = self._workers.died(error)
        queue = self._suspects if died else self._ready
        # An error of ours says what is wrong with a member, and will say it again.
        if piece.attempts <= self._retries and not isinstance(error, DynagramError):
            queue.append(piece)
        elif self._failures == 0 and not died:
            raise error
        elif piece.size > 1:
            self._halve(piece, queue, died)
        else:
            words = self._last_words(error)
            self._lost(FailedMember(piece.first, self._job.seed, words), piece, error)

    def _halve(self, piece: _Piece, queue: deque[_Piece], died: bool) -> None:
        """Two pieces of one. One that killed as often as it may kills on: until a member is alone,
        once is enough, because every death costs the start of a process."""
        half = piece.size // 2
        self._assemblies[piece.chunk].open += 1
        for first, size in ((piece.first, half), (piece.first + half, piece.size - half)):
            attempts = self._retries if died and size > 1 else 0
            queue.append(_Piece(piece.chunk, first, size, attempts))

    def _last_words(self, error: Exception) -> str:
        if not self._workers.died(error):
            return _words(error)
        limit = self._workers.limit
        return "its worker process died" + ("" if limit is None else f", or took over {limit:g} s")

    def _lost(self, member: FailedMember, piece: _Piece, error: Exception) -> None:
        assembly = self._assemblies[piece.chunk]
        assembly.failed.append(member)
        assembly.open -= 1
        self._failed.append(member)
        if len(self._failed) > self._failures:
            count = f"more than {self._failures} members" if self._failures else "a member"
            raise RunError(f"{count} failed, the first: {self._failed[0]}") from error

    def _assembled(self, chunk: int) -> int:
        assembly = self._assemblies.pop(chunk)
        failed = tuple(sorted(assembly.failed, key=lambda member: member.member))
        packed = join(assembly.pieces, assembly.first, assembly.size)
        self._done[chunk] = Done(packed, failed)
        return chunk


def _words(error: Exception) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, DynagramError) else f"{type(error).__name__}: {text}"
