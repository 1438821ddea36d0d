"""Directions in which networks of one width differ: factors of the covariances V, D, A and B.

The metric of the output layer and the diagonal part of the NTK fluctuate together, with the
covariance (V, D; D, A)/n on pairs of samples; what mixes outputs fluctuates by itself,
ΔH_ij;12 = (Y_ij;12 + Y_ji;21)/√2 with Cov(Y_ij;12, Y_ij;34) = B_1324/n: (8.82) is their sum. The
second-order answer averaged over a Gaussian is its sum over the columns of any factor of the
covariance. A column carries a sign: numerical errors make small eigenvalues negative, and
deviations of tensors have covariances that are not positive at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pair_numbers
from dynagram.theory.training._contraction import Tensors

# Columns below this fraction of the trace, all together, are left out.
_LEFT_OUT = 1e-10


class Columns(NamedTuple):
    """Columns of a factor, Σ_k sign_k c_k c_kᵀ the covariance, largest first."""

    values: Float[np.ndarray, "column entry"]
    signs: Float[np.ndarray, " column"]

    @classmethod
    def of(cls, covariance: Float[np.ndarray, "entry entry"]) -> Columns:
        """By eigenvectors; cost: the cube of the number of entries."""
        eigenvalues, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        order = np.argsort(-np.abs(eigenvalues))
        eigenvalues, vectors = eigenvalues[order], vectors[:, order]
        size = np.abs(eigenvalues)
        left = np.append(np.cumsum(size[::-1])[::-1], 0.0)
        count = int(np.sum(left[:-1] > _LEFT_OUT * left[0]))
        kept = slice(0, count)
        return cls((vectors[:, kept] * np.sqrt(size[kept])).T, np.sign(eigenvalues[kept]))

    def mixed(self, sign: float, coordinates: Float[np.ndarray, "draw column"]) -> np.ndarray:
        """Σ_k coordinate_k c_k over the columns of one sign, for every draw."""
        chosen = self.signs == sign
        return coordinates[:, chosen] @ self.values[chosen]


class Fluctuations(NamedTuple):
    """The factors of (V, D; D, A), on pairs, and of B, on ordered pairs of samples."""

    diagonal: Columns
    mixing: Columns
    samples: int
    training_samples: int
    outputs: int

    @classmethod
    def of(cls, tensors: Tensors, training_samples: int, outputs: int) -> Fluctuations:
        """Of the tensors on all samples, training ones first; cost N⁶."""
        samples = tensors["B"].shape[0]
        i, j = np.triu_indices(samples)
        V, D, A = (np.asarray(tensors[name])[i, j][:, i, j] for name in "VDA")
        B = np.asarray(tensors["B"]).transpose(0, 2, 1, 3).reshape(samples**2, samples**2)
        joint = np.block([[V, D], [D.T, A]])
        return cls(Columns.of(joint), Columns.of(B), samples, training_samples, outputs)

    @property
    def directions(self) -> int:
        """Directions whose answers, added up, are the average."""
        return max(len(self.diagonal.signs), len(self.mixing.signs) * self.outputs**2)

    def every(self) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
        """All directions, with the signs of their diagonal and mixing parts (0: nothing there)."""
        rank, n_L = len(self.mixing.signs), self.outputs
        first = np.zeros((self.directions, self.diagonal.values.shape[1]))
        first[: len(self.diagonal.signs)] = self.diagonal.values
        second = np.zeros((self.directions, n_L, n_L, self.mixing.values.shape[1]))
        for place in range(n_L**2):
            block = slice(place * rank, (place + 1) * rank)
            second[block, place // n_L, place % n_L] = self.mixing.values
        signs = np.zeros((2, self.directions))
        signs[0, : len(self.diagonal.signs)] = self.diagonal.signs
        signs[1, : rank * n_L**2] = np.tile(self.mixing.signs, n_L**2)
        return self._matrices(first, second), signs[0], signs[1]

    def draw(
        self, count: int, sign: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random combinations, with coordinates ±1, of the columns of one sign.

        Every pair of outputs takes the same mixing ones, in an order and with signs of its own: so
        they are uncorrelated, at n_L² times less cost.
        """
        n_L = self.outputs

        def coordinates(*shape: int) -> np.ndarray:
            return 2.0 * rng.integers(0, 2, size=shape) - 1.0

        first = self.diagonal.mixed(sign, coordinates(count, len(self.diagonal.signs)))
        drawn = self.mixing.mixed(sign, coordinates(count, len(self.mixing.signs)))
        order = rng.permuted(np.tile(np.arange(count), (n_L**2, 1)), axis=1).T
        second = drawn[order] * coordinates(count, n_L**2, 1)
        return self._matrices(first, second.reshape(count, n_L, n_L, -1))

    @property
    def negative(self) -> float:
        """The part of the columns that is negative, by squares."""
        parts = [np.sum(c.values[c.signs < 0] ** 2) / max(np.sum(c.values**2), 1e-300)
                 for c in (self.diagonal, self.mixing)]  # fmt: skip
        return float(max(parts))

    def _matrices(
        self, diagonal: np.ndarray, mixing: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Metric (N, N), NTK (N, N_A) and mixing NTK (N, n_L, N_A, n_L) of every direction."""
        samples, n = self.samples, self.training_samples
        number, pairs = pair_numbers(samples), samples * (samples + 1) // 2
        metric = diagonal[:, :pairs][:, number]
        kernel = diagonal[:, pairs:][:, number][:, :, :n]
        Y = mixing.reshape(*mixing.shape[:3], samples, samples)
        both = (Y + Y.transpose(0, 2, 1, 4, 3)) / np.sqrt(2.0)
        return metric, kernel, both[..., :n].transpose(0, 3, 1, 4, 2)
