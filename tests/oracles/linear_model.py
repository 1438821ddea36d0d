"""A network trained as a linear model (10.30), (10.138): features ∂z/∂θ fixed at its start.

The kernel view asks what training does to outputs; here the same training is solved for the
parameters. With J = ∂z_A/∂θ, Ĥ = JλJᵀ and f the gains of the algorithm, the displacement is
Δθ = −λ Jᵀ f(Ĥ) (z_A − y), for the end of training the smallest one (in λ⁻¹) that fits. It says how
far every layer moves and what each adds to an output. With W* for Δθ and k for Ĥ this is the dual
identity (10.131).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.networks import MLP, Layer, Model, Params, check_inputs
from dynagram.theory.training._one_network import own_training
from dynagram.training import Training


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A network at its start, and how far training moves its parameters when NTKs stand still."""

    network: MLP
    start: Params
    displacement: Params

    def outputs(self, x: object) -> Float[np.ndarray, "sample outputs"]:
        """z(x) + J(x)Δθ: what `predict_outputs` of a `Model` gives at infinite width."""
        inputs = check_inputs(x, self.network.widths[0], "x")
        initial = _in_float64(self.network, self.start, inputs)
        return initial + self.changes(x).sum(axis=0)

    @float64
    def changes(self, x: object) -> Float[np.ndarray, "layer sample outputs"]:
        """What the displacement of each layer adds to the outputs at `x`; they add up.

        Cost: one forward pass with a tangent per layer.
        """
        inputs = jnp.asarray(check_inputs(x, self.network.widths[0], "x"))
        found = []
        for layer in range(self.network.depth):
            alone = tuple(
                moved if index == layer else jax.tree.map(jnp.zeros_like, moved)
                for index, moved in enumerate(self.displacement)
            )
            _, change = jax.jvp(lambda p: self.network.apply(p, inputs), (self.start,), (alone,))
            found.append(np.asarray(change))
        return np.stack(found)

    def distances(self) -> Float[np.ndarray, " layer"]:
        """‖Δθ‖ of every layer relative to ‖θ‖ at its start, biases and weights together."""
        return np.array(
            [
                np.sqrt(sum(np.sum(np.square(part)) for part in moved))
                / np.sqrt(sum(np.sum(np.square(part)) for part in layer))
                for moved, layer in zip(self.displacement, self.start, strict=True)
            ]
        )


@float64
def linear_model(model: Model, data: Data, how: Training) -> LinearModel:
    """Train one network as a linear model on a squared error, to the last moment of `how`.

    Cost: `ntk` on the training samples, (N_A n_L)³ and one backward pass; no N_A × parameters
    array is made.
    """
    model = model.in_float64()
    network, params = model.network, jax.tree.map(jnp.asarray, model.params)
    x, y = data.merged.x, data.merged.y
    training, z = own_training(model, Data(data.x, data.y), how)
    pull = training.dual(how.end) @ (z - y).reshape(-1)
    _, backward = jax.vjp(lambda p: network.apply(p, jnp.asarray(x)), params)
    (gradient,) = backward(jnp.asarray(pull.reshape(z.shape)))
    rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
    displacement = tuple(
        Layer(-b * way.b, -W / fan_in * way.W)
        for way, (b, W, fan_in) in zip(gradient, rates, strict=True)
    )
    return LinearModel(network, params, displacement)


@float64
def _in_float64(network: MLP, params: Params, x: np.ndarray) -> np.ndarray:
    return np.asarray(network.apply(params, jnp.asarray(x)))
