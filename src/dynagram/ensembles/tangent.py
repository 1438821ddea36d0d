"""Tangent-kernel tensors of the output layer, measured on networks at initialisation.

From the NTK, dNTK and ddNTKs of each member: H = E Ĥ_ii (8.58), H^{1} = n(H − Θ) (9.3), A, B
(8.82), D, F (8.67), P, Q (11.45), R (∞.11), S, T, U (∞.12), with n = n_{L-1}. All hold at every
width, all use distinct outputs i ≠ j, and all ordered pairs of outputs are averaged. The metric
Ĝ^(L) (8.49) stands in for z_i z_i of a further output, its mean given the rest: G, V and D have
far smaller errors so. Pairing a network with its output-layer sign flip gains nothing here:
every product measured is even under it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.ensembles.initial import SMALLEST_ENSEMBLE
from dynagram.ensembles.statistics import BATCHES, Estimate, Moments
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Params, check_inputs
from dynagram.observables.ddntk import ddntk_patterns, output_pairs
from dynagram.observables.dntk import dntk
from dynagram.observables.fields import check_differentiable
from dynagram.observables.ntk import ntk
from dynagram.pairs import pair_indices, pairs_to_matrix
from dynagram.precision import float64

TENSORS = ("G", "V", "H", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
# V, D and A are covariances, of these; H_i is the H of every output.
_FACTORS = {"V": ("G", "G"), "D": ("G", "H"), "A": ("H_i", "H_i")}
# Numbers of one chunk: large enough to amortise a call, small enough to stay near the cache.
_CHUNK_NUMBERS = 2**18
_LARGEST_CHUNK = 2**12


@dataclass(frozen=True, eq=False)
class TangentEnsemble:
    """Tensors of the output layer measured on `members` networks, at all orders in 1/n.

    Sample indices are in the printed order, `F[a, b, c, d]` is F_abcd: what is estimated from
    z_i;1 z_j;2 Ĥ_ij;34 is F_1324 and stands at `F[1, 3, 2, 4]`. Those not asked for are None.
    """

    network: MLP
    members: int
    seed: int
    G: Estimate | None  # a b
    V: Estimate | None  # a b c d, the pairs (ab)(cd)
    H: Estimate | None  # a b
    H1: Estimate | None  # a b
    A: Estimate | None  # a b c d, the pairs (ab)(cd)
    B: Estimate | None  # a b c d, like all that follow
    D: Estimate | None
    F: Estimate | None
    P: Estimate | None
    Q: Estimate | None
    R: Estimate | None
    S: Estimate | None
    T: Estimate | None
    U: Estimate | None


def measure_tangents(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    tensors: Sequence[str] = ("H", "A", "B", "D", "F"),
    kernel_mean: Float[np.ndarray, "samples samples"] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> TangentEnsemble:
    """Draw `members` networks and measure `tensors`, some of `TENSORS`, at the output layer.

    All but G, V, H and D need n_L ≥ 2; more outputs make smaller errors. "H1" needs
    `kernel_mean`, the infinite-width Θ^(L). `progress(done, members)` is called now and then.
    Members are those of `sample_metrics(…, sampler="weights")`. Where σ' jumps (ReLU), R, S, T
    and U do not exist and are refused, and so are P and Q of several inputs: automatic
    differentiation takes σ'' as 0 and would miss its delta function. One pass measures all;
    without P to U it is far cheaper.

    >>> net = MLP([2, 10, 2], "linear", C_b=0.0, C_W=1.0)
    >>> found = measure_tangents(net, np.ones((1, 2)), members=20000, seed=0, tensors=("H", "B"))
    >>> found.H.value.round(1).tolist(), found.B.value.ravel().round(1).tolist()  # 4 and Θ^(1)²
    ([[4.0]], [4.0])
    >>> found.B.standard_error.ravel().round(2).tolist()
    [0.05]
    """
    inputs = check_inputs(x, network.widths[0])
    if members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    theta = _checked_mean(kernel_mean, inputs.shape[0]) if "H1" in tensors else None
    sums = _accumulate(network, inputs, members, seed, tensors, progress)
    found: dict[str, Estimate | None] = dict.fromkeys(TENSORS)
    n = float(network.widths[-2])
    for name in tensors:
        if name == "H1":
            H = sums.mean("H")
            found[name] = Estimate(n * (H.value - theta), n * H.standard_error, H.count)
        elif name in ("G", "H"):
            found[name] = sums.mean(name)
        else:
            over_n = sums.covariance(name) if name in _FACTORS else sums.mean(name)
            found[name] = Estimate(n * over_n.value, n * over_n.standard_error, over_n.count)
    return TangentEnsemble(network, members, seed, **found)


def sample_tangents(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    tensors: Sequence[str],
    chunk: int | None = None,
) -> Iterator[dict[str, Float[np.ndarray, "chunk ..."]]]:
    """Yield what each member contributes to `tensors`, chunk by chunk; see `measure_tangents`.

    "G" is Ĝ^(L) and "H" is Ĥ_ii of every output, both for the pairs (ab) of `dynagram.pairs`;
    they come with the covariances V, D and A. The others are averages over pairs of outputs of
    what has the mean tensor/n_{L-1}. Member m is a function of the seed and of m alone, so that
    `chunk` changes nothing but speed and memory.

    >>> net = MLP([2, 10, 3], "tanh", C_b=0.0, C_W=1.0)
    >>> chunks = sample_tangents(net, np.eye(2), members=5, seed=0, tensors=("A", "B"), chunk=3)
    >>> [{name: values.shape for name, values in found.items()} for found in chunks]
    [{'H': (3, 3, 3), 'B': (3, 2, 2, 2, 2)}, {'H': (2, 3, 3), 'B': (2, 2, 2, 2, 2)}]
    """
    inputs = check_inputs(x, network.widths[0])
    _check_tensors(network, inputs.shape[0], tensors)
    parts = _parts(tensors)
    size = _chunk_size(network, inputs.shape[0], parts) if chunk is None else chunk
    _check_integers(members=(members, 1), seed=(seed, 0), chunk=(size, 1))
    return _chunks(network, inputs, members, seed, parts, min(size, members))


# --- one member -------------------------------------------------------------------------------


def _parts(tensors: Sequence[str]) -> tuple[str, ...]:
    """What a member must deliver for `tensors`."""
    needed = {factor[0] for name in tensors for factor in _FACTORS.get(name, (name,))}
    return tuple(name for name in TENSORS if name in needed)


def _chunks(
    network: MLP, x: np.ndarray, members: int, seed: int, parts: tuple[str, ...], size: int
) -> Iterator[dict[str, np.ndarray]]:
    for first in range(0, members, size):
        # The last chunk is computed whole, so that one compilation serves all.
        found = _compute(network, x, seed, parts, first, size)
        yield {name: values[: members - first] for name, values in found.items()}


@float64
def _compute(
    network: MLP, x: np.ndarray, seed: int, parts: tuple[str, ...], first: int, size: int
) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + size, dtype=np.uint32)
    found = _members(network, parts, x, jax.random.key(seed), numbers)
    return {name: np.asarray(found[name]) for name in parts}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _members(
    network: MLP, parts: tuple[str, ...], x: Array, key: Array, numbers: Array
) -> dict[str, Array]:
    def member(number: Array) -> dict[str, Array]:
        params = network.init(jax.random.fold_in(key, number), dtype=jnp.float64)
        return _contributions(network, parts, params, x)

    return jax.vmap(member)(numbers)


def _contributions(
    network: MLP, parts: tuple[str, ...], params: Params, x: Array
) -> dict[str, Array]:
    i, j = output_pairs(network.widths[-1])
    a, b = pair_indices(x.shape[0])
    z = network.preactivations(params, x)
    found: dict[str, Array] = {}
    if "G" in parts:
        signal = network.activation(z[-2]) if network.depth > 1 else x
        metric = network.C_W[-1] / network.widths[-2] * (signal @ signal.T)
        found["G"] = network.C_b[-1] + metric[a, b]
    if {"H", "B", "F"}.intersection(parts):
        H = ntk(network, params, x)
        found["H"] = jnp.diagonal(H, axis1=2, axis2=3)[a, b].T
        found["B"] = jnp.einsum("acp,bdp->abcd", H[..., i, j], H[..., i, j])
        found["F"] = jnp.einsum("ap,cp,bdp->abcd", z[-1][:, i], z[-1][:, j], H[..., i, j])
    if {"P", "Q"}.intersection(parts):
        dH = dntk(network, params, x)
        found["P"] = jnp.einsum("abcp,dp->abcd", dH[..., i, j, j], z[-1][:, i])
        found["Q"] = jnp.einsum("abcp,dp->abcd", dH[..., i, i, j], z[-1][:, j])
    if {"R", "S", "T", "U"}.intersection(parts):
        first, *second = ddntk_patterns(network, params, x)
        S, T, U = (pattern.sum(axis=-1) for pattern in second)
        # dd_II has the samples 1234; T and U are printed as T_1342 and U_1423.
        found |= {"R": first.sum(axis=-1), "S": S}
        found |= {"T": T.transpose(0, 2, 3, 1), "U": U.transpose(0, 3, 1, 2)}
    return {k: found[k] if k in ("G", "H") else found[k] / i.size for k in parts}


def _chunk_size(network: MLP, samples: int, parts: tuple[str, ...]) -> int:
    n_L, neurons = network.widths[-1], sum(network.widths)
    rows = samples * n_L
    numbers = network.number_of_parameters + rows * neurons + rows**2
    numbers += len(parts) * samples**4
    if {"P", "Q"}.intersection(parts):
        numbers += rows**2 * (neurons + rows)
    if {"R", "S", "T", "U"}.intersection(parts):
        numbers += rows**2 * samples * (neurons + rows)
    return int(np.clip(_CHUNK_NUMBERS // numbers, 1, _LARGEST_CHUNK))


# --- all members ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sums:
    """Moments of one row of numbers per member, and where in it each tensor stands."""

    moments: Moments
    places: dict[str, tuple[slice, tuple[int, ...]]]
    reference: dict[str, np.ndarray]

    def part(self, row: np.ndarray, name: str) -> np.ndarray:
        where, shape = self.places[name]
        return row[where].reshape(shape)

    @functools.cached_property
    def row(self) -> Estimate:
        return self.moments.mean()

    def mean(self, name: str) -> Estimate:
        """The average over members."""
        row = self.row
        value, error = self.part(row.value, name), self.part(row.standard_error, name)
        if name in self.reference:
            value, error = pairs_to_matrix(self.reference[name] + value), pairs_to_matrix(error)
        return Estimate(value, error, row.count)

    def covariance(self, name: str) -> Estimate:
        """V, D or A over n: the mean of the product less the product of the means, unbiased."""

        def statistic(count: int, totals: tuple[np.ndarray, ...]) -> np.ndarray:
            row = self.moments.origin + totals[0] / count
            factors = [self.part(row, factor) for factor in _FACTORS[name]]
            return (self.part(row, name) - _product(name, *factors)) * (count / (count - 1))

        found = self.moments.jackknife(statistic, 1)
        value, error = found.value, found.standard_error
        for axis in (0, 2):
            value, error = pairs_to_matrix(value, axis), pairs_to_matrix(error, axis)
        return Estimate(value, error, found.count)


def _accumulate(
    network: MLP,
    x: np.ndarray,
    members: int,
    seed: int,
    tensors: Sequence[str],
    progress: Callable[[int, int], object] | None,
) -> _Sums:
    sums: _Sums | None = None
    chunks = sample_tangents(network, x, members=members, seed=seed, tensors=tensors)
    for found in _grouped(chunks):
        # Deviations from member 0: products of what does not vary are then exactly 0.
        reference = _reference(found) if sums is None else sums.reference
        rows = _rows(found, reference, tensors)
        flat = np.concatenate([part.reshape(len(part), -1) for part in rows.values()], axis=1)
        done = 0 if sums is None else sums.moments.count
        moments = Moments.from_samples(flat, order=1, first=done)
        if sums is not None:
            moments = sums.moments.merge(moments)
        sums = _Sums(moments, _places(rows), reference)
        if progress is not None:
            progress(moments.count, members)
    assert sums is not None  # members ≥ 1 has been checked
    return sums


def _grouped(chunks: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Small chunks put together: adding to the sums costs as much as one member per batch."""
    group: list[dict[str, np.ndarray]] = []
    members = 0
    for found in chunks:
        group.append(found)
        members += len(next(iter(found.values())))
        if members >= BATCHES:
            yield {name: np.concatenate([part[name] for part in group]) for name in found}
            group, members = [], 0
    if group:
        yield {name: np.concatenate([part[name] for part in group]) for name in group[0]}


def _reference(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    means = {"G": lambda G: G[0], "H": lambda H: H[0].mean(axis=0)}
    return {name: np.array(means[name](found[name])) for name in means if name in found}


def _rows(
    found: dict[str, np.ndarray], reference: dict[str, np.ndarray], tensors: Sequence[str]
) -> dict[str, np.ndarray]:
    """The parts of each member, G and H as deviations, and the products behind V, D and A."""
    rows = dict(found)
    if "G" in found:
        rows["G"] = found["G"] - reference["G"]
    if "H" in found:
        rows["H_i"] = found["H"] - reference["H"]
        rows["H"] = rows["H_i"].mean(axis=1)
    for name, (first, second) in _FACTORS.items():
        if name in tensors:
            rows[name] = _product(name, rows[first], rows[second])
    return rows


def _product(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What V, D or A is the covariance of: first ⊗ second, of distinct outputs for A."""
    if name != "A":
        return first[..., :, None] * second[..., None, :]
    every, n_L = first.sum(axis=-2), first.shape[-2]
    same = np.swapaxes(first, -1, -2) @ second
    return (every[..., :, None] * every[..., None, :] - same) / (n_L * (n_L - 1))


def _places(rows: dict[str, np.ndarray]) -> dict[str, tuple[slice, tuple[int, ...]]]:
    ends = np.cumsum([part[0].size for part in rows.values()]).tolist()
    spans = zip(rows.items(), [0, *ends[:-1]], ends, strict=True)
    return {name: (slice(start, end), part.shape[1:]) for (name, part), start, end in spans}


# --- requests ---------------------------------------------------------------------------------


def _check_integers(**given: tuple[int, int]) -> None:
    for name, (value, smallest) in given.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidTypeError(name, value, "expected an integer")
        if not smallest <= value < 2**32:
            raise InvalidValueError(name, value, f"expected {smallest} to 2**32 − 1")


def _check_tensors(network: MLP, samples: int, tensors: Sequence[str]) -> None:
    unknown = [name for name in tensors if name not in TENSORS]
    if unknown or len(tensors) == 0:
        raise InvalidValueError("tensors", tensors, f"expected some of {', '.join(TENSORS)}")
    paired = [name for name in tensors if name in "ABFPQRSTU"]
    if paired and network.widths[-1] < 2:
        allowed = f"{', '.join(paired)} are read off two distinct outputs"
        raise InvalidValueError("n_L of widths", network.widths[-1], allowed)
    harmless = samples == 1 and network.activation.is_scale_invariant
    if {"P", "Q"}.intersection(tensors) and not harmless:
        check_differentiable(network, 2, "P and Q by automatic differentiation")


def _checked_mean(kernel_mean: np.ndarray | None, samples: int) -> np.ndarray:
    if kernel_mean is None:
        raise InvalidValueError("kernel_mean", None, "H1 needs the infinite-width NTK Θ^(L)")
    mean = np.asarray(kernel_mean, dtype=np.float64)
    if mean.shape != (samples, samples):
        expected = f"expected {(samples, samples)}"
        raise InvalidValueError("shape of kernel_mean", mean.shape, expected)
    return mean
