"""A chunk of a training ensemble: groups of members, or of pairs, trained side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
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
from dynagram.errors import NonFiniteError
from dynagram.networks import MLP, Params
from dynagram.results._estimate import Moments
from dynagram.training import Training

if TYPE_CHECKING:
    from dynagram.ensembles.trained._job import TrainingJob
else:
    TrainingJob = object  # which imports this module


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
    pairs = range(-(-first // 2), -(-(first + size) // 2))
    untrained = range(job.kernels * pairs.start, job.kernels * pairs.stop)
    whole, half = job.pair_groups
    rows, errors = _collected(job, "trained", job.seed, pairs, whole)
    statistics, _ = _collected(job, "frozen", job.seed + 1, untrained, half)
    if not np.all(np.isfinite(rows)):
        eta = "" if job.how.eta is None else f" and eta = {job.how.eta:g} too near its limit"
        raise NonFiniteError(
            "the training of a network diverged: its NTK is larger than the frozen one, whose "
            f"largest eigenvalue is {job.infinite.largest_eigenvalue:.3g},{eta}; lower eta or widen"
        )
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


def _collected(
    job: TrainingJob, kind: str, seed: int, numbers: range, group: int
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and largest errors of networks by their numbers."""
    entries = job.infinite.mean[0].size
    rows = np.zeros((0, len(job.how.recorded), entries + entries**2))
    if not numbers:
        return rows, np.zeros(0)
    assert isinstance(job.network, MLP)
    arrays = job.pair_arrays
    program = _compiled_pairs(job.network, job.how, job.limits, kind, group, shapes_of(arrays))

    def run(first: int) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            parts = program(np.uint32(seed), member_numbers(first, group), arrays)
            return tuple(map(np.asarray, parts))

    pieces: Iterator[tuple[np.ndarray, ...]]
    pieces = groups.in_threads(run, range(numbers.start, numbers.stop, group))
    joined = [np.concatenate(parts)[: len(numbers)] for parts in zip(*pieces, strict=True)]
    return joined[0], joined[1]


@functools.lru_cache(maxsize=16)
def _compiled_pairs(
    network: MLP, how: Training, limits: Limits, kind: str, size: int, shapes: Any
) -> Callable[..., tuple[Array, Array]]:
    """(seed, numbers, arrays) → statistics and largest errors of a group of networks."""

    def program(seed: Array, numbers: Array, arrays: PairArrays) -> tuple[Array, Array]:
        key = jax.random.key(seed)
        draw = lambda number: network.draw(jax.random.fold_in(key, number), dtype="float64")  # noqa: E731
        params = jax.vmap(draw)(numbers)
        if kind == "trained":
            return trained_pairs(network, how, limits, params, arrays)
        return frozen_pairs(network, params, arrays), jnp.zeros(size)

    with jax.enable_x64(True):
        numbers = jax.ShapeDtypeStruct((size,), np.uint32)
        seed = jax.ShapeDtypeStruct((), np.uint32)
        return groups.compiled(program, seed, numbers, abstract(shapes, "float64"), alone=False)
