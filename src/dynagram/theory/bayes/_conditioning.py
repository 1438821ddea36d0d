"""Infinite width: evidence (6.34) and posterior (6.57), (6.64), (6.66) of a network's outputs.

The prior over outputs is N(0, K) on each output by itself, so conditioning on the training
outputs is Gaussian: mean K_BA K̃⁻¹ y, covariance K_BB − K_BA K̃⁻¹ K_AB, the same for every output
and independent of the targets. With observation noise K̃ = K_AA + σ²·1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram.theory.bayes._solve import TrainingKernel


class Conditioned(NamedTuple):
    """Outputs on all samples, training ones first, given the training outputs.

    `covariance` is that of every single output, of the noise-free function; different outputs are
    independent (6.67).
    """

    mean: Float[np.ndarray, "sample outputs"]
    covariance: Float[np.ndarray, "sample sample"]


def condition(
    kernel: TrainingKernel, K: Float[np.ndarray, "sample sample"], y: Float[np.ndarray, "a outputs"]
) -> Conditioned:
    """The posterior for a kernel K, given its factorised training block (6.57), (6.64).

    On training samples differences of K and K_AA K̃⁻¹ K are written out, so that nothing is left
    to rounding where there is no noise.

    >>> from dynagram.theory.bayes._solve import training_kernel
    >>> from dynagram.training import Posterior
    >>> K, y = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[2.0]])
    >>> posterior = condition(training_kernel(K[:1, :1], Posterior()), K, y)
    >>> posterior.mean.ravel(), posterior.covariance.diagonal()
    (array([2., 1.]), array([0.  , 0.75]))
    """
    N, added = y.shape[0], kernel.noise + kernel.jitter
    dual, regression = kernel.solve(y), kernel.solve(K[:N])
    mean = np.concatenate([y - added * dual, K[N:, :N] @ dual])
    covariance = np.empty_like(K)
    covariance[:N] = added * regression
    covariance[N:, :N] = added * regression[:, N:].T
    half = kernel.half_solve(K[:N, N:])
    covariance[N:, N:] = K[N:, N:] - half.T @ half
    return Conditioned(mean, covariance)


def residual(
    kernel: TrainingKernel, K: Float[np.ndarray, "sample sample"]
) -> Float[np.ndarray, "sample sample"]:
    """P = 1 − K_DA K̃⁻¹ on training slots: what takes off an output what is known of it."""
    N = kernel.root.shape[0]
    rest = np.eye(K.shape[0])
    rest[:N, :N] = (kernel.noise + kernel.jitter) * kernel.inverse
    rest[N:, :N] = -kernel.solve(K[:N, N:]).T
    return rest


def kernel_log_evidence(kernel: TrainingKernel, y: Float[np.ndarray, "a outputs"]) -> float:
    """log p(y_A) = −(n_L/2) log|2πK̃| − ½ Σ_i y_i K̃⁻¹ y_i (6.34).

    >>> from dynagram.theory.bayes._solve import training_kernel
    >>> from dynagram.training import Posterior
    >>> kernel = training_kernel(np.array([[1.5]]), Posterior())
    >>> round(kernel_log_evidence(kernel, np.array([[1.0, np.sqrt(2.0)]])), 6)    # K = Y/n_L
    -3.243342
    """
    samples, outputs = y.shape
    half = kernel.half_solve(y)
    volume = samples * math.log(2.0 * math.pi) + kernel.log_determinant
    return -0.5 * (outputs * volume + float(np.sum(half * half)))
