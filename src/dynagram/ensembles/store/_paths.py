"""The files of a run: below its folder, never through a link, and ordinary files only.

A folder may come from somebody else. Whatever its texts say, nothing outside it is read for a
name in them, written or deleted.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from dynagram.ensembles.store._durable import RunError
from dynagram.errors import InvalidValueError

# Texts of a run: a record with a hundred failures has some tens of kilobytes.
LARGEST_TEXT = 2**26
_PLAIN = re.compile(r"\w[\w .+=-]*")
# Names that Zarr gives to files and folders inside the folder of an array.
_TAKEN = {"c", "zarr.json"}


def is_plain(name: object) -> bool:
    """Whether a name can be that of one file: it has no slash, and means no other place.

    >>> [is_plain(name) for name in ("loss", "W1", "..", "a/b", "c", "")]
    [True, True, False, False, False, False]
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None and name not in _TAKEN


def check_name(name: str) -> None:
    """Refuse the name of a result or an input that cannot be that of a file."""
    parts = name.split("/")
    if len(parts) > 2 or not all(map(is_plain, parts)):
        allowed = "expected letters, digits, _ and - (it is the name of a file)"
        raise InvalidValueError("name of a result", name, allowed)


def inside(folder: Path, key: str) -> Path:
    """The path of `key`, made of plain names, below `folder`; links on the way are refused.

    >>> inside(Path("run"), "arrays/loss/zarr.json").as_posix()
    'run/arrays/loss/zarr.json'
    """
    path = folder
    for part in key.split("/"):
        path = path / part
        if path.is_symlink():
            raise RunError(
                f"{path} is a link: a run has its files in its own folder, copy it there"
            )
    return path


def read_file(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """The bytes of an ordinary file of at most `largest` bytes; else `OSError`, without waiting."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "is not an ordinary file", str(path))
        if about.st_size > largest:
            raise OSError(errno.EFBIG, f"has more than {largest} bytes", str(path))
        return file.read(largest)
