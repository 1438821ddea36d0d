"""What a job is: an ensemble computed in chunks of members, each a function of its numbers alone.

The engine (`dynagram.ensembles.engine`) runs jobs, the store keeps them. Here are the protocol
that a job obeys, the kinds that a stored run may name, and how the results of chunks are packed
into plain arrays and joined again.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.results._estimate import Estimate, Moments
from dynagram.results._failure import FailedMember as FailedMember

# A stored run names its kind of job; only these are ever imported on account of a file.
KINDS = {
    "tensors": "dynagram.ensembles.initial._job:TensorJob",
    "training": "dynagram.ensembles.trained._job:TrainingJob",
}

Chunk = Mapping[str, np.ndarray | Moments]
# Arrays by name; those of a `Moments` are called `<name>/counts`, `<name>/origin`, `<name>/sums_1`…
Packed = dict[str, np.ndarray]


@runtime_checkable
class Job(Protocol):
    """An ensemble that can be cut into chunks of members and computed anywhere, in any order.

    How chunks combine is told by the type of what `run_chunk` returns: an array has one entry per
    member along its first axis and is joined along it; a `Moments` is merged, in the order of the
    members. All chunks return the same names, dtypes and shapes (but for the member axis).

    - `run_chunk(first, size)` computes the members `first`, …, `first + size − 1`. It is pure:
      member m depends on the seed and on m only, never on the chunk (but for rounding), on the
      process or on what ran before. It leaves JAX's global configuration alone and does not rely
      on it (use `precision.float64`). It builds its sums with `Moments.from_samples(…,
      first=first)`. The same arguments give the same bits each time. A member that cannot be
      computed raises (`NonFiniteError`, say); the engine then halves the chunk until it has found
      it, records its number and goes on. `InvalidValueError` and `InvalidTypeError` blame the
      job, not a member, and end the run.
    - `chunk_members` is the number of members per chunk, part of the specification. `size` is
      smaller in the last chunk and when a failing member is searched: pad inner batches to a
      length that does not depend on `size`, so that one compiled program serves all.
    - `to_toml()` and `arrays()` are the complete specification: `from_toml(text, arrays)` makes an
      equal job from them, exactly, in another process. `arrays()` holds what is too large for
      TOML (inputs, targets). The TOML tables [run] and [inputs] belong to the store.
    - `estimates(moments)` turns the merged `Moments`, by name, into estimates with standard
      errors, from any number of members ≥ 64. It returns {} when the job keeps no moments.
    - `dims()` names the axes: of each array without its member axis, of each estimate, and of
      each of `arrays()`; of moments it may.
    """

    kind: ClassVar[str]

    @property
    def seed(self) -> int: ...

    @property
    def chunk_members(self) -> int: ...

    def run_chunk(self, first: int, size: int) -> Chunk: ...

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]: ...

    def to_toml(self) -> str: ...

    def arrays(self) -> dict[str, np.ndarray]: ...

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> Job: ...

    def dims(self) -> dict[str, tuple[str, ...]]: ...


@runtime_checkable
class ResultJob(Job, Protocol):
    """A job of the house: `result(outcome)` makes a result of what a run gave."""

    def result(self, outcome: Any) -> Any: ...


# Run-time checks cannot look into a protocol of which only the class is there.
if TYPE_CHECKING:
    JobClass = type[Job]
else:
    JobClass = type


# --- specifications ---------------------------------------------------------------------------


def job_path(job: Job) -> str:
    """`module:class` of a job, from which another process can import it."""
    cls = type(job)
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        allowed = "define the class in a module that worker processes can import"
        raise InvalidValueError("job", f"{cls.__module__}:{cls.__qualname__}", allowed)
    return f"{cls.__module__}:{cls.__qualname__}"


def import_job(path: str) -> JobClass:
    """The class that `job_path` names."""
    module, _, name = path.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


# --- results ----------------------------------------------------------------------------------


def pack(chunk: Chunk) -> Packed:
    """The results of a chunk as plain arrays, which travel between processes and onto disk.

    >>> sums = Moments.from_samples(np.arange(12.0).reshape(6, 2), order=1, batches=3)
    >>> {name: array.shape for name, array in pack({"loss": np.zeros(6), "x": sums}).items()}
    {'loss': (6,), 'x/counts': (3,), 'x/origin': (2,), 'x/sums_1': (3, 2)}
    """
    packed: Packed = {}
    for name, value in chunk.items():
        if "/" in name:
            raise InvalidValueError("name of a result", name, "must not contain a slash")
        if isinstance(value, Moments):
            packed |= {f"{name}/counts": value.counts, f"{name}/origin": value.origin}
            packed |= {f"{name}/sums_{order}": s for order, s in enumerate(value.sums, start=1)}
        else:
            packed[name] = np.asarray(value)
    return packed


def unpack(packed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | Moments]:
    """The inverse of `pack`."""
    chunk: dict[str, np.ndarray | Moments] = {}
    for name, array in packed.items():
        stem, _, part = name.partition("/")
        if not part:
            chunk[name] = array
        elif part == "counts":
            orders = sum(other.startswith(f"{stem}/sums_") for other in packed)
            sums = tuple(packed[f"{stem}/sums_{order}"] for order in range(1, orders + 1))
            chunk[stem] = Moments(packed[f"{stem}/origin"], array, sums)
    return chunk


def join(pieces: Mapping[int, Packed], first: int, size: int) -> Packed:
    """One chunk from the pieces it was cut into, by their first members; others are missing.

    Missing members are NaN (0 in arrays of integers and False in those of truth values) and
    contribute nothing to the moments.
    """
    if set(pieces) == {first} and _members(pieces[first]) in (None, size):
        return pieces[first]
    joined: Packed = {}
    moments: dict[str, Moments] = {}
    for start in sorted(pieces):
        for name, value in unpack(pieces[start]).items():
            if isinstance(value, Moments):
                moments[name] = moments[name].merge(value) if name in moments else value
                continue
            if name not in joined:
                joined[name] = np.full((size, *value.shape[1:]), fill_value(value.dtype))
                joined[name] = joined[name].astype(value.dtype)
            joined[name][start - first : start - first + len(value)] = value
    return joined | pack(moments)


def fill_value(dtype: np.dtype) -> float | int | bool:
    """What stands for a member that is missing."""
    return {"f": np.nan, "b": False}.get(dtype.kind, 0)


def _members(packed: Packed) -> int | None:
    """The members of a piece, if its arrays tell."""
    lengths = [len(array) for name, array in packed.items() if "/" not in name]
    return lengths[0] if lengths else None
