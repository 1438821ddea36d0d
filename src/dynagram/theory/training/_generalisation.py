"""Test error of trained networks: bias and variance at infinite width and to order 1/n.

E ½ Σ (z(T) − y)² = ½ Σ (m − y)² + ½ Σ Var, (10.52), and at order 1/n the same with
m = m^∞ + m^{1}/n and the covariance at order 1/n, expanded to that order:
docs/derivations/trained-outputs.md (D1.16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data._data import check_targets
from dynagram.results._outputs import Outputs


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


def expected_loss(outputs: Outputs, test_y: object) -> dict[str, ExpectedLoss]:
    """The expected test loss at infinite width and, where it is predicted, to order 1/n (10.52).

    **Arguments:**

    - `outputs`: a prediction, at its last moment.
    - `test_y`: the targets of its samples.

    **Returns:** `ExpectedLoss` by order, "∞" and "1/n".

    >>> from dynagram import Data, MLP, predict_outputs
    >>> from dynagram.training import GradientFlow, Training
    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> data = Data(np.eye(2), [1.0, -1.0], test_x=[[1.0, 0.5]])
    >>> loss = expected_loss(predict_outputs(net, data, Training(GradientFlow())), [0.4])
    >>> [round(loss[order].total, 4) for order in ("∞", "1/n")]
    [0.0192, 0.0199]
    """
    infinite = outputs.mean_infinite
    y = check_targets(test_y, infinite.shape[0], infinite.shape[1], "test_y")
    gap, variance = infinite - y, np.diagonal(outputs.kernel_infinite)
    bias, spread = 0.5 * np.sum(gap**2), 0.5 * y.shape[1] * np.sum(variance)
    losses = {"∞": ExpectedLoss("∞", float(bias), float(spread))}
    if outputs.order == "1/n":
        shifted = bias + np.sum(gap * outputs.mean_correction) / outputs.width
        change = np.einsum("titi->", outputs.covariance_correction) / outputs.width
        losses["1/n"] = ExpectedLoss("1/n", float(shifted), float(spread + 0.5 * change))
    return losses


def expected_cross_entropy(
    mean: Float[np.ndarray, "test outputs"],
    covariance: Float[np.ndarray, "test test"],
    probabilities: Float[np.ndarray, "test outputs"],
) -> float:
    """E of −Σ p log softmax(z) to second order about the mean (10.53)-(10.55).

    The Hessian is diag(q) − q qᵀ with q = softmax(m), so that a test point adds
    ½ Var (1 − Σ q²): exact for small variances.

    **Arguments:**

    - `mean`, `covariance`: of outputs at infinite width, `Outputs.mean` and `.kernel_infinite`.
    - `probabilities`: the targets.

    **Returns:** the sum over test points.

    >>> mean, p = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    >>> round(expected_cross_entropy(mean, np.array([[0.1]]), p), 6)
    0.137427
    """
    shifted = mean - np.max(mean, axis=1, keepdims=True)
    log_q = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    spread = 1.0 - np.sum(np.exp(log_q) ** 2, axis=1)
    first = -np.sum(probabilities * log_q)
    return float(first + 0.5 * np.sum(np.diagonal(covariance) * spread))
