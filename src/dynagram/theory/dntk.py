"""The dNTK's correlation with the preactivations: P (11.49) and Q (11.52), any smooth inputs.

n_{ℓ−1} E[dH_{i0 i1 i2} z_{i3}] = δ_{03}δ_{12} P_0123 + δ_{01}δ_{23} Q_0123 + δ_{02}δ_{13} Q_0213.
The sums over inverse kernels of the book are done by Stein's lemma, which needs σ''' instead.
"""

from __future__ import annotations

from dynagram.theory.layer import Modes, Step


def correlation_P(step: Step, B: Modes, P: Modes) -> Modes:
    """P_0123 (11.49), symmetric in its middle indices."""
    zero, one, two, three = step.axes()
    s11, s20 = step.two(1, 1), step.two(2, 0)
    inherited = s11[one, two] * (
        s20[zero, three] * (P[:, zero, one, two, zero] + B[:, zero, zero, one, two])
        + s11[zero, three] * P
    )
    return step.C_W**2 * (_source(step) + step.ratio * inherited)


def correlation_Q(step: Step, F: Modes, F_next: Modes, Q: Modes) -> Modes:
    """Q_0123 (11.52); `F_next` is F^(ℓ+1)."""
    zero, one, two, three = step.axes()
    s11, s20, s22, s31 = step.two(1, 1), step.two(2, 0), step.two(2, 2), step.two(3, 1)
    Theta = step.Theta
    transported = s11[zero, one] * (
        s20[two, three] * Q[:, zero, one, two, two] + s11[two, three] * Q
    )
    from_F = Theta[zero, one] * (
        s31[zero, one]
        * (
            s20[two, three] * F[:, zero, zero, two, two]
            + s11[two, three] * F[:, zero, zero, three, two]
        )
        + s22[zero, one]
        * (
            s20[two, three] * F[:, one, zero, two, two]
            + s11[two, three] * F[:, one, zero, three, two]
        )
    )
    ratio = step.lambda_W / step.C_W
    return (
        step.C_W**2 * (_source(step) + step.ratio * (transported + from_F))
        + ratio * F_next[:, one, zero, three, two]
    )


def curved_average(step: Step) -> Modes:
    """⟨σ''_0 σ'_1 σ'_2 σ_3⟩ in the order of its indices."""
    zero, one, two, three = step.axes()
    return step.average(2, 0, 1, 1)[:, zero, three, one, two]


def _source(step: Step) -> Modes:
    zero, one, two, _ = step.axes()
    return curved_average(step) * (step.Theta[zero, one] * step.Theta[zero, two])
