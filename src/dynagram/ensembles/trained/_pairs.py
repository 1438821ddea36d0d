"""Pairs of networks as control variates: what a 1/n correction of trained outputs is read from.

Raw averages cannot see a 1/n correction, because the spread of the initial outputs hides it. Three
things take that spread out, none of which uses the order-1/n theory. Every network is trained
twice, the second time with its output layer reversed. It is compared with its own infinite-width
path, z(τ) = m^∞ + ζ + ρ: ζ, the initial output less what training removes from it, has mean zero
and a covariance known given the hidden layers. And ρ is compared with what the network's own NTK,
frozen, makes of it to first order in Ĥ − Θ, at the end −[−R 1] Ĥ Θ̃⁻¹ (z − y), whose statistics
need no training and come from many more networks. Derivation: docs/derivations/control-variates.md
(D8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.ensembles._reference import InfiniteWidth
from dynagram.ensembles.trained import _batches as batches
from dynagram.ensembles.trained._program import train_group
from dynagram.ensembles.trained._records import Arrays, Limits
from dynagram.networks import MLP, Network, Params
from dynagram.observables.tangents._ntk import any_ntk
from dynagram.results._estimate import Estimate, Moments
from dynagram.training import Training


class PairArrays(NamedTuple):
    """Arrays that all pairs share; distinct training inputs come before test inputs."""

    inputs: Any
    targets: Any
    kernel: Any
    rows: Any
    back: Any
    slopes: Any
    bracket: Any
    training: Arrays

    @classmethod
    def of(
        cls, inputs: np.ndarray, targets: np.ndarray, limit: InfiniteWidth, training: Arrays
    ) -> PairArrays:
        """The arrays of a problem and of its infinite-width limit."""
        parts = (limit.kernel, limit.rows, limit.back, limit.slopes, limit.bracket)
        return cls(inputs, targets, *parts, training)


def trained_pairs(
    network: Network, how: Training, limits: Limits, params: Params, arrays: PairArrays
) -> tuple[Array, Array]:
    """The statistics of trained outputs less those with a frozen NTK, and the largest error.

    Of every pair of a group, whose first networks are `params`: rows (pair, moment, statistic).
    """
    size = jax.tree.leaves(params)[0].shape[0]
    reverse = (*params[:-1], jax.tree.map(jnp.negative, params[-1]))
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), params, reverse)

    def observe(group: Params, _: batches.Batch) -> dict[str, Array]:
        return {"z": jax.vmap(lambda p: network.apply(p, arrays.training.asked))(group)}

    given = arrays.training
    stream = batches.whole(given.x, given.y, 2 * size)
    keys = jnp.zeros(2 * size)  # no step draws anything
    result = train_group(network, how, limits, stream, observe, both, keys, given)
    ends = result.observed["z"].reshape(2, size, *result.observed["z"].shape[1:])

    def one(layers: Params, plus: Array, minus: Array) -> Array:
        z = network.apply(layers, arrays.inputs)
        shift = _turned_shift(network, layers, arrays)

        def at(bracket: Array, slopes: Array, plus: Array, minus: Array) -> Array:
            zeta = bracket @ z
            base = -bracket[:, : arrays.targets.shape[0]] @ arrays.targets
            rho = (plus - base - zeta, minus - base + zeta)
            return _statistics(zeta, rho) - _statistics(zeta, _changes(shift, slopes, z, arrays))

        return jax.vmap(at)(arrays.bracket, arrays.slopes, plus, minus)

    assert result.error is not None  # the error is squared
    return jax.vmap(one)(params, *ends), jnp.max(result.error.reshape(2, size), axis=0)


def frozen_pairs(network: Network, params: Params, arrays: PairArrays) -> Array:
    """The statistics of pairs with a frozen NTK; E[ζζ'] given the hidden layers is (D8.2)."""

    def one(layers: Params) -> Array:
        outputs = network.apply(layers, arrays.inputs)
        metric = network.output_metric(layers, arrays.inputs)
        shift = _turned_shift(network, layers, arrays)

        def at(bracket: Array, slopes: Array) -> Array:
            spread = bracket @ metric @ bracket.T
            same = jnp.einsum("ts,ij->tisj", spread, jnp.eye(arrays.targets.shape[1]))
            zeta = bracket @ outputs
            row = _statistics(zeta, _changes(shift, slopes, outputs, arrays))
            if (
                isinstance(network, MLP) and network.depth == 2
            ):  # the mean NTK is Θ at every width (8.63)
                row = row.at[: zeta.size].set(0.0)
            return row.at[zeta.size :].add(same.reshape(-1))

        return jax.vmap(at)(arrays.bracket, arrays.slopes)

    return jax.vmap(one)(params)


def _turned_shift(
    network: Network, params: Params, arrays: PairArrays
) -> Float[Array, "row c i j"]:
    """Ĥ − Θ of all samples with training ones, turned into the training frame."""
    n, outputs = arrays.targets.shape
    mean = jnp.einsum("ab,ij->abij", arrays.kernel, jnp.eye(outputs))
    shift = any_ntk(network, params, arrays.inputs)[:, :n] - mean
    return jnp.einsum("ra,abij,cb->rcij", arrays.rows, shift, arrays.rows[:n, :n])


def _changes(shift: Array, slopes: Array, z: Array, arrays: PairArrays) -> tuple[Array, Array]:
    """The change ρ of a network and of its reverse to first order in Ĥ − Θ (D8.3)."""
    n = arrays.targets.shape[0]
    basis = arrays.rows[:n, :n]
    response = jnp.einsum("tr,rcij->tcij", arrays.back, shift * slopes[:, :, None, None])

    def change(error: Array) -> Array:
        return jnp.einsum("tcij,cj->ti", response, basis @ error)

    return change(z[:n] - arrays.targets), change(-z[:n] - arrays.targets)


def _statistics(zeta: Float[Array, "test outputs"], rho: tuple[Array, Array]) -> Array:
    """½(ρ⁺ + ρ⁻), and ζρ' + ρζ' + ρρ' averaged over the pair (D8.4), (D8.5)."""
    z = zeta.reshape(-1)
    plus, minus = (part.reshape(-1) for part in rho)
    cross = 0.5 * z[:, None] * (plus - minus)[None, :]
    squares = 0.5 * (plus[:, None] * plus[None, :] + minus[:, None] * minus[None, :])
    second = cross + cross.T + squares
    return jnp.concatenate([0.5 * (plus + minus), second.reshape(-1)])


# --- from the sums of both ensembles to mean and covariance -----------------------------------


def pair_estimates(
    trained: Moments, frozen: Moments, mean: Float[np.ndarray, "time test outputs"]
) -> dict[str, Estimate]:
    """Mean and covariance of the outputs; jackknife errors of either ensemble are added.

    `mean` is that of infinite width. Networks are counted, two a pair.
    """
    shift, covariance = (
        _combined(trained, frozen, statistic)
        for statistic in (_mean_of(mean.shape), _covariance_of(mean.shape))
    )
    value = mean + shift.value
    return {"mean": Estimate(value, shift.standard_error, shift.count), "covariance": covariance}


def joint_error(trained: Moments, frozen: Moments, size: int) -> Float[np.ndarray, "time P P"]:
    """The covariance matrix of the errors of the mean, of `size` entries at every moment."""
    return sum(moments.error_of_mean()[:, :size, :size] for moments in (trained, frozen))  # pyright: ignore


def _mean_of(shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    size = shape[1] * shape[2]
    return lambda average: average[:, :size].reshape(shape)


def _covariance_of(shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    size = shape[1] * shape[2]

    def covariance(average: np.ndarray) -> np.ndarray:
        rho, second = average[:, :size], average[:, size:].reshape(-1, size, size)
        return (second - rho[:, :, None] * rho[:, None, :]).reshape(*shape, *shape[1:])

    return covariance


def _combined(
    trained: Moments, frozen: Moments, statistic: Callable[[np.ndarray], np.ndarray]
) -> Estimate:
    """`statistic` of the sum of both averages."""
    averages = [moments.mean().value for moments in (trained, frozen)]
    value = statistic(averages[0] + averages[1])
    square = np.zeros_like(value)
    for moments, other in ((trained, averages[1]), (frozen, averages[0])):

        def resampled(
            n: int, sums: tuple[np.ndarray, ...], moments: Moments = moments, other: Any = other
        ) -> np.ndarray:
            return statistic(moments.origin + sums[0] / n + other)

        square += moments.jackknife(resampled, 1).standard_error ** 2
    return Estimate(value, np.sqrt(square), 2 * trained.count)
