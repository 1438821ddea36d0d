"""Outputs of trained networks, at the end or before: mean and covariance, measured.

Raw averages cannot see a 1/n correction, because the spread of the initial outputs hides it. Three
things take that spread out, none of which uses the order-1/n theory. Every network is trained
twice, the second time with its output layer reversed (06 §14.10). It is compared with its own
infinite-width path, z(T) = m^∞ + ζ + ρ: ζ, the initial output less what training removes from it,
has mean zero and a covariance known given the hidden layers. And ρ is compared with what the
network's own NTK, frozen, makes of it to first order in Ĥ − Θ, at the end −[−R 1] Ĥ Θ̃⁻¹ (z − y),
whose statistics need no training and come from many more networks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.ensembles.initial import SMALLEST_ENSEMBLE
from dynagram.ensembles.statistics import BATCHES, Estimate, Moments
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Layer, Params
from dynagram.observables.ntk import ntk
from dynagram.precision import float64
from dynagram.theory.training.algorithms import Algorithm
from dynagram.theory.training.decay import Decay
from dynagram.theory.training.frame import Frame
from dynagram.theory.training.infinite import KernelTraining, TrainedGaussian, from_problem
from dynagram.theory.training.problem import Problem

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


class _Data(NamedTuple):
    """Arrays of one problem, as the compiled programs need them."""

    inputs: Array  # training, then test
    targets: Array
    weights: Array
    kernel: Array  # Θ of all samples with those of training
    rows: Array  # the training frame
    back: Array  # from the frame to test outputs
    slopes: Array  # D[r, h], what Ĥ − Θ does to a row of rate r in direction h
    bracket: Array  # [−R 1]
    step: Array
    tolerance: Array


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
    problem = Problem.checked(network, train_x, train_y, test_x)
    kernel = from_problem(problem, Algorithm.checked(algorithm, eta))
    _check(kernel, members, seed)
    limit, step = kernel.at(steps=steps, time=time), _step(kernel)
    ends = math.isinf(limit.time)
    if not ends:
        # Whole steps up to the time asked for, whatever the error.
        max_steps = round(limit.time / step) if algorithm == "gd" else math.ceil(limit.time / step)
        step, tolerance = limit.time / max(max_steps, 1), -1.0
    elif max_steps is None:
        max_steps = 50 + 3 * int(min(kernel.step_sizes.steps_to(0.1 * tolerance, step), 1e6))
    if kernel_members is None:
        kernel_members = _KERNELS_PER_TRAINING * members
    data = _arrays(problem, kernel, limit, step, tolerance)
    unfinished, worst = 0, 0.0
    differences, frozen = _Sum(), _Sum()
    trained = functools.partial(_trained_pair, network, algorithm, max_steps)
    for first, (rows, residual) in _chunks(trained, problem, data, members // 2, seed):
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
    untrained = functools.partial(_frozen_pair, network)
    for first, (rows,) in _chunks(untrained, problem, data, kernel_members // 2, seed + 1):
        frozen.add(first, rows)
    parts = (differences.total(), frozen.total())
    estimates = _estimates(*parts, limit, members)
    # What two leaps leave is of order 1/n² and no lack of steps.
    left = 0 if algorithm == "two-step" or not ends else unfinished
    joint = parts[0].error_of_mean() + parts[1].error_of_mean()
    joint = joint[: limit.mean.size, : limit.mean.size]
    return TrainedMeasurement(network, limit.time, members, seed, *estimates, joint, left, worst)


def _check(kernel: KernelTraining, members: int, seed: int) -> None:
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


def _step(kernel: KernelTraining) -> float:
    if kernel.algorithm.eta is not None:
        return kernel.algorithm.eta
    return _FLOW_STEP / float(kernel.eigenvalues[-1])


@float64
def _arrays(
    problem: Problem, kernel: KernelTraining, limit: TrainedGaussian, step: float, tolerance: float
) -> _Data:
    n = problem.train_x.shape[0]
    bracket = np.concatenate([-limit.response, np.eye(problem.test_x.shape[0])], axis=1)
    frame = Frame.of(kernel.Theta, problem.weights)
    rates = np.append(frame.h, np.zeros(bracket.shape[0]))[:, None]
    slopes = np.where(rates == 0.0, -1.0 / frame.h, 0.0)
    if math.isfinite(limit.time):
        eta = kernel.algorithm.eta
        decay = Decay.descent(eta, round(limit.time / eta)) if eta else Decay.flow(limit.time)
        slopes = decay(rates, frame.h[None, :])
    arrays = (
        problem.inputs, problem.train_y, problem.weights, kernel.Theta[:, :n], frame.rows,
        np.linalg.inv(frame.rows)[n:], slopes, bracket, step, tolerance,
    )  # fmt: skip
    return _Data(*(jnp.asarray(array, dtype=jnp.float64) for array in arrays))


def _chunks(
    pair: Callable[..., Any], problem: Problem, data: _Data, pairs: int, seed: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """`pair(data, params)` of `pairs` networks: the first one's number and arrays, by chunks."""
    network = problem.network
    numbers = 4 * network.number_of_parameters + problem.inputs.shape[0] * sum(network.widths)
    room = _CHUNK_NUMBERS.get(jax.default_backend(), _CHUNK_NUMBERS_ELSEWHERE)
    size = int(np.clip(room // numbers, 1, min(_LARGEST_CHUNK, pairs)))

    @jax.jit
    def run(data: _Data, key: Array, members: Array) -> tuple[Array, ...]:
        def one(number: Array) -> tuple[Array, ...]:
            return pair(data, network.init(jax.random.fold_in(key, number), dtype=jnp.float64))

        return jax.vmap(one)(members)

    @float64
    def computed(first: int) -> tuple[np.ndarray, ...]:
        members = jnp.arange(first, first + size, dtype=jnp.uint32)
        return tuple(np.asarray(part) for part in run(data, jax.random.key(seed), members))

    for first in range(0, pairs, size):
        # The last chunk is computed whole, so that one compilation serves all.
        yield first, tuple(part[: pairs - first] for part in computed(first))


# --- one pair of networks ---------------------------------------------------------------------


def _trained_pair(
    network: MLP, algorithm: str, max_steps: int, data: _Data, params: Params
) -> tuple[Array, Array]:
    """The statistics of trained outputs less those with a frozen NTK, and the largest error."""
    train = _leaps if algorithm == "two-step" else _descent
    gradient = _runge_kutta if algorithm == "flow" else _gradient
    last = params[-1]
    reversed_params = (*params[:-1], Layer(-last.b, -last.W))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, reversed_params)
    ends, errors = jax.vmap(lambda p: train(network, p, data, max_steps, gradient))(both)
    z = network.apply(params, data.inputs)
    zeta = data.bracket @ z
    base = -data.bracket[:, : data.targets.shape[0]] @ data.targets
    rho = (ends[0] - base - zeta, ends[1] - base + zeta)
    frozen = _frozen_changes(network, params, data, z)
    return _statistics(zeta, rho) - _statistics(zeta, frozen), jnp.max(errors)


def _frozen_pair(network: MLP, data: _Data, params: Params) -> tuple[Array]:
    """The statistics of a pair with a frozen NTK; E[ζζ'] given the hidden layers is known."""
    fields = network.preactivations(params, data.inputs)
    signal = network.activation(fields[-2]) if network.depth > 1 else data.inputs
    metric = network.C_b[-1] + network.C_W[-1] / signal.shape[1] * (signal @ signal.T)
    spread = data.bracket @ metric @ data.bracket.T
    same = jnp.einsum("ts,ij->tisj", spread, jnp.eye(data.targets.shape[1]))
    zeta = data.bracket @ fields[-1]
    found = _statistics(zeta, _frozen_changes(network, params, data, fields[-1]))
    if network.depth == 2:  # the mean NTK is Θ at every width (8.63)
        found = found.at[: zeta.size].set(0.0)
    return (found.at[zeta.size :].add(same.reshape(-1)),)


def _frozen_changes(network: MLP, params: Params, data: _Data, z: Array) -> tuple[Array, Array]:
    """The change ρ of a network and of its reverse to first order in Ĥ − Θ."""
    n, outputs = data.targets.shape
    mean = jnp.einsum("ab,ij->abij", data.kernel, jnp.eye(outputs))
    shift = ntk(network, params, data.inputs)[:, :n] - mean
    basis = data.rows[:n, :n]
    turned = jnp.einsum("ra,abij,cb->rcij", data.rows, shift, basis) * data.slopes[:, :, None, None]
    own = jnp.einsum("tr,rcij->tcij", data.back, turned)

    def change(error: Array) -> Array:
        return jnp.einsum("tcij,cj->ti", own, basis @ error)

    return change(z[:n] - data.targets), change(-z[:n] - data.targets)


def _statistics(zeta: Float[Array, "test outputs"], rho: tuple[Array, Array]) -> Array:
    """½(ρ⁺ + ρ⁻), and ζρ' + ρζ' + ρρ' averaged over the pair, whose initial outputs are ±."""
    z = zeta.reshape(-1)
    plus, minus = (part.reshape(-1) for part in rho)
    cross = 0.5 * z[:, None] * (plus - minus)[None, :]
    squares = 0.5 * (plus[:, None] * plus[None, :] + minus[:, None] * minus[None, :])
    second = cross + cross.T + squares
    return jnp.concatenate([0.5 * (plus + minus), second.reshape(-1)])


# --- training ---------------------------------------------------------------------------------


def _moved(network: MLP, params: Params, way: Params, step: Array) -> Params:
    """θ − step·λ·way."""
    rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
    return tuple(
        Layer(layer.b - step * b * d.b, layer.W - step * (W / n) * d.W)
        for layer, d, (b, W, n) in zip(params, way, rates, strict=True)
    )


def _pulled(
    network: MLP, params: Params, data: _Data, error: Callable[[Array], Array]
) -> tuple[Params, Array]:
    """Jᵀ error(z_A) and z_A."""
    x = data.inputs[: data.targets.shape[0]]
    z, pull = jax.vjp(lambda p: network.apply(p, x), params)
    return pull(error(z))[0], z


def _gradient(network: MLP, params: Params, data: _Data) -> tuple[Params, Array]:
    """The gradient of the loss and the largest error."""
    way, z = _pulled(network, params, data, lambda z: data.weights[:, None] * (z - data.targets))
    return way, jnp.max(jnp.abs(z - data.targets))


def _runge_kutta(network: MLP, params: Params, data: _Data) -> tuple[Params, Array]:
    """The mean gradient over one step of gradient flow, and the largest error at its start."""
    h = data.step
    k1, error = _gradient(network, params, data)
    k2, _ = _gradient(network, _moved(network, params, k1, 0.5 * h), data)
    k3, _ = _gradient(network, _moved(network, params, k2, 0.5 * h), data)
    k4, _ = _gradient(network, _moved(network, params, k3, h), data)
    way = jax.tree.map(lambda a, b, c, d: (a + 2.0 * b + 2.0 * c + d) / 6.0, k1, k2, k3, k4)
    return way, error


def _descent(
    network: MLP, params: Params, data: _Data, max_steps: int, gradient: Callable[..., Any]
) -> tuple[Array, Array]:
    """Test outputs when training ends and the largest error then."""

    def more(state: tuple[Params, Array, Array]) -> Array:
        return (state[1] > data.tolerance) & (state[2] < max_steps)

    def step(state: tuple[Params, Array, Array]) -> tuple[Params, Array, Array]:
        way, error = gradient(network, state[0], data)
        return _moved(network, state[0], way, data.step), error, state[2] + 1

    start = (params, jnp.asarray(jnp.inf), jnp.asarray(0))
    end, _, _ = jax.lax.while_loop(more, step, start)
    z, n = network.apply(end, data.inputs), data.targets.shape[0]
    return z[n:], jnp.max(jnp.abs(z[:n] - data.targets))


def _leaps(
    network: MLP, params: Params, data: _Data, _steps: int, _gradient: Callable[..., Any]
) -> tuple[Array, Array]:
    """Ĥ⁻¹ at the start (∞.71), then Θ̃⁻¹ at the new place (∞.77)."""
    n, outputs = data.targets.shape
    H = ntk(network, params, data.inputs[:n]).transpose(0, 2, 1, 3).reshape(n * outputs, -1)

    def own(z: Array) -> Array:
        return jnp.linalg.solve(H, (z - data.targets).reshape(-1)).reshape(n, outputs)

    one = jnp.asarray(1.0)
    way, _ = _pulled(network, params, data, own)
    params = _moved(network, params, way, one)
    mean = data.kernel[:n]
    way, _ = _pulled(network, params, data, lambda z: jnp.linalg.solve(mean, z - data.targets))
    params = _moved(network, params, way, one)
    error = jnp.max(jnp.abs(network.apply(params, data.inputs[:n]) - data.targets))
    return network.apply(params, data.inputs[n:]), error


# --- all pairs --------------------------------------------------------------------------------


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
    differences: Moments, frozen: Moments, limit: TrainedGaussian, members: int
) -> tuple[Estimate, Estimate]:
    """Mean and covariance from the two ensembles, with jackknife errors of either added."""
    shape, size = limit.mean.shape, limit.mean.size
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
    return Estimate(limit.mean + shift.value, shift.standard_error, members), found[1]
