"""Outputs of trained networks, at the end or before: mean and covariance, measured.

Raw averages cannot see a 1/n correction, because the spread of the initial outputs hides it. Three
things take that spread out, none of which uses the order-1/n theory. Every network is trained
twice, the second time with its output layer reversed. It is compared with its own infinite-width
path, z(T) = m^∞ + ζ + ρ: ζ, the initial output less what training removes from it, has mean zero
and a covariance known given the hidden layers. And ρ is compared with what the network's own NTK,
frozen, makes of it to first order in Ĥ − Θ, at the end −[−R 1] Ĥ Θ̃⁻¹ (z − y), whose statistics
need no training and come from many more networks. Derivation: docs/derivations/control-variates.md
(D8).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.ensembles.initial._metric import SMALLEST_ENSEMBLE
from dynagram.ensembles.trained._pairs import PairData, frozen_pair, pair_data, trained_pair
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP
from dynagram.results._estimate import BATCHES, Estimate, Moments
from dynagram.theory.training._infinite import InfiniteTraining, distinct_inputs
from dynagram.training import Training
from dynagram.training._algorithms import algorithm_of_table

_CHUNK_NUMBERS = {"cpu": 2**19}
_CHUNK_NUMBERS_ELSEWHERE = 2**27
_LARGEST_CHUNK = 2**14
# An NTK costs about as much as two of the steps, of which a training takes about a hundred.
_KERNELS_PER_TRAINING = 8
# Fourth-order Runge-Kutta steps of gradient flow, in units of 1/λ_max: 1e-5 of the η-dependence.
_FLOW_STEP = 0.25


@dataclass(frozen=True, eq=False)
class TrainedMeasurement:
    """Mean and covariance of trained outputs over `members` networks, at all orders in 1/n.

    `mean` is (test, outputs), `covariance` (test, outputs, test, outputs). The entries of the mean
    err together, because all come from the same networks: `joint_error` is the covariance matrix
    of their errors, for sums and fits over test points. `time` is τ = η·steps, ∞ at the end of
    training. There, `unfinished` networks had an error above the tolerance when their steps were
    used up; `largest_error` is the worst.
    """

    network: MLP
    time: float
    members: int
    seed: int
    mean: Estimate
    covariance: Estimate
    joint_error: Float[np.ndarray, "test_output test_output"]
    unfinished: int
    largest_error: float


def measure_trained(
    network: MLP,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
    steps: float | int | None = None,
    time: float | int | None = None,
    members: int,
    seed: int,
    tolerance: float = 1e-6,
    max_steps: int | None = None,
    kernel_members: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> TrainedMeasurement:
    """Train `members` networks (an even number) on ½ Σ (z − y)² and measure their test outputs.

    After `steps` of gradient descent or a `time` of flow; without either, training goes on until
    the largest error of a network is below `tolerance`, or `max_steps`, by default three times
    what infinite width needs. "flow" is integrated by Runge-Kutta steps;
    "two-step" leaps with each network's own NTK, then with the frozen one. `kernel_members`
    further networks, eight times `members` by default, are not trained. Float64. Cost: two
    trainings per pair; memory by chunks.

    >>> net = MLP([2, 32, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> found = measure_trained(
    ...     net, [[1.0, 0.0]], [[0.5]], [[0.6, 0.8]], eta=0.4, members=512, seed=0)
    >>> found.mean.value.round(2), found.unfinished
    (array([[0.43]]), 0)
    """
    sets = Data(train_x, train_y, test_x)
    how = Training(algorithm_of_table(algorithm, eta, {}), steps=steps, time=time)
    kernel = InfiniteTraining.of(network, sets, how)
    _check(kernel, members, seed)
    limit, step = kernel.at(how.end), _step(kernel)
    decay, ends, test = limit.decay, limit.decay.at_end, slice(kernel.weights.size, None)
    if not ends:
        # Whole steps up to the time asked for, whatever the error.
        max_steps = int(decay.steps) or math.ceil(decay.time / step)
        step, tolerance = decay.time / max(max_steps, 1), -1.0
    elif max_steps is None:
        max_steps = 50 + 3 * int(min(kernel.step_sizes.steps_to(0.1 * tolerance, step), 1e6))
    if kernel_members is None:
        kernel_members = _KERNELS_PER_TRAINING * members
    data = pair_data(distinct_inputs(sets), kernel, limit, step, tolerance)
    unfinished, worst = 0, 0.0
    differences, frozen = _Sum(), _Sum()
    trained = functools.partial(trained_pair, network, algorithm, max_steps)
    for first, (rows, residual) in _chunks(trained, network, data, members // 2, seed):
        if not np.all(np.isfinite(rows)):
            raise NonFiniteError(
                "the training of a network diverged: its NTK is larger than the frozen one and eta "
                f"= {eta} too near the limit {2.0 / kernel.eigenvalues[-1]:.3g}; lower eta or widen"
            )
        differences.add(first, rows)
        unfinished += int(np.sum(residual > tolerance))
        worst = max(worst, float(residual.max()))
        if progress is not None:
            progress(2 * (first + rows.shape[0]), members)
    untrained = functools.partial(frozen_pair, network)
    for first, (rows,) in _chunks(untrained, network, data, kernel_members // 2, seed + 1):
        frozen.add(first, rows)
    parts = (differences.total(), frozen.total())
    mean = limit.mean[test]
    estimates = _estimates(*parts, mean, members)
    # What two leaps leave is of order 1/n² and no lack of steps.
    left = 0 if algorithm == "two-step" or not ends else unfinished
    joint = parts[0].error_of_mean() + parts[1].error_of_mean()
    joint = joint[: mean.size, : mean.size]
    return TrainedMeasurement(network, decay.time, members, seed, *estimates, joint, left, worst)


def _check(kernel: InfiniteTraining, members: int, seed: int) -> None:
    for name, value, smallest in (("members", members, SMALLEST_ENSEMBLE), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidTypeError(name, value, "expected an integer")
        if not smallest <= value < 2**31:
            raise InvalidValueError(name, value, f"expected {smallest} to 2**31 − 1")
    if members % 2:
        raise InvalidValueError("members", members, "an even number: networks come in pairs")
    if kernel.rank < kernel.weights.size:
        raise InvalidValueError(
            "train_x", f"rank {kernel.rank}", "the training NTK is rank deficient: networks "
            "would not reach zero error",
        )  # fmt: skip


def _step(kernel: InfiniteTraining) -> float:
    if kernel.how.eta is not None:
        return kernel.how.eta
    return _FLOW_STEP / float(kernel.eigenvalues[-1])


def _chunks(
    pair: Callable[..., Any], network: MLP, data: PairData, pairs: int, seed: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """`pair(data, params)` of `pairs` networks: the first one's number and arrays, by chunks."""
    numbers = 4 * network.number_of_parameters + data.inputs.shape[0] * sum(network.widths)
    room = _CHUNK_NUMBERS.get(jax.default_backend(), _CHUNK_NUMBERS_ELSEWHERE)
    size = int(np.clip(room // numbers, 1, min(_LARGEST_CHUNK, pairs)))

    @jax.jit
    def run(data: PairData, key: Array, members: Array) -> tuple[Array, ...]:
        def one(number: Array) -> tuple[Array, ...]:
            return pair(data, network.draw(jax.random.fold_in(key, number), dtype=jnp.float64))

        return jax.vmap(one)(members)

    @float64
    def computed(first: int) -> tuple[np.ndarray, ...]:
        members = jnp.arange(first, first + size, dtype=jnp.uint32)
        return tuple(np.asarray(part) for part in run(data, jax.random.key(seed), members))

    for first in range(0, pairs, size):
        # The last chunk is computed whole, so that one compilation serves all.
        yield first, tuple(part[: pairs - first] for part in computed(first))


class _Sum:
    """Moments of rows that come few at a time, numbered in order."""

    def __init__(self) -> None:
        self._moments: Moments | None = None
        self._waiting: list[np.ndarray] = []
        self._first = 0

    def add(self, first: int, rows: np.ndarray) -> None:
        """Keep rows until there is one for every batch: sums by batch cost as much for one."""
        self._first = self._first if self._waiting else first
        self._waiting.append(rows)
        if sum(part.shape[0] for part in self._waiting) >= BATCHES:
            self._moments = self.total()

    def total(self) -> Moments:
        """The moments of everything so far."""
        if not self._waiting:
            assert self._moments is not None
            return self._moments
        rows = np.concatenate(self._waiting)
        self._waiting = []
        new = Moments.from_samples(rows, order=1, first=self._first)
        return new if self._moments is None else self._moments.merge(new)


def _estimates(
    differences: Moments, frozen: Moments, infinite: np.ndarray, members: int
) -> tuple[Estimate, Estimate]:
    """Mean and covariance from the two ensembles, with jackknife errors of either added."""
    shape, size = infinite.shape, infinite.size
    averages = [moments.mean().value for moments in (differences, frozen)]

    def mean(average: np.ndarray) -> np.ndarray:
        return average[:size].reshape(shape)

    def covariance(average: np.ndarray) -> np.ndarray:
        rho = average[:size]
        second = average[size:].reshape(size, size) - rho[:, None] * rho
        return second.reshape(shape + shape)

    found = []
    for statistic in (mean, covariance):
        value = statistic(averages[0] + averages[1])
        square = np.zeros_like(value)
        for moments, other in ((differences, averages[1]), (frozen, averages[0])):

            def resampled(
                n: int, sums: tuple[np.ndarray, ...], moments=moments, other=other,
                statistic=statistic,
            ) -> np.ndarray:  # fmt: skip
                return statistic(moments.origin + sums[0] / n + other)

            square += moments.jackknife(resampled, 1).standard_error ** 2
        found.append(Estimate(value, np.sqrt(square), members))
    shift = found[0]
    return Estimate(infinite + shift.value, shift.standard_error, members), found[1]
