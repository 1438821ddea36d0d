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

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.training import GradientDescent, GradientFlow, Training
from dynagram.training._losses import half_sum_factor

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


def stochastic_moments(network: MLP, data: Data, how: Training) -> StochasticMoments:
    """Moments of test outputs after some steps of SGD at infinite width.

    **Arguments:**

    - `network`: an `MLP`.
    - `data`: with distinct training inputs.
    - `how`: `Training(GradientDescent(eta), batch=…, steps=…)`. The loss of a step is that of its
        batch, drawn anew: with "half-sum" the sum over it, with "mean" the mean.

    **Returns:** `StochasticMoments`. With a frozen NTK of full rank the minimum is the same for
    every batch, so that the batch covariance ends at zero: no decay of η is needed. Cost per step:
    n_L² (N_A + N_B)² N_A.

    >>> from dynagram.training import GradientDescent
    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> data = Data([[1.0, 0.2], [-0.4, 1.1]], [1.0, -1.0], test_x=[[0.5, 0.9]])
    >>> for steps in (3, 300):
    ...     how = Training(GradientDescent(0.4), batch=1, steps=steps)
    ...     after = stochastic_moments(net, data, how)
    ...     print(after.mean.round(4), np.abs(after.batch_covariance).ravel().round(4))
    [[0.0079]] [0.3919]
    [[0.0343]] [0.]
    """
    if not isinstance(how.algorithm, GradientDescent) or how.steps is None or how.schedule:
        raise InvalidValueError("how", how.name, "expected gradient descent for some steps")
    if np.any(data.merged.weights != 1.0):
        raise InvalidValueError("x", "repeated rows", "batches of repeated inputs: drop them")
    if isinstance(how.batch, tuple):
        allowed = "batches are drawn here: expected a size; predict_outputs takes given batches"
        raise InvalidValueError("batch", how.batch, allowed)
    samples = data.x.shape[0]
    batch = samples if how.batch is None else how.batch
    rate = how.algorithm.eta * half_sum_factor(how.loss, batch, data.outputs)
    kernels = InfiniteTraining.of(network, data, Training(GradientFlow()))
    return kernel_moments(kernels, eta=rate, batch=batch, steps=how.steps)


def kernel_moments(
    kernels: InfiniteTraining, *, eta: float, batch: int, steps: int
) -> StochasticMoments:
    """The moments for any two kernels, on the loss ½ Σ (z − y)² of batches of `batch` samples."""
    samples = kernels.weights.size
    if not 1 <= batch <= samples:
        raise InvalidValueError("batch", batch, f"expected 1 to {samples}, the training samples")
    p = batch / samples
    both = p * (batch - 1) / (samples - 1) if samples > 1 else p
    W = np.full((samples, samples), both) + (p - both) * np.eye(samples)
    y, outputs = kernels.targets, kernels.targets.shape[1]
    rows = kernels.Theta[:, :samples]
    # u: all outputs; second moments E[ε ε'], E[u ε'], E[u u'] for every pair of outputs i, j.
    same = np.eye(outputs)
    K = kernels.K
    inner = np.einsum("ij,ab->ijab", same, K[:samples, :samples]) + np.einsum("ai,bj->ijab", y, y)
    cross = np.einsum("ij,da->ijda", same, K[:, :samples])
    outer = np.einsum("ij,de->ijde", same, K)
    mean = np.zeros((K.shape[0], outputs))
    flip = (1, 0, 3, 2)
    for _ in range(steps):
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
    # The whole batch at the rate p η has the same mean.
    descent = replace(kernels, how=Training(GradientDescent(p * eta), steps=steps)).at(steps)
    whole = np.einsum("ij,de->ijde", same, descent.kernel)
    test = slice(samples, None)
    return StochasticMoments(
        mean[test],
        covariance[:, :, test, test].transpose(2, 0, 3, 1),
        (covariance - whole)[:, :, test, test].transpose(2, 0, 3, 1),
        0.5 * float(np.einsum("iiaa->", inner)),
    )
