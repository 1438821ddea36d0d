"""Test error of trained networks: bias and variance at infinite width and to order 1/n.

E ½ Σ (z(T) − y)² = ½ Σ (m − y)² + ½ Σ Var, (10.52), and at order 1/n the same with
m = m^∞ + m^{1}/n and the covariance at order 1/n, expanded to that order:
docs/derivations/trained-outputs.md (D1.16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.training._finite import TrainedPrediction
from dynagram.theory.training._infinite import TrainedGaussian
from dynagram.theory.training._problem import check_targets


@dataclass(frozen=True)
class ExpectedLoss:
    """E ½ Σ (z − y)² over all test samples and outputs, split; `order` is "∞" or "1/n"."""

    order: str
    bias: float
    variance: float

    @property
    def total(self) -> float:
        """Bias and variance."""
        return self.bias + self.variance


def expected_loss(prediction: TrainedPrediction, test_y: object) -> dict[str, ExpectedLoss]:
    """The expected test loss at infinite width and at this width, by order.

    >>> from dynagram.networks import MLP
    >>> from dynagram.theory.training._finite import predict_trained
    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> found = predict_trained(net, np.eye(2), [1.0, -1.0], [[1.0, 0.5]], algorithm="flow")
    >>> loss = expected_loss(found, [0.4])
    >>> [round(loss[order].total, 4) for order in ("∞", "1/n")]
    [0.0192, 0.0199]
    """
    y = check_targets(test_y, prediction.mean.shape[0], prediction.mean.shape[1], "test_y")
    gap = prediction.mean_infinite - y
    variance = np.einsum("titi->ti", prediction.covariance_infinite)
    change = np.einsum("titi->ti", prediction.covariance_correction) / prediction.width
    bias = 0.5 * np.sum(gap**2)
    shifted = np.sum(gap * prediction.mean_correction) / prediction.width
    return {
        "∞": ExpectedLoss("∞", float(bias), float(0.5 * np.sum(variance))),
        "1/n": ExpectedLoss("1/n", float(bias + shifted), float(0.5 * np.sum(variance + change))),
    }


def infinite_loss(prediction: TrainedGaussian, test_y: object) -> ExpectedLoss:
    """The expected test loss at infinite width at any time of training (10.52)."""
    y = check_targets(test_y, prediction.mean.shape[0], prediction.mean.shape[1], "test_y")
    bias = 0.5 * np.sum((prediction.mean - y) ** 2)
    variance = 0.5 * y.shape[1] * np.trace(prediction.covariance)
    return ExpectedLoss("∞", float(bias), float(variance))


def expected_cross_entropy(
    mean: Float[np.ndarray, "test outputs"],
    covariance: Float[np.ndarray, "test test"],
    probabilities: Float[np.ndarray, "test outputs"],
) -> float:
    """E of −Σ p log softmax(z) to second order about the mean (10.53)-(10.55).

    The Hessian is diag(q) − q qᵀ with q = softmax(m), so that a test point adds
    ½ Var (1 − Σ q²): exact for small variances.

    >>> mean, p = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    >>> round(expected_cross_entropy(mean, np.array([[0.1]]), p), 6)
    0.137427
    """
    shifted = mean - np.max(mean, axis=1, keepdims=True)
    log_q = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    spread = 1.0 - np.sum(np.exp(log_q) ** 2, axis=1)
    first = -np.sum(probabilities * log_q)
    return float(first + 0.5 * np.sum(np.diagonal(covariance) * spread))
