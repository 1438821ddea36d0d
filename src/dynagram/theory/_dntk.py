"""The dNTK's correlation with the preactivations: P (11.49) and Q (11.52), any smooth inputs.

n_{ℓ−1} E[dH_{i0 i1 i2} z_{i3}] = δ_{03}δ_{12} P_0123 + δ_{01}δ_{23} Q_0123 + δ_{02}δ_{13} Q_0213.
The sums over inverse kernels of the book are done by Stein's lemma, which needs σ''' instead:
docs/derivations/recursions.md (D5.17), (D5.18).
"""

from __future__ import annotations

from dynagram.theory._layer import Indices, Modes, Step


def correlation_P(step: Step, B: Modes, P: Modes) -> Modes:
    """P_0123 (11.49), symmetric in its middle indices."""
    at = Indices("0123")
    s11, s20 = step.two(1, 1), step.two(2, 0)
    inherited = at(s11, "12") * (
        at(s20, "03") * (at(P, "0120") + at(B, "0012")) + at(s11, "03") * P
    )
    return step.C_W**2 * (_source(step) + step.ratio * inherited)


def correlation_Q(step: Step, F: Modes, F_next: Modes, Q: Modes) -> Modes:
    """Q_0123 (11.52); `F_next` is F^(ℓ+1)."""
    at = Indices("0123")
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    transported = at(s11, "01") * (at(s20, "23") * at(Q, "0122") + at(s11, "23") * Q)
    from_F = at(step.Theta, "01") * (
        at(s31, "01") * (at(s20, "23") * at(F, "0022") + at(s11, "23") * at(F, "0032"))
        + at(s22, "01") * (at(s20, "23") * at(F, "1022") + at(s11, "23") * at(F, "1032"))
    )
    return step.C_W**2 * (
        _source(step) + step.ratio * (transported + from_F)
    ) + step.lambda_W / step.C_W * at(F_next, "1032")


def curved_average(step: Step) -> Modes:
    """⟨σ''_0 σ'_1 σ'_2 σ_3⟩ in the order of its indices."""
    return Indices("0123")(step.average(2, 0, 1, 1), "0312")


def _source(step: Step) -> Modes:
    at = Indices("0123")
    return curved_average(step) * (at(step.Theta, "01") * at(step.Theta, "02"))
