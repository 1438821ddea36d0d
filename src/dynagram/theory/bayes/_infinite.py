"""Infinite width: evidence (6.34) and posterior (6.57), (6.64), (6.66) of a network's outputs.

The prior over outputs is N(0, K) on each output by itself, so conditioning on the training
outputs is Gaussian: mean K_BA K̃⁻¹ y, covariance K_BB − K_BA K̃⁻¹ K_AB, the same for every output
and independent of the targets. With observation noise K̃ = K_AA + σ²·1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP, check_inputs
from dynagram.results._regime import Regime
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.bayes._solve import TrainingKernel, check_data, training_kernel

_ILL_CONDITIONED = 1e-8


@dataclass(frozen=True, eq=False)
class InfinitePosterior:
    """Outputs at the test inputs given the training outputs, at order "∞".

    `covariance` is that of every single output; different outputs are independent (6.67). It is
    of the noise-free function: add `kernel.noise` to the diagonal for noisy observations.
    """

    mean: Float[np.ndarray, "test outputs"]
    covariance: Float[np.ndarray, "test test"]
    log_evidence: float
    kernel: TrainingKernel
    regime: Regime

    @property
    def std(self) -> Float[np.ndarray, " test"]:
        """Standard deviation of each output at each test input."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))


def infinite_posterior(
    network: MLP, x: object, y: object, test_x: object, *, noise: float = 0.0, jitter: float = 0.0
) -> InfinitePosterior:
    """Exact Bayesian inference with an infinitely wide network (6.64), (6.66).

    `x` (N_A, n_0) and `y` (N_A, n_L) are observed with noise variance `noise`, `test_x` (N_B, n_0)
    inferred; `jitter` as in `training_kernel`. Cost: the kernel on N_A + N_B samples and N_A³.

    >>> net = MLP([2, 30, 1], "tanh", C_b=0.3, C_W=1.4)
    >>> x, test_x = np.array([[1.0, 0.4], [-0.3, 0.9]]), np.array([[0.7, 0.8]])
    >>> found = infinite_posterior(net, x, [1.0, -0.6], test_x, noise=0.25)
    >>> found.mean.round(5), found.covariance.round(5), round(found.log_evidence, 5)
    (array([[0.38416]]), array([[0.17287]]), -2.86901)
    """
    inputs, targets = check_data(network, x, y)
    tests = check_inputs(test_x, network.widths[0], "test_x")
    K = frozen_kernels(network, np.concatenate([inputs, tests]), layers="last").K[0]
    N = inputs.shape[0]
    kernel = training_kernel(K[:N, :N], noise=noise, jitter=jitter, x=inputs, y=targets)
    return kernel_posterior(kernel, K[N:, :N], K[N:, N:], targets)


def kernel_posterior(
    kernel: TrainingKernel,
    K_BA: Float[np.ndarray, "test a"],
    K_BB: Float[np.ndarray, "test test"],
    y: Float[np.ndarray, "a outputs"],
) -> InfinitePosterior:
    """The posterior for any kernel, given its factorised training block (6.57), (6.64).

    >>> kernel = training_kernel(np.array([[1.0]]))
    >>> found = kernel_posterior(kernel, np.array([[0.5]]), np.array([[1.0]]), np.array([[2.0]]))
    >>> found.mean.item(), found.covariance.item()
    (1.0, 0.75)
    """
    mean = K_BA @ kernel.solve(y)
    covariance = K_BB - _gram(kernel.half_solve(K_BA.T))
    evidence = kernel_log_evidence(kernel, y)
    return InfinitePosterior(mean, covariance, evidence, kernel, _regime(kernel))


def kernel_log_evidence(kernel: TrainingKernel, y: Float[np.ndarray, "a outputs"]) -> float:
    """log p(y_A) = −(n_L/2) log|2πK̃| − ½ Σ_i y_i K̃⁻¹ y_i (6.34).

    >>> kernel = training_kernel(np.array([[1.5]]))
    >>> round(kernel_log_evidence(kernel, np.array([[1.0, np.sqrt(2.0)]])), 6)    # K = Y/n_L
    -3.243342
    """
    samples, outputs = y.shape
    half = kernel.half_solve(y)
    volume = samples * math.log(2.0 * math.pi) + kernel.log_determinant
    return -0.5 * (outputs * volume + float(np.sum(half * half)))


def _regime(kernel: TrainingKernel) -> Regime:
    """Solving with a kernel loses as many digits as its conditioning has."""
    numbers = {"smallest_over_largest_eigenvalue": kernel.conditioning, "jitter": kernel.jitter}
    if kernel.conditioning < _ILL_CONDITIONED:
        sentence = (
            f"the training kernel is nearly singular ({kernel.conditioning:.1g}): only about "
            f"{12 + math.log10(kernel.conditioning):.0f} digits of the answer are left"
        )
        return Regime("∞", "careful", (sentence,), numbers)
    good = "exact at infinite width; `finite_posterior` says how much finite width changes"
    return Regime("∞", "trust", (good,), numbers)


def _gram(columns: np.ndarray) -> np.ndarray:
    return columns.T @ columns
