"""Entropies of discrete distributions and what they share, as appendix A defines them. In nats.

A distribution is an array of probabilities; that of several variables has one axis for each.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

# Sums of probabilities may miss 1 by rounding.
_ROUNDING = 1e-9


def shannon_entropy(p: Float[np.ndarray, "..."]) -> float:
    """S[p] = −Σ p log p (A.1), the average surprisal −log p (A.4), (A.5), of any variables.

    **Arguments:**

    - `p`: probabilities, in an array of any shape.

    **Returns:** S, from 0 for a certain outcome (A.2) to log|X| for a uniform one (A.3).

    >>> bits = shannon_entropy(np.full(8, 1 / 8)) / np.log(2.0)
    >>> float(round(bits, 12))
    3.0
    """
    return cross_entropy(p, p)


def cross_entropy(p: Float[np.ndarray, "..."], q: Float[np.ndarray, "..."]) -> float:
    """S[p, q] = −Σ p log q: the surprisal of q averaged over p (A.13).

    **Arguments:**

    - `p`, `q`: probabilities, in arrays of one shape.

    **Returns:** S[p, q], infinite where q excludes what p allows.

    >>> cross_entropy(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    inf
    """
    weights, others = _checked(p, "p"), _checked(q, "q")
    if weights.shape != others.shape:
        raise InvalidValueError("shape of q", others.shape, f"expected that of p, {weights.shape}")
    seen = weights > 0.0  # 0·log 0 = 0
    with np.errstate(divide="ignore"):
        total = -np.sum(weights[seen] * np.log(others[seen]))
    return float(total) + 0.0  # never −0


def relative_entropy(p: Float[np.ndarray, "..."], q: Float[np.ndarray, "..."]) -> float:
    """KL[p‖q] = S[p, q] − S[p] (A.12): how far q is from p; ≥ 0, not symmetric.

    **Arguments:**

    - `p`, `q`: probabilities, in arrays of one shape.

    **Returns:** KL[p‖q].

    >>> round(relative_entropy(np.array([0.5, 0.5]), np.array([0.25, 0.75])), 6)
    0.143841
    """
    return cross_entropy(p, q) - shannon_entropy(p)


def shared_entropy(p: Float[np.ndarray, "..."]) -> float:
    """What all axes of `p` share: I = S_x + S_y − S_xy (A.14), I_3 of three variables (A.24).

    Σ (−1)^{k+1} S over the subsets of k variables. Of three: positive where one repeats what the
    others say, negative where only both together tell the third.

    **Arguments:**

    - `p`: probabilities of two or three variables, one axis each.

    **Returns:** I, or I_3.

    >>> round(shared_entropy(np.array([[0.5, 0.0], [0.0, 0.5]])), 6)      # one bit, copied
    0.693147
    >>> xor = np.zeros((2, 2, 2))
    >>> for x, y in np.ndindex(2, 2):
    ...     xor[x, y, x ^ y] = 0.25
    >>> round(shared_entropy(xor), 6)                                    # synergy: −log 2
    -0.693147
    """
    weights = _checked(p, "p")
    if weights.ndim not in (2, 3):
        raise InvalidValueError("axes of p", weights.ndim, "expected two or three variables")
    axes, total = set(range(weights.ndim)), 0.0
    for size in range(1, weights.ndim + 1):
        for kept in combinations(sorted(axes), size):
            marginal = weights.sum(axis=tuple(axes - set(kept)))
            total += (-1) ** (size + 1) * shannon_entropy(marginal)
    return total


def _checked(p: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(p, dtype=np.float64)
    if not values.size or np.any(values < 0.0) or not abs(float(values.sum()) - 1.0) < _ROUNDING:
        raise InvalidValueError(
            f"sum of {name}", float(values.sum()), "probabilities are ≥ 0 and add up to 1"
        )
    return values
