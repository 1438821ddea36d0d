"""Away from criticality: fixed points at given (C_b, C_W), correlation lengths, phases (book §5.1).

Near a fixed point K − K* and δK_[1] shrink by χ∥ per layer and distances by χ⊥, that is over
ξ = −1/log χ layers. The two curves χ⊥ = 1 and χ∥ = 1 of Fig. 5.1 meet at criticality.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import (
    ActivationLike,
    power_average,
    slope_average,
    slopes,
)
from dynagram.gaussian._quadrature import check_variance
from dynagram.theory.criticality._flow import kernel_flow
from dynagram.theory.criticality._point import CriticalPoint
from dynagram.theory.criticality._roots import brackets, polish

_SMALLEST, _USUAL, _LARGEST, _PER_DECADE = 1e-12, 1e3, 1e6, 12
_MARGINAL = 1e-9  # |χ − 1| below this counts as 1

FixedPointStability = Literal["attracts", "repels", "attracts from above", "attracts from below"]
Verdict = Literal["ordered", "chaotic", "edge", "critical", "vanishes", "explodes"]


@dataclass(frozen=True)
class FixedPoint:
    """A solution of K = C_b + C_W g(K) (5.7), with its susceptibilities.

    `K` is None when every K is fixed. `chi_parallel` and `chi_perpendicular` are χ∥ and χ⊥ there;
    `stability` says whether it attracts kernels nearby, from one side or both, or repels them.
    Correlation lengths are infinite where χ = 1 and negative where perturbations grow.
    """

    K: float | None
    chi_parallel: float
    chi_perpendicular: float
    stability: FixedPointStability

    @property
    def xi_parallel(self) -> float:
        """ξ∥ = −1/log χ∥ in layers."""
        return correlation_length(self.chi_parallel)

    @property
    def xi_perpendicular(self) -> float:
        """ξ⊥ = −1/log χ⊥ in layers; negative in the chaotic phase."""
        return correlation_length(self.chi_perpendicular)


def correlation_length(chi: float) -> float:
    """ξ = −1/log|χ|, the layers over which a perturbation falls by e; infinite at χ = 1.

    **Arguments:**

    - `chi`: a susceptibility at a fixed point.

    **Returns:** ξ in layers; negative where the perturbation grows.

    >>> round(correlation_length(0.9), 6)
    9.491222
    """
    if abs(chi) == 1.0:
        return math.inf
    return 0.0 if chi == 0.0 else -1.0 / math.log(abs(chi))


def fixed_points(activation: ActivationLike, C_b: float, C_W: float) -> tuple[FixedPoint, ...]:
    """Every fixed point with K ≤ 10³ (a lone larger one up to 10⁶), in order of K.

    Roots of g'' cut the axis into pieces on which χ∥ is monotone, roots of χ∥ − 1 into pieces on
    which K' − K is, so that close pairs and tangential points are not missed. Cost: 0.1 s.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `C_b`, `C_W`: variances of biases and of weights times fan-in.

    **Returns:** the `FixedPoint`s, in order of K.

    >>> point, = fixed_points("tanh", 0.05, 1.5)
    >>> round(point.K, 10), round(point.xi_perpendicular, 6)
    (0.4180372005, 15.790994)
    """
    _check(C_b, C_W)
    sigma = resolve(activation)
    if slopes(sigma) is not None:
        return _scale_invariant_fixed_points(sigma, C_b, C_W)
    found = _origin_fixed_point(sigma, C_b, C_W)
    for K, tangent in _positive_roots(sigma, C_b, C_W):
        found.append(_at(sigma, K, C_b, C_W, tangent))
    return tuple(found)


def _check(C_b: float, C_W: float) -> None:
    check_variance(C_b, "C_b")
    check_variance(C_W, "C_W")


def _scale_invariant_fixed_points(
    sigma: Activation, C_b: float, C_W: float
) -> tuple[FixedPoint, ...]:
    chi = C_W * float(slope_average(sigma, np.array(1.0)))
    if abs(chi - 1.0) < _MARGINAL:
        return (FixedPoint(None, 1.0, 1.0, "attracts"),) if C_b == 0.0 else ()
    if chi > 1.0:
        return (FixedPoint(0.0, chi, chi, "repels"),) if C_b == 0.0 else ()
    return (FixedPoint(C_b / (1.0 - chi), chi, chi, "attracts"),)


def _origin_fixed_point(sigma: Activation, C_b: float, C_W: float) -> list[FixedPoint]:
    """K = 0, a fixed point when C_b = 0 and σ(0) = 0."""
    sides = sigma.one_sided(1)
    if C_b != 0.0 or np.any(sides[:, 0] != 0.0):
        return []
    chi = C_W * float(np.mean(sides[:, 1] ** 2))
    if abs(chi - 1.0) < _MARGINAL:
        probes = np.array([1e-4, 1e-3, 1e-2, 1e-1])
        drift = C_W * power_average(sigma, probes, 2) / probes - 1.0
        resolved = drift[np.abs(drift) > 1e-12]
        grows = bool(resolved.size) and bool(resolved[0] > 0)
        return [FixedPoint(0.0, chi, chi, "repels" if grows else "attracts")]
    return [FixedPoint(0.0, chi, chi, "attracts" if chi < 1.0 else "repels")]


def _positive_roots(sigma: Activation, C_b: float, C_W: float) -> list[tuple[float, bool]]:
    """Roots K > 0 of K' − K, each with whether the curve only touches zero there."""

    def value(K: float, derivative: int) -> float:
        return float(_excess(sigma, C_b, C_W, np.array([K]), derivative)[0])

    largest = min(_USUAL, 80.0 / sigma.growth**2) if sigma.growth else _USUAL
    # Far out K' − K is nearly straight: it still comes down to 0 only if it is on its way.
    while not sigma.growth and largest < _LARGEST and value(largest, 0) > 0 > value(largest, 1):
        largest *= 10.0
    points = 1 + math.ceil(_PER_DECADE * math.log10(largest / _SMALLEST))
    grid = np.geomspace(_SMALLEST, largest, points)

    def roots(cuts: np.ndarray, derivative: int, noise: np.ndarray) -> list[float]:
        values = _excess(sigma, C_b, C_W, cuts, derivative)
        function = functools.partial(value, derivative=derivative)
        return [polish(function, a, b) for a, b in brackets(cuts, values, noise)]

    cuts = np.sort(np.concatenate([grid, roots(grid, 2, 1e-13 * (1.0 + C_W) * (1.0 + 1.0 / grid))]))
    turns = roots(cuts, 1, np.full(cuts.size, 1e-13 * (1.0 + C_W)))
    cuts = np.sort(np.concatenate([cuts, turns]))
    crossings = roots(cuts, 0, 1e-13 * cuts)
    touching = [K for K in turns if abs(value(K, 0)) <= 1e-13 * K]
    # A tangent point that the curve also crosses (an inflection) is reported once.
    crossings = [K for K in crossings if all(abs(K - t) > 1e-6 * t for t in touching)]
    return sorted([(K, False) for K in crossings] + [(K, True) for K in touching])


def _excess(
    sigma: Activation, C_b: float, C_W: float, K: np.ndarray, derivative: int = 0
) -> np.ndarray:
    """d^k/dK^k of K' − K = C_b + C_W g(K) − K."""
    return C_W * power_average(sigma, K, 2, derivative) + (C_b - K, -1.0, 0.0)[derivative]


def _at(sigma: Activation, K: float, C_b: float, C_W: float, tangent: bool) -> FixedPoint:
    here = np.array(K)
    parallel = C_W * float(power_average(sigma, here, 2, 1))
    perpendicular = C_W * float(slope_average(sigma, here))
    stability: FixedPointStability = "attracts" if abs(parallel) < 1.0 else "repels"
    if tangent:
        above = float(_excess(sigma, C_b, C_W, np.array([K * 1.001]))[0])
        stability = "attracts from above" if above < 0 else "attracts from below"
    return FixedPoint(K, parallel, perpendicular, stability)


@dataclass(frozen=True)
class Phase:
    """Where depth takes a kernel at given (C_b, C_W): a word, the fixed point, a sentence.

    `verdict` is "explodes", "critical", "vanishes", "edge", "ordered" or "chaotic"; `fixed_point`
    is where K goes, None if it grows without bound; `reason` is the sentence.
    """

    verdict: Verdict
    fixed_point: FixedPoint | None
    reason: str


def phase(activation: ActivationLike, C_b: float, C_W: float, *, K1: float = 1.0) -> Phase:
    """The fate of an input with K^(1) = `K1` as the depth grows.

    ordered: χ⊥ < 1, inputs merge; chaotic: χ⊥ > 1, they separate; edge: χ⊥ = 1 but χ∥ ≠ 1;
    critical: both are 1; vanishes: K → 0 exponentially; explodes: K → ∞. K always settles or
    explodes: √K g(K) grows with K, so χ∥ ≥ −½ at a fixed point and no cycle exists.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `C_b`, `C_W`: variances of biases and of weights times fan-in.
    - `K1`: the kernel of the input in the first layer.

    **Returns:** a `Phase`.

    >>> phase("tanh", 0.05, 0.9).verdict, phase("tanh", 0.0, 3.0).verdict
    ('ordered', 'chaotic')
    >>> phase("relu", 0.0, 2.5).reason
    'K grows without bound'
    """
    check_variance(K1, "K1")
    sigma, points = resolve(activation), fixed_points(activation, C_b, C_W)
    target = _destination(sigma, C_b, C_W, K1, points)
    if target is None:
        return Phase("explodes", None, "K grows without bound")
    parallel, perpendicular = target.chi_parallel, target.chi_perpendicular
    if max(abs(parallel - 1.0), abs(perpendicular - 1.0)) < _MARGINAL:
        return Phase("critical", target, "χ∥ = χ⊥ = 1: nothing grows or shrinks exponentially")
    if target.K == 0.0:
        return Phase("vanishes", target, f"K shrinks to 0 by a factor {parallel:.4g} per layer")
    if abs(perpendicular - 1.0) < _MARGINAL:
        return Phase("edge", target, f"χ⊥ = 1 but χ∥ = {parallel:.4g}: norms are forgotten")
    if perpendicular < 1.0:
        length = target.xi_perpendicular
        return Phase("ordered", target, f"χ⊥ < 1: inputs become alike over {length:.4g} layers")
    length = -target.xi_perpendicular
    return Phase(
        "chaotic", target, f"χ⊥ > 1: inputs and gradients grow apart over {length:.4g} layers"
    )


def _destination(
    sigma: Activation, C_b: float, C_W: float, K1: float, points: tuple[FixedPoint, ...]
) -> FixedPoint | None:
    """The fixed point an input flows to, None when there is none."""
    everywhere = [point for point in points if point.K is None]
    if everywhere:
        return everywhere[0]
    located = [(point.K, point) for point in points if point.K is not None]
    probe = np.linspace(0.0, max([K1] + [K for K, _ in located]), 33)[1:]
    if np.any(power_average(sigma, probe, 2, 1) < 0.0):
        # K may overshoot where g falls: follow it until it has settled.
        depth = 512
        flow = kernel_flow(sigma, np.array([K1]), np.full(depth, C_b), np.full(depth, C_W))
        K1 = float(flow[-1, 0])
    drift = float(_excess(sigma, C_b, C_W, np.array([K1]))[0])
    if abs(drift) > 1e-13 * K1:
        # Elsewhere g' ≥ 0 and K moves one way, to the next fixed point.
        located = [item for item in located if (item[0] > K1) == (drift > 0)]
    return min(located, key=lambda item: abs(item[0] - K1))[1] if located else None


@dataclass(frozen=True)
class CriticalityCurves:
    """The curves χ⊥ = 1 and χ∥ = 1 in the (C_W, C_b) plane, parametrised by K* (Fig. 5.1).

    Where `K` is the fixed point, χ⊥ = 1 at (`perpendicular_C_W`, `perpendicular_C_b`) and χ∥ = 1 at
    (`parallel_C_W`, `parallel_C_b`).
    """

    K: Float[np.ndarray, " point"]
    perpendicular_C_W: Float[np.ndarray, " point"]
    perpendicular_C_b: Float[np.ndarray, " point"]
    parallel_C_W: Float[np.ndarray, " point"]
    parallel_C_b: Float[np.ndarray, " point"]


def criticality_curves(
    activation: ActivationLike, K: Float[np.ndarray, " point"]
) -> CriticalityCurves:
    """Where χ⊥(K*) = 1: C_W = 1/⟨σ'²⟩ (5.71), and χ∥(K*) = 1: C_W = 1/g'; C_b = K* − C_W g.

    C_b < 0 means no network has that fixed point. Refused where g' = 0.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: the fixed points K* that parametrise the curves.

    **Returns:** `CriticalityCurves`.

    >>> curves = criticality_curves("tanh", np.array([1.0]))
    >>> curves.perpendicular_C_W.round(6), curves.perpendicular_C_b.round(6)
    (array([2.153303]), array([0.150965]))
    """
    sigma, K = resolve(activation), check_variance(K)
    g, rise, slope = (
        power_average(sigma, K, 2),
        power_average(sigma, K, 2, 1),
        slope_average(sigma, K),
    )
    for value in (rise, slope):
        if np.any(value == 0.0):
            raise InvalidValueError("K", float(K[value == 0.0][0]), "a susceptibility is 0 there")
    return CriticalityCurves(K, 1.0 / slope, K - g / slope, 1.0 / rise, K - g / rise)


def near_critical(
    point: CriticalPoint, *, excess: float = 0.0, C_b: float = 0.0
) -> tuple[float, float, float]:
    """K*, χ∥, χ⊥ close to a smooth K* = 0 point, at C_W = (1 + excess)·C_W^critical and C_b.

    Leading order: −a₁K² = excess·K + C_b, χ∥ = 1 + excess + 2a₁K, χ⊥ = 1 + excess + b₁K; errors
    are of second order (beyond the book). K* ∝ excess without and ∝ √C_b with a bias variance.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `excess`: C_W/C_W^critical − 1.
    - `C_b`: bias variance.

    **Returns:** (K*, χ∥, χ⊥).

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> near_critical(critical_initialisation("tanh"), excess=0.01)
    (0.005, 0.99, 1.0)
    """
    a1, b1 = point.constants.a1, point.constants.b1
    if point.kind != "K*=0" or a1 is None or b1 is None:
        raise InvalidValueError("point", point.kind, "expected a stable smooth K*=0 point")
    check_variance(C_b, "C_b")
    if excess < 0.0 and C_b == 0.0:
        return 0.0, 1.0 + excess, 1.0 + excess
    root = math.sqrt(excess**2 - 4.0 * a1 * C_b)
    # The stable root of the quadratic, in the form that does not cancel for excess < 0.
    K = (excess + root) / (-2.0 * a1) if excess >= 0 else 2.0 * C_b / (root - excess)
    return K, 1.0 + excess + 2.0 * a1 * K, 1.0 + excess + b1 * K
