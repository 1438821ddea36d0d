"""The program that trains one group of members from start to end, compiled once and kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.ensembles.trained import _batches as batches
from dynagram.ensembles.trained import _groups as groups
from dynagram.ensembles.trained._descent import Result, descend
from dynagram.ensembles.trained._flow import flow
from dynagram.ensembles.trained._observe import Observables, measured
from dynagram.ensembles.trained._specification import Training
from dynagram.networks import MLP, Params

# Members have smaller numbers: folding in this one gives the keys of the data.
_DATA_STREAM = np.uint32(2**32 - 1)
# Parameters are drawn in blocks of a size that depends on the network only: drawing a few members
# takes far less time than compiling their draw.
_DRAWN_MEMBERS = 32
_DRAWN_NUMBERS = 2**16

Shape = tuple[int, ...] | None


def drawn_parameters(network: MLP, seed: int, first: int, size: int) -> Params:
    """Initial parameters of the members `first`, … in float64, the same in both precisions.

    They are the members of every other ensemble of this network and seed.
    """
    block = int(np.clip(_DRAWN_NUMBERS // network.number_of_parameters, 1, _DRAWN_MEMBERS))
    # Networks that differ in what a draw does not depend on share the program.
    drawing = MLP(network.widths, "linear", network.C_b, network.C_W)
    numbers = range(first // block, -(-(first + size) // block))
    blocks = [_drawn_block(drawing, seed, number, block) for number in numbers]
    skipped = first % block
    return jax.tree.map(lambda *parts: np.concatenate(parts)[skipped : skipped + size], *blocks)


def drawn_keys(seed: int, first: int, size: int) -> Array:
    """Keys of the members' data, independent of those of their parameters."""
    return _draw_keys(np.uint32(seed), _numbers(first, size))


@functools.lru_cache(maxsize=16)
def compiled_program(
    network: MLP,
    training: Training,
    observables: Observables,
    data: batches.DataFunction | None,
    size: int,
    shapes: tuple[Shape, Shape, Shape],
    alone: bool,
) -> Callable[..., Result]:
    """(params, data keys, x, y, test inputs) → `Result` of a group of `size` members.

    `shapes` are those of x, y and the test inputs, None where there are none; `alone` says that
    the group has the machine for itself.
    """
    arrays = (
        None if shape is None else jax.ShapeDtypeStruct(shape, training.dtype) for shape in shapes
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
    with jax.enable_x64(training.dtype == "float64"):
        program = group_program(network, training, observables, data)
        params = _abstract_params(network, training.dtype, (size,))
        return groups.compiled(program, params, keys, *arrays, alone=alone)


def group_program(
    network: MLP,
    training: Training,
    observables: Observables,
    data: batches.DataFunction | None,
) -> Callable[..., Result]:
    """(params, data keys, x, y, test inputs) → `Result`; params and keys have the members first.

    `x` and `y` are None where `data` makes the samples.
    """
    measures = {name: measured(network, training, source) for name, source in observables}

    def train(params: Params, keys: Array, x: Any, y: Any, probe: Any) -> Result:
        def observe(group: Params, batch: batches.Batch) -> dict[str, Array]:
            axes: Any = (0, None, None, None) if data is None else (0, None, 0, 0)
            seen = (x, y) if data is None else batch
            return {
                name: jax.vmap(measure, in_axes=axes)(group, probe, *seen)
                for name, measure in measures.items()
            }

        if data is not None:
            stream = batches.fresh(data, params[0].b.dtype)
        elif training.batch is not None:
            stream = batches.minibatches(x, y, training.batch)
        else:
            stream = batches.whole(x, y, keys.shape[0])
        if training.algorithm == "flow":
            batch = stream.take(stream.begin(keys), keys, jnp.int32(0))[1]
            return flow(network, training, batch, observe, params)
        return descend(network, training, stream, observe, params, keys)

    return train


def observed_shapes(
    network: MLP, training: Training, observables: Observables, probe: np.ndarray | None
) -> dict[str, tuple[int, ...]]:
    """Shapes of the observables of one member at one step, without computing them."""
    dtype = training.dtype
    with jax.enable_x64(dtype == "float64"):
        params = _abstract_params(network, dtype, ())
        x, y = (jax.ShapeDtypeStruct((1, network.widths[end]), dtype) for end in (0, -1))
        inputs = None if probe is None else jax.ShapeDtypeStruct(probe.shape, dtype)
        return {
            name: jax.eval_shape(measured(network, training, source), params, inputs, x, y).shape
            for name, source in observables
        }


def _abstract_params(network: MLP, dtype: str, members: tuple[int, ...]) -> Any:
    layers = jax.eval_shape(lambda: network.draw(jax.random.key(0), dtype))
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((*members, *a.shape), dtype), layers)


def _numbers(first: int, size: int) -> np.ndarray:
    # A group may reach beyond the largest member; what wraps around is thrown away.
    return np.arange(first, first + size, dtype=np.uint64).astype(np.uint32)


@functools.lru_cache(maxsize=4)
def _drawn_block(network: MLP, seed: int, number: int, size: int) -> Params:
    """The members number·size, … of which there are `size`."""
    with jax.enable_x64(True):
        drawn = _draw(network, np.uint32(seed), _numbers(number * size, size))
        return jax.tree.map(np.asarray, drawn)


@functools.partial(jax.jit, static_argnums=0)
def _draw(network: MLP, seed: Array, numbers: Array) -> Params:
    key = jax.random.key(seed)
    return jax.vmap(lambda m: network.draw(jax.random.fold_in(key, m), dtype=jnp.float64))(numbers)


@jax.jit
def _draw_keys(seed: Array, numbers: Array) -> Array:
    stream = jax.random.fold_in(jax.random.key(seed), _DATA_STREAM)
    return jax.vmap(lambda m: jax.random.fold_in(stream, m))(numbers)
