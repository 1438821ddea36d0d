"""Pullback metrics and transport operators between layers (Nordio (19)-(20), (184)-(192)).

D_ℓ^αβ = diag(a_{ℓ+1}^α ⊙ a_{ℓ+1}^β), G_ℓ^αβ = W^(ℓ+1)ᵀ D_ℓ^αβ W^(ℓ+1), 𝒫_ℓ^αβ[X] =
W^(ℓ+1)ᵀ diag(a_{ℓ+1}^α) X diag(a_{ℓ+1}^β) W^(ℓ+1), 𝓜_{L-1}^αβ = S^(L)_αβ 1 and
𝓜_ℓ^αβ = S^(ℓ+1)_αβ 1 + 𝒫_ℓ^αβ[𝓜_{ℓ+1}^αβ], which moves the conjugate fields:
Δb_ℓ^α = −(2η/M) Σ_β 𝓜_ℓ^αβ u_ℓ^β r^β (185). The transposed of 𝓜^αβ is 𝓜^βα. As one map of all
fields, (α, i) ← (β, j), 𝓜_ℓ is therefore symmetric; it is also positive semidefinite, because its
blocks are Σ_m S^(m+1)_αβ (F_{ℓ→m}^α)ᵀF_{ℓ→m}^β with the forward transport F (154).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.observables.fields._operators import FieldOperator, ScaledIdentity, Sum
from dynagram.observables.fields._overlaps import conjugate_correlators
from dynagram.observables.fields._state import Fields, check_fixed_readout

Indices = Int[np.ndarray, " pairs"]


class Pullback(FieldOperator):
    """𝒫_ℓ^αβ[X] for the pairs (α_p, β_p), given X on layer ℓ+1 for the same pairs (184).

    One application costs two products with W^(ℓ+1) beside that of X.

    **Arguments:**

    - `fields`: those of a network.
    - `layer`: ℓ.
    - `alpha`, `beta`: the samples of each pair.
    - `inner`: X.
    """

    def __init__(
        self, fields: Fields, layer: int, alpha: Indices, beta: Indices, inner: FieldOperator
    ):
        self.fields, self.layer = fields, checked_layer(fields, layer)
        self.alpha, self.beta = checked_pairs(fields, alpha, beta)
        self.W, self.masks, self.inner = fields.weights(layer + 1), fields.a[layer], inner
        if (inner.count, inner.size) != (self.alpha.size, self.W.shape[0]):
            allowed = f"expected {self.alpha.size} maps of R^{self.W.shape[0]}"
            raise InvalidValueError("inner operator", (inner.count, inner.size), allowed)
        self.count, self.size, self.dtype = self.alpha.size, self.W.shape[1], self.W.dtype

    @property
    def T(self) -> FieldOperator:
        """𝒫^βα of the transposed X."""
        return Pullback(self.fields, self.layer, self.beta, self.alpha, self.inner.T)

    @property
    def symmetric(self) -> bool:
        """X is a multiple of 1 (a metric), or it is symmetric and α = β."""
        same = bool(np.all(self.alpha == self.beta))
        return isinstance(self.inner, ScaledIdentity) or (same and self.inner.symmetric)

    def on(self, pairs: slice, x: Float[np.ndarray, "pairs vectors size"]) -> np.ndarray:
        """Two products of all vectors with W^(ℓ+1), the masks and X in between."""
        # One product of matrices for all pairs and vectors, masked in place.
        up = (x.reshape(-1, self.size) @ self.W.T).reshape(*x.shape[:2], -1)
        up *= self.masks[self.beta[pairs], None, :]
        up = self.inner.on(pairs, up)
        up *= self.masks[self.alpha[pairs], None, :]
        return (up.reshape(-1, up.shape[-1]) @ self.W).reshape(x.shape)


class CollectiveTransport(FieldOperator):
    """𝓜_ℓ as one symmetric map of the fields of all M samples, on vectors (α, i) of size M n_ℓ.

    Σ_β is taken before going down, so one application costs M n² per layer and M² n per layer,
    not M² n². `apply_fields` takes and gives arrays (M, n_ℓ).

    **Arguments:**

    - `fields`: those of a network with a fixed readout.
    - `layer`: ℓ.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> CollectiveTransport(state, 1).apply_fields(np.eye(2)).tolist()      # S^(2) = A^(2)
    [[1.0, 0.5], [0.5, 0.5]]
    """

    def __init__(self, fields: Fields, layer: int):
        check_fixed_readout(fields.network, "the transport operator")
        self.fields, self.layer = fields, checked_layer(fields, layer)
        rates = [fields.rate(above) for above in range(1, fields.hidden_layers + 1)]
        self._S = conjugate_correlators(fields) * np.array(rates)[:, None, None]
        self._width = fields.v[layer - 1].shape[1]
        self.count, self.size = 1, fields.samples * self._width
        self.dtype = fields.v[0].dtype

    @property
    def T(self) -> FieldOperator:
        """Itself."""
        return self

    @property
    def symmetric(self) -> bool:
        """Always."""
        return True

    def apply_fields(self, x: Float[np.ndarray, "samples n"]) -> Float[np.ndarray, "samples n"]:
        """Σ_β 𝓜_ℓ^αβ x^β for every α."""
        return self.apply(np.asarray(x).reshape(1, -1)).reshape(self.fields.samples, -1)

    def on(self, pairs: slice, x: Float[np.ndarray, "pairs vectors size"]) -> np.ndarray:
        """Up through all layers, sum over β, and down again."""
        del pairs  # there is one map only
        fields, samples = self.fields, self.fields.samples
        signal = x.reshape(-1, samples, self._width)
        ascent = [signal]
        for above in range(self.layer + 1, fields.hidden_layers):
            moved = _rows(signal, fields.weights(above).T) * fields.a[above - 1][None]
            ascent.append(signal := moved)
        total = self._S[-1] @ ascent[-1]
        for above in range(fields.hidden_layers - 1, self.layer, -1):
            down = _rows(fields.a[above - 1][None] * total, fields.weights(above))
            total = self._S[above - 1] @ ascent[above - 1 - self.layer] + down
        return total.reshape(x.shape)


def pullback_metric(fields: Fields, layer: int, alpha: object, beta: object) -> Pullback:
    """G_ℓ^αβ = 𝒫_ℓ^αβ[1] for the pairs (α_p, β_p), ℓ = 1..L-1 (165), (188).

    **Arguments:**

    - `fields`: those of a network.
    - `layer`: ℓ.
    - `alpha`, `beta`: the samples of each pair.

    **Returns:** an operator, which `dense()` turns into matrices.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.eye(2), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> pullback_metric(state, 1, [0, 0], [0, 1]).dense().tolist()
    [[[2.0, -1.0], [-1.0, 5.0]], [[1.0, 1.0], [1.0, 1.0]]]
    """
    first, second = checked_pairs(fields, alpha, beta)
    above = fields.v[checked_layer(fields, layer)]
    one = ScaledIdentity(np.ones(first.size, dtype=above.dtype), above.shape[1])
    return Pullback(fields, layer, first, second, one)


def transport_operator(fields: Fields, layer: int, alpha: object, beta: object) -> FieldOperator:
    """𝓜_ℓ^αβ for the pairs (α_p, β_p), ℓ = 1..L-1, by the recursion (186), (187).

    **Arguments:**

    - `fields`: those of a network.
    - `layer`: ℓ.
    - `alpha`, `beta`: the samples of each pair.

    **Returns:** an operator. One application costs 2(L-1-ℓ) products of a vector with a weight
    matrix; for the sum over β of (185) `CollectiveTransport` is cheaper by a factor M.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.eye(2), np.array([[1.0, 1.0], [-1.0, 2.0]]), np.ones((2, 2))]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> transport_operator(state, 1, [0], [1]).dense().tolist()    # S^(2) 1 + S^(3) G_1 (189)
    [[[3.0, 1.0], [1.0, 3.0]]]
    """
    check_fixed_readout(fields.network, "the transport operator")
    checked_layer(fields, layer)
    first, second = checked_pairs(fields, alpha, beta)
    above = layer + 1
    z = fields.a[above - 1] * fields.b[above - 1]
    S = np.einsum("pi,pi->p", z[first], z[second]) * (fields.rate(above) / fields.N)
    local = ScaledIdentity(S.astype(z.dtype), fields.v[layer - 1].shape[1])
    if above == fields.hidden_layers:
        return local
    inner = transport_operator(fields, above, first, second)
    return Sum(local, Pullback(fields, layer, first, second, inner))


def forward_transport(
    fields: Fields, first: int, last: int, samples: object, x: Float[np.ndarray, "pairs size"]
) -> Float[np.ndarray, "pairs n"]:
    """F_{m→ℓ}^α x = D_ℓ^α W^(ℓ) ⋯ D_{m+1}^α W^(m+1) x, applied to a vector per sample (154).

    What a small change of u_m makes of u_ℓ, other things fixed; F_{ℓ→ℓ} = 1.

    **Arguments:**

    - `fields`: those of a network.
    - `first`, `last`: m and ℓ, 0 ≤ m ≤ ℓ ≤ L.
    - `samples`: α of every row of `x`.
    - `x`: vectors (rows, n_m).

    **Returns:** (rows, n_ℓ). Cost: one product with a weight matrix per layer in between.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> W = [np.eye(2), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> forward_transport(state, 0, 2, [0, 1], np.ones((2, 2))).tolist()
    [[2.0, 1.0], [1.0, 0.0]]
    """
    L = fields.hidden_layers
    if not 0 <= first <= last <= L:
        raise InvalidValueError("layers", (first, last), f"expected 0 ≤ first ≤ last ≤ {L}")
    alpha, _ = checked_pairs(fields, samples, samples)
    sizes = (len(alpha), fields.u[first].shape[1])
    signal = np.asarray(x, dtype=fields.v[0].dtype)
    if signal.shape != sizes:
        raise InvalidValueError("shape of x", signal.shape, f"expected {sizes}")
    for layer in range(first + 1, last + 1):
        signal = fields.a[layer - 1][alpha] * (signal @ fields.weights(layer).T)
    return signal


def coactivation_projector(
    fields: Fields, layer: int, alpha: object, beta: object
) -> Float[np.ndarray, "pairs n"]:
    """The diagonals of D_ℓ^αβ = diag(a_{ℓ+1}^α ⊙ a_{ℓ+1}^β), of length n_{ℓ+1} (20).

    **Arguments:**

    - `fields`: those of a network.
    - `layer`: ℓ.
    - `alpha`, `beta`: the samples of each pair.

    **Returns:** a diagonal for each pair.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2), np.eye(2)]), np.array([[2.0, 3.0], [1.0, 0.0]]))
    >>> coactivation_projector(state, 1, [0], [1]).tolist()
    [[1.0, 0.0]]
    """
    first, second = checked_pairs(fields, alpha, beta)
    masks = fields.a[checked_layer(fields, layer)]
    return masks[first] * masks[second]


def checked_layer(fields: Fields, layer: int) -> int:
    """`layer`, which must have another hidden layer above it."""
    L = fields.hidden_layers
    if not 1 <= layer < L:
        allowed = f"expected 1 to {L - 1}" if L > 1 else "needs two hidden layers or more"
        raise InvalidValueError("layer", layer, allowed)
    return layer


def checked_pairs(fields: Fields, alpha: object, beta: object) -> tuple[Indices, Indices]:
    """The samples of each pair, as two equally long vectors of integers from 0 to M-1."""
    found = []
    for name, values in (("alpha", alpha), ("beta", beta)):
        indices = np.atleast_1d(np.asarray(values))
        if indices.dtype.kind not in "iu" or indices.ndim != 1 or indices.size == 0:
            raise InvalidTypeError(name, values, "expected the numbers of one or more samples")
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= fields.samples:
            wrong, allowed = (low if low < 0 else high), f"samples are 0 to {fields.samples - 1}"
            raise InvalidValueError(name, wrong, allowed)
        found.append(indices.astype(np.intp))
    if found[0].size != found[1].size:
        sizes = (found[0].size, found[1].size)
        raise InvalidValueError("lengths of alpha and beta", sizes, "must agree")
    return found[0], found[1]


def _rows(signal: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """signal @ matrix as one product of matrices, whatever axes come before the last."""
    flat = signal.reshape(-1, signal.shape[-1]) @ matrix
    return flat.reshape(*signal.shape[:-1], -1)
