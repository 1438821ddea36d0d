"""Hermite coefficients of an activation and Mehler's series.

With x = z/√K and orthonormal Hermite polynomials h_k, T_k(K) = E[σ^(p)(√K x) h_k(x)], Mehler's
formula gives ⟨σ^(p)(z_1) σ^(q)(z_2)⟩ = Σ_k T^p_k(K_11) T^q_k(K_22) ρ^k with ρ the correlation:
N one-variable integrals instead of N² two-variable ones. Derivation:
docs/derivations/gaussian-averages.md (D7.8)-(D7.10).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from dynagram.activations import Activation
from dynagram.gaussian._quadrature import SMALLEST_VARIANCE, normal_density, standard_nodes
from dynagram.gaussian._rounding import is_steep, resolved_order, rounding

_TYPICAL_TERM = 16  # whose rounding decides between two forms

_NEGLIGIBLE = 1e-19  # of the average, by Cauchy-Schwarz
_NOWHERE = 38.0  # standard deviations: φ ends there, and farther out h_k overflows


def hermite_functions(
    t: Float[np.ndarray, "*shape"], count: int
) -> Float[np.ndarray, "count *shape"]:
    """Orthonormal h_0 … h_{count−1} at t by the three-term recursion; |h_k(t)| ≤ e^{t²/4}."""
    h = np.empty((count, *t.shape))
    h[0] = 1.0
    if count > 1:
        h[1] = t
    for k in range(1, count - 1):
        h[k + 1] = (t * h[k] - math.sqrt(k) * h[k - 1]) / math.sqrt(k + 1)
    return h


def hermite_table(
    sigma: Activation, K: Float[np.ndarray, " n"], order: int, count: int
) -> Float[np.ndarray, "count n"]:
    """T_k(K_a) = E[σ^(order)(√K_a x) h_k(x)] for k < count, deltas of kinks included.

    A jump s of σ^(i) at z₀ puts s·δ^(r)(z − z₀), r = order − 1 − i, into σ^(order), and
    E[δ^(r)(√K x − z₀) h_k(x)] = K^{−(r+1)/2} √((k+r)!/k!) h_{k+r}(t₀) φ(t₀), t₀ = z₀/√K (D7.10).
    Of a steep σ the coefficients of σ^(order) are those of σ further on, (D7.9), where that loses
    fewer digits; where σ''' or σ'''' is singular those of σ''. Cost: count × nodes × n
    multiplications, one matrix product; nodes ≈ 200-800.

    >>> from dynagram.activations import activation
    >>> hermite_table(activation("linear"), np.array([4.0]), 0, 3)[:, 0].round(12) + 0.0
    array([0., 2., 0.])
    """
    variance = np.maximum(K, SMALLEST_VARIANCE)
    first = resolved_order(sigma, order)
    table = _further_table(sigma, variance, first, order, count)
    if order == 0 or not is_steep(sigma):
        return table
    typical = min(_TYPICAL_TERM, count - 1)
    direct, above = (
        _factor(variance, order - p, count)[typical] * _rounding(sigma, variance, p)
        for p in (first, 0)
    )
    better = above < direct
    if np.any(better):
        table[:, better] = _further_table(sigma, variance[better], 0, order, count)
    return table


def _further_table(
    sigma: Activation, variance: np.ndarray, first: int, order: int, count: int
) -> np.ndarray:
    """The coefficients of σ^(order) as those of σ^(first) further on (D7.9)."""
    further = order - first
    table = _direct_table(sigma, variance, first, count + further)[further:]
    return _factor(variance, further, count) * table if further else table


def _factor(variance: np.ndarray, further: int, count: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return _rising(count, further)[:, None] * variance ** (-0.5 * further)


def _rounding(sigma: Activation, variance: np.ndarray, order: int) -> np.ndarray:
    """Of one coefficient of σ^(order), by Cauchy and Schwarz; |h_k| is 1 on average."""
    t, w = standard_nodes(sigma, variance, factors=1)
    z = np.sqrt(variance)[:, None] * t
    return np.sqrt(np.sum(w * rounding(lambda z: sigma.values(z, order), z) ** 2, axis=1))


def _rising(count: int, order: int) -> np.ndarray:
    """√((k + order)!/k!) for k < count."""
    k = np.arange(count)
    return np.prod([np.sqrt(k + step) for step in range(1, order + 1)], axis=0) + 0.0 * k


def _direct_table(sigma: Activation, variance: np.ndarray, order: int, count: int) -> np.ndarray:
    # h_k oscillates with wavenumber √k: the step must resolve it as well as σ.
    refine = max(1.0, math.sqrt(count / 256.0))
    t, w = standard_nodes(sigma, variance, factors=1, refine=refine)
    root = np.sqrt(variance)[:, None]
    # Without its value at 0, the rounding of higher coefficients falls with √K like f itself.
    constant = float(np.mean(sigma.one_sided(order)[:, order]))
    values = w * (sigma.values(root * t, order) - constant)
    if t.shape[0] == 1:
        table = hermite_functions(t[0], count) @ values.T
    else:
        table = np.stack(
            [hermite_functions(t[i], count) @ values[i] for i in range(variance.size)], axis=1
        )
    table[0] += constant
    return table + _delta_coefficients(sigma, root[:, 0], order, count)


def _delta_coefficients(sigma: Activation, root: np.ndarray, order: int, count: int) -> np.ndarray:
    table = np.zeros((count, root.size))
    for kink in sigma.kinks:
        t0 = kink.location / root
        near = np.abs(t0) < _NOWHERE
        for i, jump in enumerate(kink.jumps[:order]):
            r = order - 1 - i
            if jump == 0.0:
                continue
            h = hermite_functions(t0[near], count + r)[r:] * normal_density(t0[near])
            table[:, near] += jump * _rising(count, r)[:, None] * h / root[near] ** (r + 1)
    return table


def mehler_sum(
    left: Float[np.ndarray, "count n"],
    right: Float[np.ndarray, "count n"],
    pairs: tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]],
    rho: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " m"]:
    """Σ_k left_ka right_kb ρ^k for pairs (a, b) of columns, by Horner's rule.

    Terms that are below rounding for every pair, every other one of an odd or even function among
    them, are left out.
    """
    a, b = pairs
    share = np.max(left**2 / _norms(left), axis=1) * np.max(right**2 / _norms(right), axis=1)
    orders = np.flatnonzero(share > _NEGLIGIBLE**2)[::-1]
    powers: dict[int, np.ndarray] = {}
    total = np.zeros_like(rho)
    for k, following in zip(orders, [*orders[1:], 0][: len(orders)], strict=True):
        total += left[k][a] * right[k][b]
        gap = int(k - following)
        if gap and gap not in powers:
            powers[gap] = rho**gap
        if gap:
            total *= powers[gap]
    return total


def _norms(table: np.ndarray) -> np.ndarray:
    """Σ_k T_k², for functions that are zero something that divides."""
    return np.maximum(np.sum(table**2, axis=0), 1e-290)
