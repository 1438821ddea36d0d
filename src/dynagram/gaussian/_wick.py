"""Wick algebra: pairings, set partitions, Gaussian moments (1.45), moments ↔ cumulants (1.56).

Everything here is exact combinatorics on any numbers that can be added and multiplied: floats,
arrays, fractions, decimals.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

Pairing = tuple[tuple[int, int], ...]
Partition = tuple[tuple[int, ...], ...]
_MOST_POINTS = 12  # 10395 pairings, 4 213 597 partitions


@functools.cache
def pairings(points: int) -> tuple[Pairing, ...]:
    """All (2m−1)!! ways to put 0..2m−1 = `points` − 1 in pairs; none when `points` is odd.

    >>> pairings(4)
    (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    """
    _check_points(points)
    if points % 2:
        return ()
    return tuple(_pair_up(tuple(range(points))))


def _pair_up(items: tuple[int, ...]) -> list[Pairing]:
    if not items:
        return [()]
    first, rest = items[0], items[1:]
    return [
        ((first, partner), *others)
        for place, partner in enumerate(rest)
        for others in _pair_up(rest[:place] + rest[place + 1 :])
    ]


@functools.cache
def set_partitions(points: int) -> tuple[Partition, ...]:
    """All partitions of {0, …, `points` − 1} into blocks: 1, 1, 2, 5, 15, 52, 203 of them.

    >>> set_partitions(3)
    (((0, 1, 2),), ((0, 1), (2,)), ((0, 2), (1,)), ((0,), (1, 2)), ((0,), (1,), (2,)))
    """
    _check_points(points)
    if points == 0:
        return ((),)
    last = points - 1
    grown: list[Partition] = []
    for partition in set_partitions(last):
        for place, block in enumerate(partition):
            grown.append((*partition[:place], (*block, last), *partition[place + 1 :]))
        grown.append((*partition, (last,)))
    return tuple(grown)


def _check_points(points: int) -> None:
    if not 0 <= points <= _MOST_POINTS:
        raise InvalidValueError("points", points, f"expected 0 to {_MOST_POINTS}")


def wick(covariance: Float[np.ndarray, "n n"], indices: Sequence[int]) -> float:
    """⟨z_{μ_1} ⋯ z_{μ_2m}⟩ of a zero-mean Gaussian: the sum over pairings (1.45), (1.69).

    >>> K = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> wick(K, [0, 0, 1, 1])                 # K_00 K_11 + 2 K_01²
    2.5
    """
    return math.fsum(
        math.prod(float(covariance[indices[i], indices[j]]) for i, j in pairing)
        for pairing in pairings(len(indices))
    )


def joint_moment(cumulant: Callable[[tuple[int, ...]], Any], points: int) -> Any:
    """E[X_0 ⋯ X_{k−1}] from joint cumulants: the sum over set partitions (1.56).

    `cumulant(block)` gives the joint cumulant of the variables in `block`, for instance of (0, 2).

    >>> joint_moment(lambda block: {1: 0.0, 2: 1.0}.get(len(block), 0.0), 4)   # standard normal
    3.0
    """
    return sum(
        math.prod(cumulant(block) for block in partition) for partition in set_partitions(points)
    )


def joint_cumulant(moment: Callable[[tuple[int, ...]], Any], points: int) -> Any:
    """E[X_0 ⋯ X_{k−1}] connected: Σ_π (−1)^{|π|−1}(|π|−1)! Π_B E[X_B], the inverse of (1.56).

    Holds without any parity; for parity-even variables it is (1.54) and (1.61).

    >>> joint_cumulant(lambda block: 2.0 ** len(block), 3)      # a constant has no fluctuations
    0.0
    """
    total: Any = 0
    for partition in set_partitions(points):
        blocks = len(partition)
        sign = (-1) ** (blocks - 1) * math.factorial(blocks - 1)
        total = total + sign * math.prod(moment(block) for block in partition)
    return total


def cumulants_from_moments(moments: Sequence[Any]) -> list[Any]:
    """κ_1..κ_m of one variable from its moments E[X]..E[X^m]; 2m-point versions as in (3.57).

    The recursion κ_m = μ_m − Σ_{k<m} C(m−1, k−1) κ_k μ_{m−k}. Cost m².

    >>> cumulants_from_moments([1, 3, 15, 105])     # χ² with one degree of freedom
    [1, 2, 8, 48]
    """
    cumulants: list[Any] = []
    for m, moment in enumerate(moments, start=1):
        known = sum(
            math.comb(m - 1, k - 1) * cumulants[k - 1] * moments[m - k - 1] for k in range(1, m)
        )
        cumulants.append(moment - known)
    return cumulants


def moments_from_cumulants(cumulants: Sequence[Any]) -> list[Any]:
    """E[X]..E[X^m] of one variable from κ_1..κ_m; the inverse of `cumulants_from_moments`.

    >>> moments_from_cumulants([1, 2, 8, 48])
    [1, 3, 15, 105]
    """
    moments: list[Any] = []
    for m, cumulant in enumerate(cumulants, start=1):
        known = sum(
            math.comb(m - 1, k - 1) * cumulants[k - 1] * moments[m - k - 1] for k in range(1, m)
        )
        moments.append(cumulant + known)
    return moments
