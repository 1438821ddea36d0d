"""Overlaps of the fields and the collective kernel they make up (Nordio (14), (51), (160), (172)).

⟨x^α y^β⟩ = (1/N) Σ_i x_i^α y_i^β with N = n_L, also for the input. Q^(ℓ) = ⟨u_ℓ u_ℓ⟩,
S^(ℓ) = ⟨z_ℓ z_ℓ⟩ with z = a ⊙ b, and K = Σ_ℓ Q^(ℓ-1) ⊙ S^(ℓ): the neural tangent kernel of Ŷ.
Every function takes the fields of one set of samples, the rows, and optionally of a second, the
columns; so the overlaps of unseen inputs with the training set are `f(unseen, train)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dynagram.errors import NonFiniteError
from dynagram.observables.fields._state import Fields

Overlaps = Float[np.ndarray, "layer rows columns"]


def activation_overlaps(fields: Fields, others: Fields | None = None) -> Overlaps:
    """Q^(ℓ)_αβ = u_ℓ^α·u_ℓ^β/N, ℓ = 0..L (14), (155).

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [ℓ, α, β], ℓ = 0..L. Cost: M² Σ n_ℓ multiply-adds.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, -2.0]]))
    >>> activation_overlaps(state).tolist()
    [[[5.0, -1.0], [-1.0, 2.0]], [[5.0, 0.0], [0.0, 0.0]]]
    """
    return _grams(fields.u, (others or fields).u, fields.N)


def conjugate_correlators(fields: Fields, others: Fields | None = None) -> Overlaps:
    """S^(ℓ)_αβ = z_ℓ^α·z_ℓ^β/N, ℓ = 1..L (160), (173); S^(L) = A^(L) for a readout of ±1.

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [ℓ-1, α, β], ℓ = 1..L.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    >>> conjugate_correlators(state).tolist()
    [[[1.0, 0.5], [0.5, 0.5]]]
    """
    return _grams(fields.z, (others or fields).z, fields.N)


def coactivation(fields: Fields, others: Fields | None = None) -> Overlaps:
    """A^(ℓ)_αβ = a_ℓ^α·a_ℓ^β/n_ℓ, ℓ = 1..L (51): for ReLU the share of units active for both.

    Untrained ReLU layers without biases give 1/2 − θ/2π for inputs at the angle θ, on average.

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [ℓ-1, α, β], ℓ = 1..L.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    >>> coactivation(state).tolist()
    [[[1.0, 0.5], [0.5, 0.5]]]
    """
    pairs = zip(fields.a, (others or fields).a, strict=True)
    return np.stack([first @ second.T / first.shape[1] for first, second in pairs])


def kernel_terms(fields: Fields, others: Fields | None = None) -> Overlaps:
    """What each layer adds to K: Q^(ℓ-1) ⊙ S^(ℓ), ℓ = 1..L, and the readout's term last (172).

    The last term is 0 when the readout is fixed. With the learning rates of the network it is
    (λ_W/n_{ℓ-1} Q^(ℓ-1) + λ_b/N) ⊙ S^(ℓ): what `ntk_terms` gives, here also for two sets.

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [ℓ-1, α, β], ℓ = 1..L+1.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    >>> kernel_terms(state).tolist()
    [[[5.0, 0.5], [0.5, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    """
    correlators = conjugate_correlators(fields, others)
    # z_{L+1} = N, so that Ŷ = z_{L+1}·(…)/N: the readout is one more layer with S = N.
    readout = np.full_like(correlators[:1], fields.N)
    return moved_overlaps(fields, others) * np.concatenate([correlators, readout])


def collective_kernel(
    fields: Fields, others: Fields | None = None
) -> Float[np.ndarray, "rows columns"]:
    """K_αβ = Σ_ℓ Q^(ℓ-1)_αβ S^(ℓ)_αβ (172): by how much a step on β moves the output for α.

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [α, β].

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0], [0.0, 2.0]]))
    >>> collective_kernel(state).tolist()
    [[5.0, 0.5], [0.5, 1.0]]
    """
    return kernel_terms(fields, others).sum(axis=0)


def layer_shares(terms: Overlaps) -> Float[np.ndarray, " layer"]:
    """tr of each layer's term over tr K: which layer does how much of the first step.

    **Arguments:**

    - `terms`: from `kernel_terms`.

    **Returns:** one number per layer, with the sum 1; nan where no gradient reaches any layer.

    >>> layer_shares(np.stack([np.eye(3), 3 * np.eye(3)])).tolist()
    [0.25, 0.75]
    """
    traces = np.trace(terms, axis1=1, axis2=2)
    if not np.isfinite(traces.sum()):
        raise NonFiniteError("tangent kernels overflow: wrong activation, weights or inputs?")
    return traces / traces.sum() if traces.sum() > 0.0 else np.full(len(traces), np.nan)


def moved_overlaps(fields: Fields, others: Fields | None = None) -> Overlaps:
    """λ_W/n_ℓ Q^(ℓ) + λ_b/N, ℓ = 0..L: Q as it enters the updates; Q itself in the source."""
    Q = activation_overlaps(fields, others)
    rates = np.array([fields.rate(layer) for layer in range(1, len(Q) + 1)], dtype=Q.dtype)
    biases = np.array(fields.network.lambda_b, dtype=Q.dtype) / fields.N
    return rates[:, None, None] * Q + biases[:, None, None]


def _grams(first: Sequence[np.ndarray], second: Sequence[np.ndarray], N: int) -> np.ndarray:
    return np.stack([a @ b.T / N for a, b in zip(first, second, strict=True)])
