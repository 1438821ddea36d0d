"""Criticality of blocks with skips: critical (C_b, C_W) (B.19)-(B.21), χ∥, χ⊥ and h (B.15)-(B.18).

K' = C_b + C_W⟨σσ⟩_K + γ²K: the skip adds γ² to both susceptibilities and nothing to their
derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP, ActivationLike
from dynagram.theory.criticality import (
    CriticalPoint,
    critical_initialisation,
    parallel_susceptibility,
    perpendicular_source,
    perpendicular_susceptibility,
)


@dataclass(frozen=True)
class ResidualPoint:
    """Critical (C_b, C_W) of a block with skip γ: χ∥ = χ⊥ = 1 at the plain network's K* (B.19).

    `skip` is γ and `K_star` K*, None when every K is a fixed point. `plain` is the critical point
    without skip. Exponents of depth laws stay those of `plain`; its rates a_1, b_1 are multiplied
    by 1 − γ².
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

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `skip`: γ of the block.

    **Returns:** the `ResidualPoint`.

    >>> point = residual_critical("gelu", 0.5)
    >>> round(point.C_b, 8), round(point.C_W, 8), round(point.K_star, 8)
    (0.12969179, 1.48729369, 3.56155281)
    """
    # One rule for all: that of the network made of such blocks.
    network = MLP.critical([1, 1, 1, 1], activation, skip=skip)
    point = critical_initialisation(network.activation)
    return ResidualPoint(network.skip[0], network.C_b[1], network.C_W[1], point.K_star, point)


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

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: the kernel of one input, any shape.
    - `C_W`, `skip`: weight variance and γ of the block.

    **Returns:** `Susceptibilities` of the shape of `K`.

    >>> chi = residual_susceptibilities("tanh", 1.0, C_W=0.75, skip=0.5)
    >>> [round(float(v), 6) for v in (chi.parallel, chi.perpendicular, chi.source)]
    [0.386348, 0.598302, -0.066861]
    """
    return Susceptibilities(
        np.asarray(skip**2 + parallel_susceptibility(activation, K, C_W)),
        np.asarray(skip**2 + perpendicular_susceptibility(activation, K, C_W)),
        perpendicular_source(activation, K, C_W),
    )
