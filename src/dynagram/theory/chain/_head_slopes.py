"""How the mean of what heads read moves with the covariances of queries, keys and values.

A = Σ P_U Cov(v) P_U'ᵀ, and by Price's theorem a derivative in the covariance of two fields is the
average of two derivatives in the fields. A derivative in q_T or k_T takes T out of the fields of P,
so what is left of a pair (S, S') must be one and the same set W on both sides, of one direction at
most: a few tensors for |W| = 0 and 1 hold every derivative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.chain._algebra import Element, Fields, multiply
from dynagram.theory.chain._fields import Pair, subsets
from dynagram.theory.chain._patterns import Layout, Prepared, make_pattern

Slope = Float[np.ndarray, "a b c e"]  # of the mean of A_ab, by the covariance at tokens c and e


@dataclass
class Slopes:
    """By |W|: one derivative on each of the two factors of A, and both on the first."""

    apart: dict[str, dict[int, Slope]]  # of "q", "k", "v"
    together: dict[str, dict[int, Slope]]  # of "q", "k"

    def of(self, name: str, pair: Pair, fields: Pair) -> Slope | None:
        """∂⟨A_(S a, S' b)⟩/∂Σ_(T c, T' e); for T = T' both orders of (c, e) are to be summed."""
        (S, S2), (T, T2) = pair, fields
        total: Slope | None = None

        def add(part: Slope) -> None:
            nonlocal total
            total = part if total is None else total + part

        if name in self.together and not T & T2:
            if S2 & ~S == 0 and S ^ S2 == T | T2:
                add(self.together[name][S2.bit_count()])
            if S & ~S2 == 0 and S ^ S2 == T | T2:
                add(np.swapaxes(self.together[name][S.bit_count()], 0, 1))
        if T & ~S == 0 and T2 & ~S2 == 0 and S ^ T == S2 ^ T2:
            add(self.apart[name][(S ^ T).bit_count()])
        if T2 & ~S == 0 and T & ~S2 == 0 and S ^ T2 == S2 ^ T:
            add(np.swapaxes(self.apart[name][(S ^ T2).bit_count()], 2, 3))
        return total if total is None or T != T2 else 0.5 * total


def measure_slopes(
    layout: Layout, q: Prepared, k: Prepared, values: dict[int, np.ndarray], fields: Fields
) -> tuple[np.ndarray, ...]:
    """Sums over the samples of the tensors of `Slopes`, in the order that `gather_slopes` takes.

    `values` are the covariances of the values by |S|. Cost: a few T⁵ for every sample.
    """
    logits, P = make_pattern(layout, q.ready, k.ready, fields)
    T = P[0].shape[1]
    one = np.eye(T)
    outer = multiply(P, P, lambda a, b: a[..., :, None] * b[..., None, :], fields)
    D = {S: P[S][..., None] * one - outer[S] for S in P}  # ∂P_ac/∂ℓ_ae, (sample, a, c, e)
    E: Element = {S: part[:, :, :, None, :] * one[..., None] for S, part in D.items()}
    for left, right, product in (
        (D, P, lambda d, p: d[:, :, :, None, :] * p[:, :, None, :, None]),
        (P, D, lambda p, d: p[:, :, :, None, None] * d[:, :, None, :, :]),
    ):  # ∂²P_ac/∂ℓ_ae∂ℓ_af
        for S, part in multiply(left, right, product, fields).items():
            E[S] = E[S] - part
    x = _pull(layout, k.ready, q, 1, fields)  # ∂ℓ_ae/∂q_a, (sample, a, e, component)
    y = _pull(layout, q.ready, k, 2, fields)  # ∂ℓ_ae/∂k_e
    bent_q, bent_k = (_bend(layout, logits, side, axis, fields) for side, axis in ((q, 1), (k, 2)))

    Q = multiply(D, x, lambda d, v: d @ v, fields)
    xx = multiply(x, x, lambda a, b: a @ np.swapaxes(b, 2, 3), fields)
    Q2 = multiply(E, xx, _contract, fields)
    yy = multiply(y, y, lambda a, b: a @ np.swapaxes(b, 2, 3), fields)
    R2 = multiply(E, yy, lambda e, v: e * v[:, :, None], fields)
    if bent_q is not None and bent_k is not None:
        extra = multiply(D, bent_q, lambda d, v: (d @ v[..., None])[..., 0], fields)
        Q2 = {S: part + extra[S] for S, part in Q2.items()}
        extra = multiply(D, bent_k, lambda d, v: (d * v[:, :, None])[..., None] * one, fields)
        R2 = {S: part + extra[S] for S, part in R2.items()}

    found = []
    for W in fields:
        n = P[0].shape[0]
        flat = P[W].reshape(n, T * T)
        PP = (flat.T @ flat).reshape(T, T, T, T)  # (a, c, b, e)
        QQ, QP = np.zeros((T, T)), np.zeros((T, T))
        RR, RP = np.zeros((T, T, T, T)), np.zeros((T, T, T, T))
        for Y in subsets(W):
            rest, Cv = W ^ Y, values[Y.bit_count()]
            moved = np.einsum("cd,nbdi->nbci", Cv, Q[rest], optimize=True).reshape(n, T, -1)
            QQ += np.einsum("nax,nbx->ab", Q[rest].reshape(n, T, -1), moved, optimize=True)
            read = Cv @ np.swapaxes(P[rest], 1, 2)  # (sample, c, b)
            QP += np.einsum("nac,ncb->ab", Q2[rest], read, optimize=True)
            turned = np.moveaxis(R2[rest], 2, -1).reshape(n, T * T * T, T)
            RP += (turned @ read).sum(axis=0).reshape(T, T, T, T)  # (a, e, f, b)
            for U in subsets(rest):
                for U2 in subsets(rest):
                    if rest ^ U not in y or rest ^ U2 not in y:
                        continue
                    left = np.swapaxes(D[U], 2, 3).reshape(n, T * T, T) @ Cv
                    right = np.moveaxis(D[U2], 2, 1).reshape(n, T, T * T)
                    pulled = _pairs(y[rest ^ U], y[rest ^ U2])
                    RR += ((left @ right).reshape(n, T, T, T, T) * pulled).sum(axis=0)
        found += [PP, QQ, QP, RR, RP]
    return tuple(found)


def gather_slopes(sums: tuple[np.ndarray, ...], samples: int) -> Slopes:
    """The tensors in the order (a, b, c, e), from sums over `samples`."""
    apart: dict[str, dict[int, Slope]] = {"q": {}, "k": {}, "v": {}}
    together: dict[str, dict[int, Slope]] = {"q": {}, "k": {}}
    for W in range(len(sums) // 5):
        PP, QQ, QP, RR, RP = (part / samples for part in sums[5 * W : 5 * W + 5])
        one = np.eye(QQ.shape[0])
        apart["v"][W] = PP.transpose(0, 2, 1, 3)
        apart["k"][W] = RR.transpose(0, 2, 1, 3)
        apart["q"][W] = np.einsum("ab,ac,be->abce", QQ, one, one)
        together["k"][W] = RP.transpose(0, 3, 1, 2)
        together["q"][W] = np.einsum("ab,ac,ae->abce", QP, one, one)
    return Slopes(apart, together)


def _contract(e: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Σ_ef E(a, c, e, f) v(a, e, f), v with or without an axis a of its own."""
    flat = v.reshape(*v.shape[:2], -1, 1)
    return (e.reshape(*e.shape[:3], -1) @ flat)[..., 0]


def _pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Σ_i y_i(a, e) y_i(b, f) as (sample, a, e, b, f)."""
    n, a, e, d = left.shape
    b, f = right.shape[1:3]
    product = left.reshape(n, a * e, d) @ np.swapaxes(right.reshape(n, b * f, d), 1, 2)
    return product.reshape(n, a, e, b, f)


def _pull(layout: Layout, other: Element, side: Prepared, axis: int, fields: Fields) -> Element:
    """∂ℓ_ae/∂q_a (axis 1) or ∂ℓ_ae/∂k_e (axis 2): the other factor, turned back and projected."""
    scale = layout.block.logit_scale
    if layout.block.angles(layout.positions) is None and side.inverse is None:
        return {S: scale * np.expand_dims(part, axis) for S, part in other.items()}
    tokens = layout.inputs * layout.positions
    wide: Element = {}
    for S, part in other.items():
        shape = (part.shape[0], tokens, tokens, part.shape[-1])
        full = np.broadcast_to(np.expand_dims(scale * part, axis), shape)
        wide[S] = layout.turn(full, axis, -1.0)
    if side.inverse is None or side.unit is None:
        return wide
    unit = {S: np.expand_dims(part, 3 - axis) for S, part in side.unit.items()}
    inverse = {S: np.expand_dims(part, 3 - axis) for S, part in side.inverse.items()}
    along = multiply(unit, wide, lambda a, b: np.mean(a * b, axis=-1, keepdims=True), fields)
    for S, part in multiply(unit, along, np.multiply, fields).items():
        wide[S] = wide[S] - part if S in wide else -part
    return multiply(wide, inverse, np.multiply, fields)


def _bend(
    layout: Layout, logits: Element, side: Prepared, axis: int, fields: Fields
) -> Element | None:
    """Σ_i ∂²ℓ_ae/∂q_i² through the norm: the Laplacian of q/rms(q) is −(1 − 1/d) q/rms(q)³."""
    if side.inverse is None:
        return None
    d = layout.block.head_size
    inverse = {S: np.expand_dims(part[..., 0], 3 - axis) for S, part in side.inverse.items()}
    square = multiply(inverse, inverse, np.multiply, fields)
    return multiply(logits, square, lambda a, b: -(1.0 - 1.0 / d) * a * b, fields)
