"""Files of weights do not say which activation they were trained with: what would fit better?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.data._data import is_one_hot
from dynagram.networks import Architecture, Model
from dynagram.training._losses import loss_value

_CANDIDATES = ("relu", "gelu", "tanh", "silu", "leaky_relu(0.01)", "elu", "sigmoid", "softplus")
# A loss so many times smaller is no accident of untrained weights, which all fit badly.
_CLEARLY = 4.0
_SAMPLES = 512


@float64
def likely_activation(model: Model, data: Data) -> tuple[str, float, float] | None:
    """An activation with which these weights fit the data far better than with the given one.

    **Arguments:**

    - `model`: weights, with the activation that is in doubt.
    - `data`: what it was trained on, or like it.

    **Returns:** its name, the loss with it and the loss as given, where the first is less than a
    quarter of the second and better than a constant output; else None. Cost: eight forward passes
    of at most 512 samples.

    >>> rng = np.random.default_rng(0)
    >>> net = [rng.normal(size=(64, 8)), rng.normal(size=(2, 64))]
    >>> x = rng.normal(size=(100, 8))
    >>> y = Model.of_matrices(net, "tanh")(x)
    >>> likely_activation(Model.of_matrices(net, "relu"), Data(x, np.asarray(y)))[0]
    'tanh'
    """
    x, y = jnp.asarray(data.x[:_SAMPLES]), jnp.asarray(data.y[:_SAMPLES])
    kind = "cross-entropy" if data.outputs > 1 and is_one_hot(data.y) else "mean"
    network, params = model.network, jax.tree.map(jnp.asarray, model.in_float64().params)

    def loss_with(activation: object) -> float:
        other = Architecture(network.widths, activation, skip=network.skip or 0.0)  # pyright: ignore
        return float(loss_value(kind, other.apply(params, x), y))

    constant = jnp.mean(y, axis=0, keepdims=True) * jnp.ones_like(y)
    if kind == "cross-entropy":
        constant = jnp.log(jnp.maximum(constant, 1e-12))
    silent, given = float(loss_value(kind, constant, y)), loss_with(network.activation)
    losses = {name: loss_with(name) for name in _CANDIDATES}
    finite = {name: loss for name, loss in losses.items() if np.isfinite(loss)}
    name = min(finite, key=lambda candidate: finite[candidate])
    if finite[name] * _CLEARLY < given and finite[name] < silent:
        return name, finite[name], given
    return None
