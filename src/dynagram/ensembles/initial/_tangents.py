"""Tangent-kernel tensors of the output layer, measured on networks at initialisation.

From the NTK, dNTK and ddNTKs of each member: H = E Ĥ_ii (8.58), H^{1} = n(H − Θ) (9.3), A, B
(8.82), D, F (8.67), P, Q (11.45), R (∞.11), S, T, U (∞.12), with n = n_{L-1}. All hold at every
width, all use distinct outputs i ≠ j, and all ordered pairs of outputs are averaged. The metric
Ĝ^(L) (8.49) stands in for z_i z_i of a further output, its mean given the rest: G, V and D have
far smaller errors so. Pairing a network with its output-layer sign flip gains nothing here:
every product measured is even under it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pairs_to_matrix
from dynagram._toml import write_table
from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.engine._progress import Progress
from dynagram.ensembles.initial._batches import (
    check_integers,
    chunk_for,
    even_batch,
    moments_of,
    smallest_chunk,
)
from dynagram.ensembles.initial._metric import SMALLEST_ENSEMBLE
from dynagram.ensembles.initial._tangent_members import (
    FACTORS,
    TENSORS,
    check_tensors,
    compute_tangents,
    largest_batch,
    parts_of,
)
from dynagram.ensembles.initial._tangent_members import sample_tangents as sample_tangents
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.results._estimate import BATCHES, Estimate, Moments


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
    progress: Callable[[Progress], object] | None = None,
) -> TangentEnsemble:
    """Draw `members` networks and measure `tensors`, some of `TENSORS`, at the output layer.

    All but G, V, H and D need n_L ≥ 2; more outputs make smaller errors. "H1" needs
    `kernel_mean`, the infinite-width Θ^(L). `progress` is called with a `Progress` after chunks.
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
    if members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    job = TangentJob(network, x, tuple(tensors), seed=seed, kernel_mean=kernel_mean)
    job = job.in_chunks(min(job.smallest_chunk, members))
    found = run_job(
        job,
        members=members,
        retries=0,
        failures=0,
        progress=progress,
    ).estimates
    return TangentEnsemble(network, members, seed, **{name: found.get(name) for name in TENSORS})


@dataclass(frozen=True, eq=False)
class TangentJob:
    """The ensemble behind `measure_tangents`, as a job that can be stored and distributed.

    >>> job = TangentJob(MLP([2, 10, 2], "tanh", C_b=0.0, C_W=1.0), np.eye(2), ("B",), seed=0)
    >>> again = TangentJob.from_toml(job.to_toml(), job.arrays())
    >>> again.network == job.network, again.tensors
    (True, ('B',))
    """

    kind: ClassVar[str] = "tangents"

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    kernel_mean: Float[np.ndarray, "samples samples"] | None = None
    chunk_members: int = 0  # 0: about a second of work

    def __post_init__(self) -> None:
        x = check_inputs(self.x, self.network.widths[0])
        object.__setattr__(self, "x", x)
        if "H1" in self.tensors:
            mean = _checked_mean(self.kernel_mean, x.shape[0])
            object.__setattr__(self, "kernel_mean", mean)
        check_tensors(self.network, x.shape[0], self.tensors)
        check_integers(seed=(self.seed, 0), chunk=(self.chunk_members, 0))
        if self.chunk_members == 0:
            object.__setattr__(self, "chunk_members", chunk_for(None, self.smallest_chunk))

    def in_chunks(self, members: int) -> TangentJob:
        """The same ensemble in chunks of `members`."""
        return replace(self, chunk_members=members)

    @property
    def smallest_chunk(self) -> int:
        """Members below which a chunk costs more than it should."""
        largest = largest_batch(self.network, self.x.shape[0], parts_of(self.tensors))
        row = max(where.stop for where, _ in self._row.values())
        return smallest_chunk(largest, BATCHES * row)

    @cached_property
    def _row(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        return _places(self.network, self.x.shape[0], self.tensors)

    @cached_property
    def _batch(self) -> int:
        largest = largest_batch(self.network, self.x.shape[0], parts_of(self.tensors))
        return even_batch(self.chunk_members, largest)

    @cached_property
    def _first_batch(self) -> dict[str, np.ndarray]:
        return self._compute(0)

    def _compute(self, first: int) -> dict[str, np.ndarray]:
        return compute_tangents(
            self.network, self.x, self.seed, parts_of(self.tensors), first, self._batch
        )

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The moments of one row of numbers per member, which `estimates` takes apart."""
        # Deviations from member 0: products of what does not vary are then exactly 0.
        reference = _reference(self._first_batch)

        def rows(start: int) -> np.ndarray:
            found = self._first_batch if start == 0 else self._compute(start)
            found = {name: values[: first + size - start] for name, values in found.items()}
            parts = _rows(found, reference, self.tensors).values()
            return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

        starts = range(first, first + size, self._batch)
        return {"row": moments_of(map(rows, starts), order=1, first=first)}

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """The tensors with their standard errors."""
        sums = _Sums(moments["row"], self._row)
        found: dict[str, Estimate] = {}
        n = float(self.network.widths[-2])
        for name in self.tensors:
            if name == "H1":
                H = sums.mean("H")
                shift = n * (H.value - self.kernel_mean)
                found[name] = Estimate(shift, n * H.standard_error, H.count)
            elif name in ("G", "H"):
                found[name] = sums.mean(name)
            else:
                over_n = sums.covariance(name) if name in FACTORS else sums.mean(name)
                found[name] = Estimate(n * over_n.value, n * over_n.standard_error, over_n.count)
        return found

    def to_toml(self) -> str:
        """The specification but for its arrays."""
        own = {"tensors": self.tensors, "seed": self.seed, "chunk": self.chunk_members}
        return f"{self.network.to_toml()}\n{write_table('tangents', own)}"

    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs, and Θ^(L) where H1 is measured."""
        theta = {} if self.kernel_mean is None else {"kernel_mean": self.kernel_mean}
        return {"x": self.x} | theta

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> TangentJob:
        """The job that `to_toml` and `arrays` describe."""
        own = tomllib.loads(text)["tangents"]
        return cls(
            MLP.from_toml(text),
            arrays["x"],
            tuple(own["tensors"]),
            seed=own["seed"],
            kernel_mean=arrays.get("kernel_mean"),
            chunk_members=own["chunk"],
        )

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes."""
        axes: dict[str, tuple[str, ...]] = {"x": ("sample", "input"), "row": ("number",)}
        axes |= dict.fromkeys(TENSORS, ("a", "b", "c", "d"))
        return axes | dict.fromkeys(("G", "H", "H1", "kernel_mean"), ("a", "b"))

    def coordinates(self) -> dict[str, np.ndarray]:
        """None of the axes has values."""
        return {}


@dataclass(frozen=True, eq=False)
class _Sums:
    """Moments of one row of numbers per member, and where in it each tensor stands."""

    moments: Moments
    places: dict[str, tuple[slice, tuple[int, ...]]]

    def part(self, row: np.ndarray, name: str) -> np.ndarray:
        where, shape = self.places[name]
        return row[where].reshape(shape)

    @cached_property
    def row(self) -> Estimate:
        return self.moments.mean()

    def mean(self, name: str) -> Estimate:
        """The average over members."""
        row = self.row
        value, error = self.part(row.value, name), self.part(row.standard_error, name)
        if f"{name}_0" in self.places:
            reference = self.part(row.value, f"{name}_0")
            value, error = pairs_to_matrix(reference + value), pairs_to_matrix(error)
        return Estimate(value, error, row.count)

    def covariance(self, name: str) -> Estimate:
        """V, D or A over n: the mean of the product less the product of the means, unbiased."""

        def statistic(count: int, totals: tuple[np.ndarray, ...]) -> np.ndarray:
            row = self.moments.origin + totals[0] / count
            factors = [self.part(row, factor) for factor in FACTORS[name]]
            return (self.part(row, name) - _product(name, *factors)) * (count / (count - 1))

        found = self.moments.jackknife(statistic, 1)
        value, error = found.value, found.standard_error
        for axis in (0, 2):
            value, error = pairs_to_matrix(value, axis), pairs_to_matrix(error, axis)
        return Estimate(value, error, found.count)


def _reference(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """G and H of the first member; 0 where it is not finite, which is then a member that fails."""
    means = {"G": lambda G: G[0], "H": lambda H: H[0].mean(axis=0)}
    near = {name: np.array(means[name](found[name])) for name in means if name in found}
    return {name: np.where(np.isfinite(value), value, 0.0) for name, value in near.items()}


def _rows(
    found: dict[str, np.ndarray], reference: dict[str, np.ndarray], tensors: Sequence[str]
) -> dict[str, np.ndarray]:
    """The parts of each member, G and H as deviations, and the products behind V, D and A.

    The reference of the deviations comes along, the same in all members and therefore exact.
    """
    members = len(next(iter(found.values())))
    rows = {f"{name}_0": np.tile(value, (members, 1)) for name, value in reference.items()}
    rows |= found
    if "G" in found:
        rows["G"] = found["G"] - reference["G"]
    if "H" in found:
        rows["H_i"] = found["H"] - reference["H"]
        rows["H"] = rows["H_i"].mean(axis=1)
    for name, (first, second) in FACTORS.items():
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


def _places(
    network: MLP, samples: int, tensors: Sequence[str]
) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Where in a member's row each part stands, and its shape, from a row of zeros."""
    pairs = samples * (samples + 1) // 2
    shapes = {"G": (pairs,), "H": (network.widths[-1], pairs)}
    zeros = {name: np.zeros((1, *shapes.get(name, [samples] * 4))) for name in parts_of(tensors)}
    rows = _rows(zeros, _reference(zeros), tensors)
    ends = np.cumsum([part[0].size for part in rows.values()]).tolist()
    spans = zip(rows.items(), [0, *ends[:-1]], ends, strict=True)
    return {name: (slice(start, end), part.shape[1:]) for (name, part), start, end in spans}


def _checked_mean(kernel_mean: np.ndarray | None, samples: int) -> np.ndarray:
    if kernel_mean is None:
        raise InvalidValueError("kernel_mean", None, "H1 needs the infinite-width NTK Θ^(L)")
    mean = np.asarray(kernel_mean, dtype=np.float64)
    if mean.shape != (samples, samples):
        expected = f"expected {(samples, samples)}"
        raise InvalidValueError("shape of kernel_mean", mean.shape, expected)
    return mean
