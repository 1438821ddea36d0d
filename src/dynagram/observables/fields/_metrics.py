"""The pullback metrics of many pairs at once: trace, effective rank, overlap with WᵀW, and nulls.

G_ℓ^αβ = Σ_i d_i w_i w_iᵀ over the rows w_i of W^(ℓ+1), with d = a_{ℓ+1}^α ⊙ a_{ℓ+1}^β: all three
follow from the row Gram matrix H = W Wᵀ. tr G = Σ_i d_i H_ii, tr G² = Σ_ij d_i d_j H_ij²,
tr G WᵀW = Σ_ij d_i H_ij². One matrix serves every pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.observables.fields._state import Fields
from dynagram.observables.fields._transport import checked_layer, coactivation_projector


@dataclass(frozen=True, eq=False)
class MetricStatistics:
    """Measures of G_ℓ^αβ, one number per pair, each with what chance alone would give.

    **Arguments:**

    - `coactive`: k = (Σd)²/Σd², for ReLU the number of units active for both samples.
    - `trace`: tr G.
    - `effective_rank`, `gram_overlap`: as in `metric_statistics`; pairs with k = 0 have effective
        rank 0 and no ratio or overlap: nan stands there, by design.
    - `effective_rank_null`, `gram_overlap_null`: their nulls.
    """

    coactive: Float[np.ndarray, " pairs"]
    trace: Float[np.ndarray, " pairs"]
    effective_rank: Float[np.ndarray, " pairs"]
    effective_rank_null: Float[np.ndarray, " pairs"]
    gram_overlap: Float[np.ndarray, " pairs"]
    gram_overlap_null: Float[np.ndarray, " pairs"]

    @property
    def rank_ratio(self) -> Float[np.ndarray, " pairs"]:
        """Effective rank over its null: below 1, the weights themselves are concentrated."""
        return _ratio(self.effective_rank, self.effective_rank_null)


def metric_statistics(fields: Fields, layer: int, alpha: object, beta: object) -> MetricStatistics:
    """Effective rank of G_ℓ^αβ and its overlap with WᵀW for the pairs (α_p, β_p), ℓ = 1..L-1.

    `effective_rank` = (tr G)²/tr G², null k n/(n + k + 1) of k Gaussian rows in n dimensions.
    `gram_overlap` = tr(G WᵀW)/(‖G‖‖WᵀW‖), null: k rows of the same W taken at random.

    **Arguments:**

    - `fields`: those of a network.
    - `layer`: ℓ.
    - `alpha`, `beta`: the samples of each pair.

    **Returns:** `MetricStatistics`. Cost: n³ for H and n² per pair; memory n² and 2n per pair.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.eye(2), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> both = metric_statistics(state, 1, [0, 0], [0, 1])
    >>> both.coactive.tolist(), both.trace.tolist(), both.effective_rank.round(3).tolist()
    ([2.0, 1.0], [7.0, 2.0], [1.581, 1.0])
    """
    W = fields.weights(checked_layer(fields, layer) + 1)
    d = coactivation_projector(fields, layer, alpha, beta)
    gram = W @ W.T
    norms, squares = np.diag(gram), gram * gram
    size, total = d.sum(axis=1), (d * d).sum(axis=1)
    coactive = _ratio(size**2, total, nothing=0.0)
    trace = d @ norms
    square = np.einsum("pi,pi->p", d @ squares, d)
    overlap = d @ squares.sum(axis=1)
    whole = float(squares.sum())
    return MetricStatistics(
        coactive=coactive,
        trace=trace,
        effective_rank=_ratio(trace**2, square, nothing=0.0),
        effective_rank_null=gaussian_effective_rank(coactive, W.shape[1]),
        gram_overlap=_ratio(overlap, np.sqrt(square * whole)),
        gram_overlap_null=_random_rows_overlap(coactive, squares),
    )


def gaussian_effective_rank(k: Float[np.ndarray, " pairs"], n: int) -> Float[np.ndarray, " pairs"]:
    """k n/(n + k + 1): E[tr G]²/E[tr G²] of k Gaussian rows in n dimensions.

    **Arguments:**

    - `k`: numbers of rows.
    - `n`: the dimension.

    **Returns:** one number for each k.

    >>> gaussian_effective_rank(np.array([0.0, 1.0, 64.0]), 256).round(2).tolist()
    [0.0, 0.99, 51.04]
    """
    return k * n / (n + k + 1.0)


def _random_rows_overlap(k: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """The overlap with WᵀW that k of its n rows, taken at random, have on average.

    The root of E tr G² stands for E ‖G‖; they differ by terms of relative size 1/k.
    """
    n, whole, own = len(squares), float(squares.sum()), float(np.trace(squares))
    pairs = k * np.maximum(k - 1.0, 0.0) / (n * max(n - 1.0, 1.0))
    expected_square = k / n * own + pairs * (whole - own)
    return _ratio(k / n * whole, np.sqrt(expected_square * whole))


def _ratio(above: np.ndarray, below: np.ndarray, *, nothing: float = np.nan) -> np.ndarray:
    """above/below, and `nothing` where both vanish."""
    return np.divide(above, below, out=np.full_like(below, nothing), where=below > 0)
