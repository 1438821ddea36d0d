"""A job for tests of the engine and the store that needs no networks, and no JAX."""

import os
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

    Chunks take `pause` seconds.
    """

    kind: ClassVar[str] = "walks"
    x: np.ndarray
    seed: int = 1
    chunk_members: int = 20
    bad: int = -1
    deadly: int = -1
    slow: int = -1
    pause: float = 0.0

    def run_chunk(self, first, size):
        members = range(first, first + size)
        if self.bad in members:
            raise NonFiniteError("it fell over")
        if self.deadly in members:
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
        names = ("seed", "chunk_members", "bad", "deadly", "slow", "pause")
        return write_table("walks", {name: getattr(self, name) for name in names})

    def arrays(self):
        return {"x": self.x}

    @classmethod
    def from_toml(cls, text, arrays):
        return cls(x=arrays["x"], **tomllib.loads(text)["walks"])

    def dims(self):
        return dict.fromkeys(("walk", "mean", "x", "sums"), ("step",)) | {"sign": ()}


DRIFT = np.array([0.5, 0.0, 0.0, 1.0])
MEMBERS = 90  # four chunks and a half


def files(path):
    """The results of a run, file by file."""
    below = sorted(p for part in ("arrays", "chunks") for p in (path / part).rglob("*"))
    return {str(p.relative_to(path)): p.read_bytes() for p in below if p.is_file()}
