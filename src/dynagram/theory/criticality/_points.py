"""Critical initialisations of any activation: K*, C_b, C_W, class and exponents (book §5.3).

Candidates are K* = 0 (one-sided Taylor data) and the roots K* > 0 of ⟨σσ''⟩_K, the form of
(5.73) without a denominator. C_W and C_b then follow from (5.71), (5.72). Where ⟨σσ''⟩ vanishes
for every K (σ straight between kinks at which it is 0, such as relu(z − a)), every K* is a root.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import (
    ActivationLike,
    joint_average,
    power_average,
    slope_average,
    slopes,
)
from dynagram.gaussian._quadrature import REACH
from dynagram.theory.criticality._origin import origin_point, scale_invariant_point
from dynagram.theory.criticality._point import Constants, CriticalPoint, Exponents, Stability
from dynagram.theory.criticality._roots import brackets, polish

_SMALLEST, _LARGEST, _PER_DECADE = 1e-3, 1e3, 12
# Averages end at REACH, where φ is 10⁻³⁴. A ⟨σ'²⟩ that is 10⁻²⁴ of the largest σ'² about there
# comes from beyond 10 standard deviations, and what is cut off begins to count.
_UNSEEN = 1e-24
_PLACES = np.linspace(-1.25 * REACH, 1.25 * REACH, 513)


def critical_points(activation: ActivationLike) -> tuple[CriticalPoint, ...]:
    """Every critical point of the activation, the preferred one first; empty when there is none.

    Roots are sought for 10⁻³ ≤ K ≤ 10³ on 12 points per decade; two roots closer than that, or
    a root without a change of sign, are missed. Of a line of critical points the one with K* next
    to 1 stands for all (`critical_line`). Cost: a few milliseconds after compilation.

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


def critical_line(activation: ActivationLike, K_star: float) -> CriticalPoint:
    """The critical point at K* of an activation with ⟨σσ''⟩_K = 0 for every K.

    χ∥ = χ⊥ then at every K, and C_W = 1/⟨σ'²⟩, C_b = K* − C_W⟨σ²⟩ (5.71), (5.72) make both 1 at any
    K* that leaves C_b ≥ 0. Raises `InvalidValueError` when there is no such line, or not at K*.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K_star`: the fixed point wanted, > 0.

    **Returns:** the `CriticalPoint`, with the range of the line in `line`.

    >>> import jax.numpy as jnp
    >>> shifted = lambda z: jnp.maximum(z - 0.3, 0.0)
    >>> for K_star in (1.0, 2.0):
    ...     point = critical_line(shifted, K_star)
    ...     round(point.C_b, 6), round(point.C_W, 6)
    (0.20945, 2.617194)
    (0.307813, 2.403835)
    """
    sigma = resolve(activation)
    span = _line(sigma)
    if span is None:
        raise InvalidValueError("activation", sigma.name, "has no line of critical points")
    if not K_star > 0.0 or not math.isfinite(K_star):
        raise InvalidValueError("K_star", K_star, "must be > 0")
    point = _finite_point(sigma, K_star)
    if isinstance(point, str):
        raise InvalidValueError("K_star", K_star, point)
    point = replace(point, line=span)
    note = (
        f"one of a line of critical points: every K* {point.line_range} has its own "
        "C_W = 1/⟨σ'²⟩ and C_b = K* − C_W⟨σ²⟩"
    )
    return replace(point, notes=(note, *point.notes))


def line_through(activation: ActivationLike, C_W: float) -> CriticalPoint | None:
    """The point of the line of critical points that has this C_W, None where there is none.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `C_W`: weight variance times fan-in, > 0.

    **Returns:** the `CriticalPoint` at the K* with ⟨σ'²⟩ = 1/C_W.
    """
    sigma = resolve(activation)
    span = _line(sigma)
    if span is None:
        return None

    def excess(K: float) -> float:
        return C_W * float(slope_average(sigma, np.array(K))) - 1.0

    grid = _scan(sigma)[0]
    roots = brackets(grid, np.array([excess(K) for K in grid]), np.full(grid.size, 1e-14))
    on_line = [K for K in (polish(excess, a, b) for a, b in roots) if span[0] <= K <= span[1]]
    return critical_line(sigma, on_line[0]) if on_line else None


@functools.lru_cache(maxsize=256)
def _classify(sigma: Activation) -> tuple[tuple[CriticalPoint, ...], tuple[str, ...]]:
    """The candidates, preferred first, and the sentences that rule out the others."""
    everywhere = scale_invariant_point(sigma)
    if everywhere is not None:
        return (everywhere,), ()
    if sigma.jumps:
        return (), ("σ jumps, so σ' is a delta and χ⊥ does not exist",)
    points, reasons = [], []
    finite = _finite_points(sigma) if _line(sigma) is None else [_on_line(sigma)]
    for candidate in (origin_point(sigma), *finite):
        (reasons if isinstance(candidate, str) else points).append(candidate)
    return tuple(sorted(points, key=_preference)), tuple(reasons)


def _preference(point: CriticalPoint) -> int:
    if point.stability == "unstable":
        return 2
    return 0 if point.K_star == 0.0 else 1


def _finite_points(sigma: Activation) -> list[CriticalPoint | str]:
    """A point or a reason for every root of ⟨σσ''⟩_K."""
    grid, curvature, size = _scan(sigma)
    roots = [
        polish(functools.partial(_curvature, sigma), a, b)
        for a, b in brackets(grid, curvature, 1e-12 * size)
    ]
    if not roots:
        return [f"⟨σσ''⟩_K has no zero for {_SMALLEST:g} ≤ K ≤ {grid[-1]:g}"]
    return [_finite_point(sigma, K) for K in roots]


@functools.lru_cache(maxsize=256)
def _scan(sigma: Activation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A grid of K, ⟨σσ''⟩ on it and ⟨σ²⟩/K, which it is to be compared with."""
    # e^{c|z|} makes ⟨σ⁴⟩ as large as e^{8c²K}: stay where float64 holds it.
    largest = min(_LARGEST, 80.0 / sigma.growth**2) if sigma.growth else _LARGEST
    decades = math.log10(largest / _SMALLEST)
    grid = np.geomspace(_SMALLEST, largest, 1 + math.ceil(_PER_DECADE * decades))
    # One K at a time: small K then shares the compiled shape of everything else.
    curvature = np.array([_curvature(sigma, K) for K in grid])
    size = np.array([float(power_average(sigma, np.array(K), 2)) / K for K in grid])
    return grid, curvature, size


def _line(sigma: Activation) -> tuple[float, float] | None:
    """The range of K* > 0 with C_b ≥ 0 when ⟨σσ''⟩_K vanishes for every K; None when it does not.

    Empty, (1, 0), where C_b < 0 everywhere. An end beyond the grid counts as 0 or ∞.
    """
    if sigma.jumps or slopes(sigma) is not None:
        return None
    grid, curvature, size = _scan(sigma)
    if np.any(np.abs(curvature) > 1e-12 * size):
        return None
    positive = np.array([_bias_variance(sigma, K) >= 0.0 for K in grid])
    if not np.any(positive):
        return 1.0, 0.0
    # The stretch of allowed K* that comes next to 1.
    center = int(np.argmin(np.where(positive, np.abs(np.log(grid)), np.inf)))
    barred = np.flatnonzero(~positive)
    below, above = barred[barred < center], barred[barred > center]
    bias = functools.partial(_bias_variance, sigma)
    low, high = 0.0, math.inf
    if below.size:
        low = polish(bias, float(grid[below[-1]]), float(grid[below[-1] + 1]))
    if above.size:
        high = polish(bias, float(grid[above[0] - 1]), float(grid[above[0]]))
    return low, high


def _on_line(sigma: Activation) -> CriticalPoint | str:
    """The point of the line with K* as near to 1 as can be."""
    span = _line(sigma)
    assert span is not None
    if span[0] > span[1]:
        return "⟨σσ''⟩_K = 0 for every K, but χ⊥ = 1 needs C_b < 0 at each"
    grid = _scan(sigma)[0]
    allowed = [min(max(1.0, span[0]), span[1]), *grid[(grid >= span[0]) & (grid <= span[1])]]
    seen = [K for K in allowed if _is_seen(sigma, K, float(slope_average(sigma, np.array(K))))]
    if not seen:
        return f"σ' is zero within {REACH:g} standard deviations for every K ≤ {grid[-1]:g}"
    return critical_line(sigma, float(min(seen, key=lambda K: abs(math.log(K)))))


def _is_seen(sigma: Activation, K: float, slope: float) -> bool:
    """Whether ⟨σ'²⟩ comes from where averages look, and not from the end of it."""
    if sigma.growth:  # averages reach as far as they must
        return slope > 0.0
    return slope > _UNSEEN * float(np.abs(sigma.values(math.sqrt(K) * _PLACES, 1)).max()) ** 2


def _bias_variance(sigma: Activation, K: float) -> float:
    """C_b = K − ⟨σ²⟩/⟨σ'²⟩ (5.72), exactly 0 where rounding cannot tell."""
    here = np.array(K)
    slope = float(slope_average(sigma, here))
    if slope == 0.0:  # σ' begins too far out to be seen, and ⟨σ²⟩ falls faster than ⟨σ'²⟩
        return K
    ratio = float(power_average(sigma, here, 2)) / (K * slope)
    return K * (1.0 - ratio) if abs(1.0 - ratio) > 1e-13 else 0.0


def _curvature(sigma: Activation, K: float) -> float:
    return float(joint_average(sigma, np.array(K), (0, 2)))


def _finite_point(sigma: Activation, K_star: float) -> CriticalPoint | str:
    """The half-stable point at a root K* > 0 (5.71), (5.72), (5.102), unless C_b < 0."""
    K = np.array(K_star)
    g, slope = float(power_average(sigma, K, 2)), float(slope_average(sigma, K))
    if not _is_seen(sigma, K_star, slope):
        return f"at K* = {K_star:.6g} σ' is zero within {REACH:g} standard deviations"
    C_W, C_b = 1.0 / slope, _bias_variance(sigma, K_star)
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
            f"power laws of the depth set in after {1.0 / abs(a1) / K_star:.2g} K*/|K − K*| layers "
            "only; before, the signal barely moves, and the relative variance between draws grows "
            f"by S/n = {S:.4g}/width per layer",
            "away from K* directions are not quite kept: χ⊥ = 1 + b1_tilde (K − K*)",
        ),
    )
