"""Two-sample averages ⟨σ^(p)(z_1) σ^(q)(z_2)⟩_K for any activation and any K, singular ones too.

Order of preference: closed form; one-variable quadrature when the pair is collinear or a sample is
zero; Mehler's series; conditional quadrature for the nearly collinear pairs on which the series
has not converged. Every path treats σ'' of a kink as the delta it is:
docs/derivations/gaussian-averages.md (D7.5)-(D7.10).
"""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64, on_host
from dynagram.activations import Activation
from dynagram.activations._core import both_sides, padded_size
from dynagram.activations._resolution import panels_of
from dynagram.errors import InvalidValueError
from dynagram.gaussian._closed_forms import closed_form
from dynagram.gaussian._hermite import hermite_table, mehler_sum
from dynagram.gaussian._quadrature import (
    REACH,
    SMALLEST_VARIANCE,
    UNDERFLOW,
    check_variance,
    feature_scale,
    normal_density,
    panel_rule,
    product_rule,
    require_reach,
)
from dynagram.gaussian._rounding import is_steep, resolved_order, rounding
from dynagram.gaussian._scalar import hermite_polynomial, moment

_TERMS = 256
_COLLINEAR = 1e-13  # 1 − |ρ| below this is rounding of identical or proportional inputs
_SERIES_TOLERANCE = 1e-13
_MEANS_AT_ONCE = 256
_CROSSING_GRADES = np.array([-16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0])


def two_point(
    sigma: Activation,
    K_11: Float[np.ndarray, "*shape"],
    K_22: Float[np.ndarray, "*shape"],
    K_12: Float[np.ndarray, "*shape"],
    p: int = 0,
    q: int = 0,
) -> Float[np.ndarray, "*shape"]:
    """⟨σ^(p)(z_1) σ^(q)(z_2)⟩ elementwise, p, q ≤ 6; relative accuracy about 1e-12.

    Cost: 256 terms per pair plus one Hermite table over the distinct variances; nearly collinear
    pairs of kinked activations without closed form cost a 2-d quadrature (tenths of a second) each.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `K_11`, `K_22`: the variances of z_1 and z_2, ≥ 0. A zero variance means the limit of small
        independent noise on that sample.
    - `K_12`: their covariance, |K_12| ≤ √(K_11 K_22).
    - `p`, `q`: the orders of the derivatives, 0 to 6.

    **Returns:** the averages, of the common shape of the three arrays. Those that diverge for a
    collinear pair (two deltas at one place) are infinite there.

    >>> from dynagram.activations import activation
    >>> one, c = np.array([1.0]), np.array([0.3])
    >>> two_point(activation("tanh"), one, one, c).round(12)
    array([0.11066839])
    """
    if not (0 <= p <= 6 and 0 <= q <= 6):
        raise InvalidValueError("p, q", (p, q), "derivative orders run from 0 to 6")
    a, b, c = np.broadcast_arrays(
        check_variance(K_11), check_variance(K_22), np.asarray(K_12, float)
    )
    limit = np.sqrt(a) * np.sqrt(b)
    if not np.all(np.isfinite(c)) or np.any(np.abs(c) > limit * (1 + 1e-9) + 1e-300):
        worst = np.argmax(np.where(np.isfinite(c), np.abs(c) - limit, np.inf))
        raise InvalidValueError(
            "K_12", float(c.flat[worst]), f"need |K_12| ≤ √(K_11 K_22) = {limit.flat[worst]:.6g}"
        )
    shape = a.shape
    a, b, c = (np.ascontiguousarray(v, dtype=np.float64).reshape(-1) for v in (a, b, c))
    if closed_form(sigma, p, q) is not None:
        return _evaluate_closed(sigma, p, q, a, b, c).reshape(shape)
    return _average(sigma, p, sigma, q, a, b, c).reshape(shape)


def cross_average(
    f: Activation,
    g: Activation,
    K_11: Float[np.ndarray, " m"],
    K_22: Float[np.ndarray, " m"],
    K_12: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " m"]:
    """⟨f(z_1) g(z_2)⟩ elementwise for two different functions, by the methods of `two_point`.

    **Arguments:**

    - `f`, `g`: two `Activation`s.
    - `K_11`, `K_22`: the variances of z_1 and z_2, (m,); not checked.
    - `K_12`: their covariance, (m,).

    **Returns:** the averages, (m,).
    """
    return _average(f, 0, g, 0, K_11, K_22, K_12)


def _average(
    f: Activation, p: int, g: Activation, q: int, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> np.ndarray:
    """⟨f^(p)(z_1) g^(q)(z_2)⟩ by the method each pair allows."""
    norm = np.sqrt(a) * np.sqrt(b)
    rho = np.clip(np.divide(c, norm, out=np.zeros_like(c), where=norm > 0), -1.0, 1.0)
    result = np.empty_like(c)
    zero = norm == 0
    if np.any(zero):
        result[zero] = _mean(f, p, a[zero]) * _mean(g, q, b[zero])
    collinear = 1.0 - np.abs(rho) < _COLLINEAR
    for i in np.flatnonzero(collinear):
        root_b = math.copysign(math.sqrt(b[i]), rho[i])
        result[i] = _collinear(f, p, g, q, math.sqrt(a[i]), root_b)
    rest = np.flatnonzero(~collinear & ~zero)
    if rest.size:
        values, converged = _series(f, p, g, q, a[rest], b[rest], rho[rest])
        for i in np.flatnonzero(~converged):
            pair = rest[i]
            values[i] = _conditional_quadrature(
                f, p, g, q, float(a[pair]), float(b[pair]), float(rho[pair])
            )
        result[rest] = values
    return result


def _mean(f: Activation, order: int, variance: np.ndarray) -> np.ndarray:
    """⟨f^(order)⟩; at zero variance the mean of its two sides at 0, infinite for a delta there."""
    result = np.full(variance.shape, math.inf)
    alive = variance > 0
    if np.any(alive):
        result[alive] = hermite_table(f, variance[alive], order, 1)[0]
    if not any(kink.location == 0.0 and any(kink.jumps[:order]) for kink in f.kinks):
        result[~alive] = np.mean(f.one_sided(order)[:, order])
    return result


def two_point_matrix(
    sigma: Activation, K: Float[np.ndarray, "n n"], p: int = 0, q: int = 0
) -> Float[np.ndarray, "n n"]:
    """⟨σ^(p)(z_i) σ^(q)(z_j)⟩ for every pair of a covariance matrix; the diagonal has z_i = z_j.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `K`: the covariance of the samples, (n, n).
    - `p`, `q`: the orders of the derivatives, 0 to 6.

    **Returns:** the matrix of averages, (n, n).
    """
    K = K.copy()
    # A sample that is zero is still fully correlated with itself: the limit K → 0⁺.
    variance = np.maximum(np.diagonal(K), SMALLEST_VARIANCE)
    np.fill_diagonal(K, variance)
    columns = np.broadcast_to(variance[:, None], K.shape)
    rows = np.broadcast_to(variance[None, :], K.shape)
    zero = variance <= SMALLEST_VARIANCE
    off = ~np.eye(K.shape[0], dtype=bool)
    if p == q:
        upper = np.triu_indices(K.shape[0])
        result = np.empty_like(K)
        result[upper] = two_point(
            sigma,
            np.where(off & zero[:, None], 0.0, columns)[upper],
            np.where(off & zero[None, :], 0.0, rows)[upper],
            K[upper],
            p,
            q,
        )
        result = np.triu(result) + np.triu(result, 1).T
    else:
        result = two_point(
            sigma,
            np.where(off & zero[:, None], 0.0, columns),
            np.where(off & zero[None, :], 0.0, rows),
            K,
            p,
            q,
        )
    return np.where(np.abs(result) < UNDERFLOW, 0.0, result)


@functools.lru_cache(maxsize=256)
def _compiled_closed_form(sigma: Activation, p: int, q: int):
    function = closed_form(sigma, p, q)
    assert function is not None
    return jax.jit(function)


@float64
def _evaluate_closed(
    sigma: Activation, p: int, q: int, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> np.ndarray:
    padded = [np.ones(padded_size(c.size)) for _ in range(3)]
    padded[2][:] = 0.0
    for target, source in zip(padded, (a, b, c), strict=True):
        target[: c.size] = source
    with on_host():
        return np.asarray(_compiled_closed_form(sigma, p, q)(*padded))[: c.size]


def _series(
    f: Activation, p: int, g: Activation, q: int, a: np.ndarray, b: np.ndarray, rho: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mehler's series and whether its tail, bounded by Cauchy-Schwarz, is below the tolerance."""
    variances, index = np.unique(np.concatenate([a, b]), return_inverse=True)
    ia, ib = index[: a.size], index[a.size :]
    count = _TERMS
    while True:
        left = hermite_table(f, variances, p, count)
        right = left if (f, p) == (g, q) else hermite_table(g, variances, q, count)
        total = mehler_sum(left, right, (ia, ib), rho)
        scale = np.sqrt(_energy(left)[ia] * _energy(right)[ib])
        # The terms from half-way on bound what is left beyond the last one.
        late = np.sqrt(_energy(left[count // 2 :])[ia] * _energy(right[count // 2 :])[ib])
        log_rho = np.log(np.maximum(np.abs(rho), 1e-300))
        tail = late * np.exp(count * log_rho) / np.maximum(-np.expm1(log_rho), 1.0 / count)
        left_out = np.sqrt(
            _left_out(f, p, variances, left)[ia] * _left_out(g, q, variances, right)[ib]
        )
        tail = np.maximum(tail, left_out * np.exp(count * log_rho))
        converged = tail <= _SERIES_TOLERANCE * np.maximum(scale, 1e-290)
        if np.all(converged) or count >= 4 * _TERMS:
            return total, converged
        count *= 4


def _left_out(f: Activation, order: int, variances: np.ndarray, table: np.ndarray) -> np.ndarray:
    """⟨(f^(order))²⟩ beyond the last coefficient (Parseval), for functions not known.

    Those of the catalogue have coefficients that fall steadily: the late ones tell the rest.
    """
    if f.known or any(any(kink.jumps[:order]) for kink in f.kinks):
        return np.zeros(variances.shape)
    return np.maximum(moment(f, variances, (order, order)) - _energy(table), 0.0)


def _energy(table: np.ndarray) -> np.ndarray:
    return np.sum(table**2, axis=0)


def _collinear(f: Activation, p: int, g: Activation, q: int, root_a: float, root_b: float) -> float:
    """z_2 = (root_b/root_a) z_1: a one-variable average, with panels at the kinks of both."""
    factors = ((f, p, root_a), (g, q, root_b))
    reach = REACH + f.growth * root_a + g.growth * abs(root_b)
    t, w = product_rule([(f, root_a), (g, root_b)], reach)
    total = float(np.sum(w * f.values(root_a * t, p) * g.values(root_b * t, q)))
    for (h, order, root), (other, other_order, other_root) in (factors, factors[::-1]):
        for kink in h.kinks:
            for i, jump in enumerate(kink.jumps[:order]):
                if jump == 0.0:
                    continue
                t0 = kink.location / root
                clash = any(
                    any(k.jumps[:other_order]) and abs(k.location - other_root * t0) < 1e-9
                    for k in other.kinks
                )
                if clash or order - 1 - i > 0:
                    return math.inf
                # The other factor counts with the mean of its two sides at the delta.
                sides = other.values(both_sides(other_root * t0 + 0.0), other_order)
                total += (
                    jump * float(np.mean(sides)) * float(normal_density(np.array(t0))) / abs(root)
                )
    return total


def _conditional_quadrature(
    f: Activation, p: int, g: Activation, q: int, a: float, b: float, rho: float
) -> float:
    """Integrate over z_2 given z_1, then over z_1; both with panels at kinks and features."""
    first = resolved_order(f, p)
    if p > q and (is_steep(f) or first < p):  # derivatives inside find their Gaussian at once
        return _conditional_quadrature(g, q, f, p, b, a, rho)
    root_a, slope = math.sqrt(a), rho * math.sqrt(b)
    spread = math.sqrt(max(b * (1.0 - rho) * (1.0 + rho), SMALLEST_VARIANCE))
    reach = REACH + f.growth * root_a + g.growth * math.sqrt(b)
    # The conditional mean is smooth on the scale `spread`: refine where it crosses a kink.
    crossings = np.array([kink.location for kink in g.kinks]) / slope
    grading = spread / abs(slope) * _CROSSING_GRADES
    edges = [(crossings[:, None] + grading[None, :]).reshape(-1)]
    scale = None
    if (panels_f := panels_of(f)) is not None and (panels_g := panels_of(g)) is not None:
        require_reach(f, reach * root_a)
        require_reach(g, reach * math.sqrt(b))
        edges.append(panels_f.within(reach * root_a) / root_a)
        edges.append(panels_g.within(reach * abs(slope)) / slope)
    else:
        edges.append(np.array([kink.location for kink in f.kinks] or [0.0]) / root_a)
        scale = min(feature_scale(f) / root_a, feature_scale(g) / abs(slope))
    u, w = panel_rule(np.concatenate(edges), scale, reach)
    total, bound = _by_parts(f, p, first, g, q, u, w, root_a, slope, spread)
    if p == 0 or not is_steep(f):
        return total
    other, least = _by_parts(f, p, 0, g, q, u, w, root_a, slope, spread)
    return other if least < bound else total


def _by_parts(
    f: Activation, p: int, first: int, g: Activation, q: int,
    u: np.ndarray, w: np.ndarray, root_a: float, slope: float, spread: float,
) -> tuple[float, float]:  # fmt: skip
    """⟨f^(p) g^(q)⟩ over nodes u of z_1/√K_11 with f^(first), deltas included, and its rounding.

    The other p − first derivatives of f stand on the density and on the means of g (D7.20). The
    rounding of an f that is not steep is not looked at, and 0.
    """
    parts = p - first
    kernel, unsure = np.zeros_like(u), np.zeros_like(u)
    for i in range(parts + 1):
        mean, error = _conditional_mean(g, q + i, slope * u, spread)
        factor = math.comb(parts, i) * (-slope / root_a) ** i * root_a ** (i - parts)
        factor = factor * hermite_polynomial(parts - i, u)
        kernel, unsure = kernel + factor * mean, unsure + np.abs(factor) * error
    values = f.values(root_a * u, first)
    total = float(np.sum(w * values * kernel))
    for kink in f.kinks:
        for i, jump in enumerate(kink.jumps[:first]):
            if jump:
                place, a = kink.location, root_a * root_a
                total += jump * _delta_average(place, p - 1 - i, a, g, q, slope / root_a, spread)
    if not is_steep(f):
        return total, 0.0
    uncertain = rounding(lambda z: f.values(z, first), root_a * u)
    return total, float(np.sum(w * (uncertain * np.abs(kernel) + np.abs(values) * unsure)))


def _delta_average(
    z0: float, r: int, a: float, g: Activation, q: int, regression: float, spread: float
) -> float:
    """⟨δ^(r)(z_1 − z₀) g^(q)(z_2)⟩ = (−1)^r d^r/dz [p(z)⟨g^(q)|z⟩] at z₀ (D7.6)."""
    t0 = np.array(z0 / math.sqrt(a))
    total = 0.0
    for i in range(r + 1):
        density = (-1.0) ** (r - i) * hermite_polynomial(r - i, t0) / a ** ((r - i) / 2)
        mean = _conditional_mean(g, q + i, np.array([regression * z0]), spread)[0][0]
        total += math.comb(r, i) * float(density) * regression**i * mean
    return (-1.0) ** r * total * float(normal_density(t0)) / math.sqrt(a)


def _conditional_mean(
    g: Activation, order: int, mean: np.ndarray, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """⟨g^(order)(mean + spread·v)⟩ over a standard normal v, deltas (D7.7) included; its rounding.

    Of a steep g the derivatives stand on the Gaussian where that loses fewer digits, of one with
    a singular σ''' or σ'''' those beyond σ''; the rounding of mild ones is not looked at, and 0.
    """
    reach, panels = REACH + g.growth * spread, panels_of(g)
    steep, first = is_steep(g), resolved_order(g, order)
    total, bound = np.empty(mean.shape), np.zeros(mean.shape)
    other, least = np.zeros(mean.shape), np.full(mean.shape, np.inf)
    for start in range(0, mean.size, _MEANS_AT_ONCE):
        part = slice(start, start + _MEANS_AT_ONCE)
        if panels is None:
            edges, scale = (
                np.array([k.location for k in g.kinks] or [0.0]),
                feature_scale(g) / spread,
            )
        else:  # of its edges those that these means can reach
            low, high = mean[part].min() - reach * spread, mean[part].max() + reach * spread
            edges, scale = panels.edges[(panels.edges > low) & (panels.edges < high)], None
        v, w = panel_rule((edges[None, :] - mean[part, None]) / spread, scale, reach)
        z = mean[part, None] + spread * v
        weights = w
        if first < order:
            weights = w * hermite_polynomial(order - first, v) / spread ** (order - first)
        total[part] = np.sum(weights * g.values(z, first), axis=1)
        if steep:
            unsure = rounding(lambda z: g.values(z, first), z)
            bound[part] = np.sum(np.abs(weights) * unsure, axis=1)
        if steep and order:
            weights = w * hermite_polynomial(order, v) / spread**order
            other[part] = np.sum(weights * g.values(z), axis=1)
            least[part] = np.sum(np.abs(weights) * rounding(g.values, z), axis=1)
    for kink in g.kinks:
        t0 = (kink.location - mean) / spread
        for i, jump in enumerate(kink.jumps[:first]):
            s = order - 1 - i
            if jump:
                total += jump * hermite_polynomial(s, t0) * normal_density(t0) / spread ** (s + 1)
    better = least < bound
    return np.where(better, other, total), np.where(better, least, bound)
