"""Means of the two ddNTKs: R (∞.177), S (∞.179), T (∞.180), U (∞.181), any smooth inputs.

n_{ℓ−1} E[dd_I H] = δ_{01}δ_{23} R_0123 + two more; n_{ℓ−1} E[dd_II H] = δ_{12}δ_{34} S_1234 +
δ_{13}δ_{24} T_1342 + δ_{14}δ_{23} U_1423. R carries corrected brackets (docs/errata.md). T's four
F-terms are the product of two vectors φ, written by Stein's lemma. Derivation:
docs/derivations/recursions.md (D5.19)-(D5.23).
"""

from __future__ import annotations

from dynagram.gaussian._third_derivative import third_derivative_average
from dynagram.theory._dntk import curved_average
from dynagram.theory._layer import Indices, Modes, Step


def mean_R(step: Step, B: Modes, P: Modes, R: Modes) -> Modes:
    """R_0123 (∞.177, corrected), symmetric in its last two indices."""
    at = Indices("0123")
    C, lam, Theta = step.C_W, step.lambda_W, step.Theta
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    forces = at(Theta, "02") * at(Theta, "03")
    triple = _triple(step) * (at(Theta, "01") * forces)
    curved = at(curved_average(step), "0231") * forces
    paired = at(B, "0023") + at(P, "0230")
    inherited = at(s11, "23") * (
        at(lam * C * s20 + C**2 * Theta * s31, "01") * paired
        + at(lam * C * s11 + C**2 * Theta * s22, "01") * at(P, "0231")
        + C**2 * at(s11, "01") * R
    )
    return lam * C * curved + C**2 * triple + step.ratio * inherited


def _triple(step: Step) -> Modes:
    """Average of σ'''_0 σ'_1 σ'_2 σ'_3; where σ'' jumps with the deltas of σ'''."""
    averages, four = step.averages, step.four
    if averages.sigma.derivatives > 2:
        return step.average(3, 1, 1, 1)
    curved = step.average(2, 2, 1, 1)
    return third_derivative_average(averages, curved, accuracy=four.accuracy, seed=four.seed)


def mean_S(step: Step, B: Modes, S: Modes) -> Modes:
    """S_1234 (∞.179)."""
    at = Indices("1234")
    C, lam, Theta = step.C_W, step.lambda_W, step.Theta
    s11, s22 = step.two(1, 1), step.two(2, 2)
    slopes = step.average(1, 1, 1, 1) * (at(Theta, "13") * at(Theta, "24"))
    inherited = at(s11, "34") * (
        C * at(lam * s11 + C * Theta * s22, "12") * B + C**2 * at(s11, "12") * S
    )
    return lam * C * slopes + C**2 * _curved_pair(step) + step.ratio * inherited


def mean_T(step: Step, F: Modes, Q: Modes, T: Modes) -> Modes:
    """T_1342 (∞.180)."""
    at = Indices("1342")
    C, lam, Theta = step.C_W, step.lambda_W, step.Theta
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    own = lam * s20 + C * Theta * s31  # φ_ab at its first sample
    other = lam * s11 + C * Theta * s22  # and at its second
    from_F = at(own, "13") * (at(own, "24") * at(F, "1122") + at(other, "24") * at(F, "1142")) + at(
        other, "13"
    ) * (at(own, "24") * at(F, "3122") + at(other, "24") * at(F, "3142"))
    from_Q = C * (
        at(s11, "24") * (at(own, "13") * at(Q, "2411") + at(other, "13") * at(Q, "2413"))
        + at(s11, "13") * (at(own, "24") * at(Q, "1322") + at(other, "24") * at(Q, "1324"))
    )
    curved = curved_average(step)
    local = at(Theta, "12") * (
        lam**2 * at(step.average(0, 0, 1, 1), "3412")
        + lam * C * at(curved, "2143") * at(Theta, "24")
        + lam * C * at(curved, "1234") * at(Theta, "13")
    ) + C**2 * at(_curved_pair(step), "1234")
    return local + step.ratio * (from_F + from_Q + C**2 * at(s11, "13") * at(s11, "24") * T)


def mean_U(step: Step, U: Modes) -> Modes:
    """U_1423 (∞.181)."""
    at = Indices("1423")
    s11 = step.two(1, 1)
    inherited = at(s11, "14") * at(s11, "23") * U
    return step.C_W**2 * (at(_curved_pair(step), "1234") + step.ratio * inherited)


def _curved_pair(step: Step) -> Modes:
    """⟨σ''_1 σ''_2 σ'_3 σ'_4⟩ Θ_12 Θ_13 Θ_24 in the order 1234."""
    at, Theta = Indices("1234"), step.Theta
    return step.average(2, 2, 1, 1) * (at(Theta, "12") * at(Theta, "13") * at(Theta, "24"))
