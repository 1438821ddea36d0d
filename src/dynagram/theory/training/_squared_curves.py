"""Losses in time of a squared error, from mean and covariance: (10.52) at every moment."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.results._estimate import Estimate
from dynagram.theory.training._corrections import Corrections, add_parts
from dynagram.theory.training._infinite import FrozenMoment
from dynagram.training._losses import half_sum_factor


def squared_curves(
    data: Data,
    loss: str,
    moments: list[FrozenMoment],
    changes: list[Corrections] | None = None,
    width: int = 1,
) -> dict[str, Estimate]:
    """Mean losses of training and test set, and their spreads over networks at infinite width.

    Named as in `learning_curves`; at infinite width outputs are Gaussian, so that a loss
    ½ Σ (z − y)² has the variance n_L tr(𝒦²)/2 + Σ (m − y) 𝒦 (m − y).
    """
    rows = {"loss": (data.merged.place, data.y)}
    if data.test_y is not None:
        n = data.merged.x.shape[0]
        rows["test_loss"] = (n + np.arange(len(data.test_y)), data.test_y)
    curves: dict[str, Estimate] = {}
    for name, (place, y) in rows.items():
        factor = half_sum_factor(loss, *y.shape)
        mean, std = np.transpose([_gaussian(at, place, y) for at in moments])
        label = name if changes is None else f"{name}_infinite"
        curves[label] = _exact(factor * mean)
        curves[label.replace(name, f"{name}_std")] = _exact(factor * std)
        if changes is not None:
            shift = [_shift(*both, place, y) for both in zip(moments, changes, strict=True)]
            curves[name] = _exact(factor * (mean + np.array(shift) / width))
    return curves


def _gaussian(
    at: FrozenMoment, place: np.ndarray, y: Float[np.ndarray, "target outputs"]
) -> tuple[float, float]:
    gap, kernel = at.mean[place] - y, at.kernel[np.ix_(place, place)]
    mean = 0.5 * np.sum(gap**2) + 0.5 * y.shape[1] * np.trace(kernel)
    variance = 0.5 * y.shape[1] * np.sum(kernel**2) + np.sum(gap * (kernel @ gap))
    return float(mean), float(np.sqrt(max(variance, 0.0)))


def _shift(
    at: FrozenMoment, change: Corrections, place: np.ndarray, y: Float[np.ndarray, "target outputs"]
) -> float:
    spread = np.einsum("titi->t", add_parts(change.covariances))[place]
    gap = at.mean[place] - y
    return float(np.sum(gap * add_parts(change.means)[place]) + 0.5 * np.sum(spread))


def _exact(values: np.ndarray) -> Estimate:
    return Estimate(values, np.zeros_like(values), 0)
