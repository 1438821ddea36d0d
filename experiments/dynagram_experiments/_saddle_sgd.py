"""SGD with fresh Gaussian inputs for the saddle figures, on all weights or on block coordinates.

Neurons of a block that start alike see the same gradient on every batch, so that SGD on the block
coordinates *is* SGD on the full network, at a fraction of the work; only the rows of W_1 keep all
their input components.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.theory.saddle._flow import Coordinates, Problem, output, velocity


class Recorded(NamedTuple):
    """What was observed after each of `steps`; arrays (records, seeds, members, …)."""

    steps: Float[np.ndarray, " records"]
    values: Any


def descend(
    loss: Callable[[Any, Array], Array],
    observe: Callable[[Any], Any],
    starts: Any,
    rates: Any,
    *,
    seeds: Sequence[int],
    batch: int,
    inputs: int,
    between: int,
    records: int,
) -> Recorded:
    """SGD from `starts`, a stack of states, for every seed; members of a seed share their batches.

    `loss(state, x)` is the mean over a batch x ~ N(0, I); a step is state − rates·gradient.
    Observes before the first step and then `records` times, `between` steps apart.
    """
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    first = jax.vmap(observe)(starts)
    members = jax.tree.leaves(first)[0].shape[0]
    values = _descend(loss, observe, batch, inputs, between, records, starts, rates, keys)

    def joined(before: Array, after: Array) -> np.ndarray:
        start = np.broadcast_to(np.asarray(before), (1, len(seeds), members, *before.shape[1:]))
        return np.concatenate([start, np.asarray(after).swapaxes(0, 1)])

    return Recorded(between * np.arange(records + 1.0), jax.tree.map(joined, first, values))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _descend(
    loss: Callable[[Any, Array], Array],
    observe: Callable[[Any], Any],
    batch: int,
    inputs: int,
    between: int,
    records: int,
    starts: Any,
    rates: Any,
    keys: Array,
) -> Any:
    def total(states: Any, x: Array) -> Array:
        return jnp.sum(jax.vmap(loss, in_axes=(0, None))(states, x))

    def step(_: Any, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        states, key = carry
        key, own = jax.random.split(key)
        x = jax.random.normal(own, (batch, inputs))
        slopes = jax.grad(total)(states, x)
        return jax.tree.map(lambda s, r, g: s - r * g, states, rates, slopes), key

    def block(carry: tuple[Any, Array], _: Any) -> tuple[tuple[Any, Array], Any]:
        carry = jax.lax.fori_loop(0, between, step, carry)
        return carry, jax.vmap(observe)(carry[0])

    def run(key: Array) -> Any:
        return jax.lax.scan(block, (starts, key), length=records)[1]

    return jax.vmap(run)(keys)


def coordinate_loss(
    sigma: Activation, betas: Sequence[float], block_size: int
) -> Callable[[Coordinates, Array], Array]:
    """½ mean (f − Σ_k β_k σ(x_k))² of block coordinates whose rows of A_1 see all inputs."""
    gain, weights = math.sqrt(block_size), np.asarray(betas, dtype=np.float32)

    def loss(state: Coordinates, x: Array) -> Array:
        y = sigma(x[:, : weights.size]) @ jnp.asarray(weights, x.dtype)
        residual = output(sigma, jnp.full((1, 1), gain, x.dtype), state, x)[:, 0] - y
        return 0.5 * jnp.mean(residual**2)

    return loss


def widened(state: Coordinates, inputs: int) -> Coordinates:
    """Block coordinates with zeros for the input components the teacher does not use."""
    A1 = np.zeros((*state.A1.shape[:-1], inputs))
    A1[..., : state.A1.shape[-1]] = state.A1
    dtype = jnp.result_type(float)
    return Coordinates(*(jnp.asarray(part, dtype) for part in (A1, state.A, state.a)))


@float64
def population_descent(
    sigma: Activation, problem: Problem, start: Coordinates, step: float, between: int, records: int
) -> Coordinates:
    """Gradient descent on the population loss, `step` in reduced time: SGD without its noise.

    The states before the first step and then `between` steps apart, along the first axis.
    """
    arrays = Coordinates(*(jnp.asarray(part) for part in start))
    states = _population_descent(sigma, problem, arrays, step, between, records)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), arrays, states)
    return jax.tree.map(np.asarray, joined)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def _population_descent(
    sigma: Activation,
    problem: Problem,
    start: Coordinates,
    step: float | Array,
    between: int,
    records: int,
) -> Coordinates:
    def move(_: Any, x: Coordinates) -> Coordinates:
        return jax.tree.map(lambda a, v: a + step * v, x, velocity(sigma, problem, x))

    def block(x: Coordinates, _: Any) -> tuple[Coordinates, Coordinates]:
        x = jax.lax.fori_loop(0, between, move, x)
        return x, x

    return jax.lax.scan(block, start, length=records)[1]


def stacked(states: Sequence[Any]) -> Any:
    """States side by side, along a new first axis."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


def crossing(
    times: Float[np.ndarray, " records"], values: Float[np.ndarray, "records many"], level: float
) -> Float[np.ndarray, " many"]:
    """When each column of `values` first rises to `level`, interpolated; nan if never."""
    found = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        above = np.flatnonzero(values[:, column] >= level)
        if above.size and above[0] > 0:
            right = above[0]
            low, high = values[right - 1, column], values[right, column]
            share = (level - low) / (high - low)
            found[column] = times[right - 1] + share * (times[right] - times[right - 1])
    return found


def mean_and_error(values: Float[np.ndarray, "many ..."]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(values.shape[0])
