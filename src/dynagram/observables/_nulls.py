"""What alignment measures give when nothing is aligned: exact means and deviations of the nulls.

Rotation: two symmetric n × n matrices, one turned by a uniformly random rotation. By Schur's lemma
tr(A QBQᵀ) has the mean tr A tr B/n and, with A₀, B₀ the traceless parts, the variance
2‖A₀‖²‖B₀‖²/((n−1)(n+2)). Permutation: two centred kernels on M samples, those of one shuffled. The
mean is tr A tr B/(M−1), exactly; the variance is that of a rotation of the M−1 centred directions,
up to terms of relative size 1/M that hold the fourth moments of single samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError


@dataclass(frozen=True)
class Null:
    """Mean and standard deviation of a measure when its two sides have nothing in common.

    **Arguments:**

    - `mean`, `deviation`: of the measure.
    """

    mean: float
    deviation: float

    def score(self, value: float) -> float:
        """How many deviations `value` lies above the null; 0 where the null is one number.

        >>> Null(0.25, 0.125).score(0.75)
        4.0
        """
        return (value - self.mean) / self.deviation if self.deviation > 0 else 0.0


@dataclass(frozen=True)
class Alignment:
    """A cosine or correlation and what independent things of the same shape and spectra give.

    **Arguments:**

    - `value`: the measure.
    - `null`: its `Null`.

    >>> Alignment(0.5, Null(0.25, 0.125)).score
    2.0
    """

    value: float
    null: Null

    @property
    def score(self) -> float:
        """Deviations above the null."""
        return self.null.score(self.value)


@dataclass(frozen=True)
class Spectrum:
    """What a null needs of a symmetric matrix: its size, trace and squared Frobenius norm."""

    size: int
    trace: float
    square: float

    @property
    def traceless_square(self) -> float:
        """‖A − (tr A/n) 1‖²."""
        return max(self.square - self.trace**2 / self.size, 0.0)


def spectrum_of(matrix: Float[np.ndarray, "n n"]) -> Spectrum:
    """Size, trace and squared norm of a symmetric matrix.

    >>> spectrum_of(np.diag([1.0, 3.0]))
    Spectrum(size=2, trace=4.0, square=10.0)
    """
    return Spectrum(matrix.shape[0], float(np.trace(matrix)), float(np.sum(matrix * matrix)))


def rotation_overlap(first: Spectrum, second: Spectrum) -> Null:
    """tr(A QBQᵀ) over uniformly random rotations Q, exactly.

    >>> null = rotation_overlap(Spectrum(3, 1.0, 1.0), Spectrum(3, 1.0, 1.0))   # cos² in 3-D
    >>> round(null.mean, 6), round(null.deviation**2, 6)                        # 1/3 and 4/45
    (0.333333, 0.088889)
    """
    n = first.size
    if n != second.size:
        raise InvalidValueError("sizes", (n, second.size), "both matrices must have the same size")
    mean = first.trace * second.trace / n
    if n == 1:
        return Null(mean, 0.0)
    variance = 2.0 * first.traceless_square * second.traceless_square / ((n - 1) * (n + 2))
    return Null(mean, math.sqrt(variance))


def normalised(overlap: float, null: Null, norm: float, what: str) -> Alignment:
    """Overlap and null divided by the product of norms; refused where that is zero."""
    if not (math.isfinite(overlap) and math.isfinite(norm)):
        raise NonFiniteError(f"{what} is not finite: the features or weights hold nan or overflow")
    if norm == 0.0:
        raise InvalidValueError(what, 0.0, "has no direction: a cosine with zero does not exist")
    return Alignment(overlap / norm, Null(null.mean / norm, null.deviation / norm))
