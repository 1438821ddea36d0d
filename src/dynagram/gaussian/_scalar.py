"""Averages over one Gaussian variable: ⟨Π σ^(p_i)(z) He_m(z/√K)⟩_K and derivatives in K.

These are the integrals behind the single-input theory (book §5): g, χ∥, χ⊥, h, j. Derivatives
of kinked activations are distributions: a slope jump s at z₀ puts s·δ(z − z₀) into σ'', see
docs/derivations/gaussian-averages.md (D7.3), (D7.5).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._core import both_sides
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._quadrature import (
    SMALLEST_VARIANCE,
    UNDERFLOW,
    check_variance,
    normal_density,
    standard_nodes,
)
from dynagram.gaussian._rounding import is_steep, resolved_order, rounding


def moment(
    sigma: Activation,
    K: Float[np.ndarray, "*shape"] | float,
    orders: tuple[int, ...],
    *,
    hermite: int = 0,
) -> Float[np.ndarray, "*shape"]:
    """⟨Π_i σ^(p_i)(z) · He_m(z/√K)⟩_K elementwise over `K`, p = `orders`, m = `hermite`.

    Where one factor is a delta (σ'' at a slope kink, σ' at a jump) it is evaluated at the kink; a
    product of two deltas at one place does not exist and is refused. Cost: one pass over 200-800
    nodes per K.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `K`: variances ≥ 0, one number or an array; 0 means the limit K → 0⁺.
    - `orders`: (p_1, p_2, …), the orders of the derivatives, one per factor.
    - `hermite`: m.

    **Returns:** the averages, of the shape of `K`.

    >>> from dynagram.activations import activation
    >>> round(float(moment(activation("tanh"), 1.0, (0, 0))), 12)
    0.394294490398
    >>> float(moment(activation("relu"), 2.0, (0, 2)))   # ⟨σσ''⟩: σ(0) = 0 kills the delta
    0.0
    """
    total = _moment(sigma, check_variance(K), orders, hermite)
    # What stands for K = 0 must not leave a trace of itself where the limit is 0.
    return np.where(np.abs(total) < UNDERFLOW, 0.0, total)


def _moment(sigma: Activation, K: np.ndarray, orders: tuple[int, ...], hermite: int) -> np.ndarray:
    flat = np.maximum(K.reshape(-1), SMALLEST_VARIANCE)
    t, w = standard_nodes(sigma, flat, factors=len(orders))
    root = np.sqrt(flat)[:, None]
    product = w * hermite_polynomial(hermite, t)
    values = {p: sigma.values(root * t, p) for p in set(orders)}
    with np.errstate(over="ignore", invalid="ignore"):
        for p in orders:
            product = product * values[p]
        total = np.sum(product, axis=1) + _delta_terms(sigma, root[:, 0], orders, hermite)
    finite = np.isfinite(total)
    if not np.all(finite):
        raise NonFiniteError(
            f"a Gaussian average of {sigma.name} leaves float64 at K = {flat[~finite][0]:g}: "
            "it diverges, or K is too large for its growth"
        )
    return total.reshape(K.shape)


def _delta_terms(
    sigma: Activation, root: np.ndarray, orders: tuple[int, ...], hermite: int
) -> np.ndarray:
    total = np.zeros_like(root)
    for kink in sigma.kinks:
        singular = [(p, i) for i, p in enumerate(orders) if any(kink.jumps[:p])]
        if not singular:
            continue
        lowest = next(i for i, jump in enumerate(kink.jumps) if jump)
        if len(singular) > 1 or max(p for p, _ in singular) > lowest + 1:
            raise InvalidValueError(
                "orders", orders, f"this product of derivatives of {sigma.name} does not exist"
            )
        (order, index), t0 = singular[0], kink.location / root
        others = [p for i, p in enumerate(orders) if i != index]
        # A factor that itself jumps at the delta counts with its mean: ⟨θδ⟩ = ½, as for (θ²/2)'.
        # Without a jump the kink itself is the place: a σ that is 0 there kills the delta.
        steady = not (sigma.jumps or any(others))
        sides = np.full(2, kink.location) if steady else both_sides(kink.location)
        rest = np.prod([sigma.values(sides, p) for p in others], axis=0, initial=1.0).mean()
        if abs(rest) < 1e-280:  # σ(0) = 0, seen from beside the kink
            continue
        # At a kink at 0 the density φ(t₀)/√K grows without bound as K → 0⁺.
        at_zero = (root <= math.sqrt(SMALLEST_VARIANCE)) & (kink.location == 0.0)
        height = np.where(at_zero, np.inf, normal_density(t0) / root)
        delta = kink.jumps[order - 1] * rest * height
        total += delta * hermite_polynomial(hermite, t0)
    return total


def hermite_polynomial(m: int, t: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Probabilists' He_m(t): He_2 = t² − 1, He_4 = t⁴ − 6t² + 3.

    **Arguments:**

    - `m`: the degree, ≥ 0.
    - `t`: where, any shape.

    **Returns:** He_m(t), of the shape of `t`.
    """
    coefficients = np.zeros(m + 1)
    coefficients[m] = 1.0
    return np.asarray(np.polynomial.hermite_e.hermeval(t, coefficients))


def kernel_derivative(
    sigma: Activation, K: Float[np.ndarray, "*shape"] | float, order: int, *, power: int = 2
) -> Float[np.ndarray, "*shape"]:
    """d^k/dK^k ⟨σ(z)^power⟩_K, k = `order` ≤ 4, in a form that also holds for kinked σ.

    d/dK is ½⟨f''⟩ and also ⟨f He_2⟩/2K (5.53). Derivatives are moved onto f while it has them
    (accurate at small K) and the rest onto the Gaussian (needs none of σ).

    **Arguments:**

    - `sigma`: an `Activation`.
    - `K`: variances ≥ 0, one number or an array.
    - `order`: k, 0 to 4.
    - `power`: of σ under the average.

    **Returns:** the derivatives, of the shape of `K`. Second and higher derivatives of a kinked σ
    need not exist at K = 0: they are nan there.

    >>> from dynagram.activations import activation
    >>> round(float(kernel_derivative(activation("tanh"), 1.0, 1)), 12)   # g'(1)
    0.18179768814
    """
    if not 0 <= order <= 4:
        raise InvalidValueError("order", order, "expected 0 to 4")
    # Four derivatives of σ are enough for two of d/dK; higher ones go to the Gaussian.
    result = moment_derivative(sigma, K, (0,) * power, order, on_function=min(order, 2))
    if sigma.is_scale_invariant and power == 2:
        return np.where(np.isnan(result) & (np.asarray(K) == 0.0), 0.0, result)
    return result


def moment_derivative(
    sigma: Activation,
    K: Float[np.ndarray, "*shape"] | float,
    orders: tuple[int, ...],
    order: int,
    *,
    on_function: int,
) -> Float[np.ndarray, "*shape"]:
    """d^k/dK^k ⟨Π_i σ^(p_i)(z)⟩_K, p = `orders`, k = `order`.

    Of a smooth σ `on_function` of them stand on σ, or none where σ is so steep that this loses
    fewer digits; of a kinked σ none. NaN at K = 0 where the limit is 0/0.
    """
    K = check_variance(K)
    safe = np.asarray(np.maximum(K, SMALLEST_VARIANCE))
    if not sigma.is_smooth:
        on_function = 0
    while on_function and resolved_order(sigma, highest := max(orders) + 2 * on_function) < highest:
        on_function -= 1
    result = _derivative(sigma, safe, orders, order, on_function)
    # Without a derivative on σ the limit K → 0⁺ is 0/0; one alone is exact for a kinked σ.
    lost = order - on_function >= (1 if sigma.is_smooth else 2)
    result = np.where(lost & (K == 0.0), np.nan, result)
    if on_function == 0 or not is_steep(sigma):
        return result
    bounds = [_derivative_rounding(sigma, safe, orders, order, i) for i in (on_function, 0)]
    other = _derivative(sigma, safe, orders, order, 0)
    return np.where((bounds[1] < bounds[0]) & (K > 0.0), other, result)


def _derivative(
    sigma: Activation, K: np.ndarray, orders: tuple[int, ...], order: int, on_function: int
) -> np.ndarray:
    on_gaussian = order - on_function
    total = np.zeros(K.shape)
    for raised, count in _leibniz(orders, 2 * on_function).items():
        total += count * _moment(sigma, K, raised, 2 * on_gaussian)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total * 0.5**on_function / (2.0 * K) ** on_gaussian)


def _derivative_rounding(
    sigma: Activation, K: np.ndarray, orders: tuple[int, ...], order: int, on_function: int
) -> np.ndarray:
    """How far off `_derivative` may be (D7.19)."""
    flat = K.reshape(-1)
    t, w = standard_nodes(sigma, flat, factors=len(orders))
    terms, on_gaussian = _leibniz(orders, 2 * on_function), order - on_function

    def integrand(z: np.ndarray) -> np.ndarray:
        values = {p: sigma.values(z, p) for raised in terms for p in raised}
        parts = [count * np.prod([values[p] for p in raised], axis=0)
                 for raised, count in terms.items()]  # fmt: skip
        return np.asarray(sum(parts))

    weights = np.abs(w * hermite_polynomial(2 * on_gaussian, t))
    total = np.sum(weights * rounding(integrand, np.sqrt(flat)[:, None] * t), axis=1)
    with np.errstate(over="ignore"):
        total = total * 0.5**on_function / (2.0 * flat) ** on_gaussian
    return total.reshape(K.shape)


def _leibniz(orders: tuple[int, ...], derivatives: int) -> dict[tuple[int, ...], int]:
    """The d-th derivative of Π σ^(p_i), p = `orders`, as {sorted orders: multiplicity}."""
    terms = {tuple(sorted(orders)): 1}
    for _ in range(derivatives):
        following: dict[tuple[int, ...], int] = {}
        for factors, count in terms.items():
            for i in range(len(factors)):
                raised = list(factors)
                raised[i] += 1
                key = tuple(sorted(raised))
                following[key] = following.get(key, 0) + count
        terms = following
    return terms
