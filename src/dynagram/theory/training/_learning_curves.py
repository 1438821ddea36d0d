"""Losses and accuracies in time over networks, at infinite width and to order 1/n."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from dynagram.results._estimate import Estimate
from dynagram.theory.training._dynamics import Answers, FrozenMoments
from dynagram.theory.training._path_problem import PathProblem, Targets
from dynagram.theory.training._path_statistics import Statistics, group_averages

_SETS = ("loss", "test_loss")


def learning_curves(
    problem: PathProblem,
    limit: FrozenMoments,
    answers: Answers | None,
    width: int,
) -> dict[str, Estimate]:
    """By name, the mean loss of the training and of the test set and its spread over networks.

    "loss" and "test_loss" with "_std" are at the order of the prediction, those with "_infinite"
    at infinite width; of classes there are "accuracy" and "test_accuracy" as well. At order 1/n
    an accuracy is that of outputs whose mean and covariance are corrected sample by sample: it is
    not smooth in the outputs, and has no expansion of its own.
    """
    curves: dict[str, Estimate] = {}
    for index, name in enumerate(_SETS[: limit.loss.value.shape[1]]):
        mean, variance = _column(limit.loss, index), _column(limit.loss_variance, index)
        if answers is None:
            curves |= _named(name, mean, variance)
            continue
        curves |= _named(f"{name}_infinite", mean, variance)
        mean = mean + _scaled(_column(answers.loss, index), width)
        variance = variance + _scaled(_column(answers.loss_variance, index), width)
        named = _named(name, mean, variance)
        if problem.is_polynomial:  # of degree six, which the rule for a squared error misses
            named.pop(f"{name}_std")
        curves |= named
    labels = [_labels(problem.loss, targets) for targets in (problem.train, problem.test)]
    for name, sets in zip(("accuracy", "test_accuracy"), labels, strict=True):
        if sets is None:
            continue
        curves[name if answers is None else f"{name}_infinite"] = _accuracy(
            limit, limit.paths, *sets
        )
        if answers is not None:
            moved = corrected_paths(limit, answers, width)
            curves[name] = _accuracy(limit, moved, *sets)
    return curves


def corrected_paths(
    limit: FrozenMoments, answers: Answers, width: int
) -> Float[np.ndarray, "node time sample outputs"]:
    """Frozen paths moved, sample by sample, to mean and covariance at order 1/n.

    With C and C' the covariances of a sample's outputs at infinite width and at this width,
    z → m' + C'^{1/2} C^{−1/2} (z − m). NaN where the order 1/n makes C' indefinite.
    """
    count = limit.paths.shape[2]
    every = np.arange(count)
    old = limit.covariance.value[:, every, :, every, :].transpose(1, 0, 2, 3)
    shift = answers.covariance.value[:, every, :, every, :].transpose(1, 0, 2, 3)
    mean = limit.mean.value + answers.mean.value / width
    turn = _root(old + shift / width) @ _inverse_root(old)
    gap = limit.paths - limit.mean.value[None]
    return mean[None] + np.einsum("tsij,ntsj->ntsi", turn, gap)


def _root(matrices: np.ndarray) -> np.ndarray:
    eigenvalues, vectors = np.linalg.eigh(matrices)
    floor = 1e-12 * np.max(np.abs(eigenvalues), axis=-1, keepdims=True)
    lost = eigenvalues < -floor
    size = np.where(lost, np.nan, np.sqrt(np.maximum(eigenvalues, 0.0)))
    return np.einsum("...ik,...k,...jk->...ij", vectors, size, vectors)


def _inverse_root(matrices: np.ndarray) -> np.ndarray:
    eigenvalues, vectors = np.linalg.eigh(matrices)
    floor = 1e-10 * np.max(np.abs(eigenvalues), axis=-1, keepdims=True)
    alive = eigenvalues > floor
    size = np.where(alive, 1.0 / np.sqrt(np.where(alive, eigenvalues, 1.0)), 0.0)
    return np.einsum("...ik,...k,...jk->...ij", vectors, size, vectors)


def _labels(loss: str, targets: Targets | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and classes of a set whose targets name classes."""
    if targets is None or loss not in ("cross-entropy", "logistic"):
        return None
    if loss == "logistic":
        if targets.y.shape[1] > 1:
            return None
        return targets.place, (targets.y[:, 0] > 0.0).astype(int)
    return targets.place, np.argmax(targets.y, axis=1)


def _accuracy(
    limit: FrozenMoments,
    paths: Float[np.ndarray, "node time sample outputs"],
    rows: Int[np.ndarray, " target"],
    labels: Int[np.ndarray, " target"],
) -> Estimate:
    z = paths[:, :, rows]
    guess = (z[..., 0] > 0.0).astype(int) if z.shape[-1] == 1 else np.argmax(z, axis=-1)
    right = np.where(np.isnan(z[..., 0]), np.nan, (guess == labels[None, None]).astype(float))
    found = Statistics.of(group_averages(limit.nodes, right.mean(axis=2)))
    return Estimate(found.value, found.error, 0)


def _column(statistics: Statistics, index: int) -> Statistics:
    return Statistics(statistics.value[:, index], statistics.error[:, index])


def _scaled(statistics: Statistics, width: int) -> Statistics:
    return Statistics(statistics.value / width, statistics.error / width)


def _named(name: str, mean: Statistics, variance: Statistics) -> dict[str, Estimate]:
    """Mean and standard deviation of a loss; NaN where the order 1/n makes a variance negative."""
    base, infinite = (name[: -len("_infinite")], "_infinite") if "_infinite" in name else (name, "")
    value = np.where(variance.value < -1e-14, np.nan, np.maximum(variance.value, 0.0))
    std = np.sqrt(value)
    error = variance.error / np.maximum(2.0 * std, 1e-300)
    error = np.where(variance.error == 0.0, 0.0, error)
    return {
        name: Estimate(mean.value, mean.error, 0),
        f"{base}_std{infinite}": Estimate(std, error, 0),
    }
