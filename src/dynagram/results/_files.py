"""Files that are complete or absent, and the one format of saved results.

A saved result is a .npz archive without pickled objects: its arrays, `kind`, and the JSON text
`about`. Nothing named in a file is imported when it is read.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.data._files import load_arrays
from dynagram.errors import InvalidValueError

# Names of files that are being written, hidden beside the file they will become.
PARTS = ".*.part"


def write_atomically(path: str | Path, data: bytes | memoryview) -> Path:
    """Write `data` for a user, whole or not at all; one line when the place is no good.

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
    try:
        replace_file(path, data, sync=False)
    except OSError as error:
        raise InvalidValueError(
            "path", str(path), f"cannot be written: {error.strerror}"
        ) from error
    return path


def replace_file(path: Path, data: bytes | memoryview, *, sync: bool = True) -> None:
    """Write `data` to a neighbour of `path`, bring it to the disk, then rename.

    Whatever happens in between (an exception, SIGKILL), `path` holds the old contents or the new,
    never a part. After a loss of power it may hold the old until its folder was brought to the
    disk too. `sync=False` is for files that may be lost then. Raises `OSError` when the disk is
    full; the neighbour is removed.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", buffering=0) as file:
            _write_all(file, memoryview(data))
            if sync:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _write_all(file: Any, data: memoryview) -> None:
    written = 0
    while written < len(data):  # an unbuffered write may take a part only, when the disk fills up
        written += file.write(data[written:])


def write_archive(
    path: str | Path, kind: str, arrays: Mapping[str, Any], about: Mapping[str, Any]
) -> Path:
    """A .npz file of `arrays`, with its `kind` and what is no array in `about`."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InvalidValueError("path", str(path), "the file name must end in .npz")
    text = json.dumps(plain(about), ensure_ascii=False)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, kind=np.array(kind), about=np.array(text))
    return write_atomically(path, buffer.getvalue())


def read_archive(path: str | Path) -> tuple[str, dict[str, np.ndarray], dict[str, Any]]:
    """Kind, arrays and `about` of a saved result; nothing is unpickled."""
    arrays = load_arrays(path, "file")
    try:
        kind, about = str(arrays.pop("kind")), json.loads(str(arrays.pop("about")))
    except (ValueError, KeyError, RecursionError) as error:
        raise InvalidValueError("file", str(path), "not a result saved by dynagram") from error
    if not isinstance(about, dict):
        raise InvalidValueError("file", str(path), "not a result saved by dynagram")
    return kind, arrays, about


def plain(value: Any) -> Any:
    """`value` in the types of JSON; a number that is not finite becomes null.

    >>> plain({"K": np.array([1.0, np.inf]), "layers": (1, 2)})
    {'K': [1.0, None], 'layers': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
