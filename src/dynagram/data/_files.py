"""Reading arrays that users saved: one reader of .npy and .npz, nothing unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float

from dynagram.data._sets import Dataset
from dynagram.errors import InvalidValueError


def load_array(path: str | Path, name: str) -> np.ndarray:
    """The array of a .npy file; nothing is unpickled. `name` is what an error calls the file."""
    path = Path(path)
    if not path.is_file():
        raise InvalidValueError(name, str(path), "no such file")
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidValueError(
            name, str(path), "not an array of numbers saved with numpy.save"
        ) from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise InvalidValueError(name, str(path), "expected one array (.npy), not an archive")
    return values


def load_batch(
    path: str | Path, name: str = "data"
) -> tuple[Float[np.ndarray, "samples n_0"], Float[np.ndarray, "samples outputs"]]:
    """Inputs `x` and targets `y` of a .npz file; labels that are integers become one-hot columns.

    `x` may have any shape (samples, …) and is flattened; `y` is (samples, outputs), or (samples,)
    for one real output or integer labels. `name` is what an error message calls the file.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidValueError(name, str(path), "no such file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, AttributeError, TypeError) as error:
        raise InvalidValueError(name, str(path), "not a .npz file of numbers") from error
    if not {"x", "y"} <= arrays.keys():
        held = ", ".join(arrays) or "nothing"
        raise InvalidValueError(name, str(path), f"needs arrays x and y: it holds {held}")
    x, y = arrays["x"], arrays["y"]
    if x.ndim < 2 or len(x) == 0 or y.ndim not in (1, 2) or len(x) != len(y):
        shapes = f"x {x.shape}, y {y.shape}"
        raise InvalidValueError(name, shapes, "expected x (samples, n_0), y (samples, outputs)")
    for part, values in {"x": x, "y": y}.items():
        if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
            raise InvalidValueError(f"{part} of {name}", values.dtype, "expected real numbers")
        if not np.all(np.isfinite(values)):
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise InvalidValueError(f"{part} of {name}, row {row}", "not finite", "finite needed")
    x = x.reshape(len(x), -1).astype(np.float64)
    if y.ndim == 1 and np.issubdtype(y.dtype, np.integer):
        return x, Dataset(name, x, y).one_hot()
    return x, y.reshape(len(y), -1).astype(np.float64)
