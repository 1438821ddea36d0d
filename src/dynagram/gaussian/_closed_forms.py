"""Exact two-sample averages ⟨σ^(p)(z_1) σ^(q)(z_2)⟩ where they are known.

`closed_form(sigma, p, q)` gives a JAX function of (a, b, c) = (K_11, K_22, K_12), elementwise and
traceable, or None. Derivatives of kinked activations are distributions; their averages are the
Gaussian densities written out here, finite for every pair that is not collinear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.activations import Activation

PairFunction = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

_TWO_PI = 2.0 * math.pi
_ROOT_TWO_PI = math.sqrt(_TWO_PI)


def closed_form(sigma: Activation, p: int, q: int) -> PairFunction | None:
    """⟨σ^(p)(z_1) σ^(q)(z_2)⟩ as a function of (K_11, K_22, K_12), or None when not known.

    >>> import jax.numpy as jnp
    >>> from dynagram.activations import activation
    >>> relu = closed_form(activation("relu"), 1, 1)
    >>> round(float(relu(jnp.array(1.0), jnp.array(1.0), jnp.array(0.0))), 6)
    0.25
    """
    if sigma.closed_form is None:
        return None
    family, *parameters = sigma.closed_form
    return _FAMILIES[family](p, q, *parameters)


@dataclass(frozen=True)
class ClosedKernel:
    """⟨σσ⟩ and ⟨σ'σ'⟩ for whole matrices, with roots and quotients taken once per sample.

    `prepare(variance)` gives the per-sample numbers; `slope(left, right, c)` and
    `value(left, right, c, slope)` combine them; `diagonal(variance)` gives ⟨σ²⟩ and ⟨σ'²⟩. ReLU's
    value follows from its slope, which holds the costly angle: the slope comes first.
    """

    prepare: Callable[[jax.Array], tuple[jax.Array, ...]]
    slope: Callable[..., jax.Array]
    value: Callable[..., jax.Array]
    diagonal: Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def closed_kernel(sigma: Activation) -> ClosedKernel | None:
    """The closed kernel of an activation, or None when ⟨σσ⟩ or ⟨σ'σ'⟩ is not known."""
    value, slope = closed_form(sigma, 0, 0), closed_form(sigma, 1, 1)
    if value is None or slope is None or sigma.closed_form is None:
        return None
    family, *parameters = sigma.closed_form
    if family == "piecewise_linear" and parameters[0] != parameters[1]:
        return _angular_kernel(*parameters)
    if family == "erf":
        return _erf_kernel(*parameters)
    return ClosedKernel(
        prepare=lambda variance: (variance,),
        slope=lambda left, right, c: slope(left[0], right[0], c),
        value=lambda left, right, c, _: value(left[0], right[0], c),
        diagonal=lambda v: (value(v, v, v), slope(v, v, v)),
    )


def _angular_kernel(plus: float, minus: float) -> ClosedKernel:
    """(5.161), (5.159): slope A_2 − κψ, value κ√(ab) sin ψ + c·slope."""
    mean_square, kappa = 0.5 * (plus * plus + minus * minus), (plus - minus) ** 2 / _TWO_PI

    def prepare(variance: jax.Array) -> tuple[jax.Array, ...]:
        root = jnp.sqrt(variance)
        return root, jnp.where(root > 0, 1.0 / jnp.where(root > 0, root, 1.0), 0.0)

    def cosine(left, right, c):
        return _snapped(c * (left[1] * right[1]))

    def slope(left, right, c):
        return mean_square - kappa * (0.5 * math.pi - _arcsin(cosine(left, right, c)))

    def value(left, right, c, slopes):
        rho = cosine(left, right, c)
        sine = jnp.sqrt((1.0 - rho) * (1.0 + rho))
        return kappa * (left[0] * right[0]) * sine + slopes * c

    def diagonal(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        return mean_square * v, mean_square + 0.0 * v

    return ClosedKernel(prepare, slope, value, diagonal)


def _erf_kernel(scale: float) -> ClosedKernel:
    s2 = 2.0 * scale * scale

    def prepare(variance: jax.Array) -> tuple[jax.Array, ...]:
        return (jax.lax.rsqrt(1.0 + s2 * variance),)

    def slope(left, right, c):
        scaled = left[0] * right[0]
        rho = s2 * c * scaled
        return (2.0 / math.pi) * s2 * scaled * jax.lax.rsqrt((1.0 - rho) * (1.0 + rho))

    def value(left, right, c, _):
        return (2.0 / math.pi) * _arcsin(s2 * c * (left[0] * right[0]))

    def diagonal(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = prepare(v)
        return value(own, own, v, None), slope(own, own, v)

    return ClosedKernel(prepare, slope, value, diagonal)


def _angle_coefficients(terms: int = 14) -> tuple[float, ...]:
    """Polynomial in t = 8u − 1 for arcsin(√u)/√u on 0 ≤ u ≤ ¼, good to rounding.

    Its Chebyshev coefficients fall like 14^{−k}, so that the powers of t lose no digits. They are
    sums over cosines of the angles: polynomials at rounded nodes would lose a digit.
    """
    angles = (np.arange(terms) + 0.5) * math.pi / terms
    root = 0.5 * np.cos(0.5 * angles)  # √u where t is the cosine of the angle
    coefficients = (
        2.0 / terms * np.cos(np.outer(np.arange(terms), angles)) @ (np.arcsin(root) / root)
    )
    coefficients[0] *= 0.5
    return tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(coefficients))


_ANGLE_COEFFICIENTS = _angle_coefficients()


@jax.custom_jvp
def _arcsin(x: jax.Array) -> jax.Array:
    """arcsin by one polynomial: unlike the library's it vectorises, and is many times faster.

    The root comes last, for it is the one operation here that the compiler does not do again for
    every use of the result: before the polynomial, it would do that again.
    """
    size = jnp.abs(x)
    small = size < 0.5
    u = jnp.where(small, size * size, 0.5 * (1.0 - size))
    series = _polynomial(_ANGLE_COEFFICIENTS, 8.0 * u - 1.0)
    angle = jnp.sqrt(jnp.maximum(u, 0.0) * (series * series))
    return jnp.copysign(jnp.where(small, angle, 0.5 * math.pi - 2.0 * angle), x)


def _polynomial(coefficients: Sequence[float], t: jax.Array) -> jax.Array:
    """By Estrin's scheme: neighbours are joined, then pairs, so that no step waits for another."""
    terms: list[Any] = list(coefficients)
    while len(terms) > 1:
        if len(terms) % 2:
            terms.append(0.0)
        terms = [low + high * t for low, high in zip(terms[::2], terms[1::2], strict=True)]
        t = t * t
    return terms[0]


@_arcsin.defjvp
def _arcsin_derivative(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _arcsin(x), dx * jax.lax.rsqrt((1.0 - x) * (1.0 + x))


def _snapped(rho: jax.Array) -> jax.Array:
    """±1 where ρ is so up to rounding: an angle is the square root of 1 − ρ, and would be 1e-8."""
    return jnp.where(jnp.abs(rho) > 1.0 - 1e-15, jnp.sign(rho), rho)


def _cosine(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """The correlation of z_1 and z_2; 0 when one of them is zero."""
    norm = jnp.sqrt(a) * jnp.sqrt(b)
    return _snapped(_ratio(c, norm))


def _root_determinant(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """√(ab − c²), without losing the digits of a nearly collinear pair."""
    rho = _cosine(a, b, c)
    return jnp.sqrt(a * b) * jnp.sqrt((1.0 - rho) * (1.0 + rho))


def _angle(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """The angle between z_1 and z_2; a right angle when one of them is zero."""
    return 0.5 * math.pi - _arcsin(_cosine(a, b, c))


def _ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """x/y, and 0 where y is 0: averages with a sample that is identically zero."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1.0), 0.0)


def _relu(p: int, q: int) -> PairFunction | None:
    """ReLU: σ' is a step, σ'' a delta, σ''' its derivative."""
    if p > q:
        swapped = _relu(q, p)
        return None if swapped is None else lambda a, b, c: swapped(b, a, c)

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        root = _root_determinant(a, b, c)
        match (p, q):
            case (0, 0):
                return (root + (math.pi - _angle(a, b, c)) * c) / _TWO_PI
            case (0, 1):
                return (jnp.sqrt(a) + _ratio(c, jnp.sqrt(b))) / (2 * _ROOT_TWO_PI)
            case (1, 1):
                return (math.pi - _angle(a, b, c)) / _TWO_PI
            case (0, 2):
                return _ratio(root, b) / _TWO_PI
            case (1, 2):
                return _ratio(0.5 / _ROOT_TWO_PI * jnp.ones_like(b), jnp.sqrt(b))
            case (2, 2):
                return _ratio(jnp.ones_like(root), root) / _TWO_PI
            case (0, 3):
                return -_ratio(c, b * jnp.sqrt(b)) / (2 * _ROOT_TWO_PI)
            case (1, 3):
                return -_ratio(c, b * root) / _TWO_PI
            case (2, 3):
                return jnp.zeros_like(root)
            case (3, 3):
                return _ratio(c, root**3) / _TWO_PI
            case (0, 4):
                # δ'' acts as the second derivative of the joint density integrated over z_1 > 0.
                return -_ratio(root, b * b) / _TWO_PI + _ratio(c * c, b * b * root) / _TWO_PI
            case (2, 4):
                return -_ratio(a, root**3) / _TWO_PI
            case (1, 5):
                return _ratio(c, b * b * root) * (3.0 + _ratio(c * c, root * root)) / _TWO_PI
            case _:
                raise AssertionError((p, q))

    return value if q <= 3 or (p, q) in ((0, 4), (2, 4), (1, 5)) else None


def _piecewise_linear(p: int, q: int, plus: float, minus: float) -> PairFunction | None:
    """minus·z + (plus − minus)·relu(z): (5.159), (5.161), else Wick terms and ReLU averages."""
    kink = plus - minus
    if p == q <= 1:
        return lambda a, b, c: _finite_angle(p, plus, minus, a, b, c)
    pure = _relu(p, q)
    if pure is None:
        return None

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        mixed = _linear_relu(p, q, b, c) + _linear_relu(q, p, a, c)
        if kink == 0.0:
            return 0.0 * c
        return minus * kink * mixed + kink * kink * pure(a, b, c)

    return value


def _finite_angle(
    order: int, plus: float, minus: float, a: jax.Array, b: jax.Array, c: jax.Array
) -> jax.Array:
    """⟨σ'σ'⟩ = A_2 − κψ and ⟨σσ⟩ = κ√(ab) sin ψ + c⟨σ'σ'⟩ with κ = (plus − minus)²/2π."""
    mean_square = 0.5 * (plus * plus + minus * minus)
    if plus == minus:
        return mean_square * (c if order == 0 else jnp.ones_like(c))
    kappa = (plus - minus) ** 2 / _TWO_PI
    slope = mean_square - kappa * _angle(a, b, c)
    return slope if order == 1 else kappa * _root_determinant(a, b, c) + slope * c


def _linear_relu(p: int, q: int, b: jax.Array, c: jax.Array) -> jax.Array:
    """⟨(z_1)^(p) relu^(q)(z_2)⟩, by ⟨z_1 f(z_2)⟩ = c⟨f'⟩."""
    if p > 1:
        return 0.0 * c
    order = q + 1 - p
    factor = c if p == 0 else 1.0
    match order:
        case 0:
            return factor * jnp.sqrt(b) / _ROOT_TWO_PI
        case 1:
            return factor * 0.5 + 0.0 * b
        case 2:
            return factor * _ratio(jnp.ones_like(b), jnp.sqrt(b)) / _ROOT_TWO_PI
        case 4:
            return -factor * _ratio(jnp.ones_like(b), b * jnp.sqrt(b)) / _ROOT_TWO_PI
        case _:  # odd derivatives of a delta at 0 average to zero
            return 0.0 * c


def _relu2(p: int, q: int) -> PairFunction | None:
    """relu(z)²: its derivative is 2·relu."""
    if p > q:
        swapped = _relu2(q, p)
        return None if swapped is None else lambda a, b, c: swapped(b, a, c)
    if p >= 1:
        inner = _relu(p - 1, q - 1)
        return None if inner is None else lambda a, b, c: 4.0 * inner(a, b, c)
    if q > 3:
        return None

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        root, rest = _root_determinant(a, b, c), math.pi - _angle(a, b, c)
        match q:
            case 0:
                return (3.0 * root * c + rest * (a * b + 2.0 * c * c)) / _TWO_PI
            case 1:
                return 2.0 * _stein_1(a, b, c)
            case 2:
                return 2.0 * (a * rest + _ratio(c * root, b)) / _TWO_PI
            case _:
                return _ratio(_ratio(root * root, b), jnp.sqrt(b)) / _ROOT_TWO_PI

    return value


def _stein_1(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """⟨relu(z_1)² relu(z_2)⟩ = a⟨θ_1 relu_2⟩ + c⟨relu_1 θ_2⟩."""
    first = jnp.sqrt(b) + _ratio(c, jnp.sqrt(a))
    second = jnp.sqrt(a) + _ratio(c, jnp.sqrt(b))
    return (a * first + c * second) / (2 * _ROOT_TWO_PI)


def _sine(p: int, q: int, quarter_turns: int) -> PairFunction:
    """sin(z + quarter_turns·π/2): each derivative is one more quarter turn."""
    alpha, beta = p + quarter_turns, q + quarter_turns
    same = math.cos(0.5 * math.pi * ((alpha - beta) % 4))
    opposite = math.cos(0.5 * math.pi * ((alpha + beta) % 4))

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        mean = 0.5 * (a + b)
        if abs(same - opposite) < 1e-9:  # ½·same·(e^{c−mean} − e^{−c−mean}), exact at small c
            return same * jnp.exp(-mean) * jnp.sinh(c)
        return 0.5 * (same * jnp.exp(c - mean) - opposite * jnp.exp(-c - mean))

    return value


def _exp(p: int, q: int) -> PairFunction:
    del p, q
    return lambda a, b, c: jnp.exp(0.5 * (a + b) + c)


def _from_kernel(kernel: PairFunction, p: int, q: int) -> PairFunction | None:
    """⟨σσ⟩, ⟨σ'σ'⟩ = ∂_c, ⟨σ''σ⟩ = 2∂_a and ⟨σσ''⟩ = 2∂_b of a smooth closed form (Price)."""
    if (p, q) == (0, 0):
        return kernel
    variable = {(1, 1): 2, (2, 0): 0, (0, 2): 1}.get((p, q))
    if variable is None:
        return None
    factor = 1.0 if variable == 2 else 2.0

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        a, b, c = jnp.broadcast_arrays(a, b, c)
        tangents = [jnp.zeros_like(a), jnp.zeros_like(b), jnp.zeros_like(c)]
        tangents[variable] = jnp.ones_like(c)
        return factor * jax.jvp(kernel, (a, b, c), tuple(tangents))[1]

    return value


def _erf(p: int, q: int, scale: float) -> PairFunction | None:
    """erf(scale·z): (2/π) arcsin of 2s²c/√((1+2s²a)(1+2s²b))."""
    s2 = 2.0 * scale * scale

    def norm(a: jax.Array, b: jax.Array) -> jax.Array:
        return (1.0 + s2 * a) * (1.0 + s2 * b)

    def value(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        if (p, q) == (0, 0):
            return (2.0 / math.pi) * _arcsin(s2 * c * jax.lax.rsqrt(norm(a, b)))
        root = jax.lax.rsqrt(norm(a, b) - (s2 * c) ** 2)
        if (p, q) == (1, 1):
            return (2.0 / math.pi) * s2 * root
        own = a if p == 2 else b
        return -(2.0 / math.pi) * s2 * s2 * c * root / (1.0 + s2 * own)

    return value if (p, q) in ((0, 0), (1, 1), (0, 2), (2, 0)) else None


def _gelu(p: int, q: int) -> PairFunction | None:
    """GELU, exact form: docs/derivations/gaussian-averages.md (D7.12)."""

    def kernel(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        norm = (1.0 + a) * (1.0 + b)
        arc = _arcsin(c * jax.lax.rsqrt(norm))
        tail = (a * b + c * c * (1.0 - a * b) / norm) * jax.lax.rsqrt(norm - c * c)
        return 0.25 * c + (c * arc + tail) / _TWO_PI

    return _from_kernel(kernel, p, q)


_FAMILIES: dict[str, Callable[..., PairFunction | None]] = {
    "piecewise_linear": _piecewise_linear,
    "relu2": _relu2,
    "sine": _sine,
    "exp": _exp,
    "erf": _erf,
    "gelu": _gelu,
}
