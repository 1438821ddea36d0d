"""The kernel, its 1/n correction and its vertices, measured on networks at initialisation.

From samples of Ĝ^(ℓ): the mean metric G (4.72), G^{1} = n_{ℓ-1}(G − K) (4.104), the four-point
vertex V = n_{ℓ-1} Cov(Ĝ, Ĝ) (4.76) and the six-point vertex U = n²_{ℓ-1} κ₃(Ĝ, Ĝ, Ĝ). Estimates
from Ĝ have far smaller errors than those from the preactivations it generates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.ensembles.sample import first_metric, sample_metrics
from dynagram.ensembles.statistics import Estimate, Moments
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.pairs import pairs_to_matrix

TENSORS = ("G", "G1", "V", "U")
# Fewer members leave too few batches for a standard error that means something.
SMALLEST_ENSEMBLE = 64


@dataclass(frozen=True, eq=False)
class KernelEnsemble:
    """Tensors of the metric measured on `members` networks, at all orders in 1/n; ℓ = 1..L first.

    Layer 1 is the same in every member: its V, U and G1 and all its standard errors are 0.
    Those not asked for are None.
    """

    network: MLP
    members: int
    seed: int
    sampler: str
    G: Estimate | None  # layer a b
    G1: Estimate | None  # layer a b
    V: Estimate | None  # layer a b c d, the pairs (ab)(cd)
    U: Estimate | None  # layer a b c d e f, the pairs (ab)(cd)(ef)


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
    """Draw `members` networks and measure the `tensors` "G", "G1", "V" and "U" on the inputs `x`.

    "G1" is measured from `kernel`, the infinite-width K^(ℓ), by default the theory's. `sampler`
    is "metric" (without weights, fast) or "weights". `progress(done, members)` is called after
    each chunk. V to 1 % takes about 1e5 members; U is noisier, and its memory grows as N⁶.

    >>> net = MLP([3, 20, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> found = measure_kernels(net, np.ones((1, 3)), members=100000, seed=0, tensors=("V",))
    >>> found.V.value.ravel().round(1).tolist()   # 0, 2 and n_2 ((1 + 2/n_1)(1 + 2/n_2) − 1)
    [0.0, 2.0, 3.2]
    >>> found.V.standard_error.ravel().round(2).tolist()
    [0.0, 0.01, 0.02]
    """
    inputs = check_inputs(x, network.widths[0])
    _check_request(members, tensors)
    K = _checked_kernel(network, inputs, kernel) if "G1" in tensors else None
    order = 3 if "U" in tensors else 2 if "V" in tensors else 1
    moments = _accumulate(network, inputs, members, seed, sampler, order, progress)
    # Layer ℓ fluctuates with the width n_{ℓ-1} that feeds it; layer 1 does not fluctuate.
    widths = np.array([0, *network.widths[1:-1]], dtype=np.float64)
    mean = moments.mean()
    return KernelEnsemble(
        network=network,
        members=members,
        seed=seed,
        sampler=sampler,
        G=_expanded(mean, 1) if "G" in tensors else None,
        G1=None if K is None else _scaled(_shifted(_expanded(mean, 1), K), widths),
        V=_scaled(_expanded(moments.covariance(), 2), widths) if "V" in tensors else None,
        U=_scaled(_expanded(moments.third_cumulant(), 3), widths**2) if "U" in tensors else None,
    )


def _check_request(members: int, tensors: Sequence[str]) -> None:
    if members < SMALLEST_ENSEMBLE:
        allowed = f"at least {SMALLEST_ENSEMBLE} needed for a standard error"
        raise InvalidValueError("members", members, allowed)
    unknown = [name for name in tensors if name not in TENSORS]
    if unknown or len(tensors) == 0:
        raise InvalidValueError("tensors", tensors, f"expected some of {', '.join(TENSORS)}")


def _checked_kernel(network: MLP, x: np.ndarray, kernel: np.ndarray | None) -> np.ndarray:
    if kernel is None:
        from dynagram.theory.frozen import frozen_kernels

        return frozen_kernels(network, x).K
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


def _accumulate(
    network: MLP,
    x: np.ndarray,
    members: int,
    seed: int,
    sampler: str,
    order: int,
    progress: Callable[[int, int], object] | None,
) -> Moments:
    moments: Moments | None = None
    for metrics in sample_metrics(network, x, members=members, seed=seed, sampler=sampler):
        done = 0 if moments is None else moments.count
        chunk = Moments.from_samples(metrics, order=order, first=done)
        moments = chunk if moments is None else moments.merge(chunk)
        if progress is not None:
            progress(moments.count, members)
    assert moments is not None  # members ≥ 1 has been checked
    return moments


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
