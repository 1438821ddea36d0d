"""Outputs in time for losses and optimisers without closed forms, at infinite width and at 1/n."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagram.data import Data
from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.results._estimate import Estimate
from dynagram.results._outputs import Outputs
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._dynamics import (
    PARTS,
    Answers,
    FiniteWidth,
    FrozenMoments,
    frozen_moments,
)
from dynagram.theory.training._infinite import distinct_inputs
from dynagram.theory.training._kernel_change import kernel_estimates
from dynagram.theory.training._learning_curves import learning_curves
from dynagram.theory.training._optimisers import Optimiser
from dynagram.theory.training._outputs import default_accuracy, require_smooth
from dynagram.theory.training._path_problem import PathProblem, Targets
from dynagram.theory.training._path_regime import path_regime
from dynagram.theory.training._tensors import OutputTensors, modes_for, output_tensors
from dynagram.training import Training
from dynagram.training._losses import check_loss_targets

# Factors of the covariances of N² pairs cost N⁶: minutes at this size, hours at twice as much.
_MOST_SAMPLES = 64


def path_outputs(
    network: Network, data: Data, how: Training, *, order: str, accuracy: float | None, seed: int
) -> Outputs:
    """Mean and covariance at every recorded moment, for any loss and optimiser that closes.

    `order` is "∞" or "1/n". Cost and memory at order 1/n: the tensors of all samples, then
    `FiniteWidth`. Three classes, 16 + 16 samples, depth 4 and 100 steps: a minute and a half of
    CPU and 1.7 GB.
    """
    check_path(network, data, how)
    inputs, trained = distinct_inputs(data), network.with_fixed(how.fixed)
    distinct, place = find_distinct(inputs)
    if order == "1/n":
        require_smooth(network)
        modes_for(distinct.size)
        if distinct.size > _MOST_SAMPLES:
            allowed = (
                f"at most {_MOST_SAMPLES} training and test inputs where no closed form exists"
            )
            raise InvalidValueError("number of samples", distinct.size, allowed)
    frozen = frozen_kernels(trained, inputs[distinct])
    n = data.merged.x.shape[0]
    test = None if data.test_y is None else Targets(data.test_y, place[n:])
    problem = PathProblem(
        frozen.Theta[-1], frozen.K[-1], n, Targets(data.y, data.merged.place), test,
        how.loss, Optimiser.of(how), how.recorded, how.batch, seed,
    )  # fmt: skip
    limit = frozen_moments(problem)
    shared: dict[str, Any] = {
        "network": network,
        "how": how,
        "order": order,
        "times": how.times,
        "x": inputs,
        "training_samples": n,
        "infinite_mean": limit.mean.value[:, place],
        "infinite_covariance": limit.covariance.value[:, place][:, :, :, place],
        "seed": seed,
        "notes": data.merged.notes,
    }
    if order == "∞":
        return Outputs(
            **shared,
            regime=path_regime(network, problem, limit, None),
            mean_errors=limit.mean.error[:, place],
            covariance_errors=limit.covariance.error[:, place][:, :, :, place],
            estimates=learning_curves(problem, limit, None, network.width),
        )
    if accuracy is None:
        accuracy = default_accuracy(distinct.size)
    tensors = output_tensors(trained, inputs[distinct], frozen, accuracy=accuracy, seed=seed)
    answers, deviation = _answers(problem, limit, tensors)
    errors = [
        np.sqrt(infinite.error**2 + (np.hypot(finite.error, extra) / network.width) ** 2)
        for infinite, finite, extra in zip(
            (limit.mean, limit.covariance), (answers.mean, answers.covariance), deviation,
            strict=True,
        )
    ]  # fmt: skip
    return Outputs(
        **shared,
        regime=path_regime(network, problem, limit, answers),
        parts_of_mean={name: answers.means[name][:, place] for name in PARTS},
        parts_of_covariance={
            name: answers.covariances[name][:, place][:, :, :, place] for name in PARTS
        },
        mean_errors=errors[0][:, place],
        covariance_errors=errors[1][:, place][:, :, :, place],
        estimates=learning_curves(problem, limit, answers, network.width)
        | _kernels(problem, tensors, answers, place, network.width),
    )


def check_path(network: Network, data: Data, how: Training) -> None:
    """Refuse what has no closed equations, or no end."""
    data.check(network)
    Optimiser.of(how)
    if how.reaches_the_end:
        length = "a time" if how.is_flow else "steps"
        allowed = f"{how.name} on {how.loss} has no known end: give {length}"
        raise InvalidValueError("steps" if not how.is_flow else "time", math.inf, allowed)
    check_loss_targets(how.loss, data.y)
    for sigma in network.activations():
        if sigma.jumps:
            allowed = "σ jumps: the NTK does not exist"
            raise InvalidValueError("activation", sigma.name, allowed)
    listed = how.batch if isinstance(how.batch, tuple) else ()
    largest = max((sample + 1 for batch in listed for sample in batch), default=how.batch_size or 0)
    if largest > len(data.x):
        raise InvalidValueError("batch", how.batch, f"there are {len(data.x)} samples")


def _answers(
    problem: PathProblem, limit: FrozenMoments, tensors: OutputTensors
) -> tuple[Answers, tuple[np.ndarray, np.ndarray]]:
    """The answers, and the errors that those of the tensors leave in mean and covariance."""
    finite = FiniteWidth(problem, limit)
    answers = finite(tensors.mode(0))
    squares = (np.zeros_like(answers.mean.value), np.zeros_like(answers.covariance.value))
    for index, mode in enumerate(tensors.all_modes()):
        if index == 0:
            continue
        deviation = finite(mode, scramblings=1)
        for square, part in zip(squares, (deviation.mean, deviation.covariance), strict=True):
            square += part.value**2
    return answers, (np.sqrt(squares[0]), np.sqrt(squares[1]))


def _kernels(
    problem: PathProblem, tensors: OutputTensors, answers: Answers, place: np.ndarray, width: int
) -> dict[str, Estimate]:
    """The mean NTK of the test inputs, of training inputs where there are none."""
    n, scramblings = problem.training_samples, len(answers.coefficients["aa"])
    groups = [{k: v[g] for k, v in answers.coefficients.items()} for g in range(scramblings)]
    rows = place[n:] if place.size > n else place[:n]
    return kernel_estimates(tensors, groups, problem.Theta, rows, width)
