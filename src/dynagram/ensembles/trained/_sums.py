"""Statistics of recorded observables: sums over the members that did not fail, step by step."""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Bool, Float

from dynagram.results._estimate import BATCHES, Estimate, Moments


def sums_of(
    values: Float[np.ndarray, "members steps ..."],
    good: Bool[np.ndarray, " members"],
    order: int,
    first: int = 0,
) -> Moments:
    """`Moments` of the `good` members, per step, with the axes after the step as components.

    The members are `first`, `first` + 1, … Memory: 128·steps·P^order numbers.

    >>> values = np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, np.nan], [5.0, 9.0]])
    >>> sums_of(values, np.array([True, True, False, True]), order=1).mean().value.tolist()
    [[3.0], [5.0]]
    """
    flat = np.asarray(values, np.float64).reshape(*values.shape[:2], -1)
    runs = np.split(np.arange(len(flat)), np.flatnonzero(np.diff(good)) + 1)
    parts = [
        Moments.from_samples(flat[run], order=order, first=first + int(run[0]))
        for run in runs
        if good[run[0]]
    ]
    return functools.reduce(Moments.merge, parts) if parts else no_sums(flat.shape[1:], order)


def no_sums(shape: tuple[int, ...], order: int) -> Moments:
    """The sums over no members at all."""
    powers = (shape, (*shape, shape[-1]))[:order]
    sums = tuple(np.zeros((BATCHES, *power)) for power in powers)
    return Moments(np.zeros(shape), np.zeros(BATCHES, np.int64), sums)


def mean_estimate(moments: Moments, shape: tuple[int, ...]) -> Estimate:
    """The mean in the `shape` of the observable; its error is NaN for fewer than three members."""
    if _has_errors(moments):
        return _reshaped(moments.mean(), shape)
    count = moments.count
    value = moments.origin + moments.sums[0].sum(axis=0) / count if count else np.nan
    return _without_error(value, shape, count)


def covariance_estimate(moments: Moments, shape: tuple[int, ...]) -> Estimate:
    """The covariance of all pairs of entries at one moment, (time, …, …); NaN for one member."""
    pairs = (*shape, *shape[1:])
    if _has_errors(moments):
        return _reshaped(moments.covariance(), pairs)
    if moments.count < 2:
        return _without_error(np.nan, pairs, moments.count)
    total, square = (part.sum(axis=0) for part in moments.sums)
    return _without_error(square - 0.5 * total[..., :, None] * total[..., None, :], pairs, 2)


def mean_errors_together(moments: Moments) -> Float[np.ndarray, "time P P"]:
    """The covariance matrix of the errors of the mean at every moment."""
    if _has_errors(moments):
        return moments.error_of_mean()
    return np.full((*moments.origin.shape, moments.origin.shape[-1]), np.nan)


def _has_errors(moments: Moments) -> bool:
    """Whether two members are left without any one batch, as the jackknife needs."""
    return moments.count - int(moments.counts.max()) >= 2


def _reshaped(estimate: Estimate, shape: tuple[int, ...]) -> Estimate:
    value, error = estimate.value.reshape(shape), estimate.standard_error.reshape(shape)
    return Estimate(value, error, estimate.count)


def _without_error(value: np.ndarray | float, shape: tuple[int, ...], count: int) -> Estimate:
    values = np.array(np.broadcast_to(np.reshape(value, shape if np.ndim(value) else ()), shape))
    return Estimate(values, np.full(shape, np.nan), count)
