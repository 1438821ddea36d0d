"""Virtual covariance of layers with very many inputs: a streamed factor, never an n × n matrix.

VC = Σ_i (h̃_i h̃_iᵀ − h_i h_iᵀ) has the rows of a batch as its factor. The sum over batches and steps
is kept as B diag(c) Bᵀ with n × k orthonormal B: a batch is appended, the columns are made
orthonormal again, and the smallest |c| are dropped. What is dropped is counted, so the error of
every number is bounded by it.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.observables.gram._gram import check_pair, check_rows


class LowRankVirtualCovariance:
    """Σ VC over batches and steps, kept to `rank` eigenvectors; memory n_in (rank + 2 rows).

    **Arguments:**

    - `n_in`: the number of input features.
    - `rank`: how many eigenvectors are kept.

    >>> rng = np.random.default_rng(0)
    >>> h, g = rng.normal(size=(2, 6, 4000))
    >>> tracker = LowRankVirtualCovariance(4000, rank=12)
    >>> tracker.add(h, g, 0.1)
    >>> tracker.error, tracker.eigenvalues.size
    (0.0, 12)
    """

    def __init__(self, n_in: int, rank: int):
        if rank < 1 or n_in < 1:
            raise InvalidValueError("rank, n_in", (rank, n_in), "both at least 1")
        self.rank = rank
        self.error = 0.0
        self._basis = np.zeros((n_in, 0))
        self._values = np.zeros(0)

    def add(
        self, h: Float[np.ndarray, "rows n_in"], g: Float[np.ndarray, "rows n_in"], eta: float
    ) -> None:
        """Count a batch of a step at rate `eta`; cost n_in (rank + 2 rows)²."""
        check_rows(self._basis.T, h, g)
        old, rows = np.asarray(h, dtype=np.float64), len(h)
        new = old - eta * np.asarray(g, dtype=np.float64)
        columns = np.concatenate([self._basis, new.T, old.T], axis=1)
        signs = np.concatenate([self._values, np.ones(rows), -np.ones(rows)])
        Q, R = np.linalg.qr(columns)
        values, vectors = np.linalg.eigh((R * signs) @ R.T)
        order = np.argsort(-np.abs(values))
        # Rounding of the two large terms h̃h̃ᵀ and hhᵀ, which nearly cancel.
        noise = 1e-14 * float(np.max(np.abs(values), initial=0.0) + np.sum(old * old))
        kept = [i for i in order[: self.rank] if abs(values[i]) > noise]
        dropped = values[[i for i in order if i not in set(kept) and abs(values[i]) > noise]]
        self.error += math.sqrt(float(np.sum(dropped**2)))
        self._basis, self._values = Q @ vectors[:, kept], values[kept]

    @property
    def eigenvalues(self) -> Float[np.ndarray, " rank"]:
        """Those kept, by size."""
        return self._values.copy()

    @property
    def eigenvectors(self) -> Float[np.ndarray, "n_in rank"]:
        """A column each."""
        return self._basis.copy()

    @property
    def norm(self) -> float:
        """‖Σ VC‖ of what is kept; the exact one is within `error` of it."""
        return float(np.linalg.norm(self._values))

    def apply(self, x: Float[np.ndarray, "rows n_in"]) -> Float[np.ndarray, "rows n_in"]:
        """Σ VC x, for every row."""
        return (x @ self._basis) * self._values @ self._basis.T

    def cosine(
        self, W: Float[np.ndarray, "n_out n_in"], start: Float[np.ndarray, "n_out n_in"]
    ) -> tuple[float, float]:
        """The cosine of Σ VC with WᵀW − W₀ᵀW₀, and how far the truncation may have moved it.

        Cost: products of W with the basis and with itself on the side of the outputs.
        """
        check_pair(W, start, "start")
        check_rows(W, self._basis.T, self._basis.T)
        after, before = (np.asarray(M, dtype=np.float64) for M in (W, start))
        inner = sum(
            sign * float(np.sum(self._values * np.sum((M @ self._basis) ** 2, axis=0)))
            for sign, M in ((1.0, after), (-1.0, before))
        )
        square = (
            np.sum((after @ after.T) ** 2)
            + np.sum((before @ before.T) ** 2)
            - 2.0 * np.sum((after @ before.T) ** 2)
        )
        change = math.sqrt(max(float(square), 0.0))
        if change == 0.0 or self.norm == 0.0:
            raise InvalidValueError("W", "unchanged", "a cosine needs weights that moved")
        return inner / (change * self.norm), 2.0 * self.error / self.norm
