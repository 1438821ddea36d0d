"""Panels of the z axis between whose edges a function is a polynomial to rounding."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
FEWEST_PLACES = 64


@dataclass(frozen=True, eq=False)
class Panels:
    """Edges between which σ, σ' and σ'' are polynomials of degree 19 to rounding.

    `edges` increase and hold every kink; for |z| ≤ `reach` all is resolved. `singular` lists where
    halving did not end: kinks nobody has declared, poles, roots. `scales` are the largest |σ|,
    |σ'| and |σ''| up to the distances `distances` from 0.
    """

    edges: Float[np.ndarray, " edge"]
    reach: float
    singular: tuple[tuple[float, float], ...]
    distances: Float[np.ndarray, " base"]
    scales: Float[np.ndarray, "3 base"]

    @property
    def obstacle(self) -> float:
        """Where, nearest to 0, halving was given up."""
        return min((0.5 * (a + b) for a, b in self.singular), key=abs, default=self.reach)

    @functools.cached_property
    def steepness(self) -> float:
        """The largest |σ''|/|σ| or (|σ'|/|σ|)² at distances of 1 and more: 1/w² of a spike."""
        value, slope, bend = self.scales[:, self.distances >= 1.0]
        value = np.maximum(value, 1e-290)
        return float(np.max(np.maximum(bend / value, (slope / value) ** 2), initial=0.0))

    def within(self, reach: float) -> Float[np.ndarray, " edge"]:
        """The edges with |z| < `reach`."""
        return self.edges[np.abs(self.edges) < reach]

    def scale(self, z: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "3 *shape"]:
        """The largest |σ|, |σ'| and |σ''| at distances from 0 up to about |z|."""
        place = np.searchsorted(self.distances, np.abs(z), side="right") - 1
        return self.scales[:, np.maximum(place, 0)]

    def places(self) -> Float[np.ndarray, " place"]:
        """The nodes of every panel and places between them: what σ does shows there."""
        inside = np.concatenate([NODES, strata(FEWEST_PLACES)])
        return spread(self.edges[:-1], self.edges[1:], inside).reshape(-1)


def spread(left: np.ndarray, right: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Places of [−1, 1] put on every panel."""
    return (0.5 * (left + right))[:, None] + (0.5 * (right - left))[:, None] * inside


@functools.cache
def strata(count: int) -> np.ndarray:
    """One place at random in each of `count` equal parts of [−1, 1], and some close to the ends.

    These see the rest of what an end has cut off, and what its neighbour has seen most of.
    """
    draws = np.random.default_rng(count).uniform(size=count)
    inside = 2.0 * (np.arange(count) + draws) / count - 1.0
    ends = 1.0 - 2.0 / count * 0.5 ** np.arange(1, 13 if count > FEWEST_PLACES else 7)
    return np.concatenate([inside, -ends, ends])
