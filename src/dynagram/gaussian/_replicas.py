"""The mean of independent replicas and the modes of its error, taken in one at a time.

A mode is a linear combination of the deviations of the replicas from their mean. All of them, or
sums with random signs, have squares that add up to the variance of the mean:
docs/derivations/gaussian-averages.md (D7.15), (D7.16).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array


class ReplicaMean:
    """Mean, standard error and `modes` − 1 deviations of `replicas` arrays of one shape.

    Memory: `modes` + 1 arrays, whatever the number of replicas.

    >>> found = ReplicaMean(replicas=2, modes=3, seed=0)
    >>> for value in (1.0, 3.0):
    ...     found.add(np.array([value]))
    >>> found.mean, found.standard_error, [mode.round(4) for mode in found.deviations]
    (array([2.]), array([1.]), [array([-0.7071]), array([0.7071])])
    """

    def __init__(self, replicas: int, modes: int, seed: int):
        count = modes - 1
        signs = np.eye(replicas)
        if count < replicas:
            signs = np.random.default_rng(seed).choice([-1.0, 1.0], (count, replicas))
            signs /= math.sqrt(max(count, 1))
        self._mixing = signs / math.sqrt(replicas * (replicas - 1))
        self._replicas, self._taken = replicas, 0
        self._mean: Any = 0.0
        self._squares: Any = 0.0
        self._mixed: list[Any] = [0.0] * self._mixing.shape[0]

    def add(self, replica: Float[Array, "..."]) -> None:
        """Take in one more replica."""
        distance = replica - self._mean
        self._mean = self._mean + distance / (self._taken + 1)
        self._squares = self._squares + distance * (replica - self._mean)
        for mode, weight in enumerate(self._mixing[:, self._taken]):
            if weight:
                self._mixed[mode] = self._mixed[mode] + weight * replica
        self._taken += 1

    @property
    def mean(self) -> Float[Array, "..."]:
        """Over the replicas."""
        return self._mean

    @property
    def standard_error(self) -> Float[Array, "..."]:
        """Of the mean, from the scatter of all replicas."""
        # Squares of equal replicas may be negative by rounding.
        return (abs(self._squares) / (self._replicas * (self._replicas - 1))) ** 0.5

    @property
    def deviations(self) -> list[Float[Array, "..."]]:
        """Modes whose squares add up to the variance of the mean, on average over the signs."""
        return [
            mixed - weight * self._mean
            for mixed, weight in zip(self._mixed, self._mixing.sum(axis=1), strict=True)
        ]
