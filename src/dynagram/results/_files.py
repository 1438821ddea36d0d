"""Writing a file so that it is either complete or absent."""

from __future__ import annotations

import os
from pathlib import Path

from dynagram.errors import InvalidValueError


def write_atomically(path: str | Path, data: bytes) -> Path:
    """Write `data` to a neighbour of `path`, then rename: an interruption leaves no half file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_atomically(Path(folder) / "a.txt", b"complete")
    ...     print(written.read_bytes(), sorted(p.name for p in Path(folder).iterdir()))
    b'complete' ['a.txt']
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidValueError("path", str(path), "is a folder, a file name is needed")
    if not path.parent.is_dir():
        raise InvalidValueError("path", str(path), "its folder does not exist")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise InvalidValueError(
            "path", str(path), f"cannot be written: {error.strerror}"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path
