"""Outputs during training at order 1/n for any loss and any optimiser linear in past gradients.

Averages over initial outputs of the frozen path and of its answers to what finite width adds:
docs/derivations/any-loss.md (D13.13)-(D13.16). First-order answers are averaged over nodes of z(0),
second-order ones over nodes and directions of fluctuation together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.theory.training._contraction import Tensors
from dynagram.theory.training._fluctuations import Fluctuations
from dynagram.theory.training._insertions import Blocks
from dynagram.theory.training._nodes import SCRAMBLINGS, Nodes
from dynagram.theory.training._optimisers import require_arrival
from dynagram.theory.training._path_problem import PathProblem, require_finite
from dynagram.theory.training._path_statistics import (
    Statistics,
    bilinear_average,
    group_averages,
    loss_shift,
    loss_shift_of_fluctuation,
    loss_values,
    transposed,
)
from dynagram.theory.training._responses import (
    FIRST_ORDER,
    Fluctuation,
    Frozen,
    first_responses,
    frozen_path,
    second_responses,
)

PARTS = ("H1", "ΔNTK", "zΔH", "dNTK", "ddI", "ddII", "start")
# Taylor coefficients of second order, and the first-order answers whose products go with them.
_SECOND_ORDER = {
    "start": (("gg", "g", "g"),),
    "zΔH": (("gx", "g", "x"),),
    "ΔNTK": (("xx", "x", "x"), ("yy", "y", "y")),
}
# Nodes of an exact rule times directions times squared outputs of all samples, if they are not
# more: then every direction is taken at every node.
_MOST_EXACT = 4e7
# Numbers that a chunk of nodes may hold.
_CHUNK_NUMBERS = 2**24
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class FrozenMoments:
    """Infinite width: mean, covariance and losses, with the paths at the nodes.

    `change` is the root mean square of z(t) − z(0), for every moment and sample. Losses are those
    of the training and of the test set, `(moment, set)`, `variance` that between networks.
    """

    nodes: Nodes
    paths: Float[np.ndarray, "node time sample outputs"]
    mean: Statistics
    covariance: Statistics
    loss: Statistics
    loss_variance: Statistics
    change: Float[np.ndarray, "time sample"]


@dataclass(frozen=True, eq=False)
class Answers:
    """Coefficients of 1/n_{L−1}, by part, with scramblings first in `Statistics` of their sums.

    `coefficients` are E[u a], E[a a] and E[b], which move the mean NTK, scramblings first.
    """

    means: dict[str, np.ndarray]
    covariances: dict[str, np.ndarray]
    losses: dict[str, np.ndarray]
    mean: Statistics
    covariance: Statistics
    loss: Statistics
    loss_variance: Statistics
    coefficients: dict[str, np.ndarray]


@float64
def frozen_moments(problem: PathProblem) -> FrozenMoments:
    """Mean, covariance and losses over initialisations with a frozen NTK, for any loss.

    Cost: N_A² n_L for every node and step.
    """
    nodes = problem.nodes(problem.draws.frozen, stream=0)

    @jax.jit
    def run(z: Array, keys: Array, frozen: Frozen) -> Any:
        def one(z: Array, key: Array) -> Any:
            epsilon = partial(problem.epsilon, key)
            return frozen_path(frozen, problem.optimiser, epsilon, problem.moments, z)

        return jax.vmap(one)(z, keys)

    paths, arrivals = [], []
    frozen = problem.frozen()
    numbers = 4 * problem.samples * problem.outputs * len(problem.moments)
    for _, _, (z, _), keys in _chunks(problem, nodes, numbers, stream=0):
        path, arrived = run(jnp.asarray(z), keys, frozen)
        paths.append(np.asarray(path))
        arrivals.append(np.ravel(arrived))
    require_arrival(np.concatenate(arrivals), problem.moments[-1])
    path = np.concatenate(paths)
    require_finite(path, problem.optimiser.eta)
    mean = Statistics.of(group_averages(nodes, path))
    gap = path - mean.value[None]
    start = problem.initial(nodes.xi)[0]
    moved = np.mean((path - start[:, None]) ** 2, axis=3)
    change = np.sqrt(np.maximum(group_averages(nodes, moved).mean(axis=0), 0.0))
    losses = loss_values(problem, path)
    loss = Statistics.of(group_averages(nodes, losses))
    spread = group_averages(nodes, (losses - loss.value[None]) ** 2)
    covariance = Statistics.of(bilinear_average(nodes, gap, gap))
    return FrozenMoments(nodes, path, mean, covariance, loss, Statistics.of(spread), change)


class FiniteWidth:
    """The order 1/n of a training: compiled once, then run for any set of tensors.

    `finite(tensors)` gives the `Answers`. Cost: for every node and step about ten products of
    N_A³N n_L numbers in first order, N_A²n_L² in second; before them N³N_A n_L for every node and
    N⁶ once. Memory: `Blocks`, and chunks of nodes of 0.13 GB.
    """

    def __init__(self, problem: PathProblem, limit: FrozenMoments):
        self.problem, self.limit = problem, limit

        def first(z: Array, u: Array, key: Array, frozen: Frozen, blocks: Blocks) -> Any:
            epsilon = partial(problem.epsilon, key)
            arguments = (problem.optimiser, epsilon, problem.moments)
            return first_responses(frozen, blocks, *arguments, z, u)

        def second(z: Array, u: Array, key: Array, direction: Fluctuation, frozen: Frozen) -> Any:
            epsilon = partial(problem.epsilon, key)
            arguments = (problem.optimiser, epsilon, problem.moments)
            return second_responses(frozen, *arguments, z, u, direction)

        def run_first(
            z: Array, u: Array, keys: Array, weights: Array, frozen: Frozen, blocks: Blocks
        ) -> Any:
            seen, arrived = jax.vmap(first, (0, 0, 0, None, None))(z, u, keys, frozen, blocks)
            a, b = seen.pop("a"), seen.pop("b")
            sums = {
                "ua": jnp.einsum("n,nsi,ntaj->tsiaj", weights, u, a),
                "aa": jnp.einsum("n,ntai,ntbj->taibj", weights, a, a),
                "b": jnp.einsum("n,ntaibj->taibj", weights, b),
            }
            return seen, sums, arrived

        def run_second(
            z: Array,
            u: Array,
            keys: Array,
            weights: Array,
            direction: Fluctuation,
            frozen: Frozen,
            mean: Array,
            loss: Array,
        ) -> Any:
            every = jax.vmap(second, (0, 0, 0, 0, None))
            seen, arrived = every(z, u, keys, direction, frozen)
            losses, spread = loss_shift_of_fluctuation(problem, seen, weights, loss)
            gap, parts = seen["path"] - mean[None], {}
            for name, terms in _SECOND_ORDER.items():
                means, products = zip(
                    *(_added(seen, gap, weights, *term) for term in terms), strict=True
                )
                parts[name] = (sum(means), sum(products), losses[name])
            return parts, spread, arrived

        self._run_first = jax.jit(run_first)
        self._run_second = jax.jit(run_second)

    @float64
    def __call__(self, tensors: Tensors, scramblings: int = SCRAMBLINGS) -> Answers:
        """The answers for one set of tensors: the value, or a deviation of all of them.

        Of a deviation the size is all that is wanted, for which one scrambling will do.
        """
        first, coefficients = self._first_order(tensors, scramblings)
        second = self._second_order(tensors, scramblings)
        means: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
        covariances: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
        losses: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
        for collection in (first, second):
            for name, (mean, covariance, loss) in collection.parts.items():
                means[name] = means[name] + mean.mean(axis=0)
                covariances[name] = covariances[name] + covariance.mean(axis=0)
                losses[name] = losses[name] + loss.mean(axis=0)
        kinds = (_sum_of(0), _sum_of(1), _sum_of(2), lambda c: c.spread)
        mean, covariance, loss, spread = (
            Statistics.of(kind(first)) + Statistics.of(kind(second)) for kind in kinds
        )
        return Answers(means, covariances, losses, mean, covariance, loss, spread, coefficients)

    def _first_order(
        self, tensors: Tensors, scramblings: int
    ) -> tuple[_Collected, dict[str, np.ndarray]]:
        problem, n, n_L = self.problem, self.problem.training_samples, self.problem.outputs
        blocks = Blocks.of(tensors, n)
        nodes = problem.nodes(problem.draws.first, stream=1).only(scramblings)
        frozen = problem.frozen(np.asarray(tensors["G1"]))
        numbers = 4 * problem.samples * n * n_L * (problem.samples + n * n_L)
        path, answers, arrivals = [], [], []
        sums: list[dict[str, Any]] = [{} for _ in range(nodes.groups)]
        for group, weights, (z, u), keys in _chunks(problem, nodes, numbers, stream=1):
            seen, some, arrived = self._run_first(
                jnp.asarray(z), jnp.asarray(u), keys, jnp.asarray(weights), frozen, blocks
            )
            path.append(np.asarray(seen["path"]))
            answers.append(np.moveaxis(np.asarray(seen["parts"]), 2, 0))
            for name, value in some.items():
                sums[group][name] = sums[group].get(name, 0.0) + np.asarray(value)
            arrivals.append(np.ravel(arrived))
        require_arrival(np.concatenate(arrivals), problem.moments[-1])
        paths, every = np.concatenate(path), np.concatenate(answers, axis=1)
        require_finite(every, problem.optimiser.eta)
        gap, parts = paths - self.limit.mean.value[None], {}
        losses, spread = loss_shift(problem, paths, every, self.limit.loss.value)
        for name, answer, loss in zip(FIRST_ORDER, every, losses, strict=True):
            cross = bilinear_average(nodes, gap, answer)
            both = cross + transposed(cross)
            parts[name] = (group_averages(nodes, answer), both, group_averages(nodes, loss))
        coefficients = {name: np.stack([group[name] for group in sums]) for name in sums[0]}
        return _Collected(parts, group_averages(nodes, spread)), coefficients

    def _second_order(self, tensors: Tensors, scramblings: int) -> _Collected:
        problem, n, n_L = self.problem, self.problem.training_samples, self.problem.outputs
        fluctuations = Fluctuations.of(tensors, n, n_L)
        nodes = self._second_nodes(fluctuations).only(scramblings)
        frozen = problem.frozen()
        per_group = len(nodes.weights) // nodes.groups
        totals: dict[str, list[Any]] = {
            name: [[0.0] * nodes.groups for _ in range(3)] for name in _SECOND_ORDER
        }
        spreads: list[Any] = [0.0] * nodes.groups
        arrivals = []
        centers = (jnp.asarray(self.limit.mean.value), jnp.asarray(self.limit.loss.value))
        for at, signs, direction in self._directions(fluctuations, nodes):
            z, u = (jnp.asarray(part) for part in problem.initial(nodes.xi[at]))
            made = Fluctuation(*(jnp.asarray(part) for part in direction))
            weights, group = jnp.asarray(signs * nodes.weights[at]), int(at[0]) // per_group
            some, spread, arrived = self._run_second(
                z, u, _keys(problem, at, 2), weights, made, frozen, *centers
            )
            arrivals.append(np.ravel(arrived))
            spreads[group] += np.asarray(spread)
            for name, kinds in some.items():
                for total, kind in zip(totals[name], kinds, strict=True):
                    total[group] += np.asarray(kind)
        require_arrival(np.concatenate(arrivals), problem.moments[-1])
        parts = {name: tuple(map(np.stack, kinds)) for name, kinds in totals.items()}
        return _Collected(parts, np.stack(spreads))

    def _second_nodes(self, fluctuations: Fluctuations) -> Nodes:
        """An exact rule where it can take all directions, else scramblings with random ones.

        The few heavy nodes of a rule, each with one random direction, would leave an error that
        nothing tells.
        """
        problem, count = self.problem, self.problem.draws.second
        nodes = problem.nodes(count, stream=2)
        pairs = len(nodes.weights) * fluctuations.directions
        if nodes.is_exact and pairs * (problem.samples * problem.outputs) ** 2 > _MOST_EXACT:
            return problem.nodes(count, stream=2, exact=False)
        return nodes

    def _directions(
        self, fluctuations: Fluctuations, nodes: Nodes
    ) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]]:
        """Numbers of nodes, signs and directions, of one scrambling at a time.

        All directions at all nodes of an exact rule, else a random one at every node, and another
        one of the columns that count as negative.
        """
        problem = self.problem
        numbers = problem.samples * (
            problem.samples + problem.training_samples * problem.outputs**2
        ) + 20 * problem.samples * problem.outputs * len(problem.moments)
        size = int(np.clip(_CHUNK_NUMBERS // numbers, 1, 1024))
        total = len(nodes.weights)
        if nodes.is_exact:
            every, diagonal, mixing = fluctuations.every()
            index = np.repeat(np.arange(total), fluctuations.directions)
            which = np.tile(np.arange(fluctuations.directions), total)
            for start in range(0, index.size, size):
                at, k = index[start : start + size], which[start : start + size]
                yield at, np.stack([diagonal[k], mixing[k]]), tuple(part[k] for part in every)
            return
        rng = np.random.default_rng([problem.seed, 31])
        per_group = total // nodes.groups
        for sign in (1.0, -1.0) if fluctuations.negative > _NEGLIGIBLE else (1.0,):
            for first in range(0, total, per_group):
                for start in range(first, first + per_group, size):
                    at = np.arange(start, min(start + size, first + per_group))
                    drawn = fluctuations.draw(at.size, sign, rng)
                    yield at, np.full((2, at.size), sign), drawn


class _Collected(NamedTuple):
    """By part means, covariances and shifts of losses, and those of their variances.

    All have the scramblings first.
    """

    parts: dict[str, tuple[np.ndarray, ...]]
    spread: np.ndarray


def _sum_of(kind: int) -> Callable[[_Collected], np.ndarray]:
    """The sum over parts of their means, for 0, covariances, for 1, or losses, for 2."""
    return lambda collected: np.sum([part[kind] for part in collected.parts.values()], axis=0)


def _added(
    seen: dict[str, Array], gap: Array, weights: Array, second: str, left: str, right: str
) -> tuple[Array, Array]:
    """What one Taylor coefficient adds to the mean, and with its products to the covariance."""
    weight = weights[1 if second == "yy" else 0]

    def products(first: Array, other: Array) -> Array:
        return jnp.einsum("ntsi,ntrj->tsirj", first * weight[:, None, None, None], other)

    cross = products(gap, seen[second])
    both = products(seen[left], seen[right])
    both = both if left == right else both + transposed(both)
    return jnp.einsum("n,ntsi->tsi", weight, seen[second]), both + cross + transposed(cross)


def _chunks(
    problem: PathProblem, nodes: Nodes, numbers: int, *, stream: int
) -> Iterator[tuple[int, np.ndarray, tuple[np.ndarray, np.ndarray], Array]]:
    """Scrambling, weights, initial outputs and keys of some nodes, each holding `numbers`."""
    per_group = len(nodes.weights) // nodes.groups
    size = int(np.clip(_CHUNK_NUMBERS // numbers, 1, min(4096, per_group)))
    for group in range(nodes.groups):
        end = (group + 1) * per_group
        for start in range(group * per_group, end, size):
            at = np.arange(start, min(start + size, end))
            initial = problem.initial(nodes.xi[at])
            yield group, nodes.weights[at], initial, _keys(problem, at, stream)


def _keys(problem: PathProblem, at: np.ndarray, stream: int) -> Array:
    """A key for every node: of the batches that its network sees."""
    root = jax.random.fold_in(jax.random.key(problem.seed), stream)
    return jax.vmap(lambda number: jax.random.fold_in(root, number))(jnp.asarray(at))
