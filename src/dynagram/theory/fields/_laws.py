"""What one step of gradient descent does to the fields, to first order in η (Nordio (150)-(187)).

With masks held fixed: Δr = −(2η/M) K r (171), δu_ℓ^α = −(2η/M) a_ℓ^α ⊙ Σ_β Q^(ℓ-1)_αβ z_ℓ^β r^β
(150), Δu_ℓ = δu_ℓ + a_ℓ ⊙ W^(ℓ)Δu_{ℓ-1} (152), Δb_ℓ^α = −(2η/M) Σ_β 𝓜_ℓ^αβ u_ℓ^β r^β (185). β
runs over the training set; α too, or over unseen inputs, whose fields are then given as `others`.
The gradient itself, (2/(MN)) Σ_β r^β z_ℓ^β (u_{ℓ-1}^β)ᵀ (40), (69), (83), is exact.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Layer
from dynagram.observables.fields._overlaps import (
    collective_kernel,
    conjugate_correlators,
    moved_overlaps,
)
from dynagram.observables.fields._state import (
    Fields,
    check_fixed_readout,
    check_piecewise_linear,
)

Residual = Float[np.ndarray, " train"]
PerLayer = tuple[Float[np.ndarray, "samples _"], ...]


def loss_gradient(train: Fields, residual: Residual) -> tuple[Layer, ...]:
    """∂𝓛/∂(bias, W) of the hidden layers, exactly: (2/(MN)) Σ_β r^β z_ℓ^β (u_{ℓ-1}^β)ᵀ (83).

    **Arguments:**

    - `train`: fields of the training set.
    - `residual`: r = Ŷ − Y, (M,).

    **Returns:** a `Layer` per hidden layer.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> loss_gradient(state, np.array([0.5]))[0].W.tolist()       # 2 r/(MN) = 0.5
    [[1.5, 0.5], [1.5, 0.5]]
    """
    _check_residual(train, residual)
    factor = 2.0 / (train.samples * train.N)
    moved = [factor * residual[:, None] * z for z in train.z]
    return tuple(
        Layer(z.sum(axis=0), z.T @ u)  # pyright: ignore[reportArgumentType]
        for z, u in zip(moved, train.u[:-1], strict=True)
    )


def output_update(
    train: Fields, residual: Residual, eta: float, others: Fields | None = None
) -> Float[np.ndarray, " samples"]:
    """ΔŶ^α = −(2η/M) Σ_β K_αβ r^β (59), (171), also with a trained readout.

    Exact for one hidden layer while no mask flips, else wrong by O(η²).

    **Arguments:**

    - `train`: fields of the training set.
    - `residual`: r = Ŷ − Y, (M,).
    - `eta`: η.
    - `others`: fields of unseen inputs, whose updates are asked for instead.

    **Returns:** (samples,).

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> output_update(state, np.array([0.5]), eta=0.1).round(6).tolist()   # K = 5
    [-0.5]
    """
    _check_residual(train, residual)
    return -2.0 * eta / train.samples * (collective_kernel(others or train, train) @ residual)


def local_updates(
    train: Fields, residual: Residual, eta: float, others: Fields | None = None
) -> PerLayer:
    """δu_ℓ, ℓ = 1..L: what the layer's own weights do to u_ℓ, its input held fixed (150).

    **Arguments:**

    - `train`: fields of the training set.
    - `residual`: r = Ŷ − Y, (M,).
    - `eta`: η.
    - `others`: fields of unseen inputs, whose updates are asked for instead.

    **Returns:** one array (samples, n_ℓ) per hidden layer.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> local_updates(state, np.array([0.5]), eta=0.1)[0].round(6).tolist()
    [[-0.5, -0.5]]
    """
    _check_residual(train, residual)
    moving = others or train
    Q = moved_overlaps(moving, train)
    factor = -2.0 * eta / train.samples * residual[:, None]
    return tuple(
        a * (overlap @ (factor * z)) for a, overlap, z in zip(moving.a, Q, train.z, strict=False)
    )


def activation_updates(
    train: Fields, residual: Residual, eta: float, others: Fields | None = None
) -> PerLayer:
    """Δu_ℓ, ℓ = 1..L, to first order in η (152). Any activation, with a = σ'.

    **Arguments:**

    - `train`: fields of the training set.
    - `residual`: r = Ŷ − Y, (M,).
    - `eta`: η.
    - `others`: fields of unseen inputs, whose updates are asked for instead.

    **Returns:** one array (samples, n_ℓ) per hidden layer. Cost per layer: M² n_ℓ for Q and its
    product, M n_ℓ n_{ℓ-1} for what comes from below.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2), np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> [u.round(6).tolist() for u in activation_updates(state, np.array([0.5]), eta=0.1)]
    [[[-0.5, -0.5]], [[-1.0, -1.0]]]
    """
    moving = others or train
    updates: list[np.ndarray] = []
    for index, own in enumerate(local_updates(train, residual, eta, others)):
        carried = moving.a[index] * (updates[-1] @ train.weights(index + 1).T) if index else 0.0
        updates.append(own + carried)
    return tuple(updates)


def conjugate_updates(
    train: Fields, residual: Residual, eta: float, others: Fields | None = None
) -> PerLayer:
    """Δb_ℓ, ℓ = 1..L, to first order in η; Δb_L = 0 (158), (185).

    By the recursion Δb_ℓ = −(2η/M) Σ_β S^(ℓ+1)_αβ u_ℓ^β r^β + W^(ℓ+1)ᵀ(a_{ℓ+1} ⊙ Δb_{ℓ+1}),
    which is Σ_β 𝓜_ℓ^αβ u_ℓ^β r^β summed over β first, and holds with biases, too. It needs a
    fixed readout and slopes that stay while masks do: linear, ReLU, leaky ReLU or abs.

    **Arguments:**

    - `train`: fields of the training set.
    - `residual`: r = Ŷ − Y, (M,).
    - `eta`: η.
    - `others`: fields of unseen inputs, whose updates are asked for instead.

    **Returns:** one array (samples, n_ℓ) per hidden layer.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> state = fields(fixed_readout([np.eye(2), np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> conjugate_updates(state, np.array([0.5]), eta=0.1)[0].round(6).tolist()   # S^(2) = 1
    [[-0.3, -0.1]]
    """
    _check_residual(train, residual)
    check_fixed_readout(train.network, "the law of the conjugate fields")
    check_piecewise_linear(train.network, "the law of the conjugate fields")
    moving = others or train
    S = conjugate_correlators(moving, train)
    factor = -2.0 * eta / train.samples * residual[:, None]
    updates = [np.zeros_like(moving.b[-1])]
    for layer in range(train.hidden_layers - 1, 0, -1):
        own = train.rate(layer + 1) * (S[layer] @ (factor * train.u[layer]))
        carried = (moving.a[layer] * updates[0]) @ train.weights(layer + 1)
        updates.insert(0, own + carried)
    return tuple(updates)


def _check_residual(train: Fields, residual: np.ndarray) -> None:
    if residual.shape != (train.samples,):
        allowed = f"expected ({train.samples},), one per training sample"
        raise InvalidValueError("shape of residual", residual.shape, allowed)
