"""Files of weights: .npz, .safetensors, and PyTorch state dicts read with `weights_only=True`.

Nothing is unpickled and nothing named in a file is imported.
"""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.data._files import check_expansion, check_file, load_arrays, read_bytes
from dynagram.errors import InvalidValueError, MissingExtraError

SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# What the unpickler of PyTorch, which knows tensors only, raises about files that are none of its.
_NO_STATE_DICT = (
    pickle.UnpicklingError, zipfile.BadZipFile, struct.error, ArithmeticError, AssertionError,
    AttributeError, EOFError, ImportError, LookupError, MemoryError, NotImplementedError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
# Where training scripts keep the state dict inside a checkpoint.
_NESTS = ("state_dict", "model_state_dict", "model", "net", "network", "params", "module")


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, in the file's order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "net.npz", W=np.ones((3, 2)))
    ...     list(read_tensors(Path(folder) / "net.npz"))
    ['W']
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidValueError("weights", str(path), f"expected a file {', '.join(SUFFIXES)}")
    if suffix == ".npz":
        return load_arrays(path, "weights")
    return _read_safetensors(path) if suffix == ".safetensors" else _read_torch(path)


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        import ml_dtypes  # noqa: F401  a part of JAX; teaches NumPy the name bfloat16
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ModuleNotFoundError as error:
        raise MissingExtraError("safetensors", "torch") from error
    check_file(path, "weights", 3.0)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise InvalidValueError("weights", str(path), f"not a safetensors file: {error}") from error
    except AttributeError as error:  # NumPy has no such numbers
        kind = str(error).rpartition(" ")[2]
        allowed = f"holds numbers of the type {kind}: save it as float32 or bfloat16"
        raise InvalidValueError("weights", str(path), allowed) from error
    return {name: _as_float(values) for name, values in tensors.items()}


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "torch") from error
    contents = read_bytes(path, "weights", 3.0)
    try:
        if zipfile.is_zipfile(io.BytesIO(contents)):
            with zipfile.ZipFile(io.BytesIO(contents)) as archive:
                check_expansion(archive, len(contents), path, "weights")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about dialects of pickle, which then fail or not
            loaded = torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)
    except InvalidValueError:
        raise
    except _NO_STATE_DICT as error:
        reason = "not a PyTorch state dict that loads with weights_only=True (save a state_dict)"
        raise InvalidValueError("weights", str(path), reason) from error
    tensors = _state_dict(loaded, torch.Tensor)
    if tensors is None:
        raise InvalidValueError("weights", str(path), "no state dict of tensors in this file")
    return {name: _from_torch(values, torch) for name, values in tensors.items()}


def _state_dict(loaded: Any, kind: type) -> Mapping[str, Any] | None:
    """The mapping of names to tensors, at the top or one level down under a usual name."""
    if not isinstance(loaded, Mapping) or not loaded:
        return None
    if all(isinstance(value, kind) for value in loaded.values()):
        return loaded
    nested = [_state_dict(loaded[name], kind) for name in _NESTS if name in loaded]
    nested = [tensors for tensors in nested if tensors is not None]
    return nested[0] if len(nested) == 1 else None


def _from_torch(values: Any, torch: Any) -> np.ndarray:
    values = values.detach()
    if values.layout is not torch.strided or values.is_quantized:
        raise InvalidValueError("weights", str(values.layout), "expected dense tensors")
    return (values.to(torch.float64) if values.is_floating_point() else values).numpy()


def _as_float(values: np.ndarray) -> np.ndarray:
    """bfloat16, which NumPy knows as a foreign type, as float64."""
    return values.astype(np.float64) if values.dtype.name == "bfloat16" else values
