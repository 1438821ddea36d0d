"""Small grey images as `data:` addresses: PNG, written with the standard library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from dynagram.report._blocks import Picture


def grey_picture(pixels: np.ndarray, words: str) -> Picture:
    """A matrix as an image, from black (its least value) to white (its largest).

    **Arguments:**

    - `pixels`: (height, width).
    - `words`: what it shows.

    **Returns:** a `Picture`, for a cell of a `Table`.

    >>> grey_picture(np.eye(2), "two dots").address[:22]
    'data:image/png;base64,'
    """
    values = np.asarray(pixels, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    grey = np.round(255.0 * (values - low) / ((high - low) or 1.0)).astype(np.uint8)
    height, width = grey.shape
    lines = b"".join(b"\0" + row.tobytes() for row in grey)  # each line without a filter
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    image = b"\x89PNG\r\n\x1a\n" + b"".join(_part(name, data) for name, data in parts)
    return Picture("data:image/png;base64," + base64.b64encode(image).decode(), words)


def square_side(numbers: int) -> int | None:
    """The side of the square image that so many pixels make; None where there is none.

    >>> square_side(64), square_side(10), square_side(4)
    (8, None, None)
    """
    side = round(numbers**0.5)
    return side if side * side == numbers and side >= 4 else None


def _part(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
