"""The data that a step sees: all samples, a seeded minibatch, or fresh samples from a function.

Everything here acts on a group of members: keys and orders have the members first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.errors import InvalidTypeError, InvalidValueError

DataFunction = Callable[[Array], tuple[Any, Any]]


class Batch(NamedTuple):
    """Inputs (members, N, n_0) and targets (members, N, n_L) of one step."""

    x: Array
    y: Array


class Stream(NamedTuple):
    """`begin(keys)` makes the state of a group; `take(state, keys, step)` its batch of a step."""

    begin: Callable[[Array], Any]
    take: Callable[[Any, Array, Array], tuple[Any, Batch]]


def whole(x: Array, y: Array, members: int) -> Stream:
    """All samples in every step."""
    # A copy per member, made once: a product of a shared matrix with many others would be
    # rearranged into one large product and its result transposed back in every step.
    copies = Batch(*jax.lax.optimization_barrier(tuple(_copied(a, members) for a in (x, y))))
    return Stream(lambda _: (), lambda state, _, __: (state, copies))


def minibatches(x: Array, y: Array, size: int) -> Stream:
    """`size` samples a step, in an order drawn anew for each member and epoch.

    An epoch is N // size steps; the samples left over differ from epoch to epoch.
    """
    samples = x.shape[0]
    per_epoch = samples // size

    def shuffled(keys: Array, epoch: Array) -> Array:
        return jax.vmap(
            lambda key: jax.random.permutation(jax.random.fold_in(key, epoch), samples)
        )(keys)

    def begin(keys: Array) -> Array:
        return shuffled(keys, jnp.uint32(0))

    def take(order: Array, keys: Array, step: Array) -> tuple[Array, Batch]:
        epoch, index = step // per_epoch, step % per_epoch
        order = jax.lax.cond(
            index == 0, lambda: shuffled(keys, epoch.astype(jnp.uint32)), lambda: order
        )
        chosen = jax.lax.dynamic_slice_in_dim(order, index * size, size, axis=1)
        return order, Batch(x[chosen], y[chosen])

    return Stream(begin, take)


def listed(x: Array, y: Array, chosen: tuple[tuple[int, ...], ...]) -> Stream:
    """Given batches, taken in turn, the same for every member."""
    rows = np.array(chosen, dtype=np.int32)

    def take(state: Any, keys: Array, step: Array) -> tuple[Any, Batch]:
        now = jnp.asarray(rows)[step % len(chosen)]
        return state, Batch(*(_copied(array[now], keys.shape[0]) for array in (x, y)))

    return Stream(lambda _: (), take)


def fresh(function: DataFunction, dtype: Any) -> Stream:
    """New samples in every step: `function` of a key that depends on seed, member and step."""

    def one(key: Array, step: Array) -> Batch:
        x, y = function(jax.random.fold_in(key, step))
        return Batch(jnp.asarray(x, dtype), jnp.asarray(y, dtype))

    def take(state: Any, keys: Array, step: Array) -> tuple[Any, Batch]:
        batch = jax.vmap(one, in_axes=(0, None))(keys, step.astype(jnp.uint32))
        return state, batch

    return Stream(lambda _: (), take)


def check_data_function(function: DataFunction, n_0: int, n_L: int) -> int:
    """The number of samples that `function(key)` gives, after checking its shapes."""
    try:
        made = jax.eval_shape(function, jax.random.key(0))
    except (TypeError, ValueError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidTypeError("data", function, f"cannot be traced by JAX: {line}") from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise InvalidTypeError("data", function, "expected data(key) → (x, y)")
    shapes = tuple(tuple(getattr(part, "shape", ())) for part in made)
    samples = shapes[0][0] if shapes[0] else 0
    if shapes != ((samples, n_0), (samples, n_L)) or samples == 0:
        expected = f"expected (samples, {n_0}) and (samples, {n_L})"
        raise InvalidValueError("shapes of data(key)", shapes, expected)
    return samples


def _copied(array: Array, members: int) -> Array:
    return jnp.broadcast_to(array[None], (members, *array.shape))
