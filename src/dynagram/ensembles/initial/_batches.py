"""How a chunk of members is computed: in batches of one length, summed as they come."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.results._estimate import BATCHES, Moments

# Numbers of the sums that are kept per member of a chunk: bounds what a stored run occupies.
_SUMS_PER_MEMBER = 256
# Fewer members leave too few batches for a standard error that means something.
SMALLEST_ENSEMBLE = 64
# A batch takes some hundredths of a second: with these a chunk is about a second of work.
_BATCHES_PER_CHUNK = 16


def check_integers(**given: tuple[object, int]) -> None:
    """Refuse what is not an integer from the second number of each pair to 2³² − 1."""
    for name, (value, smallest) in given.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidTypeError(name, value, "expected an integer")
        if not smallest <= value < 2**32:
            raise InvalidValueError(name, value, f"expected {smallest} to 2**32 − 1")


def check_members(members: int | None) -> None:
    """Refuse an ensemble too small for standard errors; None leaves its size to a precision."""
    if members is not None:
        check_integers(members=(members, 1))
        if members < SMALLEST_ENSEMBLE:
            allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
            raise InvalidValueError("members", members, allowed)


def smallest_chunk(batch: int, sums: int) -> int:
    """Members of a chunk: whole batches, and enough to be worth the `sums` numbers kept of them.

    >>> smallest_chunk(100, 4000), smallest_chunk(8192, 4000)
    (200, 8192)
    """
    needed = max(BATCHES, -(-sums // _SUMS_PER_MEMBER))
    return batch * -(-needed // batch)


def chunk_for(members: int | None, smallest: int) -> int:
    """Members of a chunk when a run has so many, or when that is open: 16 chunks or more.

    >>> [chunk_for(members, 128) for members in (100, 1000, 10_000, 10**6, None)]
    [100, 128, 625, 2048, 2048]
    """
    if members is None:
        return _BATCHES_PER_CHUNK * smallest
    return min(members, max(smallest, min(_BATCHES_PER_CHUNK * smallest, -(-members // 16))))


def even_batch(chunk: int, largest: int) -> int:
    """The length of equal batches, at most `largest`, that make up a chunk with little waste.

    >>> even_batch(1000, 300), even_batch(100, 300)
    (250, 100)
    """
    return -(-chunk // -(-chunk // largest))


def moments_of(
    parts: Iterable[Float[np.ndarray, "batch ..."]], *, order: int, first: int
) -> Moments:
    """The moments of all rows of the `parts`, which are the members `first`, `first` + 1, …

    Small parts are put together: adding to the sums costs as much as one member per batch.
    """
    total: Moments | None = None
    waiting: list[np.ndarray] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= BATCHES:
            total, waiting = _added(total, waiting, order, first), []
    if waiting:
        total = _added(total, waiting, order, first)
    if total is None:
        raise InvalidValueError("members", 0, "at least one needed")
    return total


def _added(total: Moments | None, parts: list[np.ndarray], order: int, first: int) -> Moments:
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    begin = first if total is None else first + total.count
    moments = Moments.from_samples(rows, order=order, first=begin)
    return moments if total is None else total.merge(moments)
