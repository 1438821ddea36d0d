"""What usual initialisations would do to the same network on the same data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.advice._initialise import orthogonal
from dynagram.data import Data
from dynagram.networks import Model
from dynagram.networks._mlp import Architecture, Layer
from dynagram.training._losses import loss_value

USUAL = ("PyTorch default", "Kaiming", "Xavier", "orthogonal")


@dataclass(frozen=True)
class Start:
    """One network at its start: `signal` and `gradient` are what the depth does to their squares.

    `signal`: variance over the data in the last hidden layer over that in the first; `gradient`:
    mean square of ∂L/∂W in the first hidden-to-hidden layer over that in the last; `loss`.
    """

    name: str
    signal: float
    gradient: float
    loss: float


def compare_starts(model: Model, data: Data, loss: str, seed: int = 0) -> tuple[Start, ...]:
    """The usual initialisations of a model's architecture beside the model as it is.

    **Arguments:**

    - `model`: a network with at least three layers.
    - `data`: inputs and targets.
    - `loss`: a name of `dynagram.training.LOSSES`.
    - `seed`: of the draws.

    **Returns:** a `Start` for each of `USUAL`, then "advised". Cost: five gradients.
    """
    network, y = model.network, jnp.asarray(data.y)

    @jax.jit
    def measured(params: tuple[Layer, ...]) -> tuple[Array, Array, Array]:
        def objective(p: tuple[Layer, ...]) -> tuple[Array, Array]:
            z = network.preactivations(p, data.x)
            spreads = jnp.stack([jnp.var(layer, axis=0).mean() for layer in z[:-1]])
            return loss_value(loss, z[-1], y), spreads

        (value, spreads), slopes = jax.value_and_grad(objective, has_aux=True)(params)
        sizes = jnp.stack([jnp.mean(layer.W**2) for layer in slopes])
        return value, spreads[-1] / spreads[0], sizes[1] / sizes[-2]

    key = jax.random.key(seed)
    drawn = {name: draw_usual(name, network, key) for name in USUAL}
    starts = []
    for name, params in {**drawn, "advised": model.params}.items():
        value, signal, gradient = (float(number) for number in measured(params))
        starts.append(Start(name, signal, gradient, value))
    return tuple(starts)


def draw_usual(name: str, network: Architecture, key: Array) -> tuple[Layer, ...]:
    """Weights and biases as torch.nn.init draws them.

    **Arguments:**

    - `name`: one of `USUAL`.
    - `network`: the architecture.
    - `key`: a JAX key.

    **Returns:** one layer (b, W) for each ℓ.
    """
    layers = []
    for index, layer_key in enumerate(jax.random.split(key, network.depth)):
        n_in, n_out = network.widths[index], network.widths[index + 1]
        for_W, for_b = jax.random.split(layer_key)
        b = jnp.zeros(n_out)
        if name == "PyTorch default":
            W, b = (
                jax.random.uniform(k, shape, minval=-1.0, maxval=1.0) / math.sqrt(n_in)
                for k, shape in ((for_W, (n_out, n_in)), (for_b, (n_out,)))
            )
        elif name == "orthogonal":
            W = orthogonal(for_W, n_in, n_out)
        else:
            variance = 2.0 / n_in if name == "Kaiming" else 2.0 / (n_in + n_out)
            W = np.sqrt(variance) * jax.random.normal(for_W, (n_out, n_in))
        layers.append(Layer(b, W))
    return tuple(layers)
