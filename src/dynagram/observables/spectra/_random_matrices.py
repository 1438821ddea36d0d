"""Spectra of weights that were never trained: the Marchenko–Pastur law and exact draws.

For W of independent entries of variance s², q = min/max ≤ 1 of its two sizes and N the larger one,
the min nonzero eigenvalues of WᵀW/(N s²) fill [(1−√q)², (1+√q)²] with the density
√((b−λ)(λ−a))/(2πqλ). Draws of finite size come from the bidiagonal form of a Gaussian matrix, whose
entries are independent χ variables: no matrix of the full size is made.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

_GRID = 4001


def marchenko_pastur_edges(ratio: float) -> tuple[float, float]:
    """(1∓√q)², the ends of the spectrum of WᵀW/(N s²) at q = min/max of the sizes.

    **Arguments:**

    - `ratio`: q, in (0, 1].

    **Returns:** lower and upper edge.

    >>> marchenko_pastur_edges(0.25)
    (0.25, 2.25)
    """
    if not 0.0 < ratio <= 1.0:
        raise InvalidValueError("ratio", ratio, "expected min/max of the sizes, in (0, 1]")
    return (1.0 - ratio**0.5) ** 2, (1.0 + ratio**0.5) ** 2


def marchenko_pastur_density(
    values: Float[np.ndarray, " k"], ratio: float
) -> Float[np.ndarray, " k"]:
    """The density of the nonzero eigenvalues; 0 outside the edges.

    **Arguments:**

    - `values`: where.
    - `ratio`: q, in (0, 1].

    **Returns:** one number for each value.

    >>> marchenko_pastur_density(np.array([0.1, 1.0]), 0.25).round(4).tolist()
    [0.0, 0.6164]
    """
    low, high = marchenko_pastur_edges(ratio)
    inside = np.maximum((high - values) * (values - low), 0.0)
    positive = np.where(values > 0, values, 1.0)
    return np.where(values > 0, np.sqrt(inside) / (2.0 * np.pi * ratio * positive), 0.0)


def marchenko_pastur_distribution(
    values: Float[np.ndarray, " k"], ratio: float
) -> Float[np.ndarray, " k"]:
    """The cumulative distribution, from 0 at the lower edge to 1 at the upper, to about 1e-7.

    **Arguments:**

    - `values`: where.
    - `ratio`: q, in (0, 1].

    **Returns:** one number for each value.

    >>> marchenko_pastur_distribution(np.array([0.25, 1.0, 2.25]), 0.25).round(4).tolist()
    [0.0, 0.5534, 1.0]
    """
    grid, cumulative = _table(ratio)
    return np.interp(values, grid, cumulative)


def marchenko_pastur_median(ratio: float) -> float:
    """Where the distribution is ½: the robust scale by which a spectrum is compared with it.

    **Arguments:**

    - `ratio`: q, in (0, 1].

    **Returns:** one number.
    """
    grid, cumulative = _table(ratio)
    return float(np.interp(0.5, cumulative, grid))


@functools.lru_cache(maxsize=64)
def _table(ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """λ = m + r cos θ makes the integrand smooth at both edges, also at q = 1."""
    low, high = marchenko_pastur_edges(ratio)
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    theta = np.linspace(np.pi, 0.0, _GRID)
    grid = middle + radius * np.cos(theta)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = (radius * np.sin(theta)) ** 2 / (2.0 * np.pi * ratio * grid)
    weight[0] = 2.0 / np.pi if low == 0.0 else 0.0  # the limit at θ = π when q = 1
    steps = 0.5 * (weight[1:] + weight[:-1]) * (np.pi / (_GRID - 1))
    cumulative = np.concatenate([[0.0], np.cumsum(steps)])
    return grid, cumulative / cumulative[-1]


def gaussian_eigenvalues(
    sizes: tuple[int, int], rng: np.random.Generator
) -> Float[np.ndarray, " k"]:
    """The min(sizes) eigenvalues of WᵀW/N, N = max(sizes), of one Gaussian W of unit variance.

    **Arguments:**

    - `sizes`: those of W.
    - `rng`: a NumPy generator.

    **Returns:** ascending eigenvalues. Exact in distribution (Dumitriu and Edelman's bidiagonal
    model); O(min²) time.

    >>> values = gaussian_eigenvalues((400, 100), np.random.default_rng(0))
    >>> values.size, bool(0.2 < values[0] < 0.35), bool(2.0 < values[-1] < 2.4)
    (100, True, True)
    """
    from scipy.linalg import eigvalsh_tridiagonal

    large, small = max(sizes), min(sizes)
    diagonal = np.sqrt(rng.chisquare(large - np.arange(small)))
    if small == 1:
        return diagonal**2 / large
    below = np.sqrt(rng.chisquare(np.arange(small - 1, 0, -1)))
    # B Bᵀ of the lower bidiagonal B.
    square = diagonal**2
    square[1:] += below**2
    values = eigvalsh_tridiagonal(square, below * diagonal[:-1])
    return np.maximum(values, 0.0) / large
