"""Depth laws of the tangent tensors at criticality: closed forms, coefficients, exponents, ratios.

Scale-invariant σ: exact at every depth, (9.42)-(9.52), (11.79), (∞.46)-(∞.48). K* = 0: leading
powers of ℓ with the depth-scaled rates (9.70), from (9.71)-(9.86), (11.98)-(11.102), (∞.30)-(∞.33);
R, S, T and U for σ''(0) ≠ 0 are beyond the book. Widths are equal, and there is one input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import (
    ActivationLike,
    even_slope,
    required_slopes,
    slopes,
)
from dynagram.networks import checked_number
from dynagram.theory.criticality._one_input_tangents import TangentFlow
from dynagram.theory.criticality._point import CriticalPoint
from dynagram.theory.criticality._points import critical_initialisation

Layers = Float[np.ndarray, " layer"]
_RATE = "a learning rate must be ≥ 0"
# Powers (i, j) that make tensor/(K^i Θ^j) dimensionless (9.23)-(9.25), (11.62), (∞.21).
DIMENSIONS: dict[str, tuple[int, int]] = {
    "V": (2, 0), "D": (1, 1), "F": (1, 1), "A": (0, 2), "B": (0, 2), "P": (0, 2), "Q": (0, 2),
    "R": (-1, 3), "S": (-1, 3), "T": (-1, 3), "U": (-1, 3),
}  # fmt: skip


@dataclass(frozen=True)
class PowerLaw:
    """O^(ℓ) ≃ `coefficient`·ℓ^{-`exponent`} at large ℓ (9.22); `equation` says where it is from."""

    coefficient: float
    exponent: float
    equation: str

    def __call__(self, layers: Layers) -> Layers:
        """The law at these layers."""
        return self.coefficient * layers**-self.exponent


def scale_invariant_tangents(
    activation: ActivationLike,
    layers: Layers,
    *,
    K: float,
    lambda_b: float = 1.0,
    lambda_W: float = 1.0,
) -> dict[str, Layers]:
    """Θ, V, D, F, B, A, P, Q of a critical scale-invariant network with uniform rates, exactly.

    For the rates λ̃/L of (9.94) pass λ = λ̃/L. The exact A is
    beyond the book. A linear σ also has R, S, T, U (∞.46)-(∞.48); no other kinked one does.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `layers`: layers ℓ, as floats.
    - `K`: K*, the same in all layers.
    - `lambda_b`, `lambda_W`: rates, the same in all layers.

    **Returns:** the tensors by letter, one entry per layer.

    >>> laws = scale_invariant_tangents("relu", np.array([50.0]), K=2.0, lambda_b=0.7, lambda_W=1.9)
    >>> [round(float(laws[name][0]), 9) for name in ("Theta", "D", "A", "Q")]
    [130.0, 29645.0, 1208695.25, 205751.0]
    """
    pair = required_slopes(activation)
    K, lambda_b, lambda_W = (
        _positive("K", K),
        _rate("lambda_b", lambda_b),
        _rate("lambda_W", lambda_W),
    )
    A2, kappa = even_slope(pair, 2), even_slope(pair, 4) / even_slope(pair, 2) ** 2
    ell, w = layers, lambda_W * A2 * K
    theta, excess = lambda_b + w, kappa - 1.0
    pairs, squares = ell * (ell - 1) / 2, ell * (ell - 1) * (2 * ell - 1) / 6
    fluctuating = excess * lambda_b + (4 * kappa - 2) * w
    laws = {
        "Theta": theta * ell,
        "V": (3 * kappa - 1) * K**2 * (ell - 1),
        "D": K * fluctuating * pairs,
        "F": kappa * K * theta * pairs,
        "B": kappa * theta**2 * squares,
        "A": ((3 * kappa - 1) * w**2 + 2 * excess * w * theta) * pairs
        + w * fluctuating * ell * (ell - 1) * (ell - 2) / 3
        + excess * theta**2 * squares,
        "P": 0.0 * ell,
        "Q": kappa * theta * w * ell * (ell**2 - 1) / 6,
    }
    if pair[0] == pair[1]:
        quartic = ell**2 * (ell**2 - 1) / 12 * theta * lambda_W * A2
        laws |= {"R": 0.0 * ell, "S": quartic * theta, "T": quartic * w, "U": 0.0 * ell}
    return laws


def off_critical_ntk(
    activation: ActivationLike,
    layers: Layers,
    *,
    K1: float,
    C_W: float,
    lambda_b: float = 1.0,
    lambda_W: float = 1.0,
) -> Layers:
    """Θ^(ℓ) of a scale-invariant network at any C_W, C_b = 0, uniform rates, exactly.

    λ_b(χ^ℓ − 1)/(χ − 1) + ℓ λ_W A₂ K^(1) χ^{ℓ−2}, χ = C_W A₂ (beyond the book): off criticality
    the weights of all layers still contribute alike, the biases do not.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `layers`: layers ℓ, as floats.
    - `K1`: the kernel of the first layer.
    - `C_W`: weight variance times fan-in.
    - `lambda_b`, `lambda_W`: rates, the same in all layers.

    **Returns:** Θ of these layers.

    >>> off_critical_ntk("relu", np.array([1.0, 2.0, 3.0]), K1=1.0, C_W=1.0)
    array([2. , 2.5, 2.5])
    """
    A2 = even_slope(required_slopes(activation), 2)
    chi = _positive("C_W", C_W) * A2
    # (χ^ℓ − 1)/(χ − 1) by logarithms, so that χ → 1 keeps its digits.
    growth = np.log(chi)
    biases = layers if chi == 1.0 else np.expm1(layers * growth) / np.expm1(growth)
    weights = layers * A2 * _positive("K1", K1) * chi ** (layers - 2)
    return _rate("lambda_b", lambda_b) * biases + _rate("lambda_W", lambda_W) * weights


def tangent_laws(
    activation: ActivationLike,
    *,
    K: float | None = None,
    lambda_b: float = 1.0,
    lambda_W: float = 1.0,
) -> dict[str, PowerLaw]:
    """The leading power of ℓ of every tensor at the critical initialisation of the activation.

    Scale-invariant: uniform rates λ_b, λ_W, and K = K* must be given. K* = 0 (tanh, sin, erf):
    rates λ_b^(ℓ) = `lambda_b` ℓ^{-p}, λ_W^(ℓ) = `lambda_W` ℓ^{1−p} (9.70), p = p_perpendicular (1
    for odd σ); K forgets the input. With (9.95) a tensor gets a factor L^{p−1} per power of λ.
    Other classes have no closed law: iterate `single_input_tangents`.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: K*, for scale-invariant activations only.
    - `lambda_b`, `lambda_W`: rates without their powers of ℓ.

    **Returns:** power laws by letter.

    >>> laws = tangent_laws("tanh", lambda_b=0.8, lambda_W=1.5)
    >>> {name: round(law.coefficient, 6) for name, law in laws.items() if name in "KVDFBA"}
    {'K': 0.5, 'V': 0.166667, 'D': -0.088889, 'F': 0.19375, 'B': 0.800833, 'A': 0.094815}
    >>> laws["U"]
    PowerLaw(coefficient=3.7238750000000005, exponent=0.0, equation='(∞.33)')
    """
    sigma = resolve(activation)
    rates = _rate("lambda_b", lambda_b), _rate("lambda_W", lambda_W)
    if slopes(sigma) is not None:
        if K is None:
            raise InvalidValueError("K", K, "a scale-invariant network keeps its K: give it")
        return _scale_invariant_laws(required_slopes(sigma), _positive("K", K), *rates)
    if K is not None:
        raise InvalidValueError("K", K, f"K of {sigma.name} forgets the input: leave K out")
    return _vanishing_kernel_laws(critical_initialisation(sigma), *rates)


def _scale_invariant_laws(
    pair: tuple[float, float], K: float, lambda_b: float, lambda_W: float
) -> dict[str, PowerLaw]:
    A2, kappa = even_slope(pair, 2), even_slope(pair, 4) / even_slope(pair, 2) ** 2
    w, excess = lambda_W * A2 * K, kappa - 1.0
    theta = lambda_b + w
    A = excess * lambda_b * (lambda_b + 3 * w) + (5 * kappa - 3) * w**2
    laws = {
        "K": PowerLaw(K, 0.0, "(9.41)"),
        "Theta": PowerLaw(theta, -1.0, "(9.44)"),
        "V": PowerLaw((3 * kappa - 1) * K**2, -1.0, "(9.42)"),
        "D": PowerLaw(K * (excess * lambda_b + (4 * kappa - 2) * w) / 2, -2.0, "(9.49)"),
        "F": PowerLaw(kappa * K * theta / 2, -2.0, "(9.50)"),
        "B": PowerLaw(kappa * theta**2 / 3, -3.0, "(9.51)"),
        "A": PowerLaw(A / 3, -3.0, "(9.52)"),
        "Q": PowerLaw(kappa * theta * w / 6, -3.0, "(11.79)"),
    }
    if pair[0] == pair[1]:
        quartic = theta * lambda_W * A2 / 12
        laws["S"] = PowerLaw(quartic * theta, -4.0, "(∞.47)")
        laws["T"] = PowerLaw(quartic * w, -4.0, "(∞.48)")
    return laws


def _vanishing_kernel_laws(
    point: CriticalPoint, lambda_b: float, lambda_W: float
) -> dict[str, PowerLaw]:
    constants = point.constants
    a1, b1 = constants.a1, constants.b1
    smooth = constants.r is not None  # the laws need Taylor data that agree on both sides of 0
    if point.kind != "K*=0" or a1 is None or b1 is None or not smooth:
        raise InvalidValueError(
            "activation",
            point.activation,
            f"no closed law for the class {point.kind!r}: iterate single_input_tangents",
        )
    a, p = -a1, b1 / a1
    weight = lambda_W / point.C_W  # λ̃_W σ₁²
    theta, curvature = lambda_b + weight / a, 4.0 * a * (1.0 - p)  # (σ₂/σ₁)²
    q = p * lambda_b + (p - 1.0) * weight / a
    gap, square, cube = 5.0 - p, 2.0 * p - 3.0, 3.0 * p - 5.0
    R = -theta**2 * (
        3.0 * a * (4.0 - 3.0 * p) * theta + (weight + curvature * theta) * (2.0 - p)
    ) / (3.0 * gap**2)  # fmt: skip
    odd = curvature == 0.0
    beyond = "" if odd else ", beyond the book where σ''(0) ≠ 0"
    U = (a * theta**3 / 2, 0.0) if odd else (curvature * theta**3 / (4.0 - p), 3.0 * p - 4.0)
    return {
        "K": PowerLaw(1.0 / a, 1.0, "(9.65)"),
        "Theta": PowerLaw(theta, p - 1.0, "(9.71)"),
        "V": PowerLaw(2.0 / (3.0 * a**2), 1.0, "(9.66)"),
        "D": PowerLaw(-2.0 * q / (9.0 * a), p - 1.0, "(9.84)"),
        "F": PowerLaw(theta / (gap * a), p - 1.0, "(9.81)"),
        "B": PowerLaw(theta**2 / 3.0, square, "(9.82)"),
        "A": PowerLaw(4.0 * q**2 / 27.0, square, "(9.86)"),
        "P": PowerLaw(-(2.0 - p) * theta**2 / (3.0 * gap), square, "(11.98)"),
        "Q": PowerLaw(-theta * q / gap**2, square, "(11.101)"),
        "R": PowerLaw(R, cube, "(∞.30)" + beyond),
        "S": PowerLaw(
            theta**2 * (weight + curvature * theta) / (3.0 * gap), cube, "(∞.31)" + beyond
        ),
        "T": PowerLaw(2.0 * a * theta * q**2 / gap**3, cube, "(∞.32)" + beyond),
        "U": PowerLaw(*U, "(∞.33)" + beyond),
    }


def ratio_laws(laws: dict[str, PowerLaw]) -> dict[str, PowerLaw]:
    """V/K², D/(KΘ), F/(KΘ), {A, B, P, Q}/Θ², {R, S, T, U}K/Θ³: what multiplies 1/n (9.23)-(9.25).

    All grow like ℓ in both classes (9.26), (9.27), (11.65), except U of an odd σ (∞.37).

    **Arguments:**

    - `laws`: from `tangent_laws`.

    **Returns:** power laws of the ratios, by letter.

    >>> ratios = ratio_laws(tangent_laws("relu", K=2.0, lambda_b=1.9, lambda_W=1.9))
    >>> round(ratios["A"].coefficient, 9), ratios["B"].exponent       # 11/12
    (0.916666667, -1.0)
    """
    K, Theta = laws["K"], laws["Theta"]
    ratios = {}
    for name, (i, j) in DIMENSIONS.items():
        if name in laws:
            law = laws[name]
            scale = K.coefficient**i * Theta.coefficient**j
            exponent = law.exponent - i * K.exponent - j * Theta.exponent
            ratios[name] = PowerLaw(law.coefficient / scale, exponent, law.equation)
    return ratios


def dimensionless_ratios(flow: TangentFlow) -> dict[str, Float[np.ndarray, "layer *sample"]]:
    """The same ratios from the recursion, for every tensor that exists; times 1/n they are sizes.

    **Arguments:**

    - `flow`: from `single_input_tangents`.

    **Returns:** ratios by letter, layers first.

    >>> from dynagram.networks import MLP
    >>> from dynagram.theory.criticality import single_input_tangents
    >>> flow = single_input_tangents(MLP([1] * 6, "linear", 0.0, 1.0, lambda_b=0.0), 1.0)
    >>> dimensionless_ratios(flow)["Q"].round(9)         # (ℓ² − 1)/(6ℓ)
    array([0.        , 0.25      , 0.44444444, 0.625     , 0.8       ])
    """
    if not (np.all(flow.K > 0.0) and np.all(flow.Theta > 0.0)):
        raise InvalidValueError("flow", "K or Theta = 0", "ratios need both > 0 in every layer")
    ratios = {}
    for name, (i, j) in DIMENSIONS.items():
        tensor = getattr(flow, name)
        if tensor is not None:
            ratios[name] = tensor / (flow.K ** float(i) * flow.Theta ** float(j))
    return ratios


def _rate(name: str, value: float) -> float:
    return checked_number(name, value, _RATE)


def _positive(name: str, value: float) -> float:
    return checked_number(name, value, "must be > 0", positive=True)
