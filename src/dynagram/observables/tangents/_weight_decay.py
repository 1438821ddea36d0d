"""What weight decay does to the preactivations of one network, layer by layer (10.42), (10.43).

A loss with the term Σ a_μ θ_μ² moves the parameters by −2η λ a θ on top of the gradient of the
data, and the preactivations by −2η R̂, R̂^(ℓ) = Σ λ_μν a_μ θ_μ dz^(ℓ)/dθ_ν: one forward pass.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.networks import Model
from dynagram.networks._checks import PerLayer, per_layer
from dynagram.networks._model import takes_model
from dynagram.observables.tangents._signals import check_differentiable

_STRENGTH = "the strength of weight decay must be ≥ 0"


@takes_model
def weight_decay_drift(
    model: Model, x: ArrayLike, *, a_b: PerLayer = 1.0, a_W: PerLayer = 1.0
) -> tuple[Float[Array, "N n_l"], ...]:
    """R̂^(ℓ) of every layer (10.42), by its forward equation (10.43).

    R̂^(ℓ+1) = a_b λ_b b + a_W (λ_W/n_ℓ) W σ + W (σ' R̂^(ℓ)), with γ R̂^(ℓ) added across a skip.

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `x`: inputs (N, n_0), one per row.
    - `a_b`, `a_W`: the strengths a of biases and weights in Σ a θ², one number or one per layer;
        those of the prior that the network was drawn from are `prior_decay` of it.

    **Returns:** R̂^(1), …, R̂^(L), the ℓ-th of shape (N, n_ℓ); −2η R̂ is what weight decay adds to
    z^(ℓ) in a step. Cost: that of two forward passes.

    >>> from dynagram.networks import MLP
    >>> import jax
    >>> net = MLP([1, 1, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.0)
    >>> model = jax.tree.map(jnp.ones_like, net.init(seed=0))
    >>> first, last = weight_decay_drift(model, jnp.array([[2.0]]))  # z = w₂(w₁x + b₁) + b₂
    >>> first.item(), last.item()                                  # Σ λ w dz/dw
    (2.0, 5.0)
    """
    network = model.network
    check_differentiable(network, 1, "the gradient")
    decay_b = per_layer("a_b", a_b, network.depth, _STRENGTH)
    decay_W = per_layer("a_W", a_W, network.depth, _STRENGTH)
    slope = network.activation.derivative(1)
    passed = model.preactivations(x)
    signal, below = jnp.asarray(x), None
    drifts: list[Array] = []
    for index, layer in enumerate(model.params):
        rate_W = network.lambda_W[index] / network.widths[index]
        drift = decay_b[index] * network.lambda_b[index] * layer.b[None, :]
        drift = drift + decay_W[index] * rate_W * (signal @ layer.W.T)
        if below is not None:
            drift = drift + (slope(passed[index - 1]) * below) @ layer.W.T
            if (skip := network.skip_of_layers[index]) != 0.0:
                drift = drift + skip * below
        drifts.append(drift)
        signal, below = network.activation(passed[index]), drift
    return tuple(drifts)
