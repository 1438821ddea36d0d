"""Critical initialisations of any activation: K*, C_b, C_W, class and exponents (book §5.3).

Candidates are K* = 0 (one-sided Taylor data) and the roots K* > 0 of ⟨σσ''⟩_K, the form of
(5.73) without a denominator. C_W and C_b then follow from (5.71), (5.72).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import (
    ActivationLike,
    joint_average,
    power_average,
    slope_average,
)
from dynagram.theory.criticality._origin import origin_point, scale_invariant_point
from dynagram.theory.criticality._point import Constants, CriticalPoint, Exponents, Stability
from dynagram.theory.criticality._roots import brackets, polish

_SMALLEST, _LARGEST, _PER_DECADE = 1e-3, 1e3, 12


def critical_points(activation: ActivationLike) -> tuple[CriticalPoint, ...]:
    """Every critical point of the activation, the preferred one first; empty when there is none.

    Roots are sought for 10⁻³ ≤ K ≤ 10³ on 12 points per decade; two roots closer than that, or
    a root without a change of sign, are missed. Cost: a few milliseconds after compilation.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.

    **Returns:** the `CriticalPoint`s, the preferred one first.

    >>> [(p.kind, round(p.K_star, 6)) for p in critical_points("gelu")]
    [('half-stable', 3.561553), ('K*=0 unstable', 0.0)]
    >>> critical_points("sigmoid")
    ()
    """
    return _classify(resolve(activation))[0]


def critical_initialisation(activation: ActivationLike) -> CriticalPoint:
    """The critical point to initialise at: a stable one at K* = 0, else a half-stable K* > 0.

    Raises `InvalidValueError` with the reason when there is none, or only one that repels.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.

    **Returns:** the `CriticalPoint`.

    >>> point = critical_initialisation("relu")
    >>> point.C_b, point.C_W, point.kind
    (0.0, 2.0, 'scale-invariant')
    """
    sigma = resolve(activation)
    points, reasons = _classify(sigma)
    if points and points[0].stability != "unstable":
        return points[0]
    if points:
        reasons = (
            f"(C_b, C_W) = (0, {points[0].C_W:.6g}) is critical at K* = 0 but repels",
            *reasons,
        )
    raise InvalidValueError(
        "activation", sigma.name, "no critical initialisation: " + "; ".join(reasons)
    )


@functools.lru_cache(maxsize=256)
def _classify(sigma: Activation) -> tuple[tuple[CriticalPoint, ...], tuple[str, ...]]:
    """The candidates, preferred first, and the sentences that rule out the others."""
    everywhere = scale_invariant_point(sigma)
    if everywhere is not None:
        return (everywhere,), ()
    if sigma.jumps:
        return (), ("σ jumps, so σ' is a delta and χ⊥ does not exist",)
    points, reasons = [], []
    for candidate in (origin_point(sigma), *_finite_points(sigma)):
        (reasons if isinstance(candidate, str) else points).append(candidate)
    return tuple(sorted(points, key=_preference)), tuple(reasons)


def _preference(point: CriticalPoint) -> int:
    if point.stability == "unstable":
        return 2
    return 0 if point.K_star == 0.0 else 1


def _finite_points(sigma: Activation) -> list[CriticalPoint | str]:
    """A point or a reason for every root of ⟨σσ''⟩_K."""
    # e^{c|z|} makes ⟨σ⁴⟩ as large as e^{8c²K}: stay where float64 holds it.
    largest = min(_LARGEST, 80.0 / sigma.growth**2) if sigma.growth else _LARGEST
    decades = math.log10(largest / _SMALLEST)
    grid = np.geomspace(_SMALLEST, largest, 1 + math.ceil(_PER_DECADE * decades))
    # One K at a time: small K then shares the compiled shape of everything else.
    curvature = np.array([_curvature(sigma, K) for K in grid])
    size = np.array([float(power_average(sigma, np.array(K), 2)) / K for K in grid])
    found = [
        polish(functools.partial(_curvature, sigma), a, b)
        for a, b in brackets(grid, curvature, 1e-12 * size)
    ]
    if not found:
        return [f"⟨σσ''⟩_K has no zero for {_SMALLEST:g} ≤ K ≤ {largest:g}"]
    return [_finite_point(sigma, K) for K in found]


def _curvature(sigma: Activation, K: float) -> float:
    return float(joint_average(sigma, np.array(K), (0, 2)))


def _finite_point(sigma: Activation, K_star: float) -> CriticalPoint | str:
    """The half-stable point at a root K* > 0 (5.71), (5.72), (5.102), unless C_b < 0."""
    K = np.array(K_star)
    g, slope = float(power_average(sigma, K, 2)), float(slope_average(sigma, K))
    C_W, C_b = 1.0 / slope, K_star - g / slope
    if C_b < 0.0:
        return f"the zero K* = {K_star:.6g} of ⟨σσ''⟩_K needs C_b = {C_b:.6g} < 0"
    a1 = 0.5 * C_W * float(power_average(sigma, K, 2, 2))
    b1 = C_W * float(slope_average(sigma, K, derivative=1))
    S = C_W**2 * (float(power_average(sigma, K, 4)) - g**2) / K_star**2
    constants = Constants(a1_tilde=a1, b1_tilde=b1, S=S)
    if abs(a1) * K_star < 1e-12:
        note = "the quadratic term vanishes at K* to rounding: which side attracts is not known"
        return CriticalPoint(
            sigma.name, "half-stable", K_star, C_b, C_W, "marginal", constants, Exponents(), (note,)
        )
    stability: Stability = (
        "half-stable: attracts from below" if a1 > 0 else "half-stable: attracts from above"
    )
    return CriticalPoint(
        activation=sigma.name,
        kind="half-stable",
        K_star=K_star,
        C_b=C_b,
        C_W=C_W,
        stability=stability,
        constants=constants,
        exponents=Exponents(
            p_0=1.0, p_parallel=2.0, p_perpendicular=b1 / a1, p_V=-1.0, vertex_slope=S / 5
        ),
        notes=(
            f"p_0 is that of K − K*; the laws need ℓ ≫ {1.0 / abs(a1) / K_star:.2g} K*/|K − K*|: "
            f"before that K barely moves and V/K² grows by S = {S:.4g} per layer",
            "off K*, χ⊥ = 1 + b1_tilde (K − K*) is not 1",
        ),
    )
