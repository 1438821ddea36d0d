"""The kernel and its vertices, from the stochastic metric of plain networks.

From samples of Ĝ^(ℓ): the mean metric K (4.72), the four-point vertex V = n_{ℓ-1} Cov(Ĝ, Ĝ) (4.76)
and the six-point vertex n²_{ℓ-1} κ₃(Ĝ, Ĝ, Ĝ). Estimates from Ĝ have far smaller errors than those
from the preactivations it generates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pairs_to_matrix
from dynagram.ensembles.initial._batches import even_batch, moments_of
from dynagram.ensembles.initial._sample import largest_batch, metric_batches
from dynagram.networks import MLP
from dynagram.results._estimate import BATCHES, Estimate, Moments

LETTERS = ("K", "V", "G1", "six_point")


@dataclass(frozen=True, eq=False)
class MetricSums:
    """The moments of Ĝ over the members of an ensemble, per layer and pair of samples."""

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    sampler: str
    chunk_members: int

    @property
    def largest_batch(self) -> int:
        """Members that are computed at once."""
        return largest_batch(self.network, self.x.shape[0], self.sampler)

    @property
    def numbers(self) -> int:
        """Numbers kept of a chunk."""
        pairs = self.x.shape[0] * (self.x.shape[0] + 1) // 2
        return BATCHES * self.network.depth * pairs**self._order

    @property
    def _order(self) -> int:
        return 3 if "six_point" in self.tensors else 2 if "V" in self.tensors else 1

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The moments of the members from `first` on."""
        metrics = metric_batches(
            self.network, self.x, first, size, seed=self.seed, sampler=self.sampler,
            batch=even_batch(self.chunk_members, self.largest_batch),
        )  # fmt: skip
        return {"metric": moments_of(metrics, order=self._order, first=first)}

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """K, and V and six_point where they are wanted, with their standard errors."""
        sums = moments["metric"]
        # Layer ℓ fluctuates with the width n_{ℓ-1} that feeds it; layer 1 does not fluctuate.
        n = np.array([0, *self.network.widths[1:-1]], dtype=np.float64)
        estimates = {"K": write_pairs(sums.mean(), (1,))}
        if "V" in self.tensors:
            estimates["V"] = scale_layers(write_pairs(sums.covariance(), (1, 3)), n)
        if "six_point" in self.tensors:
            third = write_pairs(sums.third_cumulant(), (1, 3, 5))
            estimates["six_point"] = scale_layers(third, n**2)
        return estimates

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of what is summed."""
        return {"metric": ("layer", "pair")}


def write_pairs(estimate: Estimate, axes: tuple[int, ...]) -> Estimate:
    """Write each pair axis, given by its final place, as two sample axes."""
    value, error = estimate.value, estimate.standard_error
    for axis in axes:
        value, error = pairs_to_matrix(value, axis), pairs_to_matrix(error, axis)
    return Estimate(value, error, estimate.count)


def scale_layers(estimate: Estimate, factors: Float[np.ndarray, " layer"]) -> Estimate:
    """Multiply the layers, the first axis, by `factors`."""
    factors = factors.reshape(-1, *[1] * (estimate.value.ndim - 1))
    return Estimate(estimate.value * factors, estimate.standard_error * factors, estimate.count)
