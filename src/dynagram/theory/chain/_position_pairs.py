"""Which pairs of positions the kernels of a network need, and linear maps between lists of them.

K_pp' between two inputs is wanted at every pair of output positions. Going back through the
blocks, a convolution reads pairs shifted alike, a flattening layer equal positions only, an
average all pairs of two windows: what is not read is never computed. All these maps are one sparse
matrix acting on lists of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from dynagram.errors import InvalidValueError

Codes = Int[np.ndarray, " pair"]  # p·positions + p'
_MOST_READS = 2**28  # entries of a sparse matrix, 12 bytes each


@dataclass(frozen=True, eq=False)
class PositionPairs:
    """Pairs (p, p') of `positions` positions, in rising order of their codes p·positions + p'.

    `turned` lists are those of one input with itself: p ≤ p', each standing for both orders.

    >>> PositionPairs.full(2).codes.tolist(), PositionPairs.full(2, turned=True).codes.tolist()
    ([0, 1, 2, 3], [0, 1, 3])
    """

    positions: int
    codes: Codes
    turned: bool = False

    @classmethod
    def full(cls, positions: int, *, turned: bool = False) -> PositionPairs:
        """Every pair."""
        codes = np.arange(positions * positions)
        if turned:
            codes = codes[codes // positions <= codes % positions]
        return cls(positions, codes, turned)

    @classmethod
    def of(cls, positions: int, codes: np.ndarray, *, turned: bool = False) -> PositionPairs:
        """The distinct ones of these codes, negative ones left out."""
        flat = codes.reshape(-1)
        if turned:
            flat = _turn(flat, positions)
        distinct = np.unique(flat)
        return cls(positions, distinct[distinct >= 0], turned)

    @property
    def first(self) -> Codes:
        """p."""
        return self.codes // self.positions

    @property
    def second(self) -> Codes:
        """p'."""
        return self.codes % self.positions

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return self.codes.size

    @property
    def is_full(self) -> bool:
        """Whether every ordered pair is in the list."""
        return not self.turned and self.size == self.positions**2

    def joined(self, *others: np.ndarray) -> PositionPairs:
        """With more codes."""
        if self.is_full:
            return self
        return PositionPairs.of(
            self.positions, np.concatenate([self.codes, *others]), turned=self.turned
        )

    def ends(self) -> Codes:
        """Codes of (p, p) for every position in the list."""
        places = np.unique(np.concatenate([self.first, self.second]))
        return places * (self.positions + 1)

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Where these codes stand in the list."""
        if self.is_full:
            return codes
        if self.turned:
            codes = _turn(codes, self.positions)
        return np.searchsorted(self.codes, codes)


def _turn(codes: np.ndarray, positions: int) -> np.ndarray:
    """Codes of (p, p') with p ≤ p'; negative ones stay."""
    first, second = codes // positions, codes % positions
    least, most = np.minimum(first, second), np.maximum(first, second)
    return np.where(codes < 0, codes, least * positions + most)


@dataclass(frozen=True, eq=False)
class Reads:
    """What each pair of a list reads: codes (pair, read) of pairs before, −1 for none."""

    positions: int  # before
    codes: Int[np.ndarray, "pair read"]
    weights: Float[np.ndarray, "#pair read"]

    @classmethod
    def of_taps(cls, taps: Int[np.ndarray, "tap out"], pairs: PositionPairs, positions: int):
        """(1/k) Σ_tap G_{tap(p), tap(p')}: both positions shifted alike."""
        _require_few(pairs.size * taps.shape[0], positions)
        left, right = taps[:, pairs.first].T, taps[:, pairs.second].T
        codes = np.where((left < 0) | (right < 0), -1, left * positions + right)
        return cls(positions, codes, np.full((1, taps.shape[0]), 1.0 / taps.shape[0]))

    @classmethod
    def of_mixing(cls, mixing: Float[np.ndarray, "out position"], pairs: PositionPairs):
        """Σ_qq' M_pq M_p'q' G_qq'."""
        positions, most = mixing.shape[1], int(np.count_nonzero(mixing, axis=1).max())
        _require_few(pairs.size * most * most, positions)
        where = np.argsort(mixing == 0, axis=1, kind="stable")[:, :most]
        weight = np.take_along_axis(mixing, where, axis=1)
        left, right = where[pairs.first], where[pairs.second]
        codes = left[:, :, None] * positions + right[:, None, :]
        weights = weight[pairs.first][:, :, None] * weight[pairs.second][:, None, :]
        return cls(positions, np.where(weights == 0, -1, codes).reshape(pairs.size, -1),
                   weights.reshape(pairs.size, -1))  # fmt: skip

    def pairs(self, *, turned: bool) -> PositionPairs:
        """The distinct pairs that are read."""
        if not turned and self._reads_all():
            return PositionPairs.full(self.positions)
        return PositionPairs.of(self.positions, self.codes, turned=turned)

    def _reads_all(self) -> bool:
        """Whether one of the reads alone covers every pair, so that no sorting is needed."""
        every = self.positions**2
        one = self.codes[0] if len(self.codes) == 1 else self.codes[:, self.codes.shape[1] // 2]
        return one.size == every and bool(np.array_equal(np.sort(one), np.arange(every)))

    def matrix(self, before: PositionPairs) -> sparse.csr_array:
        """The map from values on the pairs `before` to values on the pairs that read them."""
        seen = self.codes >= 0
        indices = before.places(np.where(seen, self.codes, 0))[seen].astype(np.int32)
        data = np.broadcast_to(self.weights, self.codes.shape)[seen]
        ends = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        return sparse.csr_array((data, indices, ends), shape=(seen.shape[0], before.size))


def _require_few(reads: int, positions: int) -> None:
    if reads > _MOST_READS:
        allowed = (
            f"{reads:.2g} reads of pairs of positions would need {12 * reads / 1024**3:.0f} GiB; "
            "pool to fewer positions earlier, or end with a flatten block"
        )
        raise InvalidValueError("positions", positions, allowed)
