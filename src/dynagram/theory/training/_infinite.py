"""Trained networks at infinite width: Gaussian outputs at every time (10.31), (10.40), (10.41).

The NTK is frozen, so that a squared error moves outputs by a linear map:
z_δ(τ) = z_δ − R_δA(τ) (z_A − y) with R = Θ_δA f(Θ̃), f(h) = [1 − (1 − ηh)^t]/h for t steps of
gradient descent, [1 − e^{−hτ}]/h for gradient flow, 1/h at the end and for Newton's single leap.
Over initialisations z ~ N(0, K): mean R y, covariance [−R 1] K [−R 1]ᵀ, the same for every output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.theory._kernels import FrozenKernels, frozen_kernels
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._step_sizes import StepSizes
from dynagram.training import Training
from dynagram.training._losses import half_sum_factor


@dataclass(frozen=True, eq=False)
class FrozenMoment:
    """Outputs on all samples, training ones first, at one moment of training with a frozen NTK.

    `mean` is R y. `response` is R: what a unit of error of each training sample takes off each
    output. `kept` is [−R 1], what is left of the initial outputs, without cancellation.
    """

    decay: Decay
    mean: Float[np.ndarray, "sample outputs"]
    response: Float[np.ndarray, "sample train"]
    kept: Float[np.ndarray, "sample sample"]
    K: Float[np.ndarray, "sample sample"]

    @cached_property
    def kernel(self) -> Float[np.ndarray, "sample sample"]:
        """The covariance of any one output over initialisations: manifestly positive."""
        return self.kept @ self.K @ self.kept.T

    def outputs(self, initial: Float[np.ndarray, "sample outputs"]) -> np.ndarray:
        """What initial outputs become: [−R 1] z + R y."""
        return self.kept @ initial + self.mean


@dataclass(frozen=True, eq=False)
class InfiniteTraining:
    """Training with a frozen NTK: Θ and K on the samples, training ones first, and the targets.

    `weights` count repeated training samples. Construction diagonalises the training block once
    (N_A³), and refuses a step size at which gradient descent diverges.

    >>> from dynagram.training import GradientFlow
    >>> Theta = np.array([[2.0, 0.5, 1.0], [0.5, 1.0, 0.2], [1.0, 0.2, 3.0]])
    >>> y, flow = np.array([[1.0], [-1.0]]), Training(GradientFlow())
    >>> training = InfiniteTraining(Theta, np.eye(3), y, np.ones(2), flow)
    >>> training.at(1.0).mean[2:].round(6), training.at().mean[2:].round(6)
    (array([[0.39686]]), array([[0.571429]]))
    """

    Theta: Float[np.ndarray, "sample sample"]
    K: Float[np.ndarray, "sample sample"]
    targets: Float[np.ndarray, "train outputs"]
    weights: Float[np.ndarray, " train"]
    how: Training

    def __post_init__(self) -> None:
        largest = float(self.eigenvalues[-1])
        if not largest > 0.0:
            raise InvalidValueError(
                "Theta", largest, "no positive eigenvalue on the training inputs: nothing can be "
                "learned; some lambda_b or lambda_W must be > 0",
            )  # fmt: skip
        eta = self.decay(self.how.end).eta
        if eta * largest >= 2.0:
            limit = self.step_sizes.largest
            raise InvalidValueError(
                "eta", self.how.eta, "gradient descent diverges: the largest eigenvalue of the "
                f"training NTK is {largest:.6g}, so the step size must be below "
                f"{_two_over(self.how.loss)} = {limit:.6g}",
            )  # fmt: skip

    @classmethod
    def of(
        cls, network: Network, data: Data, how: Training, *, frozen: FrozenKernels | None = None
    ) -> InfiniteTraining:
        """The training of `network` at infinite width; repeated training inputs are merged.

        `frozen` are its kernels on the distinct training inputs and the test inputs, where they
        have been computed. Cost: `frozen_kernels` on all samples and N_A³.
        """
        data.check(network)
        for sigma in network.activations():
            if sigma.jumps:
                allowed = "σ jumps: the NTK does not exist"
                raise InvalidValueError("activation", sigma.name, allowed)
        if frozen is None:
            frozen = frozen_kernels(network, distinct_inputs(data), layers="last")
        y, weights = data.merged.y, data.merged.weights
        return cls(frozen.Theta[-1], frozen.K[-1], y, weights, how)

    @cached_property
    def basis(self) -> Eigenbasis:
        """The eigenvectors of the training NTK, with multiplicities."""
        return Eigenbasis.of(self.Theta, self.weights)

    @property
    def eigenvalues(self) -> Float[np.ndarray, " direction"]:
        """Of the training NTK with multiplicities, smallest first."""
        return self.basis.h

    @property
    def rank(self) -> int:
        """Directions of the training set that training can move."""
        return int(np.sum(self.basis.alive))

    @cached_property
    def factor(self) -> float:
        """How many times ½ Σ (z − y)² the loss of `how` is."""
        samples = int(np.sum(self.weights))
        return half_sum_factor(self.how.loss, samples, self.targets.shape[1])

    @property
    def step_sizes(self) -> StepSizes:
        """Learning-rate limits and time constants, for the loss of `how`."""
        return StepSizes.of_eigenvalues(self.factor * self.eigenvalues[::-1])

    def decay(self, moment: float | int) -> Decay:
        """D at a moment of `how`: steps of gradient descent, a time of flow; ∞ is the end."""
        return Decay.of(self.how, moment, self.factor)

    def at(self, moment: float | int = np.inf) -> FrozenMoment:
        """Outputs at a moment of `how`, by default the end of training.

        Where the training NTK is rank deficient the end is the minimum-norm answer.
        """
        decay, (left, gain) = self.decay(moment), self._left_and_gain(moment)
        n, basis = self.weights.size, self.basis.basis
        dual = (basis.T * gain) @ basis
        response = self.Theta[:, :n] @ dual
        kept = np.eye(self.Theta.shape[0])
        kept[:n, :n] = (self.basis.inverse * left) @ basis
        kept[n:, :n] = -response[n:]
        mean = response @ self.targets
        # On training samples h f(h) = 1 − D(h): targets are met to the last digit.
        reached = np.where(self.basis.alive, self.basis.h * gain, 0.0)
        mean[:n] = self.basis.inverse @ (reached[:, None] * (basis @ self.targets))
        return FrozenMoment(decay, mean, response, kept, self.K)

    def dual(self, moment: float | int = np.inf) -> Float[np.ndarray, "train train"]:
        """f(Θ̃): what turns initial errors into coefficients of the kernel, R = Θ_δA f(Θ̃)."""
        _, gain = self._left_and_gain(moment)
        return (self.basis.basis.T * gain) @ self.basis.basis

    def _left_and_gain(self, moment: float | int) -> tuple[np.ndarray, np.ndarray]:
        """D(h) and f(h); directions without an eigenvalue do not move."""
        decay, alive = self.decay(moment), self.basis.alive
        gain = decay.gain(np.where(alive, self.basis.h, 1.0))
        still = 0.0 if decay.at_end else decay.time
        left = decay(np.where(alive, self.basis.h, 0.0))
        return left, np.where(alive, gain, still)


def distinct_inputs(data: Data) -> Float[np.ndarray, "sample n_0"]:
    """The distinct training inputs, then the test inputs."""
    return np.concatenate([data.merged.x, data.test_x])


def _two_over(loss: str) -> str:
    return "2/λ_max" if loss == "half-sum" else "N n_L/λ_max"
