"""What the Gram experiments share: a split of a data set, training with its record, features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from dynagram.data import Data, Dataset
from dynagram.ensembles import train
from dynagram.errors import NonFiniteError
from dynagram.networks import MLP, Layer, Params
from dynagram.training import Training
from dynagram_experiments._descent import follow


class Split(NamedTuple):
    """Standardised inputs and labels for training and for testing."""

    x: np.ndarray
    labels: np.ndarray
    x_test: np.ndarray
    labels_test: np.ndarray


def split(data: Dataset, seed: int, share: float = 0.8) -> Split:
    """A random split; pixels are shifted and scaled by one mean and deviation, of the train set.

    >>> import numpy as np
    >>> parts = split(Dataset("toy", np.arange(10.0)[:, None], np.arange(10) % 2), 0)
    >>> len(parts.x), len(parts.x_test), round(float(parts.x.mean()), 9)
    (8, 2, 0.0)
    """
    order = np.random.default_rng(seed).permutation(len(data.labels))
    size = round(share * order.size)
    train, test = order[:size], order[size:]
    mean, deviation = float(data.x[train].mean()), float(data.x[train].std())
    x = (data.x - mean) / deviation
    return Split(x[train], data.labels[train], x[test], data.labels[test])


def plain_rates(widths: Sequence[int]) -> dict[str, Any]:
    """Learning rates that are the same for every parameter, as optimisers without λ have them."""
    return {"lambda_b": 1.0, "lambda_W": [float(n) for n in widths[:-1]]}


def record_training(
    network: MLP, start: Params, data: Data, how: Training, *, seed: int
) -> list[Params]:
    """The parameters of one network at the recorded moments of its training from `start`."""
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    outputs = train(
        network, data, how, seed=seed, parameters=stacked, observables={"theta": flattened}
    )
    if outputs.failures:
        raise NonFiniteError(f"training diverged: lower the rate ({outputs.failures[0]})")
    return [_unflattened(network, theta) for theta in outputs.recorded["theta"][0]]


def flattened(params: Params, _: Array) -> Array:
    """All parameters in a row: an observable that records the network itself."""
    return jnp.concatenate([part.ravel() for layer in params for part in layer])


def _unflattened(network: MLP, theta: np.ndarray) -> Params:
    layers, place = [], 0
    for n_in, n_out in zip(network.widths[:-1], network.widths[1:], strict=True):
        b, W = np.split(theta[place : place + n_out * (n_in + 1)], [n_out])
        layers.append(Layer(b, W.reshape(n_out, n_in)))  # pyright: ignore[reportArgumentType]
        place += n_out * (n_in + 1)
    return tuple(layers)


class _Epochs(NamedTuple):
    """A network and its optimiser in training: their state, what they see, how far they are."""

    params: Params
    optimiser: Any
    x: Array
    labels: Array
    orders: Array
    epoch: Array


def record_epochs(
    network: MLP,
    optimiser: optax.GradientTransformation,
    start: Params,
    parts: Split,
    *,
    batch: int,
    epochs: Sequence[int],
    seed: int,
) -> tuple[list[Params], Any]:
    """Parameters after each of the increasing `epochs` (0: the start), and the optimiser's state.

    Minibatches on the mean cross-entropy, `batch` samples drawn without repetition; what is left
    of an epoch is dropped. In the precision of `start`.
    """
    rng = np.random.default_rng(seed)
    samples, dtype = len(parts.x), start[0].W.dtype
    steps = samples // batch
    orders = np.stack(
        [rng.permutation(samples)[: steps * batch].reshape(steps, batch) for _ in range(epochs[-1])]
    )
    x, labels = jnp.asarray(parts.x, dtype), jnp.asarray(parts.labels)
    state = _Epochs(start, optimiser.init(start), x, labels, jnp.asarray(orders), jnp.asarray(0))
    step = _epoch_of(network, optimiser)
    end, seen = follow(step, _parameters, state, between=1, records=epochs[-1])
    recorded = [jax.tree.map(lambda leaf, at=epoch: leaf[at], seen) for epoch in epochs]
    for epoch, params in zip(epochs, recorded, strict=True):
        if not bool(jnp.all(jnp.isfinite(params[-1].W))):
            raise NonFiniteError(f"training diverged before epoch {epoch}: lower the rate")
    return recorded, end.optimiser


@functools.cache  # one compiled program for all seeds
def _epoch_of(
    network: MLP, optimiser: optax.GradientTransformation
) -> Callable[[_Epochs], _Epochs]:
    def step(carry: tuple[Params, Any, Array, Array], rows: Array) -> tuple[Any, None]:
        params, memory, x, labels = carry

        def loss(params: Params) -> Array:
            outputs = network.apply(params, x[rows])
            losses = optax.softmax_cross_entropy_with_integer_labels(outputs, labels[rows])
            return jnp.mean(losses)

        updates, memory = optimiser.update(jax.grad(loss)(params), memory, params)
        return (optax.apply_updates(params, updates), memory, x, labels), None

    def epoch(state: _Epochs) -> _Epochs:
        carry = (state.params, state.optimiser, state.x, state.labels)
        params, memory, *_ = jax.lax.scan(step, carry, state.orders[state.epoch])[0]
        return state._replace(params=params, optimiser=memory, epoch=state.epoch + 1)

    return epoch


def _parameters(state: _Epochs) -> Params:
    return state.params


def features(network: MLP, params: Params, x: np.ndarray) -> list[np.ndarray]:
    """x, h_1, …, h_{L-1} and the outputs, as float64 NumPy arrays."""
    z = network.preactivations(params, jnp.asarray(x, params[0].W.dtype))
    hidden = [network.activation(values) for values in z[:-1]]
    return [np.asarray(x), *(np.asarray(h, dtype=np.float64) for h in (*hidden, z[-1]))]


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The share of samples whose largest output is the label's."""
    return float(np.mean(np.argmax(outputs, axis=1) == labels))
