"""½ ∂²f : V of attention heads, f the mean of what they read: the shift that fluctuations bring.

With V = Σ_r λ_r e_r e_rᵀ and random signs g_r, v = Σ g_r √|λ_r| e_r and w = Σ g_r ±√|λ_r| e_r have
E[v wᵀ] = V, so ½ ∂²f : V is half the average of ∂_v∂_w f: one pair of directions for every sample.
The derivative is exact arithmetic with two more nilpotent directions ε and ε'. Queries and keys are
x = (1 + B)√S z in the eigenbasis of their covariance Σ, largest first, with B strictly lower
triangular and S diagonal, which along Σ + εv + ε'w are

    B_ij = εv_ij/κ_j + …,    S_i = κ_i + εv_ii + ε'w_ii − 2εε' Σ_{k<i} v_ik w_ik/κ_k.

The last part of S is left to Price's theorem, that is to the first derivatives of f: then nothing
is divided by more than the larger of two eigenvalues, and repeated tokens are nothing special.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.chain._algebra import Element
from dynagram.theory.chain._fields import CROSSED, PLAIN, TANGENT, Pair, subsets
from dynagram.theory.chain._head_slopes import Slopes
from dynagram.theory.chain._patterns import Layout, doubled, make_pattern, prepare, signed

_FIRST, _SECOND = 2, 4  # the nilpotent directions ε and ε' beside the tangent 1
_BOTH = _FIRST | _SECOND
Kernels = dict[int, Float[np.ndarray, "token token"]]  # by |S|


@dataclass(frozen=True)
class Fluctuation:
    """V as Σ_r λ_r e_r e_rᵀ, over the Gram matrices of the fields x and δx."""

    eigenvalues: Float[np.ndarray, " rank"]
    directions: dict[Pair, Float[np.ndarray, "rank token token"]]


def decompose(entries: dict[tuple[Pair, Pair], np.ndarray | None], tokens: int) -> Fluctuation:
    """Eigenvectors of V between the pairs (x, x), (δx, δx) and (x, δx), as far as they are there.

    The mean is linear in (δx, δx): its variance does not count and is left out.
    """
    sectors = [(PLAIN, TANGENT), (CROSSED,)] if (CROSSED, CROSSED) in entries else [(PLAIN,)]
    square = tokens * tokens
    values: list[np.ndarray] = []
    rows: dict[Pair, list[np.ndarray]] = {pair: [] for sector in sectors for pair in sector}
    for sector in sectors:
        matrix = np.zeros((len(sector), square, len(sector), square))
        for i, left in enumerate(sector):
            for j, right in enumerate(sector):
                entry = entries.get((left, right))
                if entry is not None and (left, right) != (TANGENT, TANGENT):
                    matrix[i, :, j, :] = entry.reshape(square, square)
        flat = matrix.reshape(len(sector) * square, -1)
        eigenvalues, basis = np.linalg.eigh(0.5 * (flat + flat.T))
        alive = np.abs(eigenvalues) > 1e-13 * max(float(np.abs(eigenvalues).max()), 1e-300)
        values.append(eigenvalues[alive])
        parts = basis[:, alive].T.reshape(-1, len(sector), tokens, tokens)
        for pair, listed in rows.items():
            inside = pair in sector
            listed.append(parts[:, sector.index(pair)] if inside else np.zeros_like(parts[:, 0]))
    return Fluctuation(
        np.concatenate(values), {pair: np.concatenate(part) for pair, part in rows.items()}
    )


@dataclass(frozen=True)
class _Factors:
    """Of queries or keys: x = basis (1 + B)√S z over (field, token), and how B and S move."""

    basis: Float[np.ndarray, "row row"]
    eigenvalues: Float[np.ndarray, " row"]
    inverse: Float[np.ndarray, " row"]
    lower: Float[np.ndarray, "rank row row"]  # v_ij/κ_j
    half: Float[np.ndarray, "rank row"]  # v_ii/2κ_i
    deficit: Float[np.ndarray, "row row"]  # the average of the part of S left to Price's theorem


@dataclass
class Curvature:
    """½ ∂²f : V for heads that read a Gram matrix with kernels K, by |S|."""

    layout: Layout
    K: Kernels
    fluctuation: Fluctuation

    def __post_init__(self) -> None:
        block = self.layout.block
        self._tangent = len(self.K) > 1
        self._factors = {
            "q": self._factored(block.C_q, block.lambda_q),
            "k": self._factored(block.C_k, block.lambda_k),
        }

    def _moved(self, C: float, rate: float) -> dict[Pair, np.ndarray]:
        """dΣ along every direction, by the fields of its two factors."""
        along = self.fluctuation.directions
        made = {PLAIN: C * along[PLAIN]}
        if self._tangent:
            made[TANGENT] = C * along[TANGENT] + rate * along[PLAIN]
            made[CROSSED] = C * along[CROSSED]
            made[1, 0] = np.swapaxes(made[CROSSED], 1, 2)
        return made

    def _factored(self, C: float, rate: float) -> _Factors:
        tokens = self.K[0].shape[0]
        fields = len(self.K)
        rows = fields * tokens
        basis, eigenvalues = np.zeros((rows, rows)), np.zeros(rows)
        for s in range(fields):
            at = slice(s * tokens, (s + 1) * tokens)
            matrix = C * self.K[s] + (rate * self.K[0] if s else 0.0)
            eigenvalues[at], basis[at, at] = np.linalg.eigh(matrix)
        order = np.argsort(-eigenvalues, kind="stable")
        basis, eigenvalues = basis[:, order], np.maximum(eigenvalues[order], 0.0)
        alive = eigenvalues > 1e-13 * max(float(eigenvalues[0]), 1e-300)
        inverse = np.where(alive, 1.0 / np.where(alive, eigenvalues, 1.0), 0.0)
        rank = self.fluctuation.eigenvalues.size
        whole = np.zeros((rank, fields, tokens, fields, tokens))
        for (S, S2), change in self._moved(C, rate).items():
            whole[:, S, :, S2, :] = change
        turned = basis.T @ whole.reshape(rank, rows, rows) @ basis
        half = 0.5 * np.diagonal(turned, axis1=1, axis2=2) * inverse
        lower = np.tril(turned, -1) * inverse
        lost = -2.0 * np.einsum("r,rik,k->i", self.fluctuation.eigenvalues, lower**2, eigenvalues)
        return _Factors(basis, eigenvalues, inverse, lower, half, (basis * lost) @ basis.T)

    def settled(self, slopes: Slopes) -> Kernels:
        """The part that first derivatives hold."""
        tokens = self.K[0].shape[0]
        made = {}
        for S in range(len(self.K)):
            total = np.zeros((tokens, tokens))
            for name, factors in self._factors.items():
                for T in range(S + 1):
                    at = slice(T * tokens, (T + 1) * tokens)
                    slope = slopes.of(name, (S, S), (T, T))
                    if slope is not None:
                        total += 0.5 * np.einsum("abce,ce->ab", slope, factors.deficit[at, at])
            made[S] = total
        return made

    def sampled(self, rng: np.random.Generator, count: int) -> Kernels:
        """Sums of the rest over `count` samples, and as many with queries of the other sign."""
        block, layout = self.layout.block, self.layout
        eigenvalues = self.fluctuation.eigenvalues
        signs = rng.choice([-1.0, 1.0], size=(count, eigenvalues.size))
        first = signs * np.sqrt(np.abs(eigenvalues))
        weights = (first, first * np.sign(eigenvalues))
        fields = tuple(range(8)) if self._tangent else (0, _FIRST, _SECOND, _BOTH)
        q, k = (self._fields(rng, name, weights, count) for name in ("q", "k"))
        q, k = (prepare(layout, side, fields).ready for side in (signed(q), doubled(k)))
        _, P = make_pattern(layout, q, k, fields)
        values = self._values(weights)
        base = {0: block.C_v * self.K[0]}
        if self._tangent:
            base[1] = block.C_v * self.K[1] + block.lambda_v * self.K[0]
        results: Kernels = {}
        for S in range(len(self.K)):
            total = np.zeros_like(self.K[0])
            for U in subsets(S):
                for U2 in subsets(S):
                    total += _sandwiched(P, (U, U2), (S ^ U, S ^ U2), base, values)
            results[S] = 0.5 * total
        return results

    def _fields(
        self, rng: np.random.Generator, name: str, weights: tuple[np.ndarray, ...], count: int
    ) -> Element:
        """Queries or keys of all fields, tangent and nilpotent."""
        factors, tokens = self._factors[name], self.K[0].shape[0]
        rows = factors.eigenvalues.size
        normal = rng.standard_normal((count, rows, self.layout.block.head_size))
        still = np.sqrt(factors.eigenvalues)[:, None] * normal
        flat = factors.lower.reshape(len(factors.lower), -1)
        (Bv, hv), (Bw, hw) = (
            ((weight @ flat).reshape(-1, rows, rows), (weight @ factors.half)[..., None])
            for weight in weights
        )
        crossed = (Bv * factors.eigenvalues) @ np.swapaxes(Bw, 1, 2)
        Bvw = -np.tril(crossed + np.swapaxes(crossed, 1, 2), -1) * factors.inverse
        Bvw -= 2.0 * (Bv * np.swapaxes(hw, 1, 2) + Bw * np.swapaxes(hv, 1, 2))
        made: Element = {}
        for E, part in (
            (0, still),
            (_FIRST, hv * still + Bv @ still),
            (_SECOND, hw * still + Bw @ still),
            (_BOTH, Bvw @ still + Bv @ (hw * still) + Bw @ (hv * still) - hv * hw * still),
        ):
            x = factors.basis @ part
            for s in range(len(self.K)):
                made[s | E] = x[:, s * tokens : (s + 1) * tokens]
        return made

    def _values(self, weights: tuple[np.ndarray, ...]) -> dict[tuple[int, Pair], np.ndarray]:
        """dΣ of the values along v and w, for every sample."""
        block, made = self.layout.block, {}
        for pair, change in self._moved(block.C_v, block.lambda_v).items():
            for E, weight in zip((_FIRST, _SECOND), weights, strict=True):
                moved = (weight @ change.reshape(len(change), -1)).reshape(-1, *change.shape[1:])
                made[E, pair] = np.concatenate([moved, moved])
        return made


def _sandwiched(
    P: Element,
    patterns: Pair,
    fields: Pair,
    base: Kernels,
    values: dict[tuple[int, Pair], np.ndarray],
) -> Float[np.ndarray, "a b"]:
    """The coefficient of εε' in P_U Cov(v_S, v_S') P_U'ᵀ, summed over samples."""
    total = np.zeros_like(base[0])
    for left in subsets(_BOTH):
        for right in subsets(_BOTH ^ left):
            between = _BOTH ^ left ^ right
            one, two = P[patterns[0] | left], P[patterns[1] | right]
            if between == 0 and fields[0] == fields[1]:
                middle = base[fields[0]]
            elif between in (_FIRST, _SECOND):  # the covariance is linear in ε and ε'
                middle = values[between, fields]
            else:
                continue
            total += np.einsum("nac,nbc->ab", one @ middle, two, optimize=True)
    return total
