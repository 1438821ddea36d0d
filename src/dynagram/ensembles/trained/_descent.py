"""Discrete training of a group of members: θ ← θ − η λ ∂L (7.8)-(7.11), or any optax rule.

Steps run in a `while` loop between the recorded ones. A member that meets a condition of `stop`
keeps its parameters from then on, and the loop ends when no member is left. A loss that is not
finite is noted with its step.
"""

from __future__ import annotations

from collections.abc import Callable
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
from dynagram.ensembles.trained._specification import Training
from dynagram.networks import Params

# (params, batch) of a group → its observables by name.
Observe = Callable[[Params, Batch], dict[str, Array]]


class Result(NamedTuple):
    """What a group gives: observables (members, records, …), steps (NaN: none), final layers."""

    observed: dict[str, Array]
    stopped: Array
    failed: Array
    params: Params


class _State(NamedTuple):
    trained: Packed
    optimiser: Any
    stream: Any
    stopped: Array  # −1: not
    failed: Array


def descend(
    network: MLP,
    training: Training,
    stream: Stream,
    observe: Observe,
    params: Params,
    keys: Array,
) -> Result:
    """Train a group of members from `params`, all with the members first; traceable.

    `stream` gives the batches from the members' data `keys`; `observe` measures a group.
    """
    optimiser = training.optimiser()
    loss = loss_function(network, training.loss, training.fixed)
    gradient = jax.vmap(jax.value_and_grad(loss))
    factors = trained_rates(network, training.fixed)
    trained, kept = split(jax.vmap(packed)(params), training.fixed)
    members = keys.shape[0]

    def whole(layers: Packed) -> Params:
        return jax.vmap(unpacked)(joined(layers, kept, training.fixed))

    def looked_at(state: _State, step: Array, batch: Batch, value: Array) -> _State:
        """Note members that stop or fail at this step, of which `value` is the batch's loss."""
        running = (state.stopped < 0) & (state.failed < 0)
        failed = jnp.where(running & ~jnp.isfinite(value), step, state.failed)
        if not training.rules:
            return state._replace(failed=failed)
        # The loss of all samples is what the gradient has just used, unless in minibatches.
        names = {rule.observable for rule in training.rules}
        seen = {} if names == {"loss"} and training.batch is None else None
        seen = observe(whole(state.trained), batch) if seen is None else {"loss": value}
        hit = jnp.zeros(members, bool)
        for rule in training.rules:
            flat = seen[rule.observable].reshape(members, -1)
            hit |= jnp.any(flat < rule.value if rule.below else flat > rule.value, axis=1)
        stopped = jnp.where(running & hit & (failed < 0), step, state.stopped)
        return state._replace(stopped=stopped, failed=failed)

    def advance(loop: tuple[Array, _State]) -> tuple[Array, _State]:
        step, state = loop
        held, batch = stream.take(state.stream, keys, step)
        value, slope = gradient(state.trained, kept, *batch)
        state = looked_at(state._replace(stream=held), step, batch, value)
        if training.weight_decay:
            decay = training.weight_decay
            slope = jax.tree.map(lambda g, theta: g + decay * theta, slope, state.trained)
        updates, memory = jax.vmap(optimiser.update)(slope, state.optimiser, state.trained)
        layers = moved(state.trained, updates, factors)
        if training.rules:
            running = (state.stopped < 0) & (state.failed < 0)
            layers = jax.tree.map(
                lambda new, old: jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                layers,
                state.trained,
            )
        return step + 1, state._replace(trained=layers, optimiser=memory)

    def segment(state: _State, bounds: tuple[Array, Array]) -> tuple[_State, dict[str, Array]]:
        start, end = bounds
        seen = observe(whole(state.trained), stream.take(state.stream, keys, start)[1])

        def goes_on(loop: tuple[Array, _State]) -> Array:
            step, inner = loop
            if not training.rules:
                return step < end
            return (step < end) & jnp.any((inner.stopped < 0) & (inner.failed < 0))

        return jax.lax.while_loop(goes_on, advance, (start, state))[1], seen

    none = jnp.full(members, -1, jnp.int32)
    state = _State(trained, jax.vmap(optimiser.init)(trained), stream.begin(keys), none, none)
    starts = np.array(training.record, np.int32)
    ends = np.append(starts[1:], starts[-1])
    state, seen = jax.lax.scan(segment, state, (jnp.asarray(starts), jnp.asarray(ends)))
    # The last parameters are looked at too.
    last = jnp.int32(training.steps)
    batch = stream.take(state.stream, keys, last)[1]
    value = jax.vmap(loss)(state.trained, kept, *batch)
    state = looked_at(state, last, batch, value)
    observed = {name: jnp.moveaxis(values, 0, 1) for name, values in seen.items()}
    as_steps = lambda a: jnp.where(a < 0, jnp.nan, a)  # noqa: E731
    return Result(observed, as_steps(state.stopped), as_steps(state.failed), whole(state.trained))
