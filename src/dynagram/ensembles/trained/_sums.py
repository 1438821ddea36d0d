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
    return functools.reduce(Moments.merge, parts) if parts else _nothing(flat.shape[1:], order)


def reshaped(estimate: Estimate, shape: tuple[int, ...]) -> Estimate:
    """The estimate with the axes of the observable instead of one axis of components."""
    value, error = estimate.value.reshape(shape), estimate.standard_error.reshape(shape)
    return Estimate(value, error, estimate.count)


def _nothing(shape: tuple[int, ...], order: int) -> Moments:
    powers = (shape, (*shape, shape[-1]))[:order]
    sums = tuple(np.zeros((BATCHES, *power)) for power in powers)
    return Moments(np.zeros(shape), np.zeros(BATCHES, np.int64), sums)
