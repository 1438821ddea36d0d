"""The laws of the fields for several outputs and any loss: one step of gradient descent.

With e_k^α = ∂𝓛/∂Ŷ_k^α in place of (2/M) r^α, to first order in η with masks held fixed

    ΔŶ_k^α  = −η Σ_β,k' K^{αβ}_{kk'} e_{k'}^β
    δu_ℓ^α  = −η a_ℓ^α ⊙ Σ_β Q^(ℓ-1)_αβ ζ_ℓ^β,      ζ_ℓ^β = Σ_k e_k^β z_{ℓ,k}^β,      Δu as (152)
    Δb_ℓ,k^α = −η Σ_β (z_{ℓ+1,k}^α·ζ_{ℓ+1}^β/N) u_ℓ^β + W^(ℓ+1)ᵀ(a_{ℓ+1}^α ⊙ Δb_{ℓ+1,k}^α)

and the gradient (1/N) Σ_β ζ_ℓ^β (u_{ℓ-1}^β)ᵀ is exact. Sums over outputs are taken first, so that
the cost does not grow with their square. e = (2/M) r and one output give (150)-(185).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Layer
from dynagram.observables.fields._outputs import OutputFields
from dynagram.observables.fields._overlaps import moved_overlaps
from dynagram.observables.fields._state import check_fixed_readout, check_piecewise_linear
from dynagram.training._losses import check_loss, check_loss_targets
from dynagram.training._losses import loss_gradient as gradient_of_loss

Signal = Float[np.ndarray, "train outputs"]
PerLayer = tuple[Float[np.ndarray, "samples _"], ...]


@dataclass(frozen=True, eq=False)
class FieldStep:
    """What one step of gradient descent does to the fields, to first order in η.

    **Arguments:**

    - `output`: ΔŶ, (samples, outputs).
    - `u`: Δu_ℓ, ℓ = 1..L.
    - `b`: Δb_ℓ,k for every output, ℓ = 1..L; None where its law does not hold (a trained readout,
        or an activation that is not piecewise linear).
    """

    output: Float[np.ndarray, "samples outputs"]
    u: PerLayer
    b: tuple[PerLayer, ...] | None


def output_signal(
    fields: OutputFields, y: Float[np.ndarray, "samples outputs"], loss: str = "mean"
) -> Float[np.ndarray, "samples outputs"]:
    """e_k^α = ∂𝓛/∂Ŷ_k^α of a loss at the outputs of the network.

    **Arguments:**

    - `fields`: those of the training set.
    - `y`: targets (M, outputs).
    - `loss`: a name such as "mean", "half-sum", "cross-entropy", "logistic".

    **Returns:** e, (M, outputs).

    >>> from dynagram.networks import Model
    >>> from dynagram.observables.fields import output_fields
    >>> model = Model.of_matrices([np.eye(2), np.eye(2)], "relu")
    >>> state = output_fields(model, np.array([[1.0, 1.0]]))
    >>> output_signal(state, np.array([[1.0, 0.0]]), "cross-entropy").tolist()
    [[-0.5, 0.5]]
    """
    name = check_loss(loss)
    targets = np.asarray(y, dtype=np.float64)
    if targets.shape != fields.outputs.shape:
        raise InvalidValueError("shape of y", targets.shape, f"expected {fields.outputs.shape}")
    check_loss_targets(name, targets)
    with jax.enable_x64(True):
        outputs = jnp.asarray(fields.outputs, jnp.float64)
        return np.asarray(gradient_of_loss(name, outputs, jnp.asarray(targets)))


def signal_gradient(train: OutputFields, signal: Signal) -> tuple[Layer, ...]:
    """∂𝓛/∂(bias, W) of all layers, the readout last, exactly.

    **Arguments:**

    - `train`: fields of the training set.
    - `signal`: e, from `output_signal`.

    **Returns:** a `Layer` per layer of weights.

    >>> from dynagram.networks import Model
    >>> from dynagram.observables.fields import output_fields
    >>> model = Model.of_matrices([np.eye(2), np.ones((1, 2))], "relu")
    >>> state = output_fields(model, np.array([[3.0, 1.0]]))
    >>> [layer.W.tolist() for layer in signal_gradient(state, np.array([[0.5]]))]
    [[[1.5, 0.5], [1.5, 0.5]], [[1.5, 0.5]]]
    """
    _check(train, signal)
    zeta, N = train.pulled(signal), train.shared.N
    layers = [
        Layer(z.sum(axis=0) / N, z.T @ u / N)  # pyright: ignore[reportArgumentType]
        for z, u in zip(zeta, train.shared.u[:-1], strict=True)
    ]
    last = Layer(signal.sum(axis=0), signal.T @ train.shared.u[-1])  # pyright: ignore[reportArgumentType]
    return (*layers, last)


def field_step(
    train: OutputFields, signal: Signal, eta: float, others: OutputFields | None = None
) -> FieldStep:
    """One step of gradient descent on any loss, as a step of the fields.

    **Arguments:**

    - `train`: fields of the training set.
    - `signal`: e, from `output_signal`.
    - `eta`: η; layers move with the learning rates of the network times η.
    - `others`: fields of unseen inputs, whose updates are asked for instead.

    **Returns:** a `FieldStep`. Cost per layer: M² n_ℓ for Q and its products and M n_ℓ n_{ℓ-1} per
    output for the weights.

    >>> from dynagram.networks import Model
    >>> from dynagram.observables.fields import output_fields
    >>> model = Model.of_matrices([np.eye(2), np.ones((1, 2))], "relu")
    >>> state = output_fields(model, np.array([[3.0, 1.0]]))
    >>> field_step(state, np.array([[0.5]]), 0.1).output.round(6).tolist()     # K = 20 + 10
    [[-1.5]]
    """
    _check(train, signal)
    moving = others or train
    network, shared, L = train.model.network, moving.shared, train.shared.hidden_layers
    Q, zeta, N = moved_overlaps(shared, train.shared), train.pulled(signal), train.shared.N
    du: list[np.ndarray] = []
    for index in range(L):
        own = -eta * (Q[index] @ zeta[index])
        carried = du[-1] @ train.shared.weights(index + 1).T if index else 0.0
        du.append(shared.a[index] * (own + carried))
    readout = np.asarray(train.model.params[-1].W)
    output = du[-1] @ readout.T - eta * N * (Q[-1] @ signal)
    try:
        check_fixed_readout(network, "Δb")
        check_piecewise_linear(network, "Δb")
    except InvalidValueError:
        return FieldStep(output, tuple(du), None)
    each = []
    for fields in moving.each:
        db = [np.zeros_like(fields.b[-1])]
        for layer in range(L - 1, 0, -1):
            S = fields.z[layer] @ zeta[layer].T / N
            own = -eta * train.shared.rate(layer + 1) * (S @ train.shared.u[layer])
            carried = (fields.a[layer] * db[0]) @ train.shared.weights(layer + 1)
            db.insert(0, own + carried)
        each.append(tuple(db))
    return FieldStep(output, tuple(du), tuple(each))


def _check(train: OutputFields, signal: np.ndarray) -> None:
    if signal.shape != train.outputs.shape:
        raise InvalidValueError("shape of signal", signal.shape, f"expected {train.outputs.shape}")
