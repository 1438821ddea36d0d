"""Unordered pairs of samples: (a, b) with a ≤ b numbered as (0,0), (0,1), …, (0,N−1), (1,1), ….

A symmetric N × N matrix has P = N(N+1)/2 such entries; the pair form of the recursions and the
measured covariances of the metric work on them (off-diagonal entries counted once).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int, Shaped

from dynagram.errors import InvalidValueError


def pair_indices(samples: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """The first and the second sample of every pair, in the order of this module.

    >>> [index.tolist() for index in pair_indices(3)]
    [[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]]
    """
    return np.triu_indices(samples)


def pair_numbers(samples: int) -> Int[np.ndarray, "samples samples"]:
    """The number of the pair (a, b), whichever way round it is written.

    >>> pair_numbers(2).tolist()
    [[0, 1], [1, 2]]
    """
    first, second = pair_indices(samples)
    numbers = np.empty((samples, samples), dtype=np.intp)
    numbers[first, second] = numbers[second, first] = np.arange(first.size)
    return numbers


def pairs_to_matrix(
    pairs: Shaped[np.ndarray, "*shape"], axis: int = -1
) -> Shaped[np.ndarray, "*full"]:
    """Write out the pair axis `axis` as two sample axes: (…, P, …) → (…, N, N, …).

    >>> pairs_to_matrix(np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    number = pairs.shape[axis]
    samples = (math.isqrt(8 * number + 1) - 1) // 2
    if number == 0 or samples * (samples + 1) // 2 != number:
        raise InvalidValueError("number of pairs", number, "expected N(N+1)/2 for some N ≥ 1")
    return np.take(pairs, pair_numbers(samples), axis=axis)


def matrix_to_pairs(
    matrix: Shaped[np.ndarray, "*batch samples samples"],
) -> Shaped[np.ndarray, "*batch pairs"]:
    """The upper triangle of the last two axes: (…, N, N) → (…, P).

    >>> matrix_to_pairs(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    first, second = pair_indices(matrix.shape[-1])
    return matrix[..., first, second]
