"""Depth laws at criticality with their logarithms (5.92)-(5.99), (5.124)-(5.127), (5.134)-(5.143).

Each law is a function of the layer number ℓ ≥ 1. In the smooth K* = 0 class the input enters
through one number, `offset` = r log ℓ₀ of (5.94): unlike ℓ₀ it also exists when r = 0. Half-stable
points and kinks: docs/derivations/depth-laws.md (D9.1)-(D9.4).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import ActivationLike, even_slope, required_slopes
from dynagram.theory.criticality._point import CriticalPoint

Layers = Float[np.ndarray, " layer"]


def kernel_law(point: CriticalPoint, layers: Layers, *, offset: float = 0.0) -> Layers:
    """K^(ℓ) at large ℓ, by class.

    Smooth K* = 0: (1/(−a₁)ℓ)[1 + X/ℓ + (X² − rX)/ℓ²], X = r log ℓ − offset (5.94), (5.124).
    Kinked: 4/(c²ℓ²). Tuned (a₁ = 0): 1/√(−2a₂ℓ). Half-stable: K* + 1/((−ã₁)ℓ) (5.103).

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layers`: layers ℓ, as floats.
    - `offset`: the free constant of the law, from `fit_offset`.

    **Returns:** K of these layers.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> K = kernel_law(critical_initialisation("elu"), np.array([100.0]))   # 2π/ℓ²
    >>> round(float(K[0]), 12)
    0.000628318531
    """
    constants = point.constants
    if point.kind == "K*=0":
        a1, r = _need(point, "a1"), constants.r
        if r is None:  # not smooth at 0: K^{5/2} terms come before the logarithm
            return 1.0 / (-a1 * layers)
        X = r * np.log(layers) - offset
        return (1.0 + X / layers + (X**2 - r * X) / layers**2) / (-a1 * layers)
    if point.kind == "K*=0 kinked" and point.stability == "stable":
        return 4.0 / (_need(point, "c") * layers) ** 2
    if point.kind == "K*=0 tuned" and point.stability == "stable":
        return 1.0 / np.sqrt(-2.0 * _need(point, "a2") * layers)
    if point.kind == "half-stable" and point.K_star is not None:
        return point.K_star + 1.0 / (-_need(point, "a1_tilde") * layers)
    raise _no_law(point)


def fit_offset(point: CriticalPoint, layer: float, K: float) -> float:
    """The `offset` with which the law (5.94) passes through K^(ℓ) = `K`; its ℓ₀ is exp(offset/r).

    Fit at one large ℓ of the exact recursion: what is left out falls like 1/ℓ.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layer`: a large ℓ.
    - `K`: the kernel there.

    **Returns:** the offset.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> point = critical_initialisation("tanh")
    >>> K = float(kernel_law(point, np.array([500.0]), offset=0.7)[0])
    >>> round(fit_offset(point, 500.0, K), 9)
    0.7
    """
    a1, r = _need(point, "a1"), _need(point, "r")
    linear, excess = 1.0 - r / layer, K * (-a1) * layer - 1.0
    discriminant = linear**2 + 4.0 * excess
    if discriminant < 0.0:
        raise InvalidValueError("K", K, f"too far from 1/((-a1) ℓ) at ℓ = {layer:g}: go deeper")
    X = 0.5 * layer * (math.sqrt(discriminant) - linear)
    return r * math.log(layer) - X


def parallel_law(point: CriticalPoint, layers: Layers, *, offset: float = 0.0) -> Layers:
    """δK_[1]^(ℓ) up to its constant: ℓ^{-2}[1 + 2X/ℓ] in the smooth K* = 0 class (5.97).

    Other classes: the bare power ℓ^{-p_parallel}.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layers`: layers ℓ, as floats.
    - `offset`: the free constant of the law, from `fit_offset`.

    **Returns:** δK_[1] of these layers, up to a factor.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> float(parallel_law(critical_initialisation("selu"), np.array([10.0]))[0])
    0.001
    """
    if point.exponents.p_parallel is None:
        raise _no_law(point)
    leading = layers**-point.exponents.p_parallel
    if point.constants.r is None:
        return leading
    return leading * (1.0 + 2.0 * (point.constants.r * np.log(layers) - offset) / layers)


def perpendicular_law(point: CriticalPoint, layers: Layers, *, offset: float = 0.0) -> Layers:
    """δδK_[2]^(ℓ) at δK_[1] = 0, up to its constant: ℓ^{-p}[1 + pX/ℓ], p = b₁/a₁ (5.99).

    Other classes: the bare power ℓ^{-p_perpendicular}.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layers`: layers ℓ, as floats.
    - `offset`: the free constant of the law, from `fit_offset`.

    **Returns:** δδK_[2] of these layers, up to a factor.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> float(perpendicular_law(critical_initialisation("elu"), np.array([10.0]))[0])
    0.01
    """
    p = point.exponents.p_perpendicular
    if p is None:
        raise _no_law(point)
    if point.constants.r is None:
        return layers**-p
    return layers**-p * (1.0 + p * (point.constants.r * np.log(layers) - offset) / layers)


def vertex_law(point: CriticalPoint, layers: Layers, *, offset: float = 0.0) -> Layers:
    """V^(ℓ) at large ℓ, equal widths: (5.127) in the smooth K* = 0 class, else slope·ℓ·K².

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layers`: layers ℓ, as floats.
    - `offset`: the free constant of the law, from `fit_offset`.

    **Returns:** V of these layers.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> V = vertex_law(critical_initialisation("tanh"), np.array([1e6]))   # 1/(6ℓ)
    >>> round(float(V[0]) * 6e6, 4)
    1.0
    """
    if point.exponents.vertex_slope is None or point.kind == "scale-invariant":
        raise _no_law(point)
    r = point.constants.r
    if r is None:
        return point.exponents.vertex_slope * layers * kernel_law(point, layers) ** 2
    a1, a2, b1 = _need(point, "a1"), _need(point, "a2"), _need(point, "b1")
    X = r * np.log(layers) - offset
    second = (5.0 * a2 + a1 * (82.0 * a1 - 90.0 * b1)) / (3.0 * a1**4)
    return 2.0 / (3.0 * a1**2) * (1.0 / layers + X / layers**2) + second / layers**2


def metric_law(point: CriticalPoint, layers: Layers, *, renormalised: bool = False) -> Layers:
    """G^{1}(ℓ) at large ℓ, equal widths; `renormalised` with the weight variance of (5.142).

    Smooth K* = 0: −1/(3(−a₁)) bare (5.134), (84a₁² − 90a₁b₁ − a₂)/(3a₁³ℓ) renormalised (the
    book's (5.143) leaves out a term). Kinked, bare only: −(S/8)ℓK.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `layers`: layers ℓ, as floats.
    - `renormalised`: whether C_W is that of `renormalised_weight_variance`.

    **Returns:** G^{1} of these layers.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> point = critical_initialisation("tanh")
    >>> round(float(metric_law(point, np.array([1.0]), renormalised=True)[0]), 5)
    1.23611
    """
    if point.kind == "K*=0 kinked" and point.stability == "stable" and not renormalised:
        return -_need(point, "S") / 8.0 * layers * kernel_law(point, layers)
    if point.kind != "K*=0" or (renormalised and point.constants.r is None):
        raise _no_law(point)
    a1 = _need(point, "a1")
    if not renormalised:
        return np.full(layers.shape, _need(point, "S") / (6.0 * a1))
    a2, b1 = _need(point, "a2"), _need(point, "b1")
    return (84.0 * a1**2 - 90.0 * a1 * b1 - a2) / (3.0 * a1**3 * layers)


def renormalised_weight_variance(point: CriticalPoint, fan_in: int) -> float:
    """C_W + c_W^{1}/n for a layer with fan-in n: keeps E z² on K's power law (5.142).

    (2/3)C_W/n in the K* = 0 class, nothing for scale-invariant activations. Not for the first
    layer, whose fan-in is the input's.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.
    - `fan_in`: n of the layer.

    **Returns:** C_W of the layer.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> renormalised_weight_variance(critical_initialisation("tanh"), 100)
    1.0066666666666666
    """
    if point.exponents.c_W1 is None:
        raise _no_law(point)
    if fan_in < 1:
        raise InvalidValueError("fan_in", fan_in, "expected a positive number of neurons")
    return point.C_W + point.exponents.c_W1 / fan_in


def semi_critical_law(
    activation: ActivationLike, K1: float, C_b: float, layers: Layers
) -> tuple[Layers, Layers]:
    """K and V of a scale-invariant σ at C_W = 1/A₂ and C_b > 0, exact at equal widths.

    K = K^(1) + (ℓ − 1)C_b and V = S Σ_{m<ℓ} K^(m)²: p_0 = −1, p_V = −3, V/K² → (S/3)ℓ.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `K1`: the kernel of the first layer.
    - `C_b`: bias variance.
    - `layers`: layers ℓ, as floats.

    **Returns:** K and V of these layers.

    >>> K, V = semi_critical_law("relu", 1.0, 0.5, np.array([1.0, 2.0, 3.0]))
    >>> K, V
    (array([1. , 1.5, 2. ]), array([ 0.  ,  5.  , 16.25]))
    """
    pair = required_slopes(activation)
    S, steps = 3 * even_slope(pair, 4) / even_slope(pair, 2) ** 2 - 1, layers - 1.0
    pairs, squares = steps * (steps - 1.0), (steps - 1.0) * steps * (2.0 * steps - 1.0) / 6.0
    return K1 + steps * C_b, S * (steps * K1**2 + K1 * C_b * pairs + C_b**2 * squares)


def _need(point: CriticalPoint, name: str) -> float:
    value = getattr(point.constants, name)
    if value is None:
        raise InvalidValueError("point", point.kind, f"has no constant {name}, which the law needs")
    return value


def _no_law(point: CriticalPoint) -> InvalidValueError:
    label = f"{point.kind} ({point.stability}) of {point.activation}"
    return InvalidValueError("point", label, "this class has no such depth law")
