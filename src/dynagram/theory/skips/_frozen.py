"""Infinite width: kernel K (B.11), frozen NTK Θ and susceptibilities (B.15)-(B.18) with skips.

K' = C_b + C_W⟨σσ⟩_K + γ²K and Θ' = λ_b + λ_W⟨σσ⟩_K + (C_W⟨σ'σ'⟩_K + γ²)Θ; the skip adds γ² to both
susceptibilities and nothing to their derivatives. The recursion of Θ is not in the book:
docs/derivations/residual-vertex.md (D2.17).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import NonFiniteError
from dynagram.gaussian._two_point import two_point_matrix
from dynagram.networks import ActivationLike, ResidualMLP, check_inputs
from dynagram.theory.criticality import (
    CriticalPoint,
    critical_initialisation,
    parallel_susceptibility,
    perpendicular_source,
    perpendicular_susceptibility,
)

# Products of four kernels must stay inside float64 too.
_LARGEST = 1e200


@dataclass(frozen=True, eq=False)
class ResidualKernels:
    """K and Θ of every layer ℓ = 1..L, exact at infinite width; Θ is infinite where σ jumps."""

    K: Float[np.ndarray, "layer a b"]
    Theta: Float[np.ndarray, "layer a b"]


def residual_kernels(network: ResidualMLP, x: object) -> ResidualKernels:
    """K^(ℓ)_ab and Θ^(ℓ)_ab for the samples in the rows of `x`, to about 12 digits.

    Cost per layer: two matrices of two-sample averages, about 256 terms per pair.

    >>> net = ResidualMLP([2, 8, 8, 8, 1], "relu", C_b=0.0, C_W=[2.0, 1.5, 1.5, 2.0], skip=0.5)
    >>> residual_kernels(net, np.eye(2)).K[-1].round(6)
    array([[1.     , 0.54084],
           [0.54084, 1.     ]])
    """
    inputs = check_inputs(x, network.widths[0])
    plain, sigma = network.plain, network.activation
    gram = inputs @ inputs.T / network.widths[0]
    K, Theta = [plain.C_b[0] + plain.C_W[0] * gram], [plain.lambda_b[0] + plain.lambda_W[0] * gram]
    for index in range(1, network.depth):
        _require_finite(network, index, K[-1])
        gamma2 = network.skip_of_layers[index] ** 2
        values = two_point_matrix(sigma, K[-1])
        slopes = two_point_matrix(sigma, K[-1], 1, 1)
        C_W, lambda_W = plain.C_W[index], plain.lambda_W[index]
        carried = (C_W * slopes + gamma2) * Theta[-1]
        K.append(plain.C_b[index] + C_W * values + gamma2 * K[-1])
        Theta.append(plain.lambda_b[index] + lambda_W * values + carried)
    _require_finite(network, network.depth, K[-1])
    return ResidualKernels(np.stack(K), np.stack(Theta))


def _require_finite(network: ResidualMLP, layer: int, K: np.ndarray) -> None:
    if np.all(np.isfinite(K)) and float(np.max(np.abs(K))) < _LARGEST:
        return
    raise NonFiniteError(
        f"the kernel K overflows at layer {layer} of {network.depth}: it grows exponentially with "
        "depth; use fewer blocks, or C_b, C_W and γ with χ∥ = 1, such as ResidualMLP.critical"
    )


@dataclass(frozen=True)
class ResidualPoint:
    """Critical (C_b, C_W) of a block with skip γ: χ∥ = χ⊥ = 1 at the plain network's K* (B.19).

    `plain` is the critical point without skip. Exponents of depth laws stay those of `plain`; its
    rates a_1, b_1 are multiplied by 1 − γ².
    """

    skip: float
    C_b: float
    C_W: float
    K_star: float | None
    plain: CriticalPoint


def residual_critical(activation: ActivationLike, skip: float) -> ResidualPoint:
    """(1 − γ²) times the plain critical C_b and C_W, at the same K* (B.20), (B.21).

    K' − K = (1 − γ²)(F_0(K) − K) with F_0 the plain map, so every plain critical point stays one.
    Raises `InvalidValueError` for γ² ≥ 1 and for activations without a critical point.

    >>> point = residual_critical("gelu", 0.5)
    >>> round(point.C_b, 8), round(point.C_W, 8), round(point.K_star, 8)
    (0.12969179, 1.48729369, 3.56155281)
    """
    # One rule for all: that of the network made of such blocks.
    network = ResidualMLP.critical([1, 1, 1, 1], activation, skip)
    point = critical_initialisation(network.activation)
    plain = network.plain
    return ResidualPoint(network.skip[0], plain.C_b[1], plain.C_W[1], point.K_star, point)


@dataclass(frozen=True, eq=False)
class Susceptibilities:
    """What a small difference of two inputs does in one block, elementwise over K.

    `parallel` χ∥ = γ² + C_W g'(K) (B.15), `perpendicular` χ⊥ = γ² + C_W⟨σ'σ'⟩ (B.16) and
    `source` h = ½ dχ⊥/dK (B.18), which has no γ.
    """

    parallel: Float[np.ndarray, "*shape"]
    perpendicular: Float[np.ndarray, "*shape"]
    source: Float[np.ndarray, "*shape"]


def residual_susceptibilities(
    activation: ActivationLike,
    K: Float[np.ndarray, "*shape"] | float,
    C_W: float,
    skip: float,
) -> Susceptibilities:
    """χ∥, χ⊥ and h of a block at kernel `K` (B.15), (B.16), (B.18).

    >>> found = residual_susceptibilities("tanh", 1.0, C_W=0.75, skip=0.5)
    >>> [round(float(v), 6) for v in (found.parallel, found.perpendicular, found.source)]
    [0.386348, 0.598302, -0.066861]
    """
    return Susceptibilities(
        np.asarray(skip**2 + parallel_susceptibility(activation, K, C_W)),
        np.asarray(skip**2 + perpendicular_susceptibility(activation, K, C_W)),
        perpendicular_source(activation, K, C_W),
    )
