"""⟨σ'''_a σ'_b σ'_c σ'_d⟩ where σ'' jumps, so that σ''' holds deltas: one integration by parts.

By Stein's lemma K_aa ⟨σ'''_a Φ⟩ = ⟨z_aσ''_a Φ⟩ − Σ_i K_ai ⟨σ''_a ∂_iΦ⟩, and for Φ = σ'_bσ'_cσ'_d
all that is left are averages of functions: docs/derivations/gaussian-averages.md (D7.18).
"""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array
from dynagram._pairs import pair_indices, pair_numbers
from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.activations._core import product_activation
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._nodes import CHUNK, sobol_nodes
from dynagram.gaussian._replicas import ReplicaMean
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import cross_average

_FIRST_COUNT, _LAST_COUNT = 2**11, 2**17


@float64
def third_derivative_average(
    averages: TwoPoint,
    curved: Float[Array, "mode a b c d"],
    *,
    accuracy: float,
    seed: int,
) -> Float[np.ndarray, "mode a b c d"]:
    """⟨σ'''_a σ'_b σ'_c σ'_d⟩, deltas included, from `curved` = ⟨σ''_a σ''_b σ'_c σ'_d⟩.

    NaN for samples without variance. `accuracy` and `seed` as in `FourPoint`, whose modes are
    those of `curved`. Up to two samples by quadrature. Cost: M·N⁴ flop for M nodes.
    """
    K, modes = averages.K, np.asarray(curved)
    if averages.samples <= 2:
        weighted = np.zeros_like(modes)
        for place in itertools.product(range(averages.samples), repeat=4):
            weighted[0][place] = _of_two(averages, place)
    else:
        weighted = _weighted_average(averages, accuracy=accuracy, seed=seed, modes=len(modes))
    pair = K[None, :, :, None, None] * modes  # of a with b; then with c, with d
    inner = pair + pair.transpose(0, 1, 3, 2, 4) + pair.transpose(0, 1, 3, 4, 2)
    variance = np.diagonal(K)
    scale = np.where(variance > 0.0, 1.0 / np.where(variance > 0.0, variance, 1.0), np.nan)
    return (weighted - inner) * scale[None, :, None, None, None]


def _of_two(averages: TwoPoint, place: tuple[int, ...]) -> float:
    """⟨z_aσ''_a σ'_b σ'_c σ'_d⟩ of at most two distinct samples."""
    a, *rest = place
    K, other = averages.K, next((b for b in rest if b != a), a)
    there = tuple(1 for b in rest if b != a)
    here = product_activation(averages.sigma, (1,) * (3 - len(there)) + (2,), power=1)
    if not there:
        return float(moment(here, K[a, a], (0,)))
    partner = product_activation(averages.sigma, there)
    one = slice(other, other + 1)
    return float(cross_average(here, partner, K[a, a : a + 1], K[other, one], K[a, one])[0])


def _weighted_average(
    averages: TwoPoint, *, accuracy: float, seed: int, modes: int
) -> Float[np.ndarray, "mode a b c d"]:
    """⟨z_aσ''_a σ'_b σ'_c σ'_d⟩ over Sobol nodes, doubled until the scatter meets `accuracy`."""
    sigma, K, samples = averages.sigma, averages.K, averages.samples
    a, b = pair_indices(samples)
    slopes = averages(1, 1)
    left = np.diagonal(K)[:, None] * averages(3, 1) + K * averages(2, 2)
    accumulate = _accumulator(sigma)
    count = _FIRST_COUNT
    while True:
        nodes = sobol_nodes(K, count, seed)
        found = ReplicaMean(nodes.replicas, modes, seed)
        squares = np.zeros(2)
        size = min(CHUNK, count)
        for replica in range(nodes.replicas):
            total = np.zeros((samples**2, a.size))
            for z, weights in nodes.chunks(replica):
                padded, padded_weights = np.zeros((size, samples)), np.zeros(size)
                padded[: len(z)], padded_weights[: len(z)] = z, weights
                product, spread = accumulate(padded, padded_weights, left, slopes)
                total, squares = total + np.asarray(product), squares + np.asarray(spread)
            found.add(total)
        scale = math.sqrt(float(np.prod(squares / nodes.replicas)))
        worst = float(np.max(found.standard_error)) / scale if scale > 0.0 else 0.0
        if worst <= accuracy or count >= _LAST_COUNT:
            break
        count *= min(_LAST_COUNT // count, max(2, 2 ** math.ceil(math.log2(worst / accuracy))))
    mean = found.mean + left.reshape(-1, 1) * slopes[a, b]
    every = np.stack([mean, *found.deviations])
    return every[:, :, pair_numbers(samples)].reshape(-1, *[samples] * 4)


@functools.lru_cache(maxsize=16)
def _accumulator(sigma: Activation):
    """One chunk of nodes: weighted products of both features, and their largest mean squares."""

    @jax.jit
    def accumulate(z: jax.Array, weights: jax.Array, left: jax.Array, slopes: jax.Array):
        first, second = sigma.derivative(1)(z), sigma.derivative(2)(z)
        a, b = pair_indices(z.shape[1])
        f = (z * second)[:, :, None] * first[:, None, :] - left[None]
        g = first[:, a] * first[:, b] - slopes[a, b][None]
        f = f.reshape(len(z), -1)
        spread = [jnp.max(weights @ feature**2) for feature in (f, g)]
        return (f * weights[:, None]).T @ g, jnp.stack(spread)

    return accumulate
