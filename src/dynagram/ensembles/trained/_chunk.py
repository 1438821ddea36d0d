"""A chunk of a training ensemble: groups of members, or of pairs, trained side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.ensembles._jobs import Chunk
from dynagram.ensembles.trained import _groups as groups
from dynagram.ensembles.trained._pairs import PairArrays, frozen_pairs, trained_pairs
from dynagram.ensembles.trained._program import (
    abstract,
    compiled_program,
    drawn_keys,
    member_numbers,
    shapes_of,
)
from dynagram.ensembles.trained._records import Limits, Result
from dynagram.ensembles.trained._sums import no_sums, sums_of
from dynagram.errors import InvalidValueError
from dynagram.networks import Network, Params
from dynagram.results._estimate import Moments
from dynagram.training import Training

if TYPE_CHECKING:
    from dynagram.ensembles.trained._job import TrainingJob
else:
    TrainingJob = object  # which imports this module


# (seed, numbers of networks, arrays) → statistics and largest errors
PairProgram = Callable[..., tuple[Array, Array]]


# --- members ----------------------------------------------------------------------------------


def member_chunk(job: TrainingJob, first: int, size: int) -> Chunk:
    """Train the members `first`, …, `first` + `size` − 1."""
    pieces = list(groups.in_threads(_member_program(job), range(first, first + size, job.group)))
    whole = jax.tree.map(lambda *parts: np.concatenate(parts)[:size], *pieces)
    good = np.isnan(whole.failed)
    chunk: dict[str, Any] = {"stopped": whole.stopped, "failed": whole.failed}
    if whole.error is not None:
        chunk["largest_error"] = whole.error
    # From the step of a failure on nothing is known.
    last = np.where(good, 0.0, whole.failed)
    lost = ~good[:, None] & (np.array(job.how.recorded)[None, :] >= last[:, None])
    for name, _ in job.observables:
        values = whole.observed[name]
        values[lost] = np.nan
        chunk[name] = values if job.keep_members else sums_of(values, good, job.order(name), first)
    if job.keep_parameters:
        for number, layer in enumerate(whole.params, start=1):
            chunk |= {f"b{number}": layer.b, f"W{number}": layer.W}
    return chunk


def _member_program(job: TrainingJob) -> Callable[[int], Result]:
    """first member → what its group gives."""
    size, dtype = job.group, job.how.dtype
    shared = jax.tree.map(lambda a: a.astype(dtype), job.shared)
    alone = size == job.chunk_members
    description = (job.network, job.how, job.limits, job.observables, job.function)
    program = compiled_program(*description, size, shapes_of(shared), alone)

    def start(first: int) -> tuple[Params, Array]:
        params = jax.tree.map(lambda a: a.astype(dtype), job.initial(first, size))
        return params, drawn_keys(job.seed, first, size)

    start(0)  # compiles here, not in every thread

    def run(first: int) -> Result:
        params, keys = start(first)
        with jax.enable_x64(dtype == "float64"):  # a setting of the thread
            result = program(params, keys, shared)
            if not job.keep_parameters:
                result = result._replace(params=())
            return jax.tree.map(np.array, result)

    return run


# --- pairs ------------------------------------------------------------------------------------


def pair_chunk(job: TrainingJob, first: int, size: int) -> Chunk:
    """Train the pairs whose first networks are among these members; 2p is the first of pair p.

    Pair p goes with the untrained networks kp, …, kp + k − 1 of the next seed, k = `job.kernels`.
    """
    shapes, (group, untrained_group) = shapes_of(job.pair_arrays), job.pair_groups
    trained = _compiled_trained(job.network, job.how, job.limits, group, shapes)
    frozen = _compiled_frozen(job.network, untrained_group, shapes)
    pairs = range(-(-first // 2), -(-(first + size) // 2))
    untrained = range(job.kernels * pairs.start, job.kernels * pairs.stop)
    rows, errors = _collect(job, trained, job.seed, pairs, group)
    statistics, _ = _collect(job, frozen, job.seed + 1, untrained, untrained_group)
    if not np.all(np.isfinite(rows)):
        # Of the job, not of a member: the rest would be a biased selection.
        allowed = (
            "the training of a network diverged: its NTK is larger than the frozen one, for which "
            f"the limit is {job.infinite.largest_eta:.3g}; lower eta or widen"
        )
        raise InvalidValueError("eta", job.how.eta, allowed)
    largest = np.full(size, np.nan)  # of a pair, kept with its first network
    largest[[2 * pair - first for pair in pairs]] = errors
    return {
        "largest_error": largest,
        "pairs": _sums(rows, pairs.start),
        "untrained": _sums(statistics, untrained.start),
    }


def _sums(rows: np.ndarray, first: int) -> Moments:
    if not len(rows):
        return no_sums(rows.shape[1:], 1)
    return Moments.from_samples(rows, order=1, first=first)


def _collect(
    job: TrainingJob, program: PairProgram, seed: int, numbers: range, group: int
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and largest errors of networks by their numbers."""
    entries = job.infinite.mean[0].size
    if not numbers:
        return np.zeros((0, len(job.how.recorded), entries + entries**2)), np.zeros(0)

    def run(first: int) -> tuple[np.ndarray, ...]:
        with jax.enable_x64(True):
            parts = program(np.uint32(seed), member_numbers(first, group), job.pair_arrays)
            return tuple(map(np.asarray, parts))

    pieces = groups.in_threads(run, range(numbers.start, numbers.stop, group))
    rows, errors = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return rows[: len(numbers)], errors[: len(numbers)]


@functools.lru_cache(maxsize=16)
def _compiled_trained(
    network: Network, how: Training, limits: Limits, size: int, shapes: Any
) -> PairProgram:
    """Statistics and largest errors of a group of pairs."""

    def statistics(params: Params, arrays: PairArrays) -> tuple[Array, Array]:
        return trained_pairs(network, how, limits, params, arrays)

    return _compiled(network, statistics, size, shapes)


@functools.lru_cache(maxsize=16)
def _compiled_frozen(network: Network, size: int, shapes: Any) -> PairProgram:
    """Statistics of a group of untrained networks, and no errors."""

    def statistics(params: Params, arrays: PairArrays) -> tuple[Array, Array]:
        return frozen_pairs(network, params, arrays), jnp.zeros(size)

    return _compiled(network, statistics, size, shapes)


def _compiled(
    network: Network,
    statistics: Callable[[Params, PairArrays], tuple[Array, Array]],
    size: int,
    shapes: Any,
) -> PairProgram:
    """(seed, numbers, arrays) → `statistics` of the networks that these numbers draw."""

    def program(seed: Array, numbers: Array, arrays: PairArrays) -> tuple[Array, Array]:
        key = jax.random.key(seed)
        draw = lambda number: network.draw(jax.random.fold_in(key, number), dtype="float64")  # noqa: E731
        return statistics(jax.vmap(draw)(numbers), arrays)

    with jax.enable_x64(True):
        numbers = jax.ShapeDtypeStruct((size,), np.uint32)
        seed = jax.ShapeDtypeStruct((), np.uint32)
        return groups.compiled(program, seed, numbers, abstract(shapes, "float64"), alone=False)
