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
from dynagram_experiments._descent import follow


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

    def total(states: Any, x: Array) -> Array:
        return jnp.sum(jax.vmap(loss, in_axes=(0, None))(states, x))

    def step(state: tuple[Any, Array]) -> tuple[Any, Array]:
        states, key = state
        key, own = jax.random.split(key)
        slopes = jax.grad(total)(states, jax.random.normal(own, (batch, inputs)))
        return jax.tree.map(lambda s, r, g: s - r * g, states, rates, slopes), key

    def look(state: tuple[Any, Array]) -> Any:
        return jax.vmap(observe)(state[0])

    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    repeated = jax.tree.map(lambda s: jnp.broadcast_to(s, (len(seeds), *s.shape)), starts)
    _, values = follow(
        jax.vmap(step), jax.vmap(look), (repeated, keys), between=between, records=records
    )
    return Recorded(between * np.arange(records + 1.0), jax.tree.map(np.asarray, values))


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
    state = (arrays, problem, jnp.asarray(step))
    _, states = follow(_population_step(sigma), _position, state, between=between, records=records)
    return jax.tree.map(np.asarray, states)


@functools.cache  # one compiled program for all problems of an activation
def _population_step(sigma: Activation) -> Callable[[Any], Any]:
    def step(state: tuple[Coordinates, Problem, Array]) -> tuple[Coordinates, Problem, Array]:
        x, problem, size = state
        moved = jax.tree.map(lambda a, v: a + size * v, x, velocity(sigma, problem, x))
        return moved, problem, size

    return step


def _position(state: tuple[Coordinates, Problem, Array]) -> Coordinates:
    return state[0]


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
