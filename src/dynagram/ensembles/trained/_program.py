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
from dynagram.ensembles.trained._descent import descend
from dynagram.ensembles.trained._flow import flow
from dynagram.ensembles.trained._leaps import leap
from dynagram.ensembles.trained._observe import Observables, measured
from dynagram.ensembles.trained._records import Arrays, Limits, Observe, Result
from dynagram.networks import MLP, Architecture, Layer, Network, Params
from dynagram.networks._network import Structure
from dynagram.training import Training

# Members have smaller numbers: folding in this one gives the keys of the data.
_DATA_STREAM = np.uint32(2**32 - 1)
# Parameters are drawn in blocks of a size that depends on the network only: drawing a few members
# takes far less time than compiling their draw.
_DRAWN_MEMBERS = 32
_DRAWN_NUMBERS = 2**16


def drawn_parameters(network: Network, seed: int, first: int, size: int) -> Params:
    """Initial parameters of the members `first`, … in float64, the same in both precisions.

    They are the members of every other ensemble of this network and seed.
    """
    block = int(np.clip(_DRAWN_NUMBERS // network.number_of_parameters, 1, _DRAWN_MEMBERS))
    # Networks that differ in what a draw does not depend on share the program.
    drawing = network
    if isinstance(network, MLP):
        drawing = MLP(network.widths, "linear", network.C_b, network.C_W)
    numbers = range(first // block, -(-(first + size) // block))
    blocks = [_drawn_block(drawing, seed, number, block) for number in numbers]
    skipped = first % block
    return jax.tree.map(lambda *parts: np.concatenate(parts)[skipped : skipped + size], *blocks)


def drawn_keys(seed: int, first: int, size: int) -> Array:
    """Keys of the members' data, independent of those of their parameters."""
    return _draw_keys(np.uint32(seed), member_numbers(first, size))


@functools.lru_cache(maxsize=16)
def compiled_program(
    network: Structure,
    how: Training,
    limits: Limits,
    observables: Observables,
    data: batches.DataFunction | None,
    size: int,
    shapes: Any,
    alone: bool,
) -> Callable[..., Result]:
    """(params, data keys, `Arrays`) → `Result` of a group of `size` members.

    `shapes` are those of the arrays; `alone` says that the group has the machine for itself.
    """
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
    with jax.enable_x64(how.dtype == "float64"):
        program = group_program(network, how, limits, observables, data)
        params = abstract_params(network, how.dtype, (size,))
        return groups.compiled(program, params, keys, abstract(shapes, how.dtype), alone=alone)


def shapes_of(arrays: Any) -> Any:
    """A tree of arrays as one of their shapes, by which compiled programs are kept."""
    return jax.tree.map(np.shape, arrays)


def abstract(shapes: Any, dtype: str) -> Any:
    """A tree of shapes as one of abstract arrays."""
    is_shape = lambda part: type(part) is tuple  # noqa: E731 (records are tuples too)
    return jax.tree.map(lambda shape: jax.ShapeDtypeStruct(shape, dtype), shapes, is_leaf=is_shape)


def group_program(
    network: Structure,
    how: Training,
    limits: Limits,
    observables: Observables,
    data: batches.DataFunction | None,
) -> Callable[..., Result]:
    """(params, data keys, `Arrays`) → `Result`; params and keys have the members first.

    The arrays hold no x and y where `data` makes the samples.
    """
    measures = {name: measured(network, how, source) for name, source in observables}

    def train(params: Params, keys: Array, arrays: Arrays) -> Result:
        def observe(group: Params, batch: batches.Batch) -> dict[str, Array]:
            axes: Any = (0, None, None, None) if data is None else (0, None, 0, 0)
            seen = (arrays.x, arrays.y) if data is None else batch
            return {
                name: jax.vmap(measure, in_axes=axes)(group, arrays, *seen)
                for name, measure in measures.items()
            }

        if data is not None:
            stream = batches.fresh(data, jax.tree.leaves(params)[0].dtype)
        elif how.batch is not None:
            make = batches.listed if isinstance(how.batch, tuple) else batches.minibatches
            stream = make(arrays.x, arrays.y, how.batch)  # pyright: ignore[reportArgumentType]
        else:
            stream = batches.whole(arrays.x, arrays.y, keys.shape[0])
        return train_group(network, how, limits, stream, observe, params, keys, arrays)

    return train


def train_group(
    network: Structure,
    how: Training,
    limits: Limits,
    stream: batches.Stream,
    observe: Observe,
    params: Params,
    keys: Array,
    arrays: Arrays,
) -> Result:
    """Train a group by the algorithm of `how`; traceable."""
    if how.is_discrete:
        return descend(network, how, limits, stream, observe, params, keys, arrays)
    batch = stream.take(stream.begin(keys), keys, jnp.int32(0))[1]
    if how.is_flow:
        return flow(network, how, limits, batch, observe, params, arrays)
    return leap(network, batch, observe, params, arrays)


def observed_shapes(
    network: Structure, how: Training, observables: Observables, arrays: Arrays
) -> dict[str, tuple[int, ...]]:
    """Shapes of the observables of one member at one moment, without computing them."""
    dtype = how.dtype
    with jax.enable_x64(dtype == "float64"):
        params = abstract_params(network, dtype, ())
        sizes = (network.input_size, network.output_size)
        x, y = (jax.ShapeDtypeStruct((1, size), dtype) for size in sizes)
        shared = abstract(shapes_of(arrays), dtype)
        return {
            name: jax.eval_shape(measured(network, how, source), params, shared, x, y).shape
            for name, source in observables
        }


def abstract_params(network: Structure, dtype: str, members: tuple[int, ...]) -> Any:
    """The parameters of a group without their numbers."""
    if not isinstance(network, Architecture):
        assert isinstance(network, Network)
        one = jax.eval_shape(lambda key: network.draw(key, dtype), jax.random.key(0))
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((*members, *a.shape), dtype), one)
    sizes = zip(network.widths[:-1], network.widths[1:], strict=True)
    return tuple(
        Layer(*(jax.ShapeDtypeStruct((*members, *shape), dtype) for shape in shapes))  # pyright: ignore
        for shapes in (((n_out,), (n_out, n_in)) for n_in, n_out in sizes)
    )


def member_numbers(first: int, size: int) -> np.ndarray:
    """The numbers of a group of members, as random keys are folded with."""
    # A group may reach beyond the largest member; what wraps around is thrown away.
    return np.arange(first, first + size, dtype=np.uint64).astype(np.uint32)


@functools.lru_cache(maxsize=4)
def _drawn_block(network: Network, seed: int, number: int, size: int) -> Params:
    """The members number·size, … of which there are `size`."""
    with jax.enable_x64(True):
        drawn = _draw(network, np.uint32(seed), member_numbers(number * size, size))
        return jax.tree.map(np.asarray, drawn)


@functools.partial(jax.jit, static_argnums=0)
def _draw(network: Network, seed: Array, numbers: Array) -> Params:
    key = jax.random.key(seed)
    return jax.vmap(lambda m: network.draw(jax.random.fold_in(key, m), dtype=jnp.float64))(numbers)


@jax.jit
def _draw_keys(seed: Array, numbers: Array) -> Array:
    stream = jax.random.fold_in(jax.random.key(seed), _DATA_STREAM)
    return jax.vmap(lambda m: jax.random.fold_in(stream, m))(numbers)
