"""The evidence of a network, log p(y_A | H), at infinite width (6.34) and to order 1/n.

Evidence is the probability of the training targets under random networks: it compares
hyperparameters without a validation set (6.29)-(6.31). Its order-1/n coefficient is
½ G^{1}M + ⅛ V[MM − 4 K̃ yy + 2 n_L K̃K̃] with M = yy − n_L K̃⁻¹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.networks._checks import checked_choice, require_plain
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.bayes._conditioning import kernel_log_evidence
from dynagram.theory.bayes._solve import TrainingKernel, training_kernel
from dynagram.theory.bayes._terms import Coefficient, Dual, blocks_of, evaluate, evidence_terms
from dynagram.training import Posterior

# Of the four-sample averages behind V, where the user asks for none.
ACCURACY = 1e-4


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

    @classmethod
    def of(
        cls,
        kernel: TrainingKernel,
        y: np.ndarray,
        width: int,
        coefficient: Coefficient | None = None,
    ) -> LogEvidence:
        """At infinite width, or with the coefficient of 1/width."""
        infinite = kernel_log_evidence(kernel, y)
        if coefficient is None:
            return cls(infinite, 0.0, width, "∞", 0.0)
        value, error = float(coefficient.value), float(coefficient.error)
        return cls(infinite, value, width, "1/n", error)

    @property
    def value(self) -> float:
        """The log evidence at the actual width, to the order computed."""
        return self.infinite + self.correction / self.width


def log_evidence(
    network: Network,
    data: Data,
    posterior: Posterior,
    *,
    order: str = "1/n",
    accuracy: float | None = None,
    seed: int = 0,
) -> LogEvidence:
    """log p(y_A | network): how probable the targets are before any training (6.34).

    **Arguments:**

    - `network`: an `MLP` or a `Chain`.
    - `data`: training inputs and targets; test inputs are not used.
    - `posterior`: the observation noise.
    - `order`: "1/n", which needs V of the training samples, or "infinite", which costs N_A³.
    - `accuracy`, `seed`: as in `predict`.

    **Returns:** `LogEvidence`; its `value` is a number.

    >>> from dynagram.networks import MLP
    >>> net = MLP([3, 20, 2], "linear", C_b=0.0, C_W=1.0)
    >>> data = Data(np.sqrt(0.8) * np.ones((1, 3)), [[1.5, 0.5]])           # K = 0.8, Y = 2.5
    >>> round(log_evidence(net, data, Posterior()).correction, 6)
    -1.808594
    """
    checked_choice("order", order, ("infinite", "1/n"))
    data.check(network)
    if order == "infinite":
        K = frozen_kernels(network, data.x, layers="last").K[0]
        kernel = training_kernel(K, posterior, x=data.x, y=data.y)
        return LogEvidence.of(kernel, data.y, network.width)
    require_vertex(network, "the evidence at order 1/n")
    accuracy = ACCURACY if accuracy is None else accuracy
    tensors = predict(network, data.x, accuracy=accuracy, seed=seed)
    kernel = training_kernel(tensors["K"][-1], posterior, x=data.x, y=data.y)
    samples = data.x.shape[0]
    coefficient = evaluate(
        evidence_terms(Dual.of(kernel, data.y)),
        blocks_of(tensors["G1"][-1], tensors["V"][-1], samples),
        blocks_of(tensors.errors["G1"][-1], tensors.errors["V"][-1], samples),
    )
    return LogEvidence.of(kernel, data.y, network.width, coefficient)


def log_bayes_factor(
    first: Network, second: Network, data: Data, posterior: Posterior, *, order: str = "1/n"
) -> float:
    """log p(y | first) − log p(y | second): positive when the data prefer `first` (6.30).

    **Arguments:**

    - `first`, `second`: two networks.
    - `data`, `posterior`, `order`: as in `log_evidence`.

    **Returns:** a number.

    >>> data = Data([[1.0, 0.4], [-0.3, 0.9]], [1.0, -0.6])
    >>> from dynagram.networks import MLP
    >>> shallow, deep = (MLP([2, *[50] * n, 1], "relu", C_b=0.0, C_W=2.0) for n in (1, 6))
    >>> round(log_bayes_factor(shallow, deep, data, Posterior(), order="infinite"), 4)
    1.4487
    """
    one, two = (
        log_evidence(network, data, posterior, order=order).value for network in (first, second)
    )
    return one - two


def log_predictive_density(
    network: Network, data: Data, posterior: Posterior, *, order: str = "1/n"
) -> float:
    """log p(y_B | y_A) = log p(y_A, y_B) − log p(y_A), the score of observed test targets.

    **Arguments:**

    - `network`, `posterior`: as in `log_evidence`; the noise is on the test targets too.
    - `data`: with `test_x` and `test_y`.
    - `order`: at "1/n" each of the two is to that order.

    **Returns:** a number.

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 50, 1], "tanh", C_b=0.3, C_W=1.4)
    >>> data = Data([[1.0, 0.4], [-0.3, 0.9]], [1.0, -0.6], [[0.7, 0.8]], [0.4])
    >>> score = log_predictive_density(net, data, Posterior(noise=0.25), order="infinite")
    >>> round(score, 6)                                   # N(0.4; 0.38416, 0.17287 + 0.25)
    -0.488886
    """
    if data.test_y is None:
        raise InvalidValueError("test_y", None, "the test targets are needed")
    both = Data(data.inputs, np.concatenate([data.y, data.test_y]))
    joint = log_evidence(network, both, posterior, order=order)
    observed = log_evidence(network, data, posterior, order=order)
    return joint.value - observed.value


def require_vertex(network: Network, what: str) -> None:
    """Refuse a network whose outputs are exactly Gaussian at any width, and one with skips."""
    if network.depth < 2:
        raise InvalidValueError(
            "depth",
            network.depth,
            "without a hidden layer infinite width is exact: no 1/n",
        )
    require_plain(network, what)
