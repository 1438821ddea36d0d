"""Trained networks at infinite width: Gaussian outputs at every time (10.31), (10.40), (10.41).

The NTK is frozen, so that the loss ½ Σ (z − y)² moves outputs by a linear map:
z_δ(τ) = z_δ − R_δA(τ) (z_A − y) with R = Θ_δA f(Θ̃), f(h) = [1 − (1 − ηh)^t]/h for t steps of
gradient descent, [1 − e^{−hτ}]/h for gradient flow, 1/h at the end and for Newton's single leap.
Over initialisations z ~ N(0, K): mean R y, covariance [−R 1] K [−R 1]ᵀ, the same for every output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, checked_number
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._algorithms import Algorithm, StepSizes, checked_steps, step_sizes
from dynagram.theory.training._eigenbasis import SINGULAR
from dynagram.theory.training._problem import Problem


@dataclass(frozen=True, eq=False)
class TrainedGaussian:
    """Outputs of trained networks at infinite width, order "∞"; outputs are independent.

    `response` is R: what a unit of error of each training sample takes off each test output.
    `covariance` is that of any one output. `time` is τ = η·steps, ∞ at the end of training.
    `unreachable` is how far the mean stays from the targets at the end: 0 unless the training NTK
    is rank deficient or targets of equal inputs differ.
    """

    mean: Float[np.ndarray, "test outputs"]
    covariance: Float[np.ndarray, "test test"]
    train_mean: Float[np.ndarray, "train outputs"]
    train_covariance: Float[np.ndarray, "train train"]
    response: Float[np.ndarray, "test train"]
    time: float
    unreachable: float
    notes: tuple[str, ...]

    @property
    def std(self) -> Float[np.ndarray, " test"]:
        """Standard deviation over initialisations of any one output at each test point."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))


@dataclass(frozen=True, eq=False)
class KernelTraining:
    """Training with a frozen NTK: Θ and K on the samples, training ones first, and the targets.

    `weights` count repeated training samples. Made by `infinite_training`, or from any two
    kernels. Construction diagonalises the training block: N_A³.

    >>> Theta = np.array([[2.0, 0.5, 1.0], [0.5, 1.0, 0.2], [1.0, 0.2, 3.0]])
    >>> y, flow = np.array([[1.0], [-1.0]]), Algorithm("flow")
    >>> kernel = KernelTraining(Theta, np.eye(3), y, np.ones(2), flow)
    >>> kernel.at(time=1.0).mean.round(6), kernel.at().mean.round(6)
    (array([[0.39686]]), array([[0.571429]]))
    """

    Theta: Float[np.ndarray, "sample sample"]
    K: Float[np.ndarray, "sample sample"]
    targets: Float[np.ndarray, "train outputs"]
    weights: Float[np.ndarray, " train"]
    algorithm: Algorithm
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        largest = float(self.eigenvalues[-1])
        if not largest > 0.0:
            raise InvalidValueError(
                "Theta", largest, "no positive eigenvalue on the training inputs: nothing can be "
                "learned; some lambda_b or lambda_W must be > 0",
            )  # fmt: skip
        self.algorithm.check_stable(largest)

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of √w Θ √w and Eᵀ√w."""
        n, root = self.weights.size, np.sqrt(self.weights)
        h, vectors = np.linalg.eigh(root[:, None] * self.Theta[:n, :n] * root)
        return h, vectors.T * root

    @property
    def eigenvalues(self) -> Float[np.ndarray, " direction"]:
        """Of the training NTK with multiplicities, smallest first."""
        return self._spectrum[0]

    @property
    def rank(self) -> int:
        """Directions of the training set that training can move."""
        return int(np.sum(self.eigenvalues > SINGULAR * self.eigenvalues[-1]))

    @property
    def step_sizes(self) -> StepSizes:
        """Learning-rate limits and time constants."""
        root = np.sqrt(self.weights)
        n = root.size
        return step_sizes(root[:, None] * self.Theta[:n, :n] * root)

    def at(
        self, *, steps: float | int | None = None, time: float | int | None = None
    ) -> TrainedGaussian:
        """The outputs after `steps` of gradient descent, or at `time` τ of gradient flow.

        Without either, at the end of training. Where the training NTK is rank deficient the end
        is the minimum-norm answer, and a note says so.
        """
        tau, dual = self._dual(steps, time)
        n = self.weights.size
        response = self.Theta[:, :n] @ dual
        train, test = response[:n], response[n:]
        # [−R 1] on training and test samples: manifestly positive.
        change = np.eye(self.Theta.shape[0])
        change[:, :n] -= response
        covariance = change @ self.K @ change.T
        notes, unreachable = list(self.notes), 0.0
        if math.isinf(tau):
            unreachable = float(np.max(np.abs(train @ self.targets - self.targets)))
            if self.rank < n:
                notes.append(
                    f"the training NTK has rank {self.rank} of {n}: minimum-norm answer, the mean "
                    f"stays {unreachable:.3g} away from the targets"
                )
        return TrainedGaussian(
            test @ self.targets, covariance[n:, n:], train @ self.targets, covariance[:n, :n],
            test, tau, unreachable, tuple(notes),
        )  # fmt: skip

    def dual(
        self, *, steps: float | int | None = None, time: float | int | None = None
    ) -> Float[np.ndarray, "train train"]:
        """f(Θ̃): what turns initial errors into coefficients of the kernel, R = Θ_δA f(Θ̃)."""
        return self._dual(steps, time)[1]

    def _dual(
        self, steps: float | int | None, time: float | int | None
    ) -> tuple[float, np.ndarray]:
        """τ and f(Θ̃)."""
        h, basis = self._spectrum
        tau, gains = self._gains(h, steps, time)
        return tau, (basis.T * gains) @ basis

    def _gains(
        self, h: np.ndarray, steps: float | int | None, time: float | int | None
    ) -> tuple[float, np.ndarray]:
        """τ and f(h)."""
        name, eta = self.algorithm.name, self.algorithm.eta
        if steps is not None and name != "gd":
            raise InvalidValueError("steps", steps, f"the algorithm {name!r} has no steps")
        if time is not None and name != "flow":
            raise InvalidValueError("time", time, f"only 'flow' takes a time, this is {name!r}")
        alive = h > SINGULAR * h[-1]
        if name == "gd" and steps is not None and math.isfinite(count := checked_steps(steps)):
            assert eta is not None
            # 1 − (1 − ηh)^t without cancellation; ηh may exceed 1, where the power alternates.
            slow = eta * h < 1.0
            with np.errstate(divide="ignore", invalid="ignore"):
                small = -np.expm1(count * np.log1p(np.where(slow, -eta * h, 0.0)))
            decided = np.where(slow, small, 1.0 - (1.0 - eta * h) ** count)
            return eta * count, np.where(alive, decided / np.where(alive, h, 1.0), eta * count)
        if name == "flow" and time is not None and math.isfinite(time):
            tau = checked_number("time", time, "a time must be ≥ 0")
            gains = -np.expm1(-tau * h) / np.where(alive, h, 1.0)
            return tau, np.where(alive, gains, tau)
        return math.inf, np.where(alive, 1.0 / np.where(alive, h, 1.0), 0.0)


def infinite_training(
    network: MLP,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
) -> KernelTraining:
    """The training of `network` at infinite width, to be asked `.at(steps=…)` or `.at()`.

    `algorithm` is "gd" (with `eta`), "flow" or "two-step", which at infinite width is Newton's
    one leap and is asked only for the end. All algorithms end at the same outputs (10.35). Cost:
    `frozen_kernels` on all samples and N_A³. Repeated training inputs are merged.

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0], [-1.0]])
    >>> run = infinite_training(net, x, y, np.array([[1.0, 0.5]]), algorithm="gd", eta=0.2)
    >>> run.at(steps=10).mean.round(4), run.at().mean.round(4), run.at().std.round(4)
    (array([[0.3776]]), array([[0.5083]]), array([0.1631]))
    """
    problem = Problem.checked(network, train_x, train_y, test_x)
    return from_problem(problem, Algorithm.checked(algorithm, eta))


def from_problem(problem: Problem, algorithm: Algorithm) -> KernelTraining:
    """The infinite-width training of a checked problem."""
    if problem.network.activation.jumps:
        raise InvalidValueError(
            "activation", problem.network.activation.name, "σ jumps: the NTK does not exist"
        )
    found = frozen_kernels(problem.network, problem.inputs, layers="last")
    return KernelTraining(
        found.Theta[-1], found.K[-1], problem.train_y, problem.weights, algorithm, problem.notes
    )
