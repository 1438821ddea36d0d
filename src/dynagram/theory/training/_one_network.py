"""What training makes of one given network: from its own NTK, and from its dNTK and ddNTKs too.

The infinite-width formulas hold for a single network with its own NTK Ĥ up to O(1/n) (∞.93). With
its dNTK and ddNTKs the fully trained output is known to higher order (∞.141), (∞.154). Output and
sample are one index here, since Ĥ mixes outputs, and the projectors are those of Ĥ itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.networks import Model
from dynagram.observables.tangents._ddntk import ddntk
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Frame
from dynagram.theory.training._infinite import KernelTraining
from dynagram.theory.training._problem import Problem
from dynagram.theory.training._projectors import (
    Projectors,
    finite_time_projectors,
    projectors,
)


@dataclass(frozen=True, eq=False)
class NetworkPrediction:
    """Outputs of one network: before training, after it by its own NTK, and with differentials.

    `parts` holds what "dNTK", "ddI" and "ddII" add to `linearised`; `output` is the sum.
    """

    initial: Float[np.ndarray, "test outputs"]
    linearised: Float[np.ndarray, "test outputs"]
    parts: dict[str, Float[np.ndarray, "test outputs"]]

    @property
    def output(self) -> Float[np.ndarray, "test outputs"]:
        """The prediction (∞.154)."""
        return self.linearised + np.sum(list(self.parts.values()), axis=0)


@float64
def linearised_output(
    model: Model,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
    steps: float | int | None = None,
    time: float | int | None = None,
) -> Float[np.ndarray, "test outputs"]:
    """The test outputs of one network after training, by its own frozen NTK (∞.84)-(∞.93).

    `steps` of gradient descent or a `time` of flow, else the end of training. Error O(1/n): the
    NTK moves. Any activation with an NTK. Cost: `ntk` on all samples and (N_A n_L)³.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> x, y = np.eye(2), np.array([[1.0], [-1.0]])
    >>> linearised_output(model, x, y, x, eta=0.3).round(6)           # trained: the targets
    array([[ 1.], [-1.]])
    """
    problem, kernel, z = own_kernel(model, train_x, train_y, test_x, algorithm, eta)
    found = kernel.at(steps=steps, time=time)
    error = z[: problem.train_x.shape[0]] - problem.train_y
    trained = z[problem.train_x.shape[0] :].reshape(-1) - found.response @ error.reshape(-1)
    return trained.reshape(-1, model.network.output_size)


@float64
def trained_output(
    model: Model,
    train_x: object,
    train_y: object,
    test_x: object,
    *,
    algorithm: str = "gd",
    eta: float | int | None = None,
    steps: float | int | None = None,
    time: float | int | None = None,
) -> NetworkPrediction:
    """The test outputs of this very network after training, from its own differentials (∞.154).

    After `steps` of gradient descent or a `time` of flow, else at the end. The network must be
    wide enough for training to end near its start: the error falls faster than n^{-3/2}. Refuses
    kinked activations. Cost: `ddntk` on all samples, (N n_L)³ n_ℓ n_{ℓ−1} and (N n_L)⁴ n_ℓ;
    memory 2(N n_L)⁴ numbers.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 256, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> x, y = np.eye(2), np.array([[0.5], [-0.5]])
    >>> trained = trained_output(model, x, y, x + 0.3, eta=0.3)
    >>> trained.output.shape, sorted(trained.parts)
    ((2, 1), ['dNTK', 'ddI', 'ddII'])
    """
    check_differentiable(model.network, 3, "the expansion in the step size behind (∞.154)")
    problem, kernel, z = own_kernel(model, train_x, train_y, test_x, algorithm, eta)
    train, outputs = problem.train_x.shape[0], model.network.output_size
    frame = Frame.of(kernel.Theta, kernel.weights)
    found = kernel.at(steps=steps, time=time)
    error = (z[:train] - problem.train_y).reshape(-1)
    e = frame.basis @ error
    differentials = {
        "dNTK": frame.turn(_flat(np.asarray(dntk(model, problem.inputs)))),
        **{
            name: frame.turn(_flat(np.asarray(part)))
            for name, part in zip(("ddI", "ddII"), ddntk(model, problem.inputs), strict=True)
        },
    }
    if math.isinf(found.time):
        parts = _moved(differentials, frame, "t", e, projectors(frame.h, kernel.algorithm))
    else:
        decay = Decay.checked(kernel.algorithm, steps, time)
        parts, inner = (
            _moved(differentials, frame, row, e, finite_time_projectors(frame.h, decay, start))
            for row, start in (("t", np.zeros(1)), ("a", frame.h))
        )
        n = kernel.weights.size
        carried = kernel.Theta[n:, :n] @ frame.basis.T / frame.h
        parts = {name: part + carried @ inner[name] for name, part in parts.items()}
    linearised = z[train:] - (found.response @ error).reshape(-1, outputs)
    shaped = {name: part.reshape(-1, outputs) for name, part in parts.items()}
    return NetworkPrediction(z[train:], linearised, shaped)


def _moved(
    differentials: dict[str, np.ndarray], frame: Frame, row: str, e: np.ndarray, Z: Projectors
) -> dict[str, np.ndarray]:
    """What the differentials add to the outputs of `row`, "t" test or "a" training (∞.154)."""

    def slots(name: str, pattern: str) -> np.ndarray:
        return differentials[name][frame.split(pattern.replace("t", row))]

    return {
        "dNTK": np.einsum("atb,tab,a,b->t", slots("dNTK", "ata"), Z.Z_A, e, e)
        + np.einsum("tab,tab,a,b->t", slots("dNTK", "taa"), Z.Z_B, e, e),
        "ddI": np.einsum("atbc,tabc,a,b,c->t", slots("ddI", "ataa"), Z.Z_IA, e, e, e)
        + np.einsum("tabc,tabc,a,b,c->t", slots("ddI", "taaa"), Z.Z_IB, e, e, e),
        "ddII": np.einsum("abtc,tabc,a,b,c->t", slots("ddII", "aata"), Z.Z_IIA, e, e, e)
        + np.einsum("tabc,tabc,a,b,c->t", slots("ddII", "taaa"), Z.Z_IIB, e, e, e),
    }


def own_kernel(
    model: Model, train_x: object, train_y: object, test_x: object,
    algorithm: str, eta: float | int | None,
) -> tuple[Problem, KernelTraining, np.ndarray]:  # fmt: skip
    """The problem, its training by the network's own NTK, (sample, output) one index, outputs."""
    problem = Problem.checked(model.network, train_x, train_y, test_x)
    H = _flat(np.asarray(ntk(model, problem.inputs), dtype=np.float64))
    targets = problem.train_y.reshape(-1, 1)
    weights = np.repeat(problem.weights, model.network.output_size)
    chosen = Algorithm.checked(algorithm, eta)
    kernel = KernelTraining(H, np.zeros_like(H), targets, weights, chosen, problem.notes)
    return problem, kernel, np.asarray(model(problem.inputs), dtype=np.float64)


def _flat(tensor: np.ndarray) -> np.ndarray:
    """[a, b, …, i, j, …] with (a, i), (b, j), … as single indices, samples slowest."""
    slots = tensor.ndim // 2
    order = [axis for slot in range(slots) for axis in (slot, slots + slot)]
    size = tensor.shape[0] * tensor.shape[-1]
    return tensor.transpose(order).reshape([size] * slots)
