"""Can a trained prediction be trusted? Size of the corrections, conditioning, step size, errors."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.networks._network import Structure
from dynagram.results._regime import Judge, Regime
from dynagram.theory.training._corrections import Corrections
from dynagram.theory.training._covariance import Covariances
from dynagram.theory.training._infinite import FrozenMoment, InfiniteTraining
from dynagram.theory.training._mean import Means
from dynagram.theory.training._tensors import Mode

_MEAN = (
    "the 1/n terms of the mean, added without their signs, reach {value:.2g} of the output's "
    "scale: the next order is about that fraction of them; widen the network or shrink the targets"
)

_NEGLIGIBLE = 0.01  # of a variance: what is left out below this is hardly measured


def infinite_regime(training: InfiniteTraining, limit: FrozenMoment) -> Regime:
    """The regime of an infinite-width prediction: exact there, but for the solve."""
    judge = Judge()
    _note_step_size(judge, training)
    _judge_conditioning(judge, training)
    _judge_rank(judge, training, limit)
    good = 'exact at infinite width; order="1/n" says how much finite width changes'
    return judge.regime("∞", good)


def trained_regime(
    network: Structure,
    training: InfiniteTraining,
    limit: FrozenMoment,
    change: Corrections,
    tensors: Mode,
    rows: slice,
) -> Regime:
    """The regime of an order-1/n prediction of the outputs at some samples, from its parts.

    The order left out is not known. It is judged by the parts of the order kept, added without
    their signs and compared with the output's own scale, which is the expansion parameter as these
    samples feel it: next order ~ this order × parameter. The limits are those below which trained
    ensembles came out closer to this order than to infinite width: docs/theory/training.md.
    """
    judge, n = Judge(), network.width
    change, variance = change.of(rows), _variances(limit)[rows]
    judge.numbers["depth_over_width"] = network.depth_over_width
    _judge_mean(judge, limit.mean[rows], variance, change.means, n)
    _judge_variance(judge, variance, change.covariances, n)
    _judge_step_size(judge, network, training, tensors)
    _judge_conditioning(judge, training)
    _judge_numerics(judge, change)
    return judge.regime("1/n", "the 1/n corrections are small and so is what they leave out")


def own_regime(
    training: InfiniteTraining,
    limit: FrozenMoment,
    outputs: Float[np.ndarray, "entry 1"],
    parts: dict[str, Float[np.ndarray, " entry"]],
    order: str,
) -> Regime:
    """The regime of one network's outputs: what its differentials add to the linearised ones."""
    judge = Judge()
    if order == "1/n":
        size = sum(np.abs(part) for part in parts.values())
        scale = np.sqrt(np.mean(outputs**2)) if outputs.size else 1.0
        judge.measure(
            "expansion_of_output", float(np.max(size, initial=0.0)) / max(float(scale), 1e-290),
            0.3, 1.0,
            "what the dNTK and the ddNTKs add reaches {value:.2g} of the outputs: the terms after "
            "them are not small; widen the network or shrink the targets",
        )  # fmt: skip
    _note_step_size(judge, training)
    _judge_conditioning(judge, training)
    _judge_rank(judge, training, limit)
    left = "its NTK held fixed: of order 1/n" if order == "∞" else "smaller than n^(−3/2)"
    return judge.regime(order, f"one given network; what is left out is {left}")


def _variances(limit: FrozenMoment) -> Float[np.ndarray, " sample"]:
    return np.maximum(np.diagonal(limit.kernel), 0.0)


def _judge_mean(
    judge: Judge, mean: np.ndarray, variance: np.ndarray, parts: Means, width: int
) -> None:
    scale = np.sqrt(np.mean(mean**2, axis=1) + variance)
    scale = np.maximum(scale, 1e-12 * max(float(np.max(scale, initial=0.0)), 1e-290))[:, None]
    size = sum(np.abs(part) for part in parts.values()) / width / scale
    shift = np.abs(sum(parts.values())) / width / scale
    judge.numbers["mean_shift"] = float(np.max(shift, initial=0.0))
    judge.measure("expansion_of_mean", float(np.max(size, initial=0.0)), 0.1, 0.5, _MEAN)


def _judge_variance(judge: Judge, variance: np.ndarray, parts: Covariances, width: int) -> None:
    variance = variance[:, None]
    floor = 1e-10 * max(float(np.max(variance, initial=0.0)), 1e-290)
    changes = [np.einsum("titi->ti", part) for part in parts.values()]
    size = sum(np.abs(change) for change in changes) / width / np.maximum(variance, floor)
    expansion = float(np.max(size, initial=0.0))
    judge.measure(
        "expansion_of_variance", expansion, 0.3, 1.0,
        "the 1/n terms of the variance, added without their signs, reach {value:.2g} of it",
    )  # fmt: skip
    left_out = expansion * float(np.linalg.norm(sum(np.abs(part) for part in parts.values())))
    kept = float(np.linalg.norm(np.asarray(sum(parts.values()))))
    if expansion**2 > _NEGLIGIBLE and left_out > kept:
        judge.object(
            1, "the 1/n terms of the covariance nearly cancel: what they leave out may be "
            f"{left_out / max(kept, 1e-290):.2g} times as large as their sum, and infinite width "
            "may be as close",
        )  # fmt: skip
    alive = np.broadcast_to(variance > floor, size.shape)
    if np.any((variance + sum(changes) / width < 0.0) & alive):
        judge.object(
            2, "the order 1/n makes a variance negative: no standard deviation exists there; widen "
            "the network",
        )  # fmt: skip


def _note_step_size(judge: Judge, training: InfiniteTraining) -> None:
    """λ_max, where gradient descent diverges, and how near it is."""
    largest = float(training.eigenvalues[-1])
    judge.numbers["largest_eigenvalue"] = largest
    judge.numbers["largest_stable_eta"] = training.step_sizes.largest
    if eta := training.decay(training.how.end).eta:
        judge.numbers["eta_times_largest_eigenvalue"] = eta * largest


@float64
def _judge_step_size(
    judge: Judge, network: Structure, training: InfiniteTraining, tensors: Mode
) -> None:
    """Whether single networks, whose λ_max fluctuates, cross the limit 2 of η λ_max."""
    _note_step_size(judge, training)
    top, n = training.basis.basis[-1], training.weights.size
    A, B = (np.asarray(tensors[name][:n, :n, :n, :n]) for name in "AB")
    variance = np.einsum("abcd,a,b,c,d->", A + 2.0 * B, top, top, top, top, optimize=True)
    spread = float(np.sqrt(max(variance, 0.0) / network.width))
    judge.numbers["largest_eigenvalue_std"] = spread
    if eta := training.decay(training.how.end).eta:
        judge.measure(
            "eta_times_largest_eigenvalue_plus_3_std",
            eta * (float(training.eigenvalues[-1]) + 3.0 * spread), 1.9, 2.2,
            "some networks of this width will diverge: η times the largest NTK eigenvalue reaches "
            "{value:.2f} three standard deviations up, and 2 is the limit; lower eta",
        )  # fmt: skip


def _judge_conditioning(judge: Judge, training: InfiniteTraining) -> None:
    alive = training.eigenvalues[training.basis.alive]
    ratio = float(alive[0] / alive[-1])
    judge.numbers["smallest_over_largest_eigenvalue"] = ratio
    judge.measure(
        "condition_number", 1.0 / max(ratio, 1e-300), 1e8, 1e12,
        "the training NTK has condition number {value:.2g}: nearly dependent training inputs "
        "amplify every error; gradient descent would take as many steps",
    )  # fmt: skip


def _judge_rank(judge: Judge, training: InfiniteTraining, limit: FrozenMoment) -> None:
    n = training.weights.size
    if training.rank == n or not limit.decay.at_end:
        return
    away = float(np.max(np.abs(limit.mean[:n] - training.targets)))
    judge.object(
        1, f"the training NTK has rank {training.rank} of {n}: minimum-norm answer, the mean "
        f"stays {away:.3g} away from the targets",
    )  # fmt: skip


def _judge_numerics(judge: Judge, change: Corrections) -> None:
    for name, parts, error in (
        ("mean", change.means, change.mean_error),
        ("covariance", change.covariances, change.covariance_error),
    ):
        # Relative to the parts: their sum may cancel.
        size = float(np.max(sum(np.abs(part) for part in parts.values()), initial=0.0))
        judge.measure(
            f"numerical_error_of_{name}",
            float(np.max(error, initial=0.0)) / max(size, 1e-290) if size > 0 else 0.0,
            0.02, 0.3,
            f"the four-sample averages leave an error of {{value:.1g}} in the correction of the "
            f"{name}: ask for a smaller `accuracy` or use fewer samples",
        )  # fmt: skip
