"""Stochastic gradient descent at infinite width: mean and covariance over batches and draws, exact.

A step uses the loss ½ Σ (z − y)² of B of the N training samples, drawn without replacement anew
every time: z ← z − η Θ_·A S ε with S_a ∈ {0, 1}, E S_a = p = B/N, E S_a S_b = W_ab. The frozen NTK
makes the step linear, so that first and second moments close. The mean is that of gradient
descent at p η; batches add a covariance, also between outputs, which share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.training._algorithms import Algorithm, checked_steps
from dynagram.theory.training._infinite import KernelTraining

_DIVERGED = 1e100


@dataclass(frozen=True, eq=False)
class StochasticMoments:
    """Test outputs after SGD: mean, covariance, and the part of it that the batches make.

    `training_loss` is E ½ Σ (z − y)² over the training set.
    """

    mean: Float[np.ndarray, "test outputs"]
    covariance: Float[np.ndarray, "test outputs test outputs"]
    batch_covariance: Float[np.ndarray, "test outputs test outputs"]
    training_loss: float


def stochastic_moments(
    kernel: KernelTraining, *, eta: float, batch: int, steps: int
) -> StochasticMoments:
    """Moments of the outputs after `steps` of SGD with batches of `batch` samples at step `eta`.

    For a loss that is the mean over the batch, times the N of the book's sum, pass eta·N/B. The
    algorithm of `kernel` is not used. With a frozen NTK of full rank the minimum is the same for
    every batch, so that the batch covariance ends at zero: no decay of η is needed. Cost per step:
    n_L² (N_A + N_B)² N_A. Repeated training inputs are not supported.

    >>> Theta = np.array([[2.0, 0.5, 1.0], [0.5, 1.0, 0.2], [1.0, 0.2, 3.0]])
    >>> y = np.array([[1.0], [-1.0]])
    >>> kernel = KernelTraining(Theta, Theta, y, np.ones(2), Algorithm("flow"))
    >>> for steps in (3, 300):
    ...     found = stochastic_moments(kernel, eta=0.4, batch=1, steps=steps)
    ...     print(found.mean.round(4), np.abs(found.batch_covariance).ravel().round(4))
    [[0.3344]] [0.0839]
    [[0.5714]] [0.]
    """
    samples, count = kernel.weights.size, int(checked_steps(steps))
    if np.any(kernel.weights != 1.0):
        raise InvalidValueError("train_x", "repeated rows", "batches of repeated inputs: drop them")
    if isinstance(batch, bool) or not 1 <= batch <= samples:
        raise InvalidValueError("batch", batch, f"expected 1 to {samples}, the training samples")
    p = batch / samples
    both = p * (batch - 1) / (samples - 1) if samples > 1 else p
    W = np.full((samples, samples), both) + (p - both) * np.eye(samples)
    own = replace(kernel, algorithm=Algorithm.checked("gd", p * eta))
    y, outputs = kernel.targets, kernel.targets.shape[1]
    rows = kernel.Theta[:, :samples]
    # u: all outputs; second moments E[ε ε'], E[u ε'], E[u u'] for every pair of outputs i, j.
    same = np.eye(outputs)
    K = kernel.K
    inner = np.einsum("ij,ab->ijab", same, K[:samples, :samples]) + np.einsum("ai,bj->ijab", y, y)
    cross = np.einsum("ij,da->ijda", same, K[:, :samples])
    outer = np.einsum("ij,de->ijde", same, K)
    mean = np.zeros((K.shape[0], outputs))
    flip = (1, 0, 3, 2)
    for _ in range(count):
        push = eta * p * rows
        noisy = eta**2 * rows @ (W * inner) @ rows.T
        turned, pulled = push @ cross.transpose(flip), push @ inner
        outer = outer - turned - turned.transpose(flip) + noisy
        cross = cross - pulled - cross @ push[:samples].T + noisy[:, :, :, :samples]
        # Written with both products: with a transpose instead, rounding errors would grow.
        inner = inner - pulled[:, :, :samples] - inner @ push[:samples].T
        inner = inner + noisy[:, :, :samples, :samples]
        mean = mean - push @ (mean[:samples] - y)
        if not np.max(np.abs(inner)) < _DIVERGED:
            raise InvalidValueError(
                "eta", eta, "SGD diverges in mean square at this step size and batch: lower eta"
            )
    covariance = outer - np.einsum("di,ej->ijde", mean, mean)
    deterministic = np.einsum("ij,de->ijde", same, own.at(steps=count).covariance)
    found = covariance[:, :, samples:, samples:]
    return StochasticMoments(
        mean[samples:],
        found.transpose(2, 0, 3, 1),
        (found - deterministic).transpose(2, 0, 3, 1),
        0.5 * float(np.einsum("iiaa->", inner)),
    )
