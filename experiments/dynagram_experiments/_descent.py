"""The one loop of the experiments, for training that `dynagram.ensembles.train` cannot express.

An ensemble trains networks on data and looks at their parameters now and then. Some experiments
need less or more than that. Saddle figures follow block coordinates, which are no network, on
batches shared with the whole network, or along the population's gradient, which has no data.
gram-whitening looks at the records of its optimiser. And the forecast of escape is timed against
bare steps. So a state here is any pytree, and a step any function of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


@functools.partial(jax.jit, static_argnames=("step", "observe", "between", "records"))
def follow(
    step: Callable[[Any], Any],
    observe: Callable[[Any], Any],
    state: Any,
    *,
    between: int,
    records: int,
) -> tuple[Any, Any]:
    """The last state; what was seen at the start and then `records` times, `between` steps apart.

    Observations have their moment first. One compilation serves all states of the same shapes.

    >>> _, seen = follow(lambda x: x + 1, lambda x: x, jnp.asarray(0), between=2, records=3)
    >>> seen.tolist()
    [0, 2, 4, 6]
    """

    def block(state: Any, _: None) -> tuple[Any, Any]:
        state = jax.lax.fori_loop(0, between, lambda _, inner: step(inner), state)
        return state, observe(state)

    first = observe(state)
    state, later = jax.lax.scan(block, state, length=records)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([jnp.asarray(a)[None], b]), first, later)
    return state, joined


@functools.partial(jax.jit, static_argnames="step")
def steps_until(
    step: Callable[[Any], tuple[Any, Array]], state: Any, most: int | Array
) -> tuple[Array, Array]:
    """How many steps are taken before one finds itself at the end, and whether that happened.

    `step` returns the state after it, and whether the state before it was the end.

    >>> steps_until(lambda x: (x + 1, x >= 5), jnp.asarray(0), 100)[0].item()
    5
    """

    def goes_on(carry: tuple[Any, Array, Array]) -> Array:
        _, taken, arrived = carry
        return ~arrived & (taken < most)

    def advance(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        state, taken, _ = carry
        state, arrived = step(state)
        return state, taken + jnp.where(arrived, 0, 1), arrived

    start = (state, jnp.asarray(0), jnp.asarray(False))
    _, taken, arrived = jax.lax.while_loop(goes_on, advance, start)
    return taken, arrived
