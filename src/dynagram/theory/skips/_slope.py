"""ν(γ) in V/(nG²) → ν·ℓ/n: how fast fluctuations grow with depth when every block has skip γ.

Critical blocks multiply the plain C_b, C_W by 1 − γ² and stay at one K, where (with s_p the Hermite
components of σ² at K, γ^p the memory of a block, and plain C_W)

    ν(γ) = (1 − γ²)² (C_W/K)² Σ_{p≥1} s_p² (1 + γ^p)/(1 − γ^p).

The book keeps the memory of p = 2 only (B.29). At K* = 0 both give (2/3)(1 − γ⁴) (B.35).
Derivation: docs/derivations/residual-vertex.md (D2.15), (D2.16).
"""

from __future__ import annotations

import math

import numpy as np

from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import even_slope, slopes
from dynagram.networks import ActivationLike, checked_real
from dynagram.theory.criticality import CriticalPoint, critical_initialisation
from dynagram.theory.skips._flow import Vertex, checked_vertex
from dynagram.theory.skips._response import COMPONENTS, square_components


def vertex_slope(
    activation: ActivationLike, skip: float = 0.0, *, vertex: str = "corrected"
) -> float:
    """ν(γ) at the critical initialisation, γ² < 1 (A.69), (A.70), (B.29), (B.35), corrected.

    At a half-stable point (GELU, SWISH) this is the slope at K*, valid for all practical depths.
    Raises `InvalidValueError` where the activation's class has no such law.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `skip`: γ, the same in all blocks.
    - `vertex`: "corrected", or "published" for the book's (B.29).

    **Returns:** ν(γ).

    >>> round(vertex_slope("relu", 0.5), 6), vertex_slope("relu", 0.5, vertex="published")
    (6.496313, 3.5625)
    >>> round(vertex_slope("tanh", 0.5), 6), round(vertex_slope("relu", -0.5), 6)
    (0.625, 2.553752)
    """
    kept = checked_vertex(vertex)
    gamma = checked_real("skip", skip)
    if gamma**2 >= 1.0:
        raise InvalidValueError("skip", gamma, "criticality needs γ² < 1")
    point = critical_initialisation(activation)
    if point.kind == "half-stable":
        return _at_fixed_point(point, activation, gamma, kept)
    if point.exponents.vertex_slope is None:
        allowed = f"no law V/(nK²) → ν·ℓ/n is known for its class ({point.kind})"
        raise InvalidValueError("activation", point.activation, allowed)
    if point.kind == "scale-invariant":
        return _scale_invariant(activation, gamma, kept)
    if gamma != 0.0 and point.kind != "K*=0":
        allowed = f"ν(γ) is not known for its class ({point.kind})"
        raise InvalidValueError("activation", point.activation, allowed)
    return point.exponents.vertex_slope * (1.0 - gamma**4)


def _published(plain: float, gamma: float) -> float:
    """(B.29), with ν(0) in place of 3A_4/A_2² − 1."""
    rest = 1.0 - gamma**2
    return rest * (rest * plain + 4.0 * gamma**2)


def _scale_invariant(activation: ActivationLike, gamma: float, vertex: Vertex) -> float:
    """(B.29) and, corrected, what odd components of σ² = a_±² z² add: Σ_k S(γ^k)."""
    pair = slopes(resolve(activation))
    assert pair is not None
    A2, A4 = even_slope(pair, 2), even_slope(pair, 4)
    printed = _published(3.0 * A4 / A2**2 - 1.0, gamma)
    if vertex == "published" or gamma == 0.0:
        return printed
    odd = (pair[0] ** 2 - pair[1] ** 2) ** 2 / (2.0 * A2**2)
    # Terms fall like γ^k; S(c) → 8c/π.
    last = math.ceil(45.0 / -math.log(abs(gamma)))
    total = 0.0
    for start in range(1, last + 1, 2**18):
        k = np.arange(start, min(start + 2**18, last + 1))
        total += float(np.sum(signed_square_overlap(gamma**k)))
    return printed + odd * (1.0 - gamma**2) ** 2 * total


def signed_square_overlap(c: np.ndarray) -> np.ndarray:
    """S(c) = E[x|x| y|y|] of standard normals with correlation c; S(1) = 3.

    >>> float(signed_square_overlap(np.array([1.0]))[0])
    3.0
    """
    root = np.sqrt(np.maximum(1.0 - c**2, 0.0))
    return 2.0 / math.pi * (3.0 * c * root + (1.0 + 2.0 * c**2) * np.arcsin(c))


def _at_fixed_point(
    point: CriticalPoint, activation: ActivationLike, gamma: float, vertex: Vertex
) -> float:
    assert point.K_star is not None
    assert point.constants.S is not None
    if vertex == "published":
        return _published(point.constants.S, gamma)
    K = np.array([point.K_star])
    s = square_components(resolve(activation), K)[1:COMPONENTS, 0]
    memory = gamma ** np.arange(1, COMPONENTS)
    # The plain part is kept in full; only what the memory adds is cut off at large p.
    added = np.sum(s**2 * 2.0 * memory / (1.0 - memory))
    scale = (point.C_W / point.K_star) ** 2
    return (1.0 - gamma**2) ** 2 * (point.constants.S + scale * float(added))
