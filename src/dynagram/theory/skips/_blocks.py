"""Balance of a general residual block z' = ξ R(z) + γ z (B.39): ξ and γ that keep the signal.

G'_zz = γ²G_zz + 2γξ G_Rz + ξ²G_RR (B.44) is an identity, whatever the block is; a constant signal,
G'_zz = G_zz, fixes ξ for a given γ or γ for a given ξ (B.45).
"""

from __future__ import annotations

import math

from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number, checked_real


def next_signal(G_RR: float, G_Rz: float, G_zz: float, *, strength: float, skip: float) -> float:
    """G'_zz after a block of strength ξ with skip γ (B.44).

    **Arguments:**

    - `G_RR`, `G_Rz`, `G_zz`: averages of R², Rz and z² over draws, neurons and samples.
    - `strength`, `skip`: ξ and γ of the block.

    **Returns:** G'_zz.

    >>> round(next_signal(2.0, 0.3, 1.0, strength=0.5, skip=0.8), 12)
    1.38
    """
    return skip**2 * G_zz + 2.0 * skip * strength * G_Rz + strength**2 * G_RR


def balanced_strength(G_RR: float, G_Rz: float, G_zz: float, *, skip: float) -> float:
    """ξ > 0 that keeps G_zz at this γ, γ² < 1 (B.45).

    ξ = (−γG_Rz + √(γ²G_Rz² + (1 − γ²)G_zz G_RR))/G_RR. At γ = ±1 the positive root is gone
    unless γG_Rz < 0, where it is −2γG_Rz/G_RR.

    **Arguments:**

    - `G_RR`, `G_Rz`, `G_zz`: averages of R², Rz and z² over draws, neurons and samples.
    - `skip`: γ of the block.

    **Returns:** ξ.

    >>> xi = balanced_strength(2.0, 0.3, 1.0, skip=0.8)
    >>> round(xi, 6), round(next_signal(2.0, 0.3, 1.0, strength=xi, skip=0.8), 12)
    (0.320908, 1.0)
    """
    G_RR, G_zz = _positive("G_RR", G_RR), _positive("G_zz", G_zz)
    gamma = checked_real("skip", skip)
    linear, rest = gamma * checked_real("G_Rz", G_Rz), (1.0 - gamma**2) * G_zz * G_RR
    square = linear**2 + rest
    root = (-linear + math.sqrt(square)) / G_RR if square >= 0.0 else -1.0
    if root <= 0.0:
        raise InvalidValueError(
            "skip", gamma, "no strength ξ > 0 keeps the signal: the skip alone makes it grow"
        )
    return root


def balanced_skip(G_RR: float, G_Rz: float, G_zz: float, *, strength: float = 1.0) -> float:
    """The larger γ that keeps G_zz at this ξ, for a block that is not to be rescaled (B.45).

    γ = (−ξG_Rz + √(ξ²G_Rz² + G_zz(G_zz − ξ²G_RR)))/G_zz. Raises `InvalidValueError` when the block
    alone is too strong for any γ.

    **Arguments:**

    - `G_RR`, `G_Rz`, `G_zz`: averages of R², Rz and z² over draws, neurons and samples.
    - `strength`: ξ of the block.

    **Returns:** γ.

    >>> round(balanced_skip(0.75, 0.0, 1.0), 12)
    0.5
    """
    G_RR, G_zz = _positive("G_RR", G_RR), _positive("G_zz", G_zz)
    linear = checked_real("strength", strength) * checked_real("G_Rz", G_Rz)
    square = linear**2 + G_zz * (G_zz - strength**2 * G_RR)
    if square < 0.0:
        raise InvalidValueError(
            "strength", strength, "the block alone makes the signal grow, whatever the skip"
        )
    return (-linear + math.sqrt(square)) / G_zz


def _positive(name: str, value: float) -> float:
    return checked_number(name, value, "a mean square must be > 0", positive=True)
