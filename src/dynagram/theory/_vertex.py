"""The kernel K (4.118), four-point vertex V (4.119) and metric correction G^{1} (4.115).

The recursions are coded in their inverse-free form: with F_ab = ⟨σ_aσ_b⟩_K, J = ∂F/∂K and
H = ∂²F/∂K², V' = C_W²[Cov(σσ,σσ) + (n_ℓ/n_{ℓ−1}) J V Jᵀ] and G'^{1} = (n_ℓ/n_{ℓ−1}) C_W
[J G^{1} + ½ H:V], where J and H of a pair of samples involve that pair only. Repeated, collinear
and zero inputs need no special care. Derivation: docs/derivations/recursions.md (D5.3)-(D5.8).
"""

from __future__ import annotations

from dynagram.theory._layer import Modes, Step
from dynagram.theory._ntk import metric_shift


def vertex_step(step: Step, V: Modes) -> Modes:
    """V_(12)(34) of the next layer on pairs × pairs (4.119)."""
    family = step.family(0, 0)
    inherited = family.propagate(family.propagate(V).swapaxes(1, 2))
    return step.C_W**2 * (step.covariance(0, 0, 0, 0) + step.ratio * inherited)


def metric_correction_step(step: Step, V: Modes, G1: Modes) -> Modes:
    """G^{1}_12 of the next layer on pairs (4.115)."""
    return step.ratio * step.C_W * metric_shift(step, V, G1, 0)
