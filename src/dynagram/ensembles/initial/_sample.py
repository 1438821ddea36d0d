"""Samples of the stochastic metric Ĝ^(ℓ) of an MLP at initialisation (4.70), by two samplers.

Ĝ^(ℓ+1)_ab = C_b + C_W/n_ℓ Σ_j σ(z^(ℓ)_ja) σ(z^(ℓ)_jb). The sampler "weights" draws weights and
biases and runs the network. The sampler "metric" uses that, given Ĝ^(ℓ), the n_ℓ neurons of layer
ℓ are independent draws from N(0, Ĝ^(ℓ)) (4.69): the same law at every width, without weights.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._pairs import pair_indices
from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.ensembles.initial._batches import check_integers
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain

SAMPLERS = ("metric", "weights")

# A pivot smaller than this, relative to the variance, is rounding: sums over n neurons leave
# about √n·1e-16. A real direction dropped for it changes correlations by less than 1e-6.
_SMALLEST_PIVOT = 1e-12
# Neurons (times samples) and parameters of one batch: large enough to amortise a call, small
# enough to stay in cache.
_CHUNK_NUMBERS = 2**19
_LARGEST_CHUNK = 2**14


def sample_metrics(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    sampler: str = "metric",
    chunk: int | None = None,
    first: int = 0,
) -> Iterator[Float[np.ndarray, "chunk layer pairs"]]:
    """Yield Ĝ^(1), …, Ĝ^(L) of `members` networks, chunk by chunk, as pairs (see `pairs`).

    Layer 1 is the same in all members (4.8). Member m is a function of the seed and of m alone.

    **Arguments:**

    - `network`: the specification.
    - `x`: inputs, a row each; they may be linearly dependent.
    - `members`: how many networks.
    - `seed`: of the ensemble.
    - `sampler`: "metric" draws preactivations, "weights" weights.
    - `chunk`: members per array; changes nothing but speed and memory.
    - `first`: the number of the first member.

    **Returns:** an iterator over arrays (chunk, layer, pairs). Cost per member and layer: n_ℓ N²
    for "metric", n_ℓ n_{ℓ-1} N for "weights".

    >>> net = MLP([3, 20, 20, 1], "relu", C_b=0.0, C_W=2.0)
    >>> chunks = sample_metrics(net, np.ones((1, 3)), members=1000, seed=1, chunk=400)
    >>> [metrics.shape for metrics in chunks]
    [(400, 3, 1), (400, 3, 1), (200, 3, 1)]
    """
    require_plain(network, "samples of the metric")
    inputs = check_inputs(x, network.widths[0])
    check_sampler(sampler)
    largest = largest_batch(network, inputs.shape[0], sampler) if chunk is None else chunk
    check_integers(members=(members, 1), seed=(seed, 0), chunk=(largest, 1), first=(first, 0))
    check_integers(last_member=(first + members, 1))
    return metric_batches(
        network, inputs, first, members, seed=seed, sampler=sampler, batch=min(largest, members)
    )


def first_metric(
    network: MLP, x: Float[np.ndarray, "samples n_0"]
) -> Float[np.ndarray, "samples samples"]:
    """G^(1)_ab = C_b + C_W/n_0 Σ_j x_ja x_jb (4.8), the same in every member."""
    return network.C_b[0] + network.C_W[0] / network.widths[0] * (x @ x.T)


def check_sampler(sampler: str) -> None:
    """Refuse the name of a sampler that does not exist."""
    if sampler not in SAMPLERS:
        raise InvalidValueError("sampler", sampler, f"expected one of {', '.join(SAMPLERS)}")


def largest_batch(network: MLP, samples: int, sampler: str) -> int:
    """Members that are computed at once so that they stay in the cache."""
    numbers = samples * (samples + max(network.widths[1:]))
    if sampler == "weights":
        numbers += network.number_of_parameters
    return int(np.clip(_CHUNK_NUMBERS // numbers, 1, _LARGEST_CHUNK))


def metric_batches(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    first: int,
    members: int,
    *,
    seed: int,
    sampler: str,
    batch: int,
) -> Iterator[Float[np.ndarray, "batch layer pairs"]]:
    """What `sample_metrics` yields, for arguments that have been checked."""
    for start in range(first, first + members, batch):
        # The last batch is computed whole, so that one compilation serves all.
        metrics = _compute(network, x, seed, sampler, start, batch)[: first + members - start]
        finite = np.isfinite(metrics)
        if not np.all(finite):
            member, layer, _ = (int(i) for i in np.argwhere(~finite)[0])
            raise NonFiniteError(
                f"the metric of layer {layer + 1} of member {start + member} is not finite: "
                "lower C_W or the depth"
            )
        yield metrics


@float64
def _compute(
    network: MLP, x: np.ndarray, seed: int, sampler: str, first: int, size: int
) -> np.ndarray:
    key = jax.random.key(seed)
    # Beyond the last member, where nothing is kept, the numbers may begin anew.
    numbers = np.arange(first, first + size).astype(np.uint32)
    start = first_metric(network, x)
    if sampler == "weights":
        return np.asarray(_from_weights(network, start, x, key, numbers))
    hidden, C_b, C_W = network.widths[1:-1], np.array(network.C_b), np.array(network.C_W)
    return np.asarray(_metric_chain(network.activation, hidden, C_b, C_W, start, key, numbers))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _metric_chain(
    sigma: Activation,
    hidden: tuple[int, ...],
    C_b: Array,
    C_W: Array,
    start: Array,
    key: Array,
    numbers: Array,
) -> Array:
    def member(number: Array) -> Array:
        member_key = jax.random.fold_in(key, number)
        metrics = [start]
        for layer, width in enumerate(hidden, start=1):
            layer_key = jax.random.fold_in(member_key, layer)
            normal = jax.random.normal(layer_key, (start.shape[0], width))
            signal = sigma(square_root(metrics[-1]) @ normal)
            metrics.append(_next_metric(signal, C_b[layer], C_W[layer]))
        return _as_pairs(metrics)

    return jax.vmap(member)(numbers)


@functools.partial(jax.jit, static_argnums=0)
def _from_weights(network: MLP, start: Array, x: Array, key: Array, numbers: Array) -> Array:
    def member(number: Array) -> Array:
        params = network.draw(jax.random.fold_in(key, number), dtype=jnp.float64)
        fields = network.preactivations(params, x)
        metrics = [start]
        for layer, z in enumerate(fields[:-1], start=1):
            signal = network.activation(z)
            metrics.append(_next_metric(signal, network.C_b[layer], network.C_W[layer]))
        return _as_pairs(metrics)

    return jax.vmap(member)(numbers)


def _next_metric(signal: Array, C_b: Array | float, C_W: Array | float) -> Array:
    """C_b + C_W/n Σ_j σ_aj σ_bj from `signal` of shape (samples, n) (4.70)."""
    return C_b + C_W / signal.shape[1] * (signal @ signal.T)


def _as_pairs(metrics: list[Array]) -> Array:
    first, second = pair_indices(metrics[0].shape[0])
    return jnp.stack([metric[first, second] for metric in metrics])


def square_root(metric: Float[Array, "samples samples"]) -> Float[Array, "samples samples"]:
    """Lower-triangular R with R Rᵀ = `metric`, positive semidefinite; singular ones allowed.

    Cholesky's outer-product form; a direction whose pivot is only rounding is left out. Dividing
    by the pivot before its root is taken gives repeated samples the same row of R, which an
    eigen-decomposition does only to √ε.

    >>> square_root(jnp.array([[4.0, 4.0, 2.0], [4.0, 4.0, 2.0], [2.0, 2.0, 2.0]])).tolist()
    [[2.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    samples = metric.shape[0]
    smallest = _SMALLEST_PIVOT * jnp.diagonal(metric)
    index = jnp.arange(samples)

    def eliminate(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, root = state
        pivot = rest[k, k]
        real = pivot > smallest[k]
        column = jnp.where(real & (index >= k), rest[:, k] / jnp.where(real, pivot, 1.0), 0.0)
        rest = rest - pivot * column[:, None] * column[None, :]
        return rest, root.at[:, k].set(column * jnp.sqrt(jnp.where(real, pivot, 0.0)))

    start = (metric, jnp.zeros_like(metric))
    return jax.lax.fori_loop(0, samples, eliminate, start)[1]
