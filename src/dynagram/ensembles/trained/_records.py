"""What a program that trains a group of members takes, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from dynagram.ensembles.trained._batches import Batch
from dynagram.networks import Params

# (params, batch) of a group → its observables by name.
Observe = Callable[[Params, Batch], dict[str, Array]]


class Limits(NamedTuple):
    """When a member that trains to the end is done.

    Its largest error is below `tolerance`, or `max_steps` are used up; for gradient flow these are
    steps of the solver. `tolerance` is None for training of a given length.
    """

    tolerance: float | None
    max_steps: int


class Leap(NamedTuple):
    """What the two leaps need: distinct training inputs, their targets, and their frozen NTK."""

    x: Any
    y: Any
    kernel: Any


class Arrays(NamedTuple):
    """Arrays that all members share, None where there are none.

    The training set `x`, `y`; `probe`, the inputs of observables; `test_y`, their targets where
    they are test inputs that have some; `asked`, the inputs of the outputs;
    `goals`, for a squared error of all samples the targets that can be reached, which are the means
    where equal inputs have several.
    """

    x: Any = None
    y: Any = None
    probe: Any = None
    asked: Any = None
    goals: Any = None
    test_y: Any = None
    leap: Leap | None = None


class Result(NamedTuple):
    """What a group gives: observables (members, moments, …), steps (NaN: none), final layers.

    `error` is the largest error of a member when it is done, None where there are no goals.
    """

    observed: dict[str, Array]
    stopped: Array
    failed: Array
    error: Array | None
    params: Params


def largest_error(z: Array, goals: Array) -> Array:
    """max |z − y| over the samples and outputs of every member of a group."""
    return jnp.max(jnp.abs(z - goals[None]), axis=(1, 2))
