"""Files of weights do not say which activation they were trained with: what would fit better?"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dynagram._precision import IN_HASTE, float64
from dynagram.data import Data
from dynagram.data._data import is_one_hot
from dynagram.networks import Architecture, Model, Params
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
    x, y = data.x[:_SAMPLES], data.y[:_SAMPLES]
    kind = "cross-entropy" if data.outputs > 1 and is_one_hot(data.y) else "mean"
    losses = np.asarray(_losses(model.network, kind, model.in_float64().params, x, y))
    silent, given, candidates = losses[0], losses[1], losses[2:]
    best = int(np.argmin(np.where(np.isfinite(candidates), candidates, np.inf)))
    if candidates[best] * _CLEARLY < given and candidates[best] < silent:
        return _CANDIDATES[best], float(candidates[best]), float(given)
    return None


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=IN_HASTE)
def _losses(network: Architecture, kind: str, params: Params, x: Array, y: Array) -> Array:
    """The loss of a constant output, with the given activation, and with every candidate.

    Compiled as one and in haste, for it runs once: most of its time would be spent on the compiler.
    """
    constant = jnp.mean(y, axis=0, keepdims=True) * jnp.ones_like(y)
    if kind == "cross-entropy":
        constant = jnp.log(jnp.maximum(constant, 1e-12))
    losses = [loss_value(kind, constant, y)]
    for activation in (network.activation, *_CANDIDATES):
        other = Architecture(network.widths, activation, skip=network.skip or 0.0)
        losses.append(loss_value(kind, other.apply(params, x), y))
    return jnp.stack(losses)
