"""The one reader of files of numbers, .npz, .npy and text; nothing is unpickled.

A file that is truncated, foreign, empty or of another type is refused in one line that names it.
So is one that does not fit into memory, before it is read: by its size, by the sizes that an
archive declares for its members, and by the shape that an array declares.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np

from dynagram._memory import require_memory
from dynagram.data._data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_TEST = ("x_test", "y_test")
# Archives beyond this many bytes may not expand to more than so many times their size.
EXPANDED, EXPANSION = 2**31, 100
# Bytes of Python objects per byte of a text of numbers, as it is read.
_TEXT_FACTOR = 40
# The longest header of an array that is read; a thousand axes would fit.
_HEADER = 10_000
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What NumPy raises about bytes that are no array: its header is parsed as a Python literal.
_NO_ARRAY = (
    ValueError, TypeError, KeyError, SyntaxError, tokenize.TokenError, EOFError, OverflowError,
    RecursionError, MemoryError,
)  # fmt: skip
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError)


def load_array(path: str | Path, name: str = "file") -> np.ndarray:
    """The numbers of a .npy file, or of a text file with a row a line.

    **Arguments:**

    - `path`: a file made by `numpy.save`, or text with numbers separated by commas or spaces; a
        first line of words is a header.
    - `name`: what an error message calls the file.

    **Returns:** an array of reals; a text gives (rows, columns).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "loss.csv").write_text("step,loss\\n0,1.5\\n10,0.5\\n")
    ...     load_array(Path(folder) / "loss.csv").tolist()
    [[0.0, 1.5], [10.0, 0.5]]
    """
    check_file(path, name, 2.0)
    if not _first_bytes(path).startswith((_ZIP, _NPY)):  # a text is asked for before it is read
        check_file(path, name, _TEXT_FACTOR, "save it with numpy.save")
    contents = read_bytes(path, name)
    if contents.startswith(_ZIP):
        raise InvalidValueError(name, str(path), "expected one array (.npy), not an archive")
    if contents.startswith(_NPY):
        values = _array_of(contents, path, name)
    else:
        values = _table_of(contents, path, name)
    if values.dtype.kind not in "biuf":
        raise InvalidTypeError(name, str(path), f"expected real numbers, not {values.dtype}")
    return values


def load_arrays(path: str | Path, name: str = "file") -> dict[str, np.ndarray]:
    """The arrays of a .npz file by name, in the file's order.

    **Arguments:**

    - `path`: a file made by `numpy.savez`.
    - `name`: what an error message calls the file.

    **Returns:** the arrays, of any type but objects.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "net.npz", W=np.ones((3, 2)))
    ...     list(load_arrays(Path(folder) / "net.npz"))
    ['W']
    """
    contents = read_bytes(path, name)
    allowed = "not an archive of arrays saved with numpy.savez"
    if not contents.startswith(_ZIP):
        raise InvalidValueError(name, str(path), allowed)
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            check_expansion(archive, len(contents), path, name)
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise InvalidValueError(name, str(path), "holds two arrays of one name")
            arrays = {}
            for key, entry in members.items():
                with archive.open(entry) as file:
                    if not file.read(len(_NPY)) == _NPY:
                        raise InvalidValueError(name, str(path), f"{key} in it is no array")
                    file.seek(0)
                    arrays[key] = _read_array(file, entry.file_size)  # pyright: ignore[reportArgumentType]
    except InvalidValueError:
        raise
    except (*_NO_ARRAY, *_NO_ARCHIVE) as error:
        raise InvalidValueError(name, str(path), allowed) from error
    return arrays


def check_expansion(archive: zipfile.ZipFile, size: int, path: str | Path, name: str) -> None:
    """Refuse an archive of `size` bytes whose members are too large, by what it says of them."""
    expanded = sum(entry.file_size for entry in archive.infolist())
    require_memory(name, str(path), 2.0 * expanded, "it cannot be read here")
    if expanded > max(EXPANDED, EXPANSION * size):
        allowed = f"{size} bytes would expand to {expanded}: save it without compression"
        raise InvalidValueError(name, str(path), allowed)


def _read_array(file: io.BufferedIOBase, size: int) -> np.ndarray:
    """An array in NumPy's own format; raises one of `_NO_ARRAY` where it is none.

    `size` bytes are there, its header among them: what declares to be larger is not begun.
    """
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"version {version} of the format")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers that Python 2 wrote are fine
        shape, in_columns, dtype = _READERS[version](file, max_header_size=_HEADER)
    if dtype.hasobject or dtype.fields is not None or dtype.subdtype is not None:
        raise ValueError(f"an array of {dtype}")
    needed = math.prod(shape) * dtype.itemsize
    if needed > size or any(length < 0 for length in shape) or len(shape) > 32:
        raise ValueError(f"the shape {shape} is declared for {size} bytes")
    values = np.frombuffer(file.read(needed), dtype)
    table = values.reshape(shape, order="F" if in_columns else "C")
    return np.array(table, dtype.newbyteorder("="), order="C")


def load_data(path: str | Path, name: str = "data", *, outputs: int | None = None) -> Data:
    """A training problem from a .npz file of arrays `x`, `y`, perhaps `x_test` and `y_test`.

    **Arguments:**

    - `path`: the file. `x` is (samples, …) and is flattened to rows; `y` is (samples, outputs), or
        (samples,) for one real output or for integer labels, which become columns.
    - `name`: what an error message calls the file.
    - `outputs`: of the network that labels belong to, as in `Data.of_classes`.

    **Returns:** `Data`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "batch.npz", x=np.ones((3, 2, 2)), y=np.array([0, 2, 0]))
    ...     load_data(Path(folder) / "batch.npz", outputs=3)
    Data(3 training samples, 0 test samples, 4 inputs, 3 outputs)
    """
    return as_data(load_batch(path, name), outputs)


def load_batch(path: str | Path, name: str = "data") -> dict[str, np.ndarray]:
    """The arrays that `load_data` makes a problem of, inputs as rows: see there."""
    arrays = load_arrays(path, name)
    if missing := [key for key in ("x", "y") if key not in arrays]:
        held = ", ".join(arrays) or "nothing"
        allowed = f"no array {missing[0]} in this file, which holds {held}"
        raise InvalidValueError(name, str(path), allowed)
    given = [key in arrays for key in _TEST]
    if any(given) and not all(given):
        raise InvalidValueError(name, str(path), "x_test and y_test go together")
    batch = {key: arrays[key] for key in ("x", "y", *_TEST) if key in arrays}
    for key in batch.keys() & {"x", "x_test"}:
        values = batch[key]
        if values.ndim < 2 or values.size == 0:
            raise InvalidValueError(f"shape of {key}", values.shape, "expected (samples, …)")
        batch[key] = values.reshape(len(values), -1)
    return batch


def as_data(batch: dict[str, np.ndarray], outputs: int | None) -> Data:
    """The problem of a batch; one integer per sample is a label."""
    y, y_test = batch["y"], batch.get("y_test")
    if y.ndim == 1 and y.dtype.kind in "iub":
        labels, test = (None if some is None else _as_integers(some) for some in (y, y_test))
        return Data.of_classes(batch["x"], labels, batch.get("x_test"), test, outputs=outputs)
    return Data(batch["x"], y, batch.get("x_test"), y_test)


def _as_integers(labels: np.ndarray) -> np.ndarray:
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


def check_file(
    path: str | Path, name: str, factor: float | int, remedy: str = "it cannot be read here"
) -> None:
    """Refuse what is no file, or does not fit into memory `factor` times."""
    try:
        if not Path(path).is_file():
            what = "is no regular file" if Path(path).exists() else "no such file"
            allowed = "is a folder" if Path(path).is_dir() else what
            raise InvalidValueError(name, str(path), allowed)
        size = Path(path).stat().st_size
    except (OSError, ValueError) as error:  # names too long, or with a null byte
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(name, str(path), f"cannot be read: {error}") from error
    require_memory(name, str(path), factor * size, remedy)


def _first_bytes(path: str | Path) -> bytes:
    """Enough of a file to know its kind; nothing where it cannot be read, which reading says."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_NPY))
    except OSError:
        return b""


def read_bytes(path: str | Path, name: str, factor: float | int = 2.0) -> bytes:
    """The contents of a file that fits into memory `factor` times; not empty."""
    check_file(path, name, factor)
    try:
        contents = Path(path).read_bytes()
    except OSError as error:
        raise InvalidValueError(name, str(path), f"cannot be read: {error.strerror}") from error
    if not contents:
        raise InvalidValueError(name, str(path), "the file is empty")
    return contents


def _array_of(contents: bytes, path: str | Path, name: str) -> np.ndarray:
    try:
        return _read_array(io.BytesIO(contents), len(contents))
    except _NO_ARRAY as error:
        allowed = "not an array of numbers saved with numpy.save"
        raise InvalidValueError(name, str(path), allowed) from error


def _table_of(contents: bytes, path: str | Path, name: str) -> np.ndarray:
    """A text of numbers as (rows, columns)."""
    try:
        lines = contents.decode("utf-8-sig").splitlines()
        rows = [_cells(line) for line in lines if line.strip()]
        if rows and _are_names(rows[0]):
            rows = rows[1:]
        if any("" in row for row in rows):
            raise InvalidValueError(name, str(path), "has empty cells: leave those rows out")
        table = np.array([[float(word) for word in row] for row in rows])
    except InvalidValueError:
        raise
    except ValueError as error:
        allowed = "neither an array saved with numpy.save nor a table of numbers"
        raise InvalidValueError(name, str(path), allowed) from error
    if table.ndim != 2:
        raise InvalidValueError(name, str(path), "no numbers in this file")
    return table


def table_header(path: str | Path, name: str = "file") -> list[str]:
    """The names of the columns of a text file; none for an array, or a text without a header.

    **Arguments:**

    - `path`, `name`: as for `load_array`.

    **Returns:** one name per column, or an empty list.
    """
    contents = read_bytes(path, name)
    if contents.startswith((_NPY, _ZIP)):
        return []
    lines = contents.decode("utf-8-sig", errors="replace").splitlines()
    first = next((line for line in lines if line.strip()), "")
    words = _cells(first)
    return [word.strip('"') for word in words] if _are_names(words) else []


def _cells(line: str) -> list[str]:
    """What stands between commas, or where there are none between spaces.

    >>> _cells("step, train loss"), _cells("0 1.5")
    (['step', 'train loss'], ['0', '1.5'])
    """
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def _are_names(cells: list[str]) -> bool:
    """A header: no cell is a number. A row with some of both is none, and not left out silently."""
    return not any(_is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
