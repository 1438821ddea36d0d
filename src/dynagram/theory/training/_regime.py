"""Can a trained prediction be trusted? Size of the corrections, conditioning, step size, errors."""

from __future__ import annotations

import numpy as np

from dynagram._precision import float64
from dynagram.networks import MLP
from dynagram.results._regime import Judge, Regime
from dynagram.theory.training._covariance import Covariances
from dynagram.theory.training._infinite import KernelTraining, TrainedGaussian
from dynagram.theory.training._mean import Means
from dynagram.theory.training._tensors import Mode


def trained_regime(
    network: MLP,
    kernel: KernelTraining,
    limit: TrainedGaussian,
    means: Means,
    covariances: Covariances,
    mean_error: np.ndarray,
    covariance_error: np.ndarray,
    tensors: Mode,
) -> Regime:
    """The regime of an order-1/n prediction, from what goes into it.

    The order left out is not known. It is judged by the parts of the order kept, added without
    their signs and compared with the output's own scale, which is the expansion parameter as the
    test points feel it: next order ~ this order × parameter.
    """
    judge, n = Judge(), network.widths[-2]
    judge.numbers["depth_over_width"] = float(sum(1.0 / m for m in network.widths[1:-1]))
    scale = np.sqrt(np.mean(limit.mean**2, axis=1) + np.maximum(np.diagonal(limit.covariance), 0.0))
    scale = np.maximum(scale, 1e-12 * max(float(np.max(scale, initial=0.0)), 1e-290))[:, None]
    size = sum(np.abs(part) for part in means.values()) / n / scale
    shift = np.abs(sum(means.values())) / n / scale
    judge.numbers["mean_shift"] = float(np.max(shift, initial=0.0))
    judge.measure(
        "expansion_of_mean", float(np.max(size, initial=0.0)), 0.1, 0.5,
        "the 1/n terms of the mean, added without their signs, reach {value:.2g} of the output's "
        "scale: the next order is about that fraction of them; widen the network or shrink the "
        "targets",
    )  # fmt: skip
    variance = np.maximum(np.diagonal(limit.covariance), 0.0)[:, None]
    floor = 1e-10 * max(float(np.max(variance, initial=0.0)), 1e-290)
    parts = [np.einsum("titi->ti", part) for part in covariances.values()]
    change = sum(np.abs(part) for part in parts) / n / np.maximum(variance, floor)
    alive = np.broadcast_to(variance > floor, change.shape)
    judge.measure(
        "expansion_of_variance", float(np.max(change[alive], initial=0.0)), 0.3, 1.0,
        "the 1/n terms of the variance, added without their signs, reach {value:.2g} of it",
    )  # fmt: skip
    final = variance + sum(parts) / n
    if np.any((final < 0.0) & alive):
        judge.level = 2
        judge.reasons.append(
            "the order 1/n makes a variance negative: no standard deviation exists there; widen "
            "the network"
        )
    _step_size(judge, network, kernel, tensors)
    _conditioning(judge, kernel)
    _numerics(judge, means, covariances, mean_error, covariance_error)
    judge.reasons.extend(limit.notes)
    if limit.unreachable > 1e-9 * max(1.0, float(np.max(np.abs(kernel.targets)))):
        judge.level = max(judge.level, 1)
    return judge.regime("1/n", "the 1/n corrections are small and so is what they leave out")


@float64
def _step_size(judge: Judge, network: MLP, kernel: KernelTraining, tensors: Mode) -> None:
    """η λ_max, and whether single networks, whose λ_max fluctuates, cross the limit 2."""
    largest = float(kernel.eigenvalues[-1])
    judge.numbers["largest_eigenvalue"] = largest
    judge.numbers["largest_stable_eta"] = 2.0 / largest
    root = np.sqrt(kernel.weights)
    n = root.size
    top = np.linalg.eigh(root[:, None] * kernel.Theta[:n, :n] * root)[1][:, -1] * root
    A, B = (np.asarray(tensors[name][:n, :n, :n, :n]) for name in "AB")
    variance = np.einsum("abcd,a,b,c,d->", A + 2.0 * B, top, top, top, top, optimize=True)
    spread = float(np.sqrt(max(variance, 0.0) / network.widths[-2]))
    judge.numbers["largest_eigenvalue_std"] = spread
    if kernel.algorithm.eta is None:
        return
    judge.numbers["eta_times_largest_eigenvalue"] = kernel.algorithm.eta * largest
    judge.measure(
        "eta_times_largest_eigenvalue_plus_3_std", kernel.algorithm.eta * (largest + 3.0 * spread),
        1.9, 2.2,
        "some networks of this width will diverge: η times the largest NTK eigenvalue reaches "
        "{value:.2f} three standard deviations up, and 2 is the limit; lower eta",
    )  # fmt: skip


def _conditioning(judge: Judge, kernel: KernelTraining) -> None:
    ratio = float(kernel.eigenvalues[0] / kernel.eigenvalues[-1])
    judge.numbers["smallest_over_largest_eigenvalue"] = ratio
    judge.measure(
        "condition_number", 1.0 / max(ratio, 1e-300), 1e8, 1e12,
        "the training NTK has condition number {value:.2g}: nearly dependent training inputs "
        "amplify every error; gradient descent would take as many steps",
    )  # fmt: skip


def _numerics(
    judge: Judge, means: Means, covariances: Covariances,
    mean_error: np.ndarray, covariance_error: np.ndarray,
) -> None:  # fmt: skip
    for name, parts, error in (
        ("mean", means, mean_error),
        ("covariance", covariances, covariance_error),
    ):
        # Relative to the parts: their sum may cancel.
        size = float(np.max(sum(np.abs(part) for part in parts.values()), initial=0.0))
        judge.measure(
            f"numerical_error_of_{name}",
            float(np.max(error, initial=0.0)) / max(size, 1e-290) if size > 0 else 0.0,
            0.02, 0.3,
            f"the four-sample averages leave an error of {{value:.1g}} in the correction of the "
            f"{name}: ask for a smaller `accuracy` or use fewer samples",
        )  # fmt: skip
