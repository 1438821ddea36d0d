"""Linear maps known by what they do to vectors: traces, top spectra and ranks without a matrix.

An operator here stands for a batch: one map of R^n for each of `count` pairs of samples. Nothing
of size n² is stored; what a method costs is counted in applications to one vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import AccuracyError, InvalidValueError

# Numbers that one block of vectors holds: 32 MB in float64.
_NUMBERS_AT_ONCE = 2**22
# What `dense` may return without being told that more is fine.
_DENSE_BYTES = 2**30


class FieldOperator(ABC):
    """A batch of linear maps of R^size, one per pair, known by their action.

    **Arguments:**

    - `count`, `size`, `dtype`: the number of pairs, the dimension, and the type of the numbers.
    """

    count: int
    size: int
    dtype: np.dtype

    @property
    @abstractmethod
    def T(self) -> FieldOperator:
        """The transposed maps."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether every map of the batch is known to be symmetric."""

    @abstractmethod
    def on(self, pairs: slice, x: Float[np.ndarray, "pairs vectors size"]) -> np.ndarray:
        """The maps of some pairs applied to vectors, as many for each pair."""

    def apply(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Each pair's map applied to its vector (pairs, size) or vectors (pairs, vectors, size).

        Pairs are taken in groups, so that memory beyond the result stays at some 10 × 32 MB.
        """
        x = np.asarray(x, dtype=self.dtype)
        if x.ndim not in (2, 3) or (x.shape[0], x.shape[-1]) != (self.count, self.size):
            allowed = f"expected ({self.count}, {self.size}) or ({self.count}, any, {self.size})"
            raise InvalidValueError("shape of x", x.shape, allowed)
        vectors = x if x.ndim == 3 else x[:, None, :]
        result = np.empty_like(vectors)
        group = max(1, _NUMBERS_AT_ONCE // max(1, vectors[0].size))
        for low in range(0, self.count, group):
            pairs = slice(low, min(low + group, self.count))
            result[pairs] = self.on(pairs, vectors[pairs])
        return result.reshape(x.shape)

    def trace(self) -> Float[np.ndarray, " pairs"]:
        """tr, exactly, by `size` applications."""
        return self._trace_and_square()[0]

    def effective_rank(self) -> Float[np.ndarray, " pairs"]:
        """(tr A)²/‖A‖²_F, for symmetric A (Σλ)²/Σλ²: how many directions carry A.

        It is 0 for A = 0. Exact, by `size` applications.
        """
        trace, square = self._trace_and_square()
        return np.divide(trace**2, square, out=np.zeros_like(trace), where=square > 0)

    def top_eigenvalues(self, k: int = 1) -> Float[np.ndarray, "pairs k"]:
        """The k largest eigenvalues of each symmetric map, descending, by Lanczos.

        Some tens of applications per pair, more where eigenvalues lie close. Maps that are not
        symmetric are refused: their `top_singular_values` always exist.
        """
        if not self.symmetric:
            allowed = "for two different samples it is not symmetric: ask for top_singular_values"
            raise InvalidValueError("operator", type(self).__name__, allowed)
        self._check_k(k)
        return np.stack([_lanczos(self, None, pair, k) for pair in range(self.count)])

    def top_singular_values(self, k: int = 1) -> Float[np.ndarray, "pairs k"]:
        """The k largest singular values of each map, descending, by Lanczos on AᵀA."""
        self._check_k(k)
        squares = [_lanczos(self, self.T, pair, k) for pair in range(self.count)]
        return np.sqrt(np.maximum(np.stack(squares), 0.0))

    def dense(self, *, max_bytes: int = _DENSE_BYTES) -> Float[np.ndarray, "pairs size size"]:
        """The matrices themselves, refused above `max_bytes`."""
        needed = self.count * self.size**2 * self.dtype.itemsize
        if needed > max_bytes:
            allowed = f"{needed} bytes needed: choose fewer pairs or raise it"
            raise InvalidValueError("max_bytes", max_bytes, allowed)
        result = np.empty((self.count, self.size, self.size), dtype=self.dtype)
        for pairs, columns, image in self._images():
            result[pairs, :, columns] = np.swapaxes(image, 1, 2)
        return result

    def _trace_and_square(self) -> tuple[np.ndarray, np.ndarray]:
        trace = np.zeros(self.count, dtype=self.dtype)
        square = np.zeros(self.count, dtype=self.dtype)
        for pairs, columns, image in self._images():
            trace[pairs] += np.trace(image[:, :, columns], axis1=1, axis2=2)
            square[pairs] += np.einsum("pvi,pvi->p", image, image)
        return trace, square

    def _images(self) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Images of the unit vectors in blocks: pairs, which columns, (pairs, columns, size)."""
        width = max(1, min(self.size, _NUMBERS_AT_ONCE // self.size))
        group = max(1, _NUMBERS_AT_ONCE // (width * self.size))
        for low in range(0, self.count, group):
            pairs = slice(low, min(low + group, self.count))
            for first in range(0, self.size, width):
                columns = slice(first, min(first + width, self.size))
                units = np.zeros((columns.stop - first, self.size), dtype=self.dtype)
                units[np.arange(len(units)), np.arange(first, columns.stop)] = 1.0
                block = np.broadcast_to(units, (pairs.stop - low, *units.shape))
                yield pairs, columns, self.on(pairs, block)

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= self.size:
            raise InvalidValueError("k", k, f"expected 1 to {self.size}")


class ScaledIdentity(FieldOperator):
    """scale·1 for each pair.

    >>> ScaledIdentity(np.array([2.0, 3.0]), 4).trace().tolist()
    [8.0, 12.0]
    """

    def __init__(self, scale: Float[np.ndarray, " pairs"], size: int):
        self.scale = scale
        self.count, self.size, self.dtype = scale.shape[0], size, scale.dtype

    @property
    def T(self) -> FieldOperator:
        """Itself."""
        return self

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True

    def on(self, pairs: slice, x: Float[np.ndarray, "pairs vectors size"]) -> np.ndarray:
        """scale·x."""
        return self.scale[pairs, None, None] * x


class Sum(FieldOperator):
    """The sum of two operators on the same pairs."""

    def __init__(self, first: FieldOperator, second: FieldOperator):
        if (first.count, first.size) != (second.count, second.size):
            shapes = ((first.count, first.size), (second.count, second.size))
            raise InvalidValueError("operators", shapes, "pairs and sizes must agree")
        self.first, self.second = first, second
        self.count, self.size, self.dtype = first.count, first.size, first.dtype

    @property
    def T(self) -> FieldOperator:
        """The sum of the transposed."""
        return Sum(self.first.T, self.second.T)

    @property
    def symmetric(self) -> bool:
        """Where both are."""
        return self.first.symmetric and self.second.symmetric

    def on(self, pairs: slice, x: Float[np.ndarray, "pairs vectors size"]) -> np.ndarray:
        """The sum of what both do."""
        return self.first.on(pairs, x) + self.second.on(pairs, x)


def _lanczos(
    operator: FieldOperator, transposed: FieldOperator | None, pair: int, k: int
) -> np.ndarray:
    """The top k eigenvalues of one pair's A, or of AᵀA when its transposed is given."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n, pairs = operator.size, slice(pair, pair + 1)

    def image(vectors: np.ndarray) -> np.ndarray:
        found = operator.on(pairs, vectors)
        return found if transposed is None else transposed.on(pairs, found)

    # ARPACK wants room beside the k vectors; tiny operators are quicker as matrices anyway.
    if n < max(2 * k + 2, 24):
        matrix = image(np.eye(n, dtype=operator.dtype)[None])[0]
        return np.linalg.eigvalsh((matrix + matrix.T) / 2)[::-1][:k]
    # scipy's own annotations know of no matvec and of no tolerance.
    linear: Any = LinearOperator
    solve: Any = eigsh
    matvec = lambda x: image(x.reshape(1, 1, n)).reshape(n)  # noqa: E731
    action = linear((n, n), matvec=matvec, dtype=operator.dtype)
    start = np.random.default_rng(0).standard_normal(n).astype(operator.dtype)
    # The error of an eigenvalue is the square of that of its vector: 1e-9 loses nothing.
    options = {"which": "LA", "v0": start, "ncv": min(n, max(3 * k, 40)), "tol": 1e-9}
    try:
        values = solve(action, k=k, return_eigenvectors=False, **options)
    except ArpackNoConvergence as error:
        raise AccuracyError(
            f"Lanczos found {len(error.eigenvalues)} of {k} eigenvalues: ask for more or fewer"
        ) from error
    return np.sort(values)[::-1]
