"""Tangent-kernel tensors of the output layer, measured on networks at initialisation.

From the NTK, dNTK and ddNTKs of each member: Θ = E Ĥ_ii (8.58), A, B (8.82), D, F (8.67), P, Q
(11.45), R (∞.11), S, T, U (∞.12), with n = n_{L-1}. All hold at every width, all use distinct
outputs i ≠ j, and all ordered pairs of outputs are averaged. The metric Ĝ^(L) (8.49) stands in for
z_i z_i of a further output, its mean given the rest: D has a far smaller error so. Pairing a
network with its output-layer sign flip gains nothing here: every product measured is even under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pairs_to_matrix
from dynagram.ensembles.initial._batches import even_batch, moments_of
from dynagram.ensembles.initial._metric import write_pairs
from dynagram.ensembles.initial._tangent_members import (
    FACTORS,
    check_tensors,
    compute_tangents,
    largest_batch,
    parts_of,
)
from dynagram.networks import Network
from dynagram.results._estimate import BATCHES, Estimate, Moments


@dataclass(frozen=True, eq=False)
class TangentSums:
    """Sums over members of one row of numbers each, from which the tangent tensors are made.

    Sample indices are in the printed order, `F[a, b, c, d]` is F_abcd: what is estimated from
    z_i;1 z_j;2 Ĥ_ij;34 is F_1324 and stands at `F[1, 3, 2, 4]`.
    """

    network: Network
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    chunk_members: int

    def __post_init__(self) -> None:
        check_tensors(self.network, self.x.shape[0], self.tensors)

    @property
    def largest_batch(self) -> int:
        """Members that are computed at once."""
        return largest_batch(self.network, self.x.shape[0], self._parts)

    @property
    def numbers(self) -> int:
        """Numbers kept of a chunk."""
        return BATCHES * max(where.stop for where, _ in self._places.values())

    @property
    def _parts(self) -> tuple[str, ...]:
        return parts_of(self.tensors)

    @cached_property
    def _places(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        return _places(self.network, self.x.shape[0], self.tensors)

    @cached_property
    def _batch(self) -> int:
        return even_batch(self.chunk_members, self.largest_batch)

    @cached_property
    def _first_batch(self) -> dict[str, np.ndarray]:
        return self._compute(0)

    def _compute(self, first: int) -> dict[str, np.ndarray]:
        return compute_tangents(self.network, self.x, self.seed, self._parts, first, self._batch)

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The moments of one row of numbers per member, which `estimates` takes apart."""
        # Deviations from member 0: products of what does not vary are then exactly 0.
        reference = _reference(self._first_batch)

        def rows(start: int) -> np.ndarray:
            batch = self._first_batch if start == 0 else self._compute(start)
            batch = {name: values[: first + size - start] for name, values in batch.items()}
            parts = _rows(batch, reference, self.tensors).values()
            return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

        starts = range(first, first + size, self._batch)
        return {"row": moments_of(map(rows, starts), order=1, first=first)}

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """Theta, and those of A to U that are wanted, with standard errors; one layer, the last."""
        sums = _Row(moments["row"], self._places)
        n = float(self.network.width)
        estimates: dict[str, Estimate] = {}
        if "H" in self._parts:
            estimates["Theta"] = _of_one_layer(sums.mean("H"), 1.0)
        if {"K", "G1"}.intersection(self.tensors):
            estimates["K"] = _of_one_layer(sums.mean("G"), 1.0)
        for name in self.tensors:
            if name not in ("Theta", "H1", "K", "G1"):
                over_n = sums.covariance(name) if name in FACTORS else sums.mean(name)
                estimates[name] = _of_one_layer(over_n, n)
        return estimates

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of what is summed."""
        return {"row": ("number",)}


def _of_one_layer(estimate: Estimate, factor: float) -> Estimate:
    value, error = factor * estimate.value[None], factor * estimate.standard_error[None]
    return Estimate(value, error, estimate.count)


@dataclass(frozen=True, eq=False)
class _Row:
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

        return write_pairs(self.moments.jackknife(statistic, 1), (0, 2))


def _reference(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """G and H of the first member; 0 where it is not finite, which is then a member that fails."""
    means = {"G": lambda G: G[0], "H": lambda H: H[0].mean(axis=0)}
    near = {name: np.array(means[name](batch[name])) for name in means if name in batch}
    return {name: np.where(np.isfinite(value), value, 0.0) for name, value in near.items()}


def _rows(
    batch: dict[str, np.ndarray], reference: dict[str, np.ndarray], tensors: Sequence[str]
) -> dict[str, np.ndarray]:
    """The parts of each member, G and H as deviations, and the products behind D and A.

    The reference of the deviations comes along, the same in all members and therefore exact.
    """
    members = len(next(iter(batch.values())))
    rows = {f"{name}_0": np.tile(value, (members, 1)) for name, value in reference.items()}
    rows |= batch
    if "G" in batch:
        rows["G"] = batch["G"] - reference["G"]
    if "H" in batch:
        rows["H_i"] = batch["H"] - reference["H"]
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
    network: Network, samples: int, tensors: Sequence[str]
) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Where in a member's row each part stands, and its shape, from a row of zeros."""
    samples = samples * network.positions
    pairs = samples * (samples + 1) // 2
    shapes = {"G": (pairs,), "H": (network.outputs, pairs)}
    zeros = {name: np.zeros((1, *shapes.get(name, [samples] * 4))) for name in parts_of(tensors)}
    rows = _rows(zeros, _reference(zeros), tensors)
    ends = np.cumsum([part[0].size for part in rows.values()]).tolist()
    spans = zip(rows.items(), [0, *ends[:-1]], ends, strict=True)
    return {name: (slice(start, end), part.shape[1:]) for (name, part), start, end in spans}
