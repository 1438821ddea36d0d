"""The Zarr (version 3) form of arrays that grow chunk by chunk: `zarr.json`, and raw chunk files.

Chunks are stored uncompressed and little-endian, one file `c/<chunk>/0/…` each, so that a chunk's
file is the bytes of its array: it can be written in one go and its checksum is that of its data.
Any Zarr library reads them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.ensembles._jobs import fill_value
from dynagram.errors import InvalidValueError

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
_DTYPES = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
_DTYPES |= {"float16", "float32", "float64"}
_MOST_AXES = 32


@dataclass(frozen=True)
class Layout:
    """An array cut along its first axis: the dtype, the shape of a chunk, the names of the axes."""

    dtype: str
    chunk_shape: tuple[int, ...]
    dims: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises `ValueError` for what no result has, as a layout read from a file may."""
        shape, dims = self.chunk_shape, self.dims
        if self.dtype not in _DTYPES or not 1 <= len(shape) <= _MOST_AXES:
            raise ValueError(f"dtype {self.dtype!r} with {len(shape)} axes")
        if not all(type(size) is int and size >= 1 for size in shape):
            raise ValueError(f"chunk_shape {shape!r}")
        if len(dims) != len(shape) or not all(isinstance(name, str) for name in dims):
            raise ValueError(f"dims {dims!r}")

    @property
    def nbytes(self) -> int:
        """The size of the file of a chunk."""
        return math.prod(self.chunk_shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def of(cls, array: np.ndarray, first: int, dims: Sequence[str]) -> Layout:
        """The layout of a growing array of which `array` is a part, with `first` rows a chunk."""
        if array.dtype.name not in _DTYPES:
            raise InvalidValueError("dtype of a result", str(array.dtype), "expected real numbers")
        if array.size == 0:
            raise InvalidValueError("shape of a result", array.shape, "at least one entry needed")
        if len(dims) != array.ndim or len(set(dims)) < len(dims):
            allowed = f"expected {array.ndim} different names of axes"
            raise InvalidValueError("dims of a result", tuple(dims), allowed)
        return cls(array.dtype.name, (first, *array.shape[1:]), tuple(dims))

    @classmethod
    def from_json(cls, data: Any) -> Layout:
        """Back from what `as_json` gave."""
        return cls(data["dtype"], tuple(data["chunk_shape"]), tuple(data["dims"]))

    def as_json(self) -> dict[str, Any]:
        """In the types of JSON."""
        chunk_shape, dims = list(self.chunk_shape), list(self.dims)
        return {"dtype": self.dtype, "chunk_shape": chunk_shape, "dims": dims}

    def metadata(self, length: int) -> bytes:
        """The contents of `zarr.json` for an array with `length` rows."""
        fill = fill_value(np.dtype(self.dtype))
        single = np.dtype(self.dtype).itemsize == 1
        content = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length, *self.chunk_shape[1:]],
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.chunk_shape)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "NaN" if fill != fill else fill,
            "codecs": [
                {"name": "bytes"} | ({} if single else {"configuration": {"endian": "little"}})
            ],
            "attributes": {},
            "dimension_names": list(self.dims),
        }
        return json.dumps(content, indent=1).encode()

    def key(self, chunk: int) -> str:
        """The file of a chunk below the folder of the array.

        >>> Layout("float64", (100, 3), ("member", "layer")).key(7)
        'c/7/0'
        """
        return "/".join(["c", str(chunk), *["0"] * (len(self.chunk_shape) - 1)])

    def encode(self, array: np.ndarray) -> bytes:
        """The file of a chunk; a last one that is short is filled up."""
        dtype = np.dtype(self.dtype)
        if array.dtype != dtype or array.shape[1:] != self.chunk_shape[1:]:
            found = (str(array.dtype), array.shape[1:])
            allowed = f"all chunks must return {(self.dtype, self.chunk_shape[1:])}"
            raise InvalidValueError("dtype and shape of a result", found, allowed)
        if len(array) < self.chunk_shape[0]:
            missing = (self.chunk_shape[0] - len(array), *array.shape[1:])
            array = np.concatenate([array, np.full(missing, fill_value(dtype), dtype)])
        return array.astype(dtype.newbyteorder("<")).tobytes()

    def decode(self, data: bytes, rows: int) -> np.ndarray:
        """The first `rows` rows of a chunk's file."""
        dtype = np.dtype(self.dtype)
        array = np.frombuffer(data, dtype.newbyteorder("<")).reshape(self.chunk_shape)
        return array[:rows].astype(dtype)
