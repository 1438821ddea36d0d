"""Derivative fields of a signal and the entries of their vertex that each tensor is.

Along independent random directions ξ^1, ξ^2, ξ^3 in parameter space, with variances equal to the
learning rates, the signal x has the fields x_S = ∂^|S| x/∏∂t_r, S ⊆ {1, 2, 3}. A set S is a number
whose bits are its directions: 0 is x itself, 1, 2, 4 the directions, 3 = {1, 2}, 7 all. The Gram
matrix of all fields is a Markov chain through the network, and every tensor of finite width is an
entry of its covariance: docs/derivations/gram-chain.md (D10).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import permutations

Pair = tuple[int, int]  # the fields of the two factors of a Gram matrix
Key = tuple[Pair, Pair]  # the entry V_(S a, S' b)(S'' c, S''' d)

PLAIN: Pair = (0, 0)
TANGENT: Pair = (1, 1)
CROSSED: Pair = (0, 1)

# The fields of every letter, and which of its printed sample axes they stand at.
LETTER_FIELDS: dict[str, tuple[Key, str]] = {
    "V": (((0, 0), (0, 0)), "0123"),
    "A": (((1, 1), (2, 2)), "0123"),
    "B": (((1, 2), (1, 2)), "0123"),
    "D": (((0, 0), (1, 1)), "0123"),
    "F": (((0, 1), (0, 1)), "0123"),
    "P": (((3, 0), (1, 2)), "0312"),
    "Q": (((3, 1), (2, 0)), "0123"),
    "R": (((7, 1), (2, 4)), "0123"),
    "S": (((3, 5), (2, 4)), "0123"),
    "T": (((3, 2), (4, 5)), "0123"),
    "U": (((3, 4), (5, 2)), "0123"),
}
# What the mean shifts G1 and H1 take besides themselves: their second-order terms.
SHIFT_KEYS: dict[str, tuple[Key, ...]] = {
    "G1": ((PLAIN, PLAIN),),
    "H1": ((PLAIN, PLAIN), (PLAIN, TANGENT), (CROSSED, CROSSED)),
}


def subsets(S: int) -> Iterator[int]:
    """All subsets of S, S first and the empty set last.

    >>> list(subsets(5))
    [5, 4, 1, 0]
    """
    T = S
    while True:
        yield T
        if T == 0:
            return
        T = (T - 1) & S


@functools.cache
def partitions(S: int) -> tuple[tuple[int, ...], ...]:
    """All partitions of S into blocks, as in Faà di Bruno's formula for ∂^S σ(h).

    >>> partitions(3)
    ((3,), (1, 2))
    """
    if S == 0:
        return ((),)
    lowest = S & -S
    rest = S ^ lowest
    return tuple(
        tuple(sorted((lowest | T, *others)))
        for T in subsets(rest)
        for others in partitions(rest ^ T)
    )


@functools.cache
def pairs_below(pair: Pair) -> tuple[Pair, ...]:
    """The pairs of fields on which a pair depends through any block, itself included.

    A field x'_S is made of fields x_T, T ⊆ S, each direction used once, and parity under
    ξ^r → −ξ^r is kept.

    >>> pairs_below((3, 0))
    ((0, 3), (1, 2))
    """
    S, S2 = pair
    parity = S ^ S2
    found = {(T, T2) for T in subsets(S) for T2 in subsets(S2)}
    for one in (S, S2):
        found |= {(T, T2) for T in subsets(one) for T2 in subsets(one ^ T)}
    return tuple(sorted({(min(p), max(p)) for p in found if p[0] ^ p[1] == parity}))


@functools.cache
def canonical(key: Key, exchangeable: bool = True) -> tuple[Key, tuple[int, ...]]:
    """The entry under which `key` is stored, and the axes that turn the stored array into it.

    Directions may be renamed, the two fields of a pair exchanged and, in one and the same Gram
    matrix, the pairs as well.

    >>> canonical(((2, 2), (0, 0)))
    (((0, 0), (1, 1)), (2, 3, 0, 1))
    """
    best: tuple[Key, tuple[int, ...]] | None = None
    for renamed in permutations((1, 2, 4)):
        names = dict(zip((1, 2, 4), renamed, strict=True))
        fields = [sum(names[bit] for bit in (1, 2, 4) if S & bit) for pair in key for S in pair]
        orders = [(0, 1, 2, 3), (2, 3, 0, 1)] if exchangeable else [(0, 1, 2, 3)]
        for order in orders:
            for axes in (
                order,
                (order[1], order[0], *order[2:]),
                (*order[:2], order[3], order[2]),
                (order[1], order[0], order[3], order[2]),
            ):
                a, b, c, d = (fields[i] for i in axes)
                candidate = (((a, b), (c, d)), axes)
                if best is None or candidate < best:
                    best = candidate
    assert best is not None
    stored, axes = best
    # Stored axis i holds the sample of position axes[i] of `key`.
    return stored, tuple(axes.index(i) for i in range(4))


def close(keys: Iterable[Key]) -> tuple[Key, ...]:
    """The entries needed to carry `keys` through a network, in a form closed under every block.

    >>> close([((1, 1), (2, 2))])
    (((0, 0), (0, 0)), ((0, 0), (1, 1)), ((1, 1), (2, 2)))
    """
    needed: set[Key] = set()
    waiting = [canonical(key)[0] for key in keys]
    while waiting:
        key = waiting.pop()
        if key in needed:
            continue
        needed.add(key)
        waiting += [
            canonical((left, right))[0]
            for left in pairs_below(key[0])
            for right in pairs_below(key[1])
        ]
    return tuple(sorted(needed))


def keys_of(letters: Iterable[str]) -> tuple[Key, ...]:
    """The entries of the vertex that letters of the registry need."""
    keys: list[Key] = []
    for letter in letters:
        if letter in LETTER_FIELDS:
            keys.append(LETTER_FIELDS[letter][0])
        keys += SHIFT_KEYS.get(letter, ())
    return close(keys)


def size(S: int) -> int:
    """The number of directions in S; kernels depend on it alone."""
    return S.bit_count()
