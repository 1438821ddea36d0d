"""The kernel, vertex and odd cumulant of networks with skips, from their preactivations.

Given layer ℓ, the neurons of layer ℓ+1 are independent Gaussians of mean γz_i and covariance Ĝ. So
h_i = Ĝ_ab + γ²z_ia z_ib stands in for z'_ia z'_ib, and over pairs of distinct neurons i ≠ k

    V' = n (E[h_i h_k] − E[h]²),   odd' = n γ E[h_i z_k],   K' = E[h_i]

have far smaller errors than moments of z'. The law without weights, z' = γz + √Ĝ ε, is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._pairs import matrix_to_pairs, pair_indices
from dynagram._precision import float64
from dynagram.ensembles.initial._batches import even_batch, moments_of
from dynagram.ensembles.initial._metric import write_pairs
from dynagram.ensembles.initial._sample import largest_batch, square_root
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.results._estimate import BATCHES, Estimate, Moments

LETTERS = ("K", "V", "G1", "odd")


@dataclass(frozen=True, eq=False)
class FieldSums:
    """Sums over members of E_i[d], E_{i≠k}[d d] and γE_{i≠k}[d z], with d = h − K, per layer."""

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    K: Float[np.ndarray, "layer a b"]
    tensors: tuple[str, ...]
    seed: int
    sampler: str
    chunk_members: int

    def __post_init__(self) -> None:
        for layer, gamma in enumerate(self.network.skip_of_layers, start=1):
            if gamma != 0.0 and self.network.widths[layer] < 2:
                allowed = "statistics of two distinct neurons need n ≥ 2"
                raise InvalidValueError(f"n_{layer} of widths", self.network.widths[layer], allowed)

    @property
    def largest_batch(self) -> int:
        """Members that are computed at once."""
        return largest_batch(self.network, self.x.shape[0], self.sampler)

    @property
    def numbers(self) -> int:
        """Numbers kept of a chunk."""
        samples = self.x.shape[0]
        pairs = samples * (samples + 1) // 2
        return BATCHES * self.network.depth * pairs * (1 + pairs + samples)

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The sums over the members from `first` on."""
        batch = even_batch(self.chunk_members, self.largest_batch)
        starts = range(first, first + size, batch)
        rows = (self._compute(start, batch)[: first + size - start] for start in starts)
        return {"fields": moments_of(rows, order=1, first=first)}

    @float64
    def _compute(self, first: int, size: int) -> np.ndarray:
        # Beyond the last member, where nothing is kept, the numbers may begin anew.
        numbers = np.arange(first, first + size).astype(np.uint32)
        key = jax.random.key(self.seed)
        x, K = jnp.asarray(self.x), jnp.asarray(self.K)
        return np.asarray(_members(self.network, self.sampler, x, K, key, numbers))

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """K, and V and odd where they are wanted, with standard errors."""
        row, samples = moments["fields"], self.x.shape[0]
        pairs = samples * (samples + 1) // 2
        # Layer ℓ fluctuates with the width n_{ℓ-1} that feeds it; layer 1 does not fluctuate.
        n = np.array([0, *self.network.widths[1:-1]], dtype=np.float64)
        K = matrix_to_pairs(self.K)

        def mean(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            return row.origin + sums[0] / count

        def metric(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            return K + mean(count, sums)[:, :pairs]

        def vertex(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            means = mean(count, sums)
            product = means[:, pairs : pairs + pairs**2].reshape(-1, pairs, pairs)
            shift = means[:, :pairs]
            square = shift[:, :, None] * shift[:, None, :]
            return n[:, None, None] * (product - square) * (count / (count - 1))

        def odd(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            means = mean(count, sums)[:, pairs + pairs**2 :].reshape(-1, pairs, samples)
            return n[:, None, None] * means

        statistics = {"K": (metric, (1,)), "V": (vertex, (1, 3)), "odd": (odd, (1,))}
        return {
            name: write_pairs(row.jackknife(statistic, 1), axes)
            for name, (statistic, axes) in statistics.items()
            if name == "K" or name in self.tensors
        }

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of what is summed."""
        return {"fields": ("layer", "number")}


# --- one member -------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 1))
def _members(
    network: MLP, sampler: str, x: Array, K: Array, key: Array, numbers: Array
) -> Float[Array, "members layer number"]:
    def member(number: Array) -> Array:
        member_key = jax.random.fold_in(key, number)
        if sampler == "metric":
            return _row(network, K, _fields_without_weights(network, K[0], member_key))
        params = network.draw(member_key, dtype=jnp.float64)
        return _row(network, K, list(network.preactivations(params, x)[:-1]))

    return jax.vmap(member)(numbers)


def _fields_without_weights(network: MLP, start: Array, key: Array) -> list[Array]:
    """z of the hidden layers as (samples, n), by z' = γz + √Ĝ ε."""
    fields: list[Array] = []
    for index in range(network.depth - 1):
        metric = start if not fields else _metric(network, index, fields[-1])
        shape = (start.shape[0], network.widths[index + 1])
        z = square_root(metric) @ jax.random.normal(jax.random.fold_in(key, index), shape)
        gamma = network.skip_of_layers[index]
        fields.append(z + gamma * fields[-1] if gamma != 0.0 else z)
    return fields


def _metric(network: MLP, index: int, z: Array) -> Array:
    """Ĝ of layer `index` + 1 from the preactivations below it."""
    signal = network.activation(z)
    return network.C_b[index] + network.C_W[index] / z.shape[1] * (signal @ signal.T)


def _row(network: MLP, K: Array, fields: list[Array]) -> Array:
    """Per layer: E_i[d_A], E_{i≠k}[d_A d_B] and γE_{i≠k}[d_A z_k], with d = h − K; (layer, …)."""
    samples = K.shape[1]
    a, b = pair_indices(samples)
    rows = [jnp.zeros(a.size + a.size**2 + a.size * samples)]
    for index, z in enumerate(fields, start=1):
        gamma, n = network.skip_of_layers[index], z.shape[1]
        offset = (_metric(network, index, z) - K[index])[a, b]
        if gamma == 0.0:
            parts = [offset, jnp.outer(offset, offset).ravel(), jnp.zeros(a.size * samples)]
        else:
            d = offset[:, None] + gamma**2 * (z[a] * z[b])
            total, drift = jnp.sum(d, axis=1), jnp.sum(z, axis=1)
            even = (jnp.outer(total, total) - d @ d.T) / (n * (n - 1))
            odd = gamma * (jnp.outer(total, drift) - d @ z.T) / (n * (n - 1))
            parts = [total / n, even.ravel(), odd.ravel()]
        rows.append(jnp.concatenate(parts))
    return jnp.stack(rows)
