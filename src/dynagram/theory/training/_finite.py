"""Fully trained networks of finite width: mean and covariance of their outputs to order 1/n.

z(T) over initialisations has the mean m^∞ + m^{1}/n_{L−1} (∞.160)-(∞.165) and the covariance
δ_ij 𝒦^∞ + 𝒞/n_{L−1}. The corrections hold for training to zero error by gradient descent at any
stable η, by gradient flow, or by the two-step algorithm. Derivation:
docs/derivations/trained-outputs.md (D1.10), (D1.14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.results._regime import Regime
from dynagram.results._spread import output_std
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._contraction import (
    Slots,
    Tensors,
    cubic_coefficients,
    linear_coefficients,
)
from dynagram.theory.training._covariance import Covariances, covariance_parts
from dynagram.theory.training._eigenbasis import Frame
from dynagram.theory.training._infinite import KernelTraining, from_problem
from dynagram.theory.training._mean import Means, mean_parts
from dynagram.theory.training._problem import Problem
from dynagram.theory.training._projectors import projectors
from dynagram.theory.training._regime import trained_regime
from dynagram.theory.training._tensors import OutputTensors, output_tensors


@dataclass(frozen=True, eq=False)
class TrainedPrediction:
    """Outputs of trained networks at infinite width and the coefficients of 1/n_{L−1}.

    `mean_parts` and `covariance_parts` add up to the corrections. `mean_error` and
    `covariance_error` are numerical standard errors of the corrections, zero where every average
    behind them is exact. Axes are (test, outputs) and (test, outputs, test, outputs).
    """

    network: MLP
    algorithm: Algorithm
    mean_infinite: Float[np.ndarray, "test outputs"]
    covariance_infinite: Float[np.ndarray, "test outputs test outputs"]
    mean_parts: Means
    covariance_parts: Covariances
    mean_error: Float[np.ndarray, "test outputs"]
    covariance_error: Float[np.ndarray, "test outputs test outputs"]
    regime: Regime

    @property
    def width(self) -> int:
        """n_{L−1}, which divides the corrections."""
        return self.network.widths[-2]

    @property
    def mean_correction(self) -> Float[np.ndarray, "test outputs"]:
        """m^{1}: everything that multiplies 1/n_{L−1} in the mean."""
        return _sum(self.mean_parts)

    @property
    def covariance_correction(self) -> Float[np.ndarray, "test outputs test outputs"]:
        """𝒞: everything that multiplies 1/n_{L−1} in the covariance."""
        return _sum(self.covariance_parts)

    @property
    def mean(self) -> Float[np.ndarray, "test outputs"]:
        """The mean at the actual width."""
        return self.mean_infinite + self.mean_correction / self.width

    @property
    def covariance(self) -> Float[np.ndarray, "test outputs test outputs"]:
        """The covariance at the actual width."""
        return self.covariance_infinite + self.covariance_correction / self.width

    @property
    def std(self) -> Float[np.ndarray, "test outputs"]:
        """Standard deviations at the actual width; nan where the order 1/n makes one negative."""
        return output_std(self.covariance)


def predict_trained(
    network: MLP,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
    accuracy: float | None = None,
    seed: int = 0,
) -> TrainedPrediction:
    """What networks trained to zero error on (train_x, train_y) output at `test_x`, to order 1/n.

    `algorithm` is "gd" with step `eta` (for L = ½ Σ (z − y)², below 2/λ_max of the training NTK),
    "flow" or "two-step". `accuracy` and `seed` are those of the four-sample averages; by default
    1e-4 up to ten samples and 0.015 beyond, where they are averages over quasi-random nodes, with
    what it leaves in the result reported. Needs a smooth activation: at a kink the expansion in
    the step size fails. Cost: the tensors of all N = N_A + N_B samples, then N⁵ multiply-adds in
    the eigenbasis of the training NTK; 16 + 16 samples, depth 4: half a minute and 1.4 GB; 64 + 64
    on an H200: two minutes, 14 GB and 78 GB of the GPU (`benchmarks/trained_size.py`). Memory:
    about 80 N⁴ numbers, half of that beyond 76 samples.

    >>> net = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
    >>> x, y, t = [[1.0, -0.4, 0.7]], [[0.9]], [[0.2, -1.3, 0.9]]
    >>> found = predict_trained(net, x, y, t, algorithm="flow")
    >>> found.mean_infinite.round(4), found.mean_correction.round(4), found.mean.round(4)
    (array([[0.7756]]), array([[0.0549]]), array([[0.7765]]))
    >>> found.regime.verdict
    'trust'
    """
    problem = Problem.checked(network, train_x, train_y, test_x)
    chosen = Algorithm.checked(algorithm, eta)
    _require_smooth(network)
    # What can be refused is refused before the tensors are computed.
    kernel = from_problem(problem, chosen)
    Frame.of(kernel.Theta, kernel.weights)
    return trained(problem, training_tensors(problem, accuracy=accuracy, seed=seed), chosen)


def training_tensors(
    problem: Problem, *, accuracy: float | None = None, seed: int = 0
) -> OutputTensors:
    """What the order 1/n needs and no algorithm or target changes: the costly part, done once."""
    _require_smooth(problem.network)
    if accuracy is None:
        accuracy = 1e-4 if problem.inputs.shape[0] <= 10 else 0.015
    return output_tensors(problem.network, problem.inputs, accuracy=accuracy, seed=seed)


def trained(problem: Problem, tensors: OutputTensors, algorithm: Algorithm) -> TrainedPrediction:
    """`predict_trained` from tensors made before: for several algorithms, step sizes or targets.

    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> problem = Problem.checked(net, [[1.0, 0.0]], [[1.0]], [[0.8, 0.6]])
    >>> tensors = training_tensors(problem)
    >>> for eta in (0.1, 0.8):
    ...     print(trained(problem, tensors, Algorithm("gd", eta)).mean_correction.round(4))
    [[0.0185]]
    [[-0.0175]]
    """
    network = problem.network
    Theta, K = tensors.frozen.Theta[-1], tensors.frozen.K[-1]
    kernel = KernelTraining(Theta, K, problem.train_y, problem.weights, algorithm, problem.notes)
    frame = Frame.of(Theta, problem.weights)
    y, K_frame = frame.basis @ problem.train_y, frame.turn(K)
    means, covariances, mean_error, covariance_error = parts_with_errors(
        tensors, lambda values: _parts(values, frame, algorithm, y, K_frame)
    )
    limit = kernel.at()
    regime = trained_regime(
        network, kernel, limit, means, covariances, mean_error, covariance_error, tensors.mode(0)
    )
    covariance = np.einsum("ts,ij->tisj", limit.covariance, np.eye(network.widths[-1]))
    return TrainedPrediction(
        network, algorithm, limit.mean, covariance, means, covariances, mean_error,
        covariance_error, regime,
    )  # fmt: skip


def _parts(
    tensors: Tensors, frame: Frame, algorithm: Algorithm, y: np.ndarray, K: np.ndarray
) -> tuple[Means, Covariances]:
    """The corrections of test outputs at the end of training."""
    z, n, slots = projectors(frame.h, algorithm), frame.directions, Slots.of(tensors, frame)
    linear, cubic = linear_coefficients(slots, z, y.shape[1]), cubic_coefficients(slots, z)
    return (
        mean_parts(slots, z, y, K[:n, :n], linear, cubic),
        covariance_parts(slots, z, y, K, linear, cubic),
    )


def parts_with_errors(
    tensors: OutputTensors, parts: Callable[[Tensors], tuple[Means, Covariances]]
) -> tuple[Means, Covariances, np.ndarray, np.ndarray]:
    """The parts from the tensors' values, and errors of both sums from their deviations."""
    value, *deviations = tensors.all_modes()
    means, covariances = parts(value)
    mean_square, covariance_square = np.zeros_like(_sum(means)), np.zeros_like(_sum(covariances))
    for deviation in deviations:
        moved_means, moved_covariances = parts(deviation)
        mean_square += _sum(moved_means) ** 2
        covariance_square += _sum(moved_covariances) ** 2
    return means, covariances, np.sqrt(mean_square), np.sqrt(covariance_square)


def _sum(parts: dict[str, np.ndarray]) -> np.ndarray:
    return np.sum(list(parts.values()), axis=0)


def _require_smooth(network: MLP) -> None:
    require_plain(network, "trained outputs at order 1/n")
    sigma = network.activation
    if network.depth < 2:
        raise InvalidValueError(
            "widths", network.widths, "without a hidden layer there is no 1/n: the network is "
            "linear in its parameters and its infinite-width prediction exact",
        )  # fmt: skip
    if not sigma.is_smooth:
        raise InvalidValueError(
            "activation", sigma.name, "the order 1/n of training needs σ'' and σ''': at a kink "
            "they are deltas, the expansion in the step size fails and the NTK of ReLU changes "
            "by 1/√n, not 1/n; use a smooth activation, or infinite width only",
        )  # fmt: skip
