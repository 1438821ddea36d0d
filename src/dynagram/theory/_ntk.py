"""Finite-width NTK statistics at initialisation: D, F, A, B (8.77)-(8.97) and H^{1}.

D and F correlate the NTK with two preactivations, A and B are its variance, H^{1} is the 1/n
correction of its mean; all multiply 1/n_{ℓ−1}. Θ itself is in `frozen`. Inverse-free: K^{-1}
never appears, and inherited terms involve the samples of the pair only. Storage is the printed
positional order: F[a,b,c,d] = F_abcd, B[a,b,c,d] = B_abcd. D and A live on pairs × pairs.
Derivation: docs/derivations/recursions.md (D5.10)-(D5.16).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynagram._arrays import Array
from dynagram._pairs import pair_indices
from dynagram.gaussian._families import contract, curvature
from dynagram.theory._layer import Indices, Modes, Step


def omega_covariance(step: Step) -> Modes:
    """Cov(Ω̂, Ω̂) with Ω̂_ab = λ_W σ_aσ_b + C_W Θ_ab σ'_aσ'_b (8.74), on pairs."""
    scaled = step.C_W * _on_last(step.Theta)
    mixed = step.lambda_W * step.covariance(0, 0, 1, 1) * scaled
    return (
        step.lambda_W**2 * step.covariance(0, 0, 0, 0)
        + mixed
        + mixed.swapaxes(1, 2)
        + scaled.swapaxes(1, 2) * step.covariance(1, 1, 1, 1) * scaled
    )


def _on_last(matrix: Array) -> Array:
    """A symmetric matrix of samples as a factor on the last of two pair axes."""
    return matrix[pair_indices(matrix.shape[0])][None, None, :]


def _along_omega(step: Step, tensor: Modes) -> Modes:
    """Σ_C ∂⟨Ω̂⟩/∂K_C tensor_C over the last axis, with Θ held fixed."""
    values, slopes = (step.family(p, p).propagate(tensor) for p in (0, 1))
    return step.lambda_W * values + step.C_W * _on_last(step.Theta) * slopes


def _along_kernel(step: Step, tensor: Modes) -> Modes:
    """Σ_C ∂⟨σσ⟩/∂K_C tensor_C over the last axis."""
    return step.family(0, 0).propagate(tensor)


def _on_first(function: Callable[[Step, Modes], Modes], step: Step, tensor: Modes) -> Modes:
    """Apply to the first pair axis instead of the last."""
    return function(step, tensor.swapaxes(1, 2)).swapaxes(1, 2)


def cross_correlation_D(step: Step, V: Modes, D: Modes) -> Modes:
    """D_1234 (8.77): the part of E[z z ΔH] diagonal in each pair of neurons."""
    scaled = step.C_W * _on_last(step.Theta)
    local = step.lambda_W * step.covariance(0, 0, 0, 0) + step.covariance(0, 0, 1, 1) * scaled
    slopes = _on_last(step.two(1, 1))
    inherited = _along_omega(step, _on_first(_along_kernel, step, V))
    transported = step.C_W * _on_first(_along_kernel, step, D) * slopes
    return step.C_W * (local + step.ratio * (inherited + transported))


def variance_A(step: Step, V: Modes, D: Modes, A: Modes) -> Modes:
    """A_(12)(34) (8.97): the covariance of NTKs on two neurons."""
    slopes = step.C_W * _on_last(step.two(1, 1))
    crossed = _on_first(_along_omega, step, D) * slopes
    inherited = _along_omega(step, _on_first(_along_omega, step, V))
    transported = slopes.swapaxes(1, 2) * A * slopes
    return omega_covariance(step) + step.ratio * (
        inherited + transported + crossed + crossed.swapaxes(1, 2)
    )


def cross_correlation_F(step: Step, F: Modes) -> Modes:
    """F_1324 (8.79): the part of E[z z ΔH] that pairs each z with one side of the NTK."""
    at = Indices("1324")
    s11, s02 = step.two(1, 1), step.two(0, 2)
    local = at(step.average(0, 0, 1, 1), "1234") * at(step.Theta, "34")
    inherited = at(s11, "13") * (
        at(s11, "24") * at(F, "1324") + at(s02, "24") * at(F, "1344")
    ) + at(s02, "13") * (at(s11, "24") * at(F, "3324") + at(s02, "24") * at(F, "3344"))
    return step.C_W**2 * (local + step.ratio * inherited)


def variance_B(step: Step, B: Modes) -> Modes:
    """B_1324 (8.89): the variance of the NTK between two different neurons."""
    at = Indices("1324")
    s11, Theta = step.two(1, 1), step.Theta
    local = at(step.average(1, 1, 1, 1), "1234") * (at(Theta, "12") * at(Theta, "34"))
    inherited = at(s11, "13") * at(s11, "24") * B
    return step.C_W**2 * (local + step.ratio * inherited)


def metric_shift(step: Step, V: Modes, G1: Modes, order: int) -> Modes:
    """δ⟨σ^(p)σ^(p)⟩ = ∂F·G^{1} + ½∂²F:V, the 1/n change of an average (D5.7), on pairs."""
    table = curvature(step.averages, order)
    return step.family(order, order).propagate(G1) + contract(table, V)


def mean_correction_H1(step: Step, V: Modes, G1: Modes, D: Modes, F: Modes, H1: Modes) -> Modes:
    """H^{1}_12: E[H] = Θ + H^{1}/n_{ℓ−1} (9.3); its recursion (D5.14) is not in the book."""
    a, b = pair_indices(step.averages.samples)
    scaled = step.C_W * step.Theta[None, a, b]
    slopes = step.C_W * step.two(1, 1)[None, a, b]
    family, pair = step.family(1, 1), np.arange(a.size)
    from_D = family.propagate(D.swapaxes(1, 2))[:, pair, pair]
    j_ab, j_aa, j_bb = family.jacobian.T[:, None, :]
    from_F = (
        j_ab * (F[:, a, a, b, b] + F[:, b, a, a, b])
        + 2.0 * j_aa * F[:, a, a, a, b]
        + 2.0 * j_bb * F[:, b, a, b, b]
    )
    return step.ratio * (
        step.lambda_W * metric_shift(step, V, G1, 0)
        + scaled * metric_shift(step, V, G1, 1)
        + slopes * H1
        + step.C_W * (from_D + from_F)
    )
