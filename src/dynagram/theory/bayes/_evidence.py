"""The evidence of a network, log p(y_A | H), at infinite width (6.34) and to order 1/n.

Evidence is the probability of the training targets under random networks: it compares
hyperparameters without a validation set (6.29)-(6.31). Its order-1/n coefficient is
½ G^{1}M + ⅛ V[MM − 4 K̃ yy + 2 n_L K̃K̃] with M = yy − n_L K̃⁻¹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.bayes._infinite import kernel_log_evidence
from dynagram.theory.bayes._solve import TrainingKernel, check_data, training_kernel
from dynagram.theory.bayes._terms import Coefficient, Dual, blocks_of, evaluate, evidence_terms


@dataclass(frozen=True, eq=False)
class LogEvidence:
    """log p(y_A | network): `infinite`, and at order "1/n" the `correction` multiplying 1/width.

    `width` is n_{L−1}. `numerical_error` bounds the error of the correction.
    """

    infinite: float
    correction: float
    width: int
    order: str
    numerical_error: float
    kernel: TrainingKernel

    @classmethod
    def at_order_one(
        cls, infinite: float, coefficient: Coefficient, width: int, kernel: TrainingKernel
    ) -> LogEvidence:
        """From the infinite-width value and the coefficient of 1/width."""
        value, error = float(coefficient.value), float(coefficient.error)
        return cls(infinite, value, width, "1/n", error, kernel)

    @property
    def value(self) -> float:
        """The log evidence at the actual width, to the order computed."""
        return self.infinite + self.correction / self.width


def log_evidence(
    network: MLP,
    x: object,
    y: object,
    *,
    order: str = "1/n",
    noise: float = 0.0,
    jitter: float = 0.0,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> LogEvidence:
    """log p(y_A | network): how probable the targets are before any training (6.34).

    Order "∞" costs N_A³; order "1/n" needs V of the training samples.

    >>> net = MLP([3, 20, 2], "linear", C_b=0.0, C_W=1.0)
    >>> x = np.sqrt(0.8) * np.ones((1, 3))                                  # K = 0.8
    >>> round(log_evidence(net, x, [[1.5, 0.5]]).correction, 6)             # Y = 2.5
    -1.808594
    """
    if order not in ("∞", "1/n"):
        raise InvalidValueError("order", order, "expected '∞' or '1/n'")
    inputs, targets = check_data(network, x, y)
    if order == "∞":
        K = frozen_kernels(network, inputs, layers="last").K[0]
        kernel = training_kernel(K, noise=noise, jitter=jitter, x=inputs, y=targets)
        infinite = kernel_log_evidence(kernel, targets)
        return LogEvidence(infinite, 0.0, network.widths[-2], "∞", 0.0, kernel)
    require_plain(network, "the evidence at order 1/n (take order '∞')")
    require_hidden_layer(network)
    prediction = predict(network, inputs, accuracy=accuracy, seed=seed)
    kernel = training_kernel(prediction["K"][-1], noise=noise, jitter=jitter, x=inputs, y=targets)
    coefficient = evaluate(
        evidence_terms(Dual.of(kernel, targets)),
        blocks_of(prediction["G1"][-1], prediction["V"][-1], inputs.shape[0]),
        blocks_of(prediction.errors["G1"][-1], prediction.errors["V"][-1], inputs.shape[0]),
    )
    infinite = kernel_log_evidence(kernel, targets)
    return LogEvidence.at_order_one(infinite, coefficient, network.widths[-2], kernel)


def log_bayes_factor(
    first: MLP,
    second: MLP,
    x: object,
    y: object,
    *,
    order: str = "1/n",
    noise: float = 0.0,
    jitter: float = 0.0,
) -> float:
    """log p(y | first) − log p(y | second): positive when the data prefer `first` (6.30).

    >>> x, y = np.array([[1.0, 0.4], [-0.3, 0.9]]), [1.0, -0.6]
    >>> shallow, deep = (MLP([2, *[50] * n, 1], "relu", C_b=0.0, C_W=2.0) for n in (1, 6))
    >>> round(log_bayes_factor(shallow, deep, x, y, order="∞"), 4)
    1.4487
    """
    one, two = (
        log_evidence(network, x, y, order=order, noise=noise, jitter=jitter)
        for network in (first, second)
    )
    return one.value - two.value


def log_predictive_density(
    network: MLP,
    x: object,
    y: object,
    test_x: object,
    test_y: object,
    *,
    order: str = "1/n",
    noise: float = 0.0,
    jitter: float = 0.0,
) -> float:
    """log p(y_B | y_A) = log p(y_A, y_B) − log p(y_A), the score of observed test targets.

    `noise` is on the test targets too. At order "1/n" each of the two is to that order.

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.3, C_W=1.4)
    >>> x, y = np.array([[1.0, 0.4], [-0.3, 0.9]]), [1.0, -0.6]
    >>> found = log_predictive_density(net, x, y, [[0.7, 0.8]], [0.4], order="∞", noise=0.25)
    >>> round(found, 6)                                   # N(0.4; 0.38416, 0.17287 + 0.25)
    -0.488886
    """
    inputs, targets = check_data(network, x, y)
    tests, test_targets = check_data(network, test_x, test_y)
    both = np.concatenate([inputs, tests]), np.concatenate([targets, test_targets])
    joint = log_evidence(network, *both, order=order, noise=noise, jitter=jitter)
    observed = log_evidence(network, inputs, targets, order=order, noise=noise, jitter=jitter)
    return joint.value - observed.value


def require_hidden_layer(network: MLP) -> None:
    """Refuse a network whose outputs are exactly Gaussian at any width."""
    if network.depth < 2:
        raise InvalidValueError(
            "widths", network.widths, "without a hidden layer there is no 1/n: use order '∞'"
        )
