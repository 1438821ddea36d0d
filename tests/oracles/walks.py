"""A job for tests of the engine and the store that needs no networks, and no JAX."""

import os
import struct
import sys
import time
import tomllib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dynagram._toml import write_table
from dynagram.ensembles.initial._batches import moments_of
from dynagram.errors import NonFiniteError


@dataclass(frozen=True, eq=False)
class Walks:
    """A random walk per member, with drift `x`; member `bad` fails, `deadly` kills, `slow` hangs.

    `torn` kills a worker of a process pool while it sends a result. Chunks take `pause` seconds.
    """

    kind: ClassVar[str] = "walks"
    x: np.ndarray
    seed: int = 1
    chunk_members: int = 20
    bad: int = -1
    deadly: int = -1
    slow: int = -1
    torn: int = -1
    pause: float = 0.0

    def run_chunk(self, first, size):
        members = range(first, first + size)
        if self.bad in members:
            raise NonFiniteError("it fell over")
        if self.deadly in members:
            os._exit(3)
        if self.torn in members:
            send_half_a_result()
            os._exit(3)
        if self.slow in members:
            time.sleep(3600)
        time.sleep(self.pause)
        steps = np.array([np.random.default_rng((self.seed, m)).normal(size=4) for m in members])
        walk = np.cumsum(steps + self.x[None, :], axis=1)
        sums = moments_of([walk], order=2, first=first)
        return {"walk": walk, "sign": walk[:, -1] > 0, "sums": sums}

    def estimates(self, moments):
        return {"mean": moments["sums"].mean()}

    def to_toml(self):
        names = ("seed", "chunk_members", "bad", "deadly", "slow", "torn", "pause")
        return write_table("walks", {name: getattr(self, name) for name in names})

    def arrays(self):
        return {"x": self.x}

    @classmethod
    def from_toml(cls, text, arrays):
        return cls(x=arrays["x"], **tomllib.loads(text)["walks"])

    def dims(self):
        return dict.fromkeys(("walk", "mean", "x", "sums"), ("step",)) | {"sign": ()}


def send_half_a_result():
    """Begin a message of a thousand bytes to the pool that this process works for."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1000) + b"half")


DRIFT = np.array([0.5, 0.0, 0.0, 1.0])
MEMBERS = 90  # four chunks and a half


def files(path):
    """The results of a run, file by file."""
    below = sorted(p for part in ("arrays", "chunks") for p in (path / part).rglob("*"))
    return {str(p.relative_to(path)): p.read_bytes() for p in below if p.is_file()}
