"""The kernel, its 1/n correction and its vertices, measured on networks at initialisation.

From samples of Ĝ^(ℓ): the mean metric G (4.72), G^{1} = n_{ℓ-1}(G − K) (4.104), the four-point
vertex V = n_{ℓ-1} Cov(Ĝ, Ĝ) (4.76) and the six-point vertex n²_{ℓ-1} κ₃(Ĝ, Ĝ, Ĝ). Estimates from
Ĝ have far smaller errors than those from the preactivations it generates.
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
from dynagram.ensembles.initial._batches import (
    check_integers,
    chunk_for,
    even_batch,
    moments_of,
    smallest_chunk,
)
from dynagram.ensembles.initial._sample import (
    check_sampler,
    first_metric,
    largest_batch,
    metric_batches,
)
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.results._estimate import BATCHES, Estimate, Moments

TENSORS = ("G", "G1", "V", "six_point")
# Axes of each after the layer, and of what the moments are taken of.
_AXES = {"G": 2, "G1": 2, "V": 4, "six_point": 6}
_METRIC = ("layer", "pair")
# Fewer members leave too few batches for a standard error that means something.
SMALLEST_ENSEMBLE = 64


@dataclass(frozen=True, eq=False)
class KernelEnsemble:
    """Tensors of the metric measured on `members` networks, at all orders in 1/n; ℓ = 1..L first.

    Layer 1 is the same in every member: its V, six_point and G1 and all its standard errors are 0.
    Those not asked for are None.
    """

    network: MLP
    members: int
    seed: int
    sampler: str
    G: Estimate | None  # layer a b
    G1: Estimate | None  # layer a b
    V: Estimate | None  # layer a b c d, the pairs (ab)(cd)
    six_point: Estimate | None  # layer a b c d e f, the pairs (ab)(cd)(ef)


def measure_kernels(
    network: MLP,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    tensors: Sequence[str] = ("G", "G1", "V"),
    kernel: Float[np.ndarray, "layer samples samples"] | None = None,
    sampler: str = "metric",
    progress: Callable[[int, int], object] | None = None,
) -> KernelEnsemble:
    """Draw `members` networks and measure "G", "G1", "V", "six_point" on the inputs `x`.

    "G1" is measured from `kernel`, the infinite-width K^(ℓ), by default the theory's. `sampler`
    is "metric" (without weights, fast) or "weights". `progress(done, members)` is called after
    each chunk. V to 1 % takes about 1e5 members; the six-point vertex is
    noisier, and its memory grows as N⁶.

    >>> net = MLP([3, 20, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> found = measure_kernels(net, np.ones((1, 3)), members=100000, seed=0, tensors=("V",))
    >>> found.V.value.ravel().round(1).tolist()   # 0, 2 and n_2 ((1 + 2/n_1)(1 + 2/n_2) − 1)
    [0.0, 2.0, 3.2]
    >>> found.V.standard_error.ravel().round(2).tolist()
    [0.0, 0.01, 0.02]
    """
    if members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    job = KernelJob(network, x, tuple(tensors), seed=seed, sampler=sampler, kernel=kernel)
    job = job.in_chunks(min(job.smallest_chunk, members))
    found = run_job(
        job,
        members=members,
        retries=0,
        failures=0,
        progress=None if progress is None else lambda now: progress(now.done, members),
    ).estimates
    return KernelEnsemble(
        network, members, seed, sampler, **{name: found.get(name) for name in TENSORS}
    )


@dataclass(frozen=True, eq=False)
class KernelJob:
    """The ensemble behind `measure_kernels`, as a job that can be stored and distributed.

    >>> from dynagram.ensembles.engine._engine import run_job
    >>> net = MLP([3, 20, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> job = KernelJob(net, np.ones((1, 3)), ("V",), seed=0)
    >>> found = run_job(job, members=None, until_error=0.02)
    >>> found.members % job.chunk_members, found.worst.value < 0.02
    (0, True)
    """

    kind: ClassVar[str] = "kernels"

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    sampler: str = "metric"
    kernel: Float[np.ndarray, "layer samples samples"] | None = None
    chunk_members: int = 0  # 0: about a second of work

    def __post_init__(self) -> None:
        x = check_inputs(self.x, self.network.widths[0])
        unknown = [name for name in self.tensors if name not in TENSORS]
        if unknown or len(self.tensors) == 0:
            allowed = f"expected some of {', '.join(TENSORS)}"
            raise InvalidValueError("tensors", self.tensors, allowed)
        check_sampler(self.sampler)
        require_plain(self.network, "measure_kernels (take measure_residual)")
        check_integers(seed=(self.seed, 0), chunk=(self.chunk_members, 0))
        object.__setattr__(self, "x", x)
        if self.kernel is not None:
            object.__setattr__(self, "kernel", _checked_kernel(self.network, x, self.kernel))
        if self.chunk_members == 0:
            object.__setattr__(self, "chunk_members", chunk_for(None, self.smallest_chunk))

    def in_chunks(self, members: int) -> KernelJob:
        """The same ensemble in chunks of `members`."""
        return replace(self, chunk_members=members)

    @property
    def smallest_chunk(self) -> int:
        """Members below which a chunk costs more than it should."""
        pairs = self.x.shape[0] * (self.x.shape[0] + 1) // 2
        sums = BATCHES * self.network.depth * pairs**self._order
        return smallest_chunk(self._largest_batch, sums)

    @property
    def _order(self) -> int:
        return 3 if "six_point" in self.tensors else 2 if "V" in self.tensors else 1

    @property
    def _largest_batch(self) -> int:
        return largest_batch(self.network, self.x.shape[0], self.sampler)

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The moments of Ĝ of the members from `first` on, per layer and pair of samples."""
        batch = even_batch(self.chunk_members, self._largest_batch)
        metrics = metric_batches(
            self.network, self.x, first, size, seed=self.seed, sampler=self.sampler, batch=batch
        )
        return {"metric": moments_of(metrics, order=self._order, first=first)}

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """The tensors with their standard errors."""
        sums = moments["metric"]
        # Layer ℓ fluctuates with the width n_{ℓ-1} that feeds it; layer 1 does not fluctuate.
        widths = np.array([0, *self.network.widths[1:-1]], dtype=np.float64)
        found: dict[str, Estimate] = {}
        if {"G", "G1"}.intersection(self.tensors):
            found["G"] = _expanded(sums.mean(), 1)
        if "G1" in self.tensors:
            found["G1"] = _scaled(_shifted(found["G"], self._kernel), widths)
        if "V" in self.tensors:
            found["V"] = _scaled(_expanded(sums.covariance(), 2), widths)
        if "six_point" in self.tensors:
            found["six_point"] = _scaled(_expanded(sums.third_cumulant(), 3), widths**2)
        return {name: found[name] for name in self.tensors}

    @cached_property
    def _kernel(self) -> np.ndarray:
        if self.kernel is not None:
            return self.kernel
        from dynagram.theory._kernels import frozen_kernels

        return frozen_kernels(self.network, self.x).K

    def to_toml(self) -> str:
        """The specification but for its arrays."""
        own = {
            "tensors": self.tensors,
            "seed": self.seed,
            "sampler": self.sampler,
            "chunk": self.chunk_members,
        }
        return f"{self.network.to_toml()}\n{write_table('kernels', own)}"

    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs, and the kernel that G1 is measured from where one was given."""
        return {"x": self.x} | ({} if self.kernel is None else {"kernel": self.kernel})

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> KernelJob:
        """The job that `to_toml` and `arrays` describe."""
        own = tomllib.loads(text)["kernels"]
        return cls(
            MLP.from_toml(text),
            arrays["x"],
            tuple(own["tensors"]),
            seed=own["seed"],
            sampler=own["sampler"],
            kernel=arrays.get("kernel"),
            chunk_members=own["chunk"],
        )

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes."""
        inputs = {"x": ("sample", "input"), "kernel": ("layer", "a", "b"), "metric": _METRIC}
        return inputs | {name: ("layer", *"abcdef"[:axes]) for name, axes in _AXES.items()}

    def coordinates(self) -> dict[str, np.ndarray]:
        """ℓ of the layers."""
        return {"layer": np.arange(1, self.network.depth + 1)}


def _checked_kernel(network: MLP, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    kernel = np.asarray(kernel, dtype=np.float64)
    expected = (network.depth, x.shape[0], x.shape[0])
    if kernel.shape != expected:
        raise InvalidValueError("shape of kernel", kernel.shape, f"expected {expected}")
    first = first_metric(network, x)
    if not np.allclose(kernel[0], first, rtol=1e-9, atol=1e-9 * np.max(np.abs(first))):
        raise InvalidValueError(
            "kernel", "another network's", "layer 1 is not C_b + C_W x xᵀ/n_0 of this network on x"
        )
    return kernel


def _expanded(estimate: Estimate, pairs: int) -> Estimate:
    """Write each of the `pairs` pair axes after the layer as two sample axes."""
    value, error = estimate.value, estimate.standard_error
    for axis in range(1, 1 + 2 * pairs, 2):
        value, error = pairs_to_matrix(value, axis), pairs_to_matrix(error, axis)
    return Estimate(value, error, estimate.count)


def _shifted(estimate: Estimate, origin: np.ndarray) -> Estimate:
    return Estimate(estimate.value - origin, estimate.standard_error, estimate.count)


def _scaled(estimate: Estimate, factors: np.ndarray) -> Estimate:
    """Multiply layer ℓ by `factors[ℓ-1]`."""
    factors = factors.reshape(-1, *[1] * (estimate.value.ndim - 1))
    return Estimate(estimate.value * factors, estimate.standard_error * factors, estimate.count)
