"""Pair functions f_ab = σ^(p)(z_a) σ^(q)(z_b): their mean and derivatives in K, all pairs.

By Stein's lemma the parts of f_ab that are linear and quadratic in z are l_a z_a + l_b z_b and
J_ab (z_az_b − K_ab) + J_aa (z_a² − K_aa) + J_bb (z_b² − K_bb), with l and J two-sample averages of
higher derivatives. J is also ∂⟨f_ab⟩/∂K: it carries the inherited terms of every recursion.
Derivation: docs/derivations/gaussian-averages.md (D7.13).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from dynagram._arrays import Array, SameArray
from dynagram._pairs import pair_indices, pair_numbers
from dynagram.activations import Activation
from dynagram.gaussian._quadrature import product_rule
from dynagram.gaussian._rounding import is_steep, resolved_order, rounding
from dynagram.gaussian._scalar import hermite_polynomial
from dynagram.gaussian._two_point import two_point_matrix

_COLLINEAR = 1e-13


class TwoPoint:
    """⟨σ^(p)_a σ^(q)_b⟩_K for all pairs of samples, each order computed once.

    >>> from dynagram.activations import activation
    >>> averages = TwoPoint(activation("linear"), np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> averages(0, 0).tolist(), averages(1, 1).tolist()
    ([[2.0, 1.0], [1.0, 3.0]], [[1.0, 1.0], [1.0, 1.0]])
    """

    def __init__(self, sigma: Activation, K: Float[np.ndarray, "n n"]):
        self.sigma, self.K = sigma, K
        self._known: dict[tuple[int, int], np.ndarray] = {}

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.K.shape[0]

    def __call__(self, p: int, q: int) -> Float[np.ndarray, "n n"]:
        """The matrix with entries ⟨σ^(p)(z_a) σ^(q)(z_b)⟩."""
        if (p, q) not in self._known:
            if (q, p) in self._known:
                return self._known[q, p].T
            self._known[p, q] = two_point_matrix(self.sigma, self.K, p, q)
        return self._known[p, q]

    def on_ray(
        self, a: Int[np.ndarray, " pair"], b: Int[np.ndarray, " pair"]
    ) -> Float[np.ndarray, " pair"]:
        """s where z_b = s·z_a in every network (a = b; collinear, σ kinked or steep), else nan."""
        K = self.K
        norm = np.sqrt(K[a, a]) * np.sqrt(K[b, b])
        collinear = (np.abs(K[a, b]) >= norm * (1.0 - _COLLINEAR)) & (norm > 0)
        beside = collinear & (a != b)
        straight = (a == b) | (beside & (np.any(beside) and not _takes_derivatives(self.sigma, 4)))
        ratio = np.sqrt(K[b, b] / np.where(K[a, a] > 0, K[a, a], 1.0)) * np.sign(K[a, b])
        return np.where(straight, np.where(a == b, 1.0, ratio), np.nan)


@dataclass(frozen=True, eq=False)
class PairFamily:
    """f_ab = σ^(p)_a σ^(q)_b on a list of pairs: a ≤ b when p = q, else all ordered pairs.

    `value` ⟨f⟩ · `linear` (l_a, l_b) · `jacobian` (J_ab, J_aa, J_bb). Where z_b is a multiple of
    z_a (on the diagonal above all) only l_a and J_aa are used, the derivatives along that ray.
    """

    p: int
    q: int
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    value: Float[np.ndarray, " pair"]
    linear: Float[np.ndarray, "pair 2"]
    jacobian: Float[np.ndarray, "pair 3"]

    @classmethod
    def of(cls, averages: TwoPoint, p: int, q: int) -> PairFamily:
        """The family of orders (p, q), from at most six matrices of two-sample averages."""
        samples = averages.samples
        if p == q:
            a, b = pair_indices(samples)
        else:
            a, b = (index.reshape(-1) for index in np.indices((samples, samples)))
        value = averages(p, q)[a, b]
        linear = np.stack([averages(p + 1, q)[a, b], averages(p, q + 1)[a, b]], axis=1)
        jacobian = np.stack(
            [
                averages(p + 1, q + 1)[a, b],
                0.5 * averages(p + 2, q)[a, b],
                0.5 * averages(p, q + 2)[a, b],
            ],
            axis=1,
        )
        _straighten(averages, p, q, a, b, linear, jacobian)
        return cls(p, q, a, b, value, linear, jacobian)

    def propagate(self, tensor: Float[SameArray, "*lead pair"]) -> Float[SameArray, "*lead f"]:
        """Σ_C ∂⟨f⟩/∂K_C · tensor_C over the last axis, a list of upper pairs.

        At most three entries per pair: never a full matrix.
        """
        number = pair_numbers(int(self.second.max(initial=0)) + 1)
        a, b = self.first, self.second
        j_ab, j_aa, j_bb = self.jacobian.T.reshape(3, *[1] * (tensor.ndim - 1), -1)
        return (
            tensor[..., number[a, b]] * j_ab
            + tensor[..., number[a, a]] * j_aa
            + tensor[..., number[b, b]] * j_bb
        )

    def matrix(self) -> Int[np.ndarray, "n n"]:
        """Position of the pair (a, b) in this family's list, whichever way round if p = q."""
        samples = int(self.second.max(initial=0)) + 1
        if self.p == self.q:
            return pair_numbers(samples)
        return np.arange(samples * samples).reshape(samples, samples)


def _straighten(
    averages: TwoPoint,
    p: int,
    q: int,
    a: np.ndarray,
    b: np.ndarray,
    linear: np.ndarray,
    jacobian: np.ndarray,
) -> None:
    """Replace two-variable derivatives by those along the ray where z_b = s·z_a."""
    sigma, K = averages.sigma, averages.K
    ratio = averages.on_ray(a, b)
    rays = np.flatnonzero(~np.isnan(ratio))
    if _takes_derivatives(sigma, max(p, q) + 2):
        linear[rays] = np.stack([linear[rays].sum(axis=1), np.zeros(rays.size)], axis=1)
        total = jacobian[rays].sum(axis=1)
    else:
        total = np.empty(rays.size)
        for i, pair in enumerate(rays):
            variance, s = float(K[a[pair], a[pair]]), float(ratio[pair])
            linear[pair] = (ray_derivative(sigma, variance, s, p, q, 1), 0.0)
            total[i] = ray_derivative(sigma, variance, s, p, q, 2)
    jacobian[rays] = 0.0
    jacobian[rays, 1] = total
    # A sample that is zero does not fluctuate: its (possibly infinite) derivatives never count.
    zero = (K[a, a] == 0.0) | (K[b, b] == 0.0)
    linear[zero[:, None] & ~np.isfinite(linear)] = 0.0
    jacobian[zero[:, None] & ~np.isfinite(jacobian)] = 0.0


def _takes_derivatives(sigma: Activation, order: int) -> bool:
    """Whether derivatives of averages may stand on σ, up to σ^(order), at no loss."""
    return sigma.is_smooth and not is_steep(sigma) and resolved_order(sigma, order) == order


def ray_derivative(sigma: Activation, K: float, s: float, p: int, q: int, order: int) -> float:
    """⟨f He_m⟩ K^{−m/2}/(m/2)!-style derivative of f(z) = σ^(p)(z) σ^(q)(s z), m = `order`.

    order 1: ⟨f'⟩; 2: d⟨f⟩/dK = ½⟨f''⟩; 4: d²⟨f⟩/dK² = ¼⟨f⁗⟩. Derivatives are put on the Gaussian,
    so kinks need no care, or on f where σ is smooth and that loses fewer digits (D7.19). Zero at
    K = 0.
    """
    if K == 0.0:
        return 0.0
    root = math.sqrt(K)
    t, w = product_rule([(sigma, root), (sigma, s * root)])

    def derivative(times: int, z: np.ndarray) -> np.ndarray:
        values = np.zeros_like(z)
        for i in range(times + 1):
            factors = sigma.values(z, p + times - i) * sigma.values(s * z, q + i)
            values += math.comb(times, i) * s**i * factors
        return values

    on_gaussian = w * hermite_polynomial(order, t) / root**order
    forms = [(on_gaussian, functools.partial(derivative, 0))]
    highest = max(p, q) + order
    if sigma.is_smooth and resolved_order(sigma, highest) == highest:
        forms.append((w, functools.partial(derivative, order)))
        forms.sort(key=lambda form: float(np.sum(np.abs(form[0]) * rounding(form[1], root * t))))
    weights, f = forms[0]
    return float(np.sum(weights * f(root * t))) / {1: 1.0, 2: 2.0, 4: 4.0}[order]


def curvature(averages: TwoPoint, p: int) -> Float[np.ndarray, "pair 6"]:
    """½∂²⟨σ^(p)_aσ^(p)_b⟩/∂K∂K with multiplicities, for the upper pairs.

    Columns: (ab,ab), (aa,aa), (bb,bb), (ab,aa), (ab,bb), (aa,bb). On a ray only (aa,aa) counts.
    """
    a, b = pair_indices(averages.samples)
    sigma, K = averages.sigma, averages.K
    with np.errstate(invalid="ignore"):
        second = averages(p + 2, p + 2)[a, b]
        third, fourth = averages(p + 3, p + 1), averages(p + 4, p)
    table = np.stack(
        [
            0.5 * second,
            0.125 * fourth[a, b],
            0.125 * fourth[b, a],
            0.5 * third[a, b],
            0.5 * third[b, a],
            0.25 * second,
        ],
        axis=1,
    )
    ratio = averages.on_ray(a, b)
    rays = np.flatnonzero(~np.isnan(ratio))
    if _takes_derivatives(sigma, p + 4):
        # On the diagonal (∂_a + ∂_b)⁴/8 of f_ab: binomial weights 1, 4, 6, 4, 1.
        weights = np.array([1.5, 1.0, 1.0, 1.0, 1.0, 0.0])
        total = table[rays] @ weights
    else:
        total = np.array(
            [
                0.5 * ray_derivative(sigma, float(K[a[i], a[i]]), float(ratio[i]), p, p, 4)
                for i in rays
            ]
        )
    table[rays] = 0.0
    table[rays, 1] = total
    zero = (K[a, a] == 0.0) | (K[b, b] == 0.0)
    table[zero] = 0.0
    return table


def contract(
    table: Float[np.ndarray, "pair 6"], V: Float[Array, "*lead pair pair"]
) -> Float[np.ndarray, "*lead pair"]:
    """½ ∂²⟨f⟩ : V, six entries of V per pair."""
    samples = (math.isqrt(8 * table.shape[0] + 1) - 1) // 2
    a, b = pair_indices(samples)
    number = pair_numbers(samples)
    ab, aa, bb = number[a, b], number[a, a], number[b, b]
    entries = np.stack(
        [V[..., i, j] for i, j in ((ab, ab), (aa, aa), (bb, bb), (ab, aa), (ab, bb), (aa, bb))],
        axis=-1,
    )
    # A vertex entry that is exactly zero (a sample that does not fluctuate) kills its term.
    return np.sum(np.where(entries == 0.0, 0.0, table * entries), axis=-1)
