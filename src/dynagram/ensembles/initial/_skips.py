"""Networks with skips at initialisation: metric, vertex, odd cumulant and NTK, measured.

Given layer ℓ, the neurons of layer ℓ+1 are independent Gaussians of mean γz_i and covariance Ĝ. So
h_i = Ĝ_ab + γ²z_ia z_ib stands in for z'_ia z'_ib, and over pairs of distinct neurons i ≠ k

    V' = n (E[h_i h_k] − E[h]²),   odd' = n γ E[h_i z_k],   G' = E[h_i]

have far smaller errors than moments of z'. The law without weights, z' = γz + √Ĝ ε, is exact.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._pairs import matrix_to_pairs, pair_indices, pairs_to_matrix
from dynagram._precision import float64
from dynagram._toml import write_table
from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.initial._batches import even_batch
from dynagram.ensembles.initial._metric import SMALLEST_ENSEMBLE
from dynagram.ensembles.initial._sample import SAMPLERS, square_root
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Params, check_inputs
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.results._estimate import Estimate, Moments
from dynagram.theory._kernels import frozen_kernels

TENSORS = ("G", "G1", "V", "odd", "H")
_CHUNK_NUMBERS = 2**19
_LARGEST_CHUNK = 2**14


@dataclass(frozen=True, eq=False)
class ResidualEnsemble:
    """Tensors measured on `members` networks with skips, at all orders in 1/n; not asked: None.

    Layers ℓ = 1..L first, but H, the mean NTK Ĥ_ii of the output. Layer 1 is exactly Gaussian.
    """

    network: MLP
    members: int
    seed: int
    sampler: str
    G: Estimate | None  # layer a b
    G1: Estimate | None  # layer a b, n_{ℓ-1}(G − K)
    V: Estimate | None  # layer a b c d, the pairs (ab)(cd)
    odd: Estimate | None  # layer a b c, n E[z_ia z_ib z_kc], i ≠ k
    H: Estimate | None  # a b


def measure_residual(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    tensors: Sequence[str] = ("G", "G1", "V"),
    sampler: str = "metric",
    progress: Callable[..., object] | None = None,
) -> ResidualEnsemble:
    """Draw `members` networks with skips and measure `tensors`, some of `TENSORS`.

    `sampler` is "metric" (without weights; the same law) or "weights"; "H" needs weights. Cost per
    member and layer: n N² for "metric", n² N for "weights", and n² N n_L for "H".

    >>> net = MLP([1, 50, 50, 50, 1], "linear", 0.0, [1.0, 0.75, 0.75, 1.0], skip=0.5)
    >>> found = measure_residual(net, np.ones((1, 1)), members=40000, seed=1, tensors=("V",))
    >>> found.V.value.ravel()[1:3].round(1).tolist()    # 2(1 − γ⁴) and twice that, order 1/n
    [1.9, 3.8]
    """
    job = ResidualJob.of(network, x, seed=seed, tensors=tensors, sampler=sampler)
    if members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    found = run_job(job, members=members, failures=0, progress=progress).estimates
    measured = {name: found.get(name) for name in TENSORS}
    return ResidualEnsemble(network, members, seed, sampler, **measured)


@dataclass(frozen=True, eq=False)
class ResidualJob:
    """The ensemble as a job of `dynagram.ensembles.engine._engine`; made by `ResidualJob.of`."""

    kind: ClassVar[str] = "residual"

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    K: Float[np.ndarray, "layer a b"]
    seed: int
    tensors: tuple[str, ...]
    sampler: str
    chunk_members: int

    @classmethod
    def of(
        cls,
        network: MLP,
        x: Float[np.ndarray, "samples n_0"],
        *,
        seed: int,
        tensors: Sequence[str],
        sampler: str,
    ) -> ResidualJob:
        """Check the request and choose the members per chunk."""
        inputs = check_inputs(x, network.widths[0])
        unknown = [name for name in tensors if name not in TENSORS]
        if unknown or len(tensors) == 0:
            raise InvalidValueError("tensors", tensors, f"expected some of {', '.join(TENSORS)}")
        if sampler not in SAMPLERS:
            raise InvalidValueError("sampler", sampler, f"expected one of {', '.join(SAMPLERS)}")
        if "H" in tensors and sampler != "weights":
            raise InvalidValueError("sampler", sampler, 'the NTK "H" needs "weights"')
        if not 0 <= seed < 2**32:
            raise InvalidValueError("seed", seed, "expected 0 to 2**32 − 1")
        for layer, gamma in enumerate(network.skip_of_layers, start=1):
            if gamma != 0.0 and network.widths[layer] < 2:
                allowed = "statistics of two distinct neurons need n ≥ 2"
                raise InvalidValueError(f"n_{layer} of widths", network.widths[layer], allowed)
        K = frozen_kernels(network, inputs).K
        job = cls(network, inputs, K, seed, tuple(tensors), sampler, 1)
        return job.in_chunks(job.smallest_chunk)

    def in_chunks(self, members: int) -> ResidualJob:
        """The same ensemble in chunks of `members`."""
        return replace(self, chunk_members=members)

    @property
    def smallest_chunk(self) -> int:
        """Members that are computed at once so that they stay in the cache."""
        network, samples = self.network, self.x.shape[0]
        numbers = samples * (samples + max(network.widths[1:]))
        if self.sampler == "weights":
            numbers += network.number_of_parameters
        if "H" in self.tensors:
            numbers += samples * network.widths[-1] * sum(network.widths)
        return int(np.clip(_CHUNK_NUMBERS // numbers, 1, _LARGEST_CHUNK))

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """Sums over the members `first` … `first` + `size` − 1; whole batches are computed."""
        batch = even_batch(self.chunk_members, self.smallest_chunk)
        sums: dict[str, Moments] = {}
        for start in range(first, first + size, batch):
            for name, values in self._compute(start, batch).items():
                rows = values[: first + size - start]
                moments = Moments.from_samples(rows, order=1, first=start)
                sums[name] = sums[name].merge(moments) if name in sums else moments
        return sums

    @float64
    def _compute(self, first: int, size: int) -> dict[str, np.ndarray]:
        numbers = np.arange(first, first + size, dtype=np.uint32)
        key, wants_H = jax.random.key(self.seed), "H" in self.tensors
        found = _members(
            self.network, self.sampler, wants_H, jnp.asarray(self.x), jnp.asarray(self.K), key,
            numbers,
        )  # fmt: skip
        return {name: np.asarray(values) for name, values in found.items()}

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """The `tensors` with standard errors, from the merged sums."""
        row, samples = moments["fields"], self.x.shape[0]
        pairs = samples * (samples + 1) // 2
        # Layer ℓ fluctuates with the width n_{ℓ-1} that feeds it; layer 1 does not fluctuate.
        n = np.array([0, *self.network.widths[1:-1]], dtype=np.float64)
        K = matrix_to_pairs(self.K)

        def mean(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            return row.origin + sums[0] / count

        def metric(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            return K + mean(count, sums)[:, :pairs]

        def shift(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            return n[:, None] * mean(count, sums)[:, :pairs]

        def vertex(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            found = mean(count, sums)
            product = found[:, pairs : pairs + pairs**2].reshape(-1, pairs, pairs)
            first = found[:, :pairs]
            square = first[:, :, None] * first[:, None, :]
            return n[:, None, None] * (product - square) * (count / (count - 1))

        def odd(count: int, sums: tuple[np.ndarray, ...]) -> np.ndarray:
            found = mean(count, sums)[:, pairs + pairs**2 :].reshape(-1, pairs, samples)
            return n[:, None, None] * found

        made = {"G": (metric, (1,)), "G1": (shift, (1,)), "V": (vertex, (1, 3)), "odd": (odd, (1,))}
        found: dict[str, Estimate] = {}
        for name in self.tensors:
            if name == "H":
                H = moments["H"].mean()
                value, error = pairs_to_matrix(H.value), pairs_to_matrix(H.standard_error)
                found[name] = Estimate(value, error, H.count)
            else:
                statistic, axes = made[name]
                found[name] = _expanded(row.jackknife(statistic, 1), axes)
        return found

    def to_toml(self) -> str:
        """The specification, but for the inputs."""
        names = ("seed", "tensors", "sampler", "chunk_members")
        table = write_table("residual", {name: getattr(self, name) for name in names})
        return self.network.to_toml() + "\n" + table

    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs and the kernels G^{1} is measured from."""
        return {"x": self.x, "K": self.K}

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> ResidualJob:
        """The job that wrote `text` and `arrays`."""
        table = tomllib.loads(text)["residual"]
        return cls(
            network=MLP.from_toml(text),
            x=np.asarray(arrays["x"]),
            K=np.asarray(arrays["K"]),
            seed=int(table["seed"]),
            tensors=tuple(table["tensors"]),
            sampler=str(table["sampler"]),
            chunk_members=int(table["chunk_members"]),
        )

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of estimates and arrays."""
        names = {
            "G": ("layer", "a", "b"),
            "G1": ("layer", "a", "b"),
            "V": ("layer", "a", "b", "c", "d"),
            "odd": ("layer", "a", "b", "c"),
            "H": ("a", "b"),
            "x": ("a", "input"),
            "K": ("layer", "a", "b"),
        }
        return {name: axes for name, axes in names.items() if name in (*self.tensors, "x", "K")}

    def coordinates(self) -> dict[str, np.ndarray]:
        """ℓ = 1..L."""
        return {"layer": np.arange(1, self.network.depth + 1)}


def _expanded(estimate: Estimate, axes: tuple[int, ...]) -> Estimate:
    """Write each pair axis, by its final place, as two sample axes."""
    value, error = estimate.value, estimate.standard_error
    for axis in axes:
        value, error = pairs_to_matrix(value, axis), pairs_to_matrix(error, axis)
    return Estimate(value, error, estimate.count)


# --- one member -------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _members(
    network: MLP,
    sampler: str,
    wants_H: bool,
    x: Array,
    K: Array,
    key: Array,
    numbers: Array,
) -> dict[str, Array]:
    def member(number: Array) -> dict[str, Array]:
        own = jax.random.fold_in(key, number)
        if sampler == "metric":
            return {"fields": _rows(network, K, _without_weights(network, K[0], own))}
        params = network.draw(own, dtype=jnp.float64)
        found = {"fields": _rows(network, K, _with_weights(network, params, x))}
        if wants_H:
            H = network_ntk(network, params, x)
            a, b = pair_indices(x.shape[0])
            found["H"] = jnp.mean(jnp.diagonal(H, axis1=2, axis2=3), axis=-1)[a, b]
        return found

    return jax.vmap(member)(numbers)


def _with_weights(network: MLP, params: Params, x: Array) -> list[Array]:
    """z of the hidden layers as (samples, n), from real weights."""
    return list(network.preactivations(params, x)[:-1])


def _without_weights(network: MLP, start: Array, key: Array) -> list[Array]:
    """The same law by z' = γz + √Ĝ ε."""
    found: list[Array] = []
    for index in range(network.depth - 1):
        metric = start if not found else _metric(network, index, found[-1])
        shape = (start.shape[0], network.widths[index + 1])
        z = square_root(metric) @ jax.random.normal(jax.random.fold_in(key, index), shape)
        gamma = network.skip_of_layers[index]
        found.append(z + gamma * found[-1] if gamma != 0.0 else z)
    return found


def _metric(network: MLP, index: int, z: Array) -> Array:
    """Ĝ of layer `index` + 1 from the preactivations below it."""
    signal = network.activation(z)
    return network.C_b[index] + network.C_W[index] / z.shape[1] * (signal @ signal.T)


def _rows(network: MLP, K: Array, fields: list[Array]) -> Array:
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
