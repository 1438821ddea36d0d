"""Can a prediction along a path be trusted? Parts against what training has done, moment by moment.

Parts may grow with time: a loss that decays slowly lets outputs grow without end, and terms ~ t/n
with them. So the parts are added without their signs, those of the two ddNTKs together because
they cancel, and compared with how far the frozen path has come. A loss is a curved function of
outputs, in whose correction much cancels: what the square of the corrections of mean and covariance
does to it, which is of order 1/n², is compared with the correction itself. And where parts cancel,
as at a moment at which a correction changes its sign, the next order, estimated from the parts
without their signs, is compared with their sum: docs/derivations/any-loss.md (D13.17).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynagram._precision import float64
from dynagram.networks import Network
from dynagram.results._regime import Judge, Regime
from dynagram.theory.training._dynamics import Answers, FrozenMoments
from dynagram.theory.training._learning_curves import corrected_paths
from dynagram.theory.training._path_problem import PathProblem
from dynagram.theory.training._path_statistics import group_averages, loss_values
from dynagram.training._losses import SQUARED

# Compared with networks, order 1/n was three times closer than infinite width below the first of
# these, and hardly closer above the second (benchmarks/any_loss_agreement.py).
_CAREFUL, _BROKEN = 0.15, 0.5
# The same for the test loss: all that is left is about four times the square that is known here.
_LOSS_CAREFUL, _LOSS_BROKEN = 0.04, 0.1
# What is left out, over the correction, if order 1/n is three times closer than infinite width.
LEFT_OUT = 1.0 / 3.0


def path_regime(
    network: Network, problem: PathProblem, limit: FrozenMoments, answers: Answers | None
) -> Regime:
    """The regime over all moments; the reasons say from which moment on it is what it is."""
    judge = Judge()
    n = problem.training_samples
    judge.numbers["largest_eigenvalue"] = float(np.linalg.eigvalsh(problem.Theta[:n, :n])[-1])
    if answers is None:
        good = 'a frozen NTK, exact at infinite width; order="1/n" says what finite width changes'
        return judge.regime("∞", good)
    judge.numbers["depth_over_width"] = network.depth_over_width
    expansion = parts_over_change(limit, answers, network.width)
    for index, moment in enumerate(problem.moments):
        judge.numbers[f"expansion_at_{moment:g}"] = float(expansion[index])
    worst = float(np.max(expansion))
    judge.numbers["expansion_of_mean"] = worst
    for level, threshold, words in (
        (2, _BROKEN, "the expansion breaks"), (1, _CAREFUL, "the next order is not small"),
    ):  # fmt: skip
        if worst > threshold:
            first = problem.moments[int(np.argmax(expansion > threshold))]
            unit = "time" if problem.optimiser.eta is None else "step"
            judge.object(
                level, f"{words} from {unit} {first:g} on: the 1/n terms, added without their "
                f"signs, exceed {threshold:g} of what training has changed (at most {worst:.2g}); "
                "widen the network or stop earlier",
            )  # fmt: skip
            break
    _judge_loss(judge, problem, limit, answers, network.width)
    _judge_cancellation(judge, problem, limit, answers, network.width)
    _judge_variance(judge, limit, answers, network.width)
    _judge_numerics(judge, answers)
    return judge.regime("1/n", "the 1/n corrections are small against what training has changed")


def parts_over_change(limit: FrozenMoments, answers: Answers, width: int) -> np.ndarray:
    """Σ|parts|/n over the root mean square change of the frozen path, the worst sample's.

    A sample that training hardly moves is measured by half the change of a typical one.
    """
    size = np.sqrt(np.mean(_without_signs(answers.means) ** 2, axis=2)) / width
    typical = np.sqrt(np.mean(limit.change**2, axis=1, keepdims=True))
    scale = np.maximum(limit.change, 0.5 * typical)
    ratio = np.where(scale > 0.0, size / np.where(scale > 0.0, scale, 1.0), 0.0)
    return np.max(ratio, axis=1)


def _without_signs(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Σ|parts|, those of the two ddNTKs as one."""
    both = np.abs(parts["ddI"] + parts["ddII"])
    return both + sum(np.abs(part) for name, part in parts.items() if not name.startswith("dd"))


def left_out_over_correction(
    problem: PathProblem, limit: FrozenMoments, answers: Answers, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """The next order, estimated, over the 1/n corrections of outputs and of the (test) loss.

    Of every moment, (D13.17): the parts without their signs times the parameter of the expansion.
    """
    size, n = _without_signs(answers.means) / width, problem.training_samples
    parameter = parts_over_change(limit, answers, width)
    if problem.loss in SQUARED:  # errors that are nearly gone are known no better than their rate
        y, place = problem.train
        variance = np.einsum("tsisi->tsi", limit.covariance.value)[:, place]
        to_go = _rms((limit.mean.value[:, place] - y) ** 2 + np.maximum(variance, 0.0), power=1)
        parameter = np.maximum(parameter, _over(_rms(size[:, :n]), 2.0 * to_go))
    mean, loss = (np.sum(list(parts.values()), axis=0) for parts in (answers.means, answers.losses))
    outputs = parameter * _over(_rms(size), _rms(mean / width))
    size = _without_signs(answers.losses)
    return outputs, parameter * _over(size[:, -1], np.abs(loss[:, -1]))


def _rms(values: np.ndarray, power: int = 2) -> np.ndarray:
    """The root mean square over all but the first axis; `power` 1 where they are squares."""
    return np.sqrt(np.mean(values**power, axis=tuple(range(1, values.ndim))))


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """A quotient that is 0 where there is nothing above, infinite where only below."""
    safe = np.where(denominator > 0.0, denominator, 1.0)
    nothing = np.where(numerator > 0.0, np.inf, 0.0)
    return np.where(denominator > 0.0, numerator / safe, nothing)


@float64
def square_over_shift(
    problem: PathProblem, limit: FrozenMoments, answers: Answers, width: int
) -> np.ndarray:
    """What is quadratic in the corrections of outputs, over the 1/n shift of the (test) loss.

    Outputs are moved to mean and covariance at this width and at twice as much; a shift that
    changes its sign is measured by the largest one before. Infinite where there is no covariance.
    """
    last = limit.loss.value[:, -1]
    far, near = (
        group_averages(
            limit.nodes, loss_values(problem, corrected_paths(limit, answers, at))
        ).mean(axis=0)[:, -1]
        for at in (width, 2 * width)
    )  # fmt: skip
    square = np.abs(2.0 * (far - 2.0 * near + last))
    scale = np.maximum.accumulate(np.abs(answers.loss.value[:, -1])) / width
    ratio = np.where(scale > 0.0, square / np.where(scale > 0.0, scale, 1.0), 0.0)
    return np.where(np.isnan(ratio), np.inf, ratio)


def _judge_loss(
    judge: Judge, problem: PathProblem, limit: FrozenMoments, answers: Answers, width: int
) -> None:
    ratio = square_over_shift(problem, limit, answers, width)
    for moment, value in zip(problem.moments, ratio, strict=True):
        judge.numbers[f"loss_expansion_at_{moment:g}"] = float(value)
    name = "test loss" if problem.test is not None else "loss"
    unit = "time" if problem.optimiser.eta is None else "step"
    for threshold, words in (
        (_LOSS_BROKEN, "is hardly better at order 1/n than at infinite width"),
        (_LOSS_CAREFUL, "is less than three times closer at order 1/n than at infinite width"),
    ):
        if np.any(ratio > threshold):
            first = problem.moments[int(np.argmax(ratio > threshold))]
            judge.object(
                1, f"the {name} {words} from about {unit} {first:g} on (outputs are judged apart)"
            )
            break


def _judge_cancellation(
    judge: Judge, problem: PathProblem, limit: FrozenMoments, answers: Answers, width: int
) -> None:
    names = ("outputs", "test loss" if problem.test is not None else "loss")
    ratios = left_out_over_correction(problem, limit, answers, width)
    unit = "time" if problem.optimiser.eta is None else "step"
    for prefix, name, ratio in zip(("", "loss_"), names, ratios, strict=True):
        for moment, value in zip(problem.moments, ratio, strict=True):
            judge.numbers[f"{prefix}left_out_at_{moment:g}"] = float(value)
        # Before training nothing has moved outputs, and nothing is compared.
        near = [m for m, r in zip(problem.moments, ratio, strict=True) if r > LEFT_OUT and m > 0]
        if near:
            at = ", ".join(f"{moment:g}" for moment in near)
            judge.object(
                1, f"at {unit} {at} the 1/n terms of the {name} cancel or are as large as what is "
                "left of training: the order left out may exceed a third of their sum",
            )  # fmt: skip


def _judge_variance(judge: Judge, limit: FrozenMoments, answers: Answers, width: int) -> None:
    variance = np.einsum("tsisi->tsi", limit.covariance.value)
    change = np.einsum("tsisi->tsi", answers.covariance.value) / width
    floor = 1e-10 * max(float(np.max(variance)), 1e-290)
    relative = np.abs(change) / np.maximum(variance, floor)
    judge.measure(
        "shift_of_variance", float(np.max(relative)), 0.5, 1.0,
        "the order 1/n changes a variance by {value:.2g} of itself",
    )  # fmt: skip
    if np.any((variance + change < 0.0) & (variance > floor)):
        judge.object(2, "the order 1/n makes a variance negative: no standard deviation there")


def _judge_numerics(judge: Judge, answers: Answers) -> None:
    size = float(np.max(sum(np.abs(part) for part in answers.means.values()), initial=0.0))
    error = float(np.max(answers.mean.error, initial=0.0))
    judge.measure(
        "numerical_error_of_mean", error / size if size > 0.0 else 0.0, 0.05, 0.5,
        "the averages over initial outputs leave an error of {value:.1g} in the correction of the "
        "mean: it is part of the error bars",
    )  # fmt: skip
