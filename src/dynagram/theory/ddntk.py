"""Means of the two ddNTKs: R (∞.177), S (∞.179), T (∞.180), U (∞.181), any smooth inputs.

n_{ℓ−1} E[dd_I H] = δ_{01}δ_{23} R_0123 + two more; n_{ℓ−1} E[dd_II H] = δ_{12}δ_{34} S_1234 +
δ_{13}δ_{24} T_1342 + δ_{14}δ_{23} U_1423. R carries the corrected brackets of the reference
(docs/errata.md). T's four F-terms are the product of two vectors φ, written by Stein's lemma.
"""

from __future__ import annotations

from dynagram.theory.dntk import curved_average
from dynagram.theory.layer import Modes, Step


def mean_R(step: Step, B: Modes, P: Modes, R: Modes) -> Modes:
    """R_0123 (∞.177, corrected), symmetric in its last two indices."""
    zero, one, two, three = step.axes()
    C, lam, Theta = step.C_W, step.lambda_W, step.Theta
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    triple = step.average(3, 1, 1, 1) * (Theta[zero, one] * Theta[zero, two] * Theta[zero, three])
    curved = curved_average(step)[:, zero, two, three, one] * (
        Theta[zero, two] * Theta[zero, three]
    )
    paired = B[:, zero, zero, two, three] + P[:, zero, two, three, zero]
    crossed = P[:, zero, two, three, one]
    inherited = s11[two, three] * (
        lam * C * (s20[zero, one] * paired + s11[zero, one] * crossed)
        + C**2 * Theta[zero, one] * (s31[zero, one] * paired + s22[zero, one] * crossed)
        + C**2 * s11[zero, one] * R
    )
    return lam * C * curved + C**2 * triple + step.ratio * inherited


def mean_S(step: Step, B: Modes, S: Modes) -> Modes:
    """S_1234 (∞.179)."""
    one, two, three, four = step.axes()
    C, lam, Theta = step.C_W, step.lambda_W, step.Theta
    s11, s22 = step.two(1, 1), step.two(2, 2)
    slopes = step.average(1, 1, 1, 1) * (Theta[one, three] * Theta[two, four])
    inherited = s11[three, four] * (
        C * (lam * s11[one, two] + C * Theta[one, two] * s22[one, two]) * B
        + C**2 * s11[one, two] * S
    )
    return lam * C * slopes + C**2 * _curved_pair(step) + step.ratio * inherited


def mean_T(step: Step, F: Modes, Q: Modes, T: Modes) -> Modes:
    """T_1342 (∞.180)."""
    one, three, four, two = step.axes()
    C, lam, Theta, ratio = step.C_W, step.lambda_W, step.Theta, step.ratio
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    own = lam * s20 + C * Theta * s31  # φ_ab at its first sample
    other = lam * s11 + C * Theta * s22  # and at its second
    from_F = (
        own[one, three] * own[two, four] * F[:, one, one, two, two]
        + own[one, three] * other[two, four] * F[:, one, one, four, two]
        + other[one, three] * own[two, four] * F[:, three, one, two, two]
        + other[one, three] * other[two, four] * F[:, three, one, four, two]
    )
    from_Q = C * (
        s11[two, four]
        * (
            own[one, three] * Q[:, two, four, one, one]
            + other[one, three] * Q[:, two, four, one, three]
        )
        + s11[one, three]
        * (
            own[two, four] * Q[:, one, three, two, two]
            + other[two, four] * Q[:, one, three, two, four]
        )
    )
    curved = curved_average(step)
    local = (
        lam**2 * step.average(0, 0, 1, 1)[:, three, four, one, two] * Theta[one, two]
        + lam
        * C
        * Theta[one, two]
        * (
            curved[:, two, one, four, three] * Theta[two, four]
            + curved[:, one, two, three, four] * Theta[one, three]
        )
        + C**2 * _curved_pair(step)[:, one, two, three, four]
    )
    return local + ratio * (from_F + from_Q + C**2 * s11[one, three] * s11[two, four] * T)


def mean_U(step: Step, U: Modes) -> Modes:
    """U_1423 (∞.181)."""
    one, four, two, three = step.axes()
    s11 = step.two(1, 1)
    inherited = s11[one, four] * s11[two, three] * U
    local = _curved_pair(step)[:, one, two, three, four]
    return step.C_W**2 * (local + step.ratio * inherited)


def _curved_pair(step: Step) -> Modes:
    """⟨σ''_1 σ''_2 σ'_3 σ'_4⟩ Θ_12 Θ_13 Θ_24 in the order 1234."""
    one, two, three, four = step.axes()
    Theta = step.Theta
    return step.average(2, 2, 1, 1) * (Theta[one, two] * Theta[one, three] * Theta[two, four])
