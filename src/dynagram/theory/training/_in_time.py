"""Outputs at every time of training: mean and covariance to order 1/n, from (∞.81)-(∞.130).

In the training frame a row has a rate r, its own h for a training direction and 0 for the bracket
of a test output, and of its initial output D(r) is left. The corrections are those of the end of
training with time-dependent projectors, for all rows at once. A test output is its bracket plus
Θ_β Θ̃⁻¹ times the training outputs. Derivation: docs/derivations/trained-outputs.md (D1).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._contraction import (
    Slots,
    Tensors,
    cubic_coefficients,
    linear_coefficients,
)
from dynagram.theory.training._covariance import Covariances, covariance_parts
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Frame
from dynagram.theory.training._finite import (
    TrainedPrediction,
    parts_with_errors,
    training_tensors,
)
from dynagram.theory.training._infinite import KernelTraining, from_problem
from dynagram.theory.training._mean import Means, Targets, mean_parts
from dynagram.theory.training._problem import Problem
from dynagram.theory.training._projectors import Projectors, finite_time_projectors
from dynagram.theory.training._regime import trained_regime
from dynagram.theory.training._tensors import OutputTensors


@dataclass(frozen=True, eq=False)
class TrainedInTime:
    """Outputs at the time τ = η·steps, at infinite width and the coefficients of 1/n_{L−1}.

    `samples` holds the training samples (repeated ones merged), then the test samples, with the
    covariances between both; `train` and `test` are its blocks. The regime judges test outputs.
    """

    time: float
    samples: TrainedPrediction
    number_of_training_samples: int

    @property
    def train(self) -> TrainedPrediction:
        """Training outputs, which fluctuate until the end."""
        return _restricted(self.samples, slice(None, self.number_of_training_samples))

    @property
    def test(self) -> TrainedPrediction:
        """Test outputs."""
        return _restricted(self.samples, slice(self.number_of_training_samples, None))


def predict_in_time(
    network: MLP,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
    steps: float | int | None = None,
    time: float | int | None = None,
    accuracy: float | None = None,
    seed: int = 0,
) -> TrainedInTime:
    """What networks output after `steps` of gradient descent or a `time` τ of flow, to order 1/n.

    The rest is as in `predict_trained`, which gives the end. Cost: that of `predict_trained`, and
    N_A³ N scalars of the projectors with a 2×2 matrix each.

    >>> net = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
    >>> x, y, t = [[1.0, -0.4, 0.7]], [[0.9]], [[0.2, -1.3, 0.9]]
    >>> found = predict_in_time(net, x, y, t, eta=0.2, steps=5)
    >>> found.test.mean.round(4), found.test.std.round(4), found.train.std.round(4)
    (array([[0.7386]]), array([[0.5295]]), array([[0.0399]]))
    """
    problem = Problem.checked(network, train_x, train_y, test_x)
    chosen = Algorithm.checked(algorithm, eta)
    # What can be refused is refused before the tensors are computed.
    Decay.checked(chosen, steps, time)
    kernel = from_problem(problem, chosen)
    Frame.of(kernel.Theta, kernel.weights)
    tensors = training_tensors(problem, accuracy=accuracy, seed=seed)
    return trained_in_time(problem, tensors, chosen, steps=steps, time=time)


def trained_in_time(
    problem: Problem,
    tensors: OutputTensors,
    algorithm: Algorithm,
    *,
    steps: float | int | None = None,
    time: float | int | None = None,
) -> TrainedInTime:
    """`predict_in_time` from `training_tensors` made before: for several times or algorithms.

    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> problem = Problem.checked(net, [[1.0, 0.0]], [[1.0]], [[0.8, 0.6]])
    >>> tensors = training_tensors(problem)
    >>> for t in (0.5, 2.0, 50.0):
    ...     now = trained_in_time(problem, tensors, Algorithm("flow"), time=t)
    ...     test, train = now.test, now.train
    ...     print(test.mean_infinite.round(4), test.mean_correction.round(4),
    ...           train.mean_correction.round(4), test.covariance_correction.round(4).ravel())
    [[0.6136]] [[-0.0634]] [[-0.0639]] [0.0335]
    [[0.9163]] [[-0.0404]] [[-0.0566]] [-0.0356]
    [[0.9286]] [[0.0146]] [[-0.]] [-0.0347]
    """
    decay = Decay.checked(algorithm, steps, time)
    Theta, K = tensors.frozen.Theta[-1], tensors.frozen.K[-1]
    kernel = KernelTraining(Theta, K, problem.train_y, problem.weights, algorithm, problem.notes)
    frame = Frame.of(Theta, problem.weights)
    n, test = frame.directions, slice(frame.directions, None)
    y, K_frame = frame.basis @ problem.train_y, frame.turn(K)
    z = projectors_of_all_rows(frame, decay)
    means, covariances, mean_error, covariance_error = parts_with_errors(
        tensors, lambda values: parts_in_time(values, frame, z, y, K_frame)
    )
    regime = trained_regime(
        problem.network, kernel, kernel.at(steps=steps, time=time),
        {name: part[test] for name, part in means.items()},
        {name: part[test, :, test] for name, part in covariances.items()},
        mean_error[test], covariance_error[test, :, test], tensors.mode(0),
    )  # fmt: skip
    # 1 − D(h) = −h D[0, h], without cancellation.
    moved = -frame.h * decay(np.zeros(n), frame.h)
    back = np.linalg.inv(frame.rows)
    kept = back * z.kept
    samples = TrainedPrediction(
        problem.network, algorithm, back[:, :n] @ (moved[:, None] * y),
        np.einsum("ts,ij->tisj", kept @ K_frame @ kept.T, np.eye(y.shape[1])),
        means, covariances, mean_error, covariance_error, regime,
    )  # fmt: skip
    return TrainedInTime(decay.time, samples, n)


def projectors_of_all_rows(frame: Frame, decay: Decay) -> Projectors:
    """Those of every direction, then those of brackets, which share theirs, once for each."""
    z = finite_time_projectors(frame.h, decay, np.append(frame.h, 0.0))
    place = np.minimum(np.arange(frame.rows.shape[0]), frame.directions)
    fields = dataclasses.fields(Projectors)
    return Projectors(*(getattr(z, field.name)[place] for field in fields))


def parts_in_time(
    tensors: Tensors,
    frame: Frame,
    z: Projectors,
    y: Targets,
    K: Float[np.ndarray, "slot slot"],
) -> tuple[Means, Covariances]:
    """The corrections on all samples; `y` and the output kernel `K` in the frame."""
    slots, n = Slots.of(tensors, frame, row="*"), frame.directions
    linear, cubic = linear_coefficients(slots, z, y.shape[1]), cubic_coefficients(slots, z)
    means = mean_parts(slots, z, y, K[:n, :n], linear, cubic)
    covariances = covariance_parts(slots, z, y, K, linear, cubic)
    # From rows to samples: brackets get their Θ_β Θ̃⁻¹ z_A back.
    back = np.linalg.inv(frame.rows)
    spread = {
        name: np.einsum("ut,tisj,vs->uivj", back, part, back, optimize=True)
        for name, part in covariances.items()
    }
    return {name: back @ part for name, part in means.items()}, spread


def _restricted(prediction: TrainedPrediction, kept: slice) -> TrainedPrediction:
    """The prediction for some of its samples."""
    covariances = prediction.covariance_parts.items()
    return dataclasses.replace(
        prediction,
        mean_infinite=prediction.mean_infinite[kept],
        covariance_infinite=prediction.covariance_infinite[kept, :, kept],
        mean_parts={name: part[kept] for name, part in prediction.mean_parts.items()},
        covariance_parts={name: part[kept, :, kept] for name, part in covariances},
        mean_error=prediction.mean_error[kept],
        covariance_error=prediction.covariance_error[kept, :, kept],
    )
