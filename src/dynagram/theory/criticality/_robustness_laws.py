"""Depth laws of what a trained network makes of a second input: (10.71)-(10.98), corrected.

K* = 0: two nearby inputs of equal norm, whose separation δδK_[2] = δ² ℓ^{−p} defines δ²; all laws
are per δ². Scale-invariant: two inputs of equal norm at any angle. Robustness is Θ_−+/Θ_++ − 1
(10.57), the variance that of the outputs at the second input (10.63).
"""

from __future__ import annotations

import math

from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import ActivationLike, even_slope, required_slopes, slopes
from dynagram.networks import checked_number
from dynagram.theory.criticality._points import critical_initialisation
from dynagram.theory.criticality._tangent_laws import PowerLaw, tangent_laws

_RATE = "a learning rate must be ≥ 0"


def robustness_laws(
    activation: ActivationLike,
    *,
    K: float | None = None,
    psi: float | None = None,
    lambda_b: float = 1.0,
    lambda_W: float = 1.0,
    uniform: bool = False,
) -> dict[str, PowerLaw]:
    """Leading powers of ℓ of Θ of two inputs and of robustness, at criticality (10.71)-(10.98).

    K* = 0, rates λ_b ℓ^{−p} and λ_W ℓ^{1−p} as in `tangent_laws` ((10.74) without its powers of L):
    K_2 and Theta_2 are the [2] components per δ², robustness is −2 Theta_2/Theta and the variance
    4 K_2, both per δ². With `uniform` rates, odd σ only, robustness falls like 1/ℓ (10.79)-(10.81),
    where the book leaves out (−a₁)λ_b/2. Scale-invariant: whatever the rates and the first angle,
    the angle of Θ tends to cos ζ = 1/4, robustness to −3/4 and the variance to (9/16) K
    (10.90)-(10.95); for a linear σ they keep what they start with (10.97), (10.98).

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`, with K* = 0 or scale-invariant.
    - `K`: K* of both inputs, for scale-invariant activations only.
    - `psi`: the angle between the inputs in K, for a linear activation only.
    - `lambda_b`, `lambda_W`: rates without their powers of ℓ, or those of all layers.
    - `uniform`: for K* = 0, the same rates in all layers.

    **Returns:** power laws by name. Scale-invariant: psi, cosine, robustness, variance; else K_2,
    Theta, Theta_2, robustness, variance.

    >>> laws = robustness_laws("tanh", lambda_b=1.0, lambda_W=0.6, uniform=True)
    >>> laws["robustness"]                                # −[4λ_W σ₁²/λ_b + 2(−a₁)] δ²/ℓ
    PowerLaw(coefficient=-6.4, exponent=1.0, equation='(10.81), corrected')
    >>> laws = robustness_laws("relu", K=2.0)
    >>> [laws[name].coefficient for name in ("cosine", "robustness", "variance")]
    [0.25, -0.75, 1.125]
    """
    sigma = resolve(activation)
    rates = [checked_number(name, value, _RATE)
             for name, value in (("lambda_b", lambda_b), ("lambda_W", lambda_W))]  # fmt: skip
    if slopes(sigma) is not None:
        if K is None:
            raise InvalidValueError("K", K, "a scale-invariant network keeps its K: give it")
        if uniform:
            raise InvalidValueError("uniform", uniform, "laws of this class are for uniform rates")
        kernel = checked_number("K", K, "must be > 0", positive=True)
        return _scale_invariant(sigma, kernel, psi, *rates)
    if K is not None or psi is not None:
        name, value = ("K", K) if K is not None else ("psi", psi)
        raise InvalidValueError(name, value, f"{sigma.name} forgets it: leave it out")
    return _uniform_rates(sigma, *rates) if uniform else _scaled_rates(sigma, *rates)


def _scale_invariant(
    sigma: ActivationLike, K: float, psi: float | None, lambda_b: float, lambda_W: float
) -> dict[str, PowerLaw]:
    plus, minus = required_slopes(sigma)
    squares = plus**2 + minus**2
    rho = (plus - minus) ** 2 / (math.pi * squares)
    if rho > 0.0:
        if psi is not None:
            raise InvalidValueError("psi", psi, "deep layers forget it unless σ is linear")
        return {
            "psi": PowerLaw(3.0 / rho, 1.0, "(10.90)"),
            "cosine": PowerLaw(0.25, 0.0, "(10.93)"),
            "robustness": PowerLaw(-0.75, 0.0, "(10.94)"),
            "variance": PowerLaw(9.0 / 16.0 * K, 0.0, "(10.95)"),
        }
    if psi is None:
        raise InvalidValueError("psi", psi, "a linear network keeps its angle: give it")
    angle = checked_number("psi", psi, "an angle must be ≥ 0")
    weight = lambda_W * even_slope((plus, minus), 2) * K
    if not lambda_b + weight > 0.0:
        raise InvalidValueError("lambda_b", lambda_b, "some rate must be > 0")
    cosine = (lambda_b + weight * math.cos(angle)) / (lambda_b + weight)
    variance = K * (1.0 - 2.0 * cosine * math.cos(angle) + cosine**2)
    return {
        "psi": PowerLaw(angle, 0.0, "(10.96)"),
        "cosine": PowerLaw(cosine, 0.0, "(10.98)"),
        "robustness": PowerLaw(cosine - 1.0, 0.0, "(10.98)"),
        "variance": PowerLaw(variance, 0.0, "(10.63)"),
    }


def _scaled_rates(sigma: ActivationLike, lambda_b: float, lambda_W: float) -> dict[str, PowerLaw]:
    laws = tangent_laws(sigma, lambda_b=lambda_b, lambda_W=lambda_W)
    point = critical_initialisation(sigma)
    a1, b1 = point.constants.a1, point.constants.b1
    assert a1 is not None
    assert b1 is not None
    p, theta = b1 / a1, laws["Theta"].coefficient
    curvature = -4.0 * a1 * (1.0 - p)  # (σ₂/σ₁)²
    second = (lambda_W / point.C_W + curvature * theta) / (2.0 - p)
    return {
        "K_2": PowerLaw(1.0, p, "(10.71)"),
        "Theta": PowerLaw(theta, p - 1.0, "(10.75)"),
        "Theta_2": PowerLaw(second, 2.0 * p - 2.0, "(10.77)"),
        "robustness": PowerLaw(-2.0 * second / theta, p - 1.0, "(10.78)"),
        "variance": PowerLaw(4.0, p, "(10.63)"),
    }


def _uniform_rates(sigma: ActivationLike, lambda_b: float, lambda_W: float) -> dict[str, PowerLaw]:
    tangent_laws(sigma)  # refuses what has no law
    point = critical_initialisation(sigma)
    a1, b1 = point.constants.a1, point.constants.b1
    assert a1 is not None
    assert b1 is not None
    if not math.isclose(a1, b1, rel_tol=1e-9):
        raise InvalidValueError("uniform", True, "the law is known for odd activations only")
    if not lambda_b > 0.0:
        raise InvalidValueError("lambda_b", lambda_b, "the law needs biases that learn: > 0")
    second = lambda_W / point.C_W - a1 * lambda_b / 2.0
    return {
        "K_2": PowerLaw(1.0, 1.0, "(10.71)"),
        "Theta": PowerLaw(lambda_b / 2.0, -1.0, "(10.79)"),
        "Theta_2": PowerLaw(second, 0.0, "(10.80), corrected"),
        "robustness": PowerLaw(-4.0 * second / lambda_b, 1.0, "(10.81), corrected"),
        "variance": PowerLaw(4.0, 1.0, "(10.63)"),
    }
