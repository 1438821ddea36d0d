"""Discrete training of a group of members: θ ← θ − η λ ∂L (7.8)-(7.11), or any optax rule.

Steps run in a `while` loop between the recorded ones. A member that meets a condition of `stop`
keeps its parameters from then on, and so does one that trains to the end once its largest error is
below the tolerance; gradient descent takes that step as its last, which makes the error smaller
still. The loop ends when no member is left. A loss that is not finite is noted with its step.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.ensembles.trained._batches import Batch, Stream
from dynagram.ensembles.trained._gradient import (
    Packed,
    joined,
    loss_function,
    moved,
    packed,
    split,
    trained_rates,
    unpacked,
)
from dynagram.ensembles.trained._records import Arrays, Limits, Observe, Result, largest_error
from dynagram.networks import Params
from dynagram.networks._network import Structure
from dynagram.training import GradientDescent, Optax, Training


class _State(NamedTuple):
    trained: Packed
    optimiser: Any
    stream: Any
    stopped: Array  # −1: not
    failed: Array
    arrived: Array


def descend(
    network: Structure,
    how: Training,
    limits: Limits,
    stream: Stream,
    observe: Observe,
    params: Params,
    keys: Array,
    arrays: Arrays,
) -> Result:
    """Train a group of members from `params`, all with the members first; traceable.

    `stream` gives the batches from the members' data `keys`; `observe` measures a group.
    """
    optimiser = _optimiser(how)
    loss = loss_function(network, how.loss, how.fixed)
    gradient = jax.vmap(jax.value_and_grad(loss, has_aux=True))
    factors = trained_rates(network, how.fixed)
    trained, kept = split(jax.vmap(partial(packed, network))(params), how.fixed)
    members = keys.shape[0]
    may_rest = bool(how.rules) or limits.tolerance is not None

    def whole(layers: Packed) -> Params:
        return jax.vmap(partial(unpacked, network))(joined(layers, kept, how.fixed))

    def running(state: _State) -> Array:
        return (state.stopped < 0) & (state.failed < 0) & (state.arrived < 0)

    def judge(state: _State, step: Array, batch: Batch, value: Array, z: Array) -> _State:
        """Note members that stop, fail or arrive at this step, of which `value` is the loss."""
        active = running(state)
        failed = jnp.where(active & ~jnp.isfinite(value), step, state.failed)
        state = state._replace(failed=failed)
        if limits.tolerance is not None:
            close = active & (largest_error(z, arrays.goals) <= limits.tolerance)
            state = state._replace(arrived=jnp.where(close, step, state.arrived))
        if not how.rules:
            return state
        # The loss of all samples is what the gradient has just used, unless in minibatches.
        names = {rule.observable for rule in how.rules}
        cheap = names == {"loss"} and how.batch is None
        seen = {"loss": value} if cheap else observe(whole(state.trained), batch)
        hit = jnp.zeros(members, bool)
        for rule in how.rules:
            flat = seen[rule.observable].reshape(members, -1)
            hit |= jnp.any(flat < rule.value if rule.below else flat > rule.value, axis=1)
        return state._replace(stopped=jnp.where(active & hit & (failed < 0), step, state.stopped))

    def advance(loop: tuple[Array, _State]) -> tuple[Array, _State]:
        step, state = loop
        active = running(state)
        held, batch = stream.take(state.stream, keys, step)
        (value, z), slope = gradient(state.trained, kept, *batch)
        state = judge(state._replace(stream=held), step, batch, value, z)
        if how.weight_decay:
            decay = how.weight_decay
            slope = jax.tree.map(lambda g, theta: g + decay * theta, slope, state.trained)
        updates, memory = jax.vmap(optimiser.update)(slope, state.optimiser, state.trained)
        if how.schedule:
            now = jnp.asarray(np.array(how.schedule))[jnp.minimum(step, len(how.schedule) - 1)]
            updates = jax.tree.map(lambda u: now.astype(u.dtype) * u, updates)
        layers = moved(state.trained, updates, factors)
        if may_rest:
            moving = active & (state.stopped < 0) & (state.failed < 0)
            if not isinstance(how.algorithm, GradientDescent):
                moving &= state.arrived < 0
            layers = jax.tree.map(
                lambda new, old: jnp.where(moving.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                layers,
                state.trained,
            )
        return step + 1, state._replace(trained=layers, optimiser=memory)

    def segment(state: _State, bounds: tuple[Array, Array]) -> tuple[_State, dict[str, Array]]:
        start, end = bounds

        def goes_on(loop: tuple[Array, _State]) -> Array:
            step, inner = loop
            return (step < end) & (jnp.any(running(inner)) if may_rest else True)

        state = jax.lax.while_loop(goes_on, advance, (start, state))[1]
        return state, observe(whole(state.trained), stream.take(state.stream, keys, end)[1])

    none = jnp.full(members, -1, jnp.int32)
    start = jax.vmap(optimiser.init)(trained)
    state = _State(trained, start, stream.begin(keys), none, none, none)
    last = limits.max_steps if how.reaches_the_end else how.steps
    ends = np.array([last if math.isinf(moment) else moment for moment in how.recorded], np.int32)
    bounds = (jnp.asarray(np.append(0, ends[:-1]).astype(np.int32)), jnp.asarray(ends))
    state, seen = jax.lax.scan(segment, state, bounds)
    # The last parameters are looked at too.
    end = jnp.int32(last)
    batch = stream.take(state.stream, keys, end)[1]
    value, z = jax.vmap(loss)(state.trained, kept, *batch)
    state = judge(state, end, batch, value, z)
    observed = {name: jnp.moveaxis(values, 0, 1) for name, values in seen.items()}
    as_steps = lambda a: jnp.where(a < 0, jnp.nan, a)  # noqa: E731
    error = None if arrays.goals is None else largest_error(z, arrays.goals)
    return Result(
        observed, as_steps(state.stopped), as_steps(state.failed), error, whole(state.trained)
    )


def _optimiser(how: Training) -> Any:
    """The optax transformation of a discrete algorithm."""
    import optax

    if isinstance(how.algorithm, Optax):
        return how.algorithm.transformation()
    assert isinstance(how.algorithm, GradientDescent)
    return optax.sgd(how.algorithm.eta)
