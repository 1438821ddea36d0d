"""One writer at a time: a lock that the system releases; and what brings names to the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from dynagram.errors import DynagramError


class RunError(DynagramError):
    """A stored run cannot be used or continued; the message names the cause and the remedy."""


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the system can open folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """A file that one process can hold; the system releases it however the process ends.

    **Arguments:**

    - `path`: the file.
    - `reader`: what reads the folder without writing, for the message where it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Lock(Path(folder) / "lock"):
    ...     try:
    ...         Lock(Path(folder) / "lock").__enter__()
    ...     except RunError as error:
    ...         print(str(error).replace(folder, "RUN").replace(str(os.getpid()), "123"))
    RUN is in use by process 123: wait for it, or stop it and resume
    """

    def __init__(self, path: Path, reader: str = "dynagram.open_run"):
        self.path = path
        self._reader = reader
        self._file: Any = None

    def __enter__(self) -> Lock:
        # Python does not pass the descriptor on, so that workers cannot keep the lock alive.
        try:
            file = open(self.path, "a+b")
        except OSError as error:
            raise RunError(
                f"{self.path.parent} cannot be written: {error.strerror or error}; a run is "
                f"continued in a folder of one's own: copy it, or read it with {self._reader}"
            ) from error
        try:
            _lock(file)
        except OSError as error:
            file.seek(0)
            holder = file.read(32).decode("ascii", "replace").strip() or "another"
            file.close()
            raise RunError(
                f"{self.path.parent} is in use by process {holder}: "
                "wait for it, or stop it and resume"
            ) from error
        with contextlib.suppress(OSError):  # the number is a courtesy, a full disk no obstacle
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        self._file = None


def _lock(file: Any) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt  # locks bytes: take one far behind the text

        file.seek(1 << 20)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
