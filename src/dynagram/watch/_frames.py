"""Rows of numbers in a file that only grows: each row whole, or not there.

A frame is a header (length, checksum) and a row, compressed. Numbers are float32 without their
last eight bits, which leaves four digits and a half, as the difference in bits to the row before:
what changes slowly takes little room. Every 64th row stands for itself, so that reading can begin
there. What follows a damaged frame is lost; a writer that was killed leaves at most half of one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

_HEADER = struct.Struct("<II")
_TIMES = struct.Struct("<qdf")  # step, seconds, cost
_EVERY = 64

Row = tuple[int, float, float, np.ndarray]  # step, seconds, cost, values


class Encoder:
    """Makes frames of rows of one length.

    >>> encoder, decoder = Encoder(2), Decoder(2)
    >>> frames = b"".join(encoder.frame(n, 0.5, 0.1, np.array([1.5, n])) for n in range(3))
    >>> [(step, values.tolist()) for _, (step, _, _, values) in decoder.rows(frames[:-1])]
    [(0, [1.5, 0.0]), (1, [1.5, 1.0])]
    """

    def __init__(self, columns: int):
        self._before = np.zeros(columns, dtype=np.uint32)
        self._rows = 0

    def frame(self, step: int, seconds: float, cost: float, values: np.ndarray) -> bytes:
        """The bytes of a row; NaN where there is no value."""
        bits = np.asarray(values, dtype=np.float32).view(np.uint32)
        short = ((bits.astype(np.uint64) + 0x80) >> 8).astype(np.uint32)
        change = short if self._rows % _EVERY == 0 else short ^ self._before
        first = bytes([self._rows % _EVERY == 0])
        planes = change.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].T.tobytes()
        body = zlib.compress(first + _TIMES.pack(step, seconds, cost) + planes, 1)
        self._before, self._rows = short, self._rows + 1
        return _HEADER.pack(len(body), zlib.crc32(body)) + body


class Decoder:
    """Reads what `Encoder` made; `rows` may be called again with what was appended since."""

    def __init__(self, columns: int):
        self._columns = columns
        self._before: np.ndarray | None = None
        self._size = 1 + _TIMES.size + 3 * columns

    def rows(self, data: bytes) -> Iterator[tuple[int, Row]]:
        """(end of the frame in `data`, row) for every whole and intact frame from the start."""
        place = 0
        while place + _HEADER.size <= len(data):
            length, checksum = _HEADER.unpack_from(data, place)
            body = data[place + _HEADER.size : place + _HEADER.size + length]
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            row = self._row(body)
            if row is None:
                return
            place += _HEADER.size + length
            yield place, row

    def is_damaged(self, rest: bytes) -> bool:
        """Whether what follows the last intact frame is more than one that is being written."""
        if len(rest) < _HEADER.size:
            return False
        length, _ = _HEADER.unpack_from(rest)
        # What does not compress grows by a few bytes only.
        return length > self._size + 64 or len(rest) >= _HEADER.size + length

    def _row(self, body: bytes) -> Row | None:
        try:
            content = zlib.decompressobj().decompress(body, self._size + 1)
        except zlib.error:
            return None
        if len(content) != self._size or (self._before is None and not content[0]):
            return None
        step, seconds, cost = _TIMES.unpack_from(content, 1)
        planes = np.frombuffer(content, np.uint8, offset=1 + _TIMES.size).reshape(3, -1)
        wide = np.zeros((self._columns, 4), dtype=np.uint8)
        wide[:, :3] = planes.T
        change = wide.view("<u4")[:, 0].astype(np.uint32)
        short = change if content[0] or self._before is None else change ^ self._before
        self._before = short
        values = (short << np.uint32(8)).astype(np.uint32).view(np.float32)
        return step, seconds, cost, values.astype(np.float64)
