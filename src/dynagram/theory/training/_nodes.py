"""Nodes for averages over initial outputs: exact where the integrand is a polynomial, else many.

Initial outputs are z = Lξ with independent normal ξ and the Cholesky factor L of K, training
samples first, so that a path depends on the training coordinates of ξ alone. Of a squared error
everything here is a polynomial of degree at most five in ξ. Of other losses few training
coordinates take a Gauss-Hermite grid; many take scrambled Sobol points, of which several
independent scramblings tell the error.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import qmc

# Scramblings, by whose spread an error is known.
SCRAMBLINGS = 8
# Points of a grid in each of so many coordinates.
_GRID_POINTS = {1: 64, 2: 28}
# Of the rule of degree five, 2m² + 1 points in m coordinates.
_MOST_EXACT = 20_000


class Nodes(NamedTuple):
    """Points ξ (node, coordinate) with weights that add up to 1 in each of several averages.

    `groups` is the number of equal parts, one after the other, that are averages of their own:
    several scramblings, or one exact rule, which `is_exact` says.
    """

    xi: Float[np.ndarray, "node coordinate"]
    weights: Float[np.ndarray, " node"]
    groups: int
    is_exact: bool

    def only(self, groups: int) -> Nodes:
        """The first of the parts; one scrambling is no exact rule."""
        count = len(self.weights) // self.groups * min(groups, self.groups)
        return self._replace(
            xi=self.xi[:count], weights=self.weights[:count], groups=min(groups, self.groups)
        )


def draw_nodes(
    training: int, others: int, *, polynomial: bool, count: int, seed: int, grid: bool = True
) -> Nodes:
    """Nodes in `training` coordinates that matter and `others` that enter as polynomials.

    `polynomial` tells that all of them do, up to degree five; `grid` that a product of rules may
    be taken where the coordinates that matter are few. `count` are the points of one scrambling, a
    power of two.

    >>> nodes = draw_nodes(1, 2, polynomial=False, count=64, seed=0)
    >>> nodes.is_exact, round(float(nodes.weights @ nodes.xi[:, 0] ** 4), 9)
    (True, 3.0)
    """
    both = training + others
    if polynomial and 2 * both**2 + 1 <= _MOST_EXACT:
        return Nodes(*_degree_five(both), 1, is_exact=True)
    if grid and training in _GRID_POINTS and not polynomial:
        return Nodes(*_product(_grid(training), _degree_five(others)), 1, is_exact=True)
    points = []
    for scrambling in range(SCRAMBLINGS):
        # A seed of its own: the same points must not come back elsewhere.
        engine = qmc.Sobol(both, rng=np.random.default_rng([seed, scrambling, 9]))
        uniform = engine.random(count)
        points.append(ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)))
    weights = np.full(SCRAMBLINGS * count, 1.0 / count)
    return Nodes(np.concatenate(points), weights, SCRAMBLINGS, is_exact=False)


def _grid(coordinates: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss-Hermite product."""
    x, w = np.polynomial.hermite_e.hermegauss(_GRID_POINTS[coordinates])
    w = w / w.sum()
    points = np.array(list(itertools.product(x, repeat=coordinates)))
    weights = np.prod(np.array(list(itertools.product(w, repeat=coordinates))), axis=1)
    return points.reshape(-1, coordinates), weights


def _degree_five(coordinates: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact for polynomials of degree five under the normal law, 2m² + 1 points.

    The origin, ±√3 on every axis, and (±√3, ±√3) on every pair of axes.

    >>> x, w = _degree_five(3)
    >>> round(float(w @ x[:, 0] ** 4), 12), round(float(w @ (x[:, 0] * x[:, 2]) ** 2), 12)
    (3.0, 1.0)
    """
    m, far = coordinates, np.sqrt(3.0)
    points, weights = [np.zeros(m)], [1.0 + m * (m - 7) / 18.0]
    for i in range(m):
        for sign in (far, -far):
            points.append(np.eye(m)[i] * sign)
            weights.append((4 - m) / 18.0)
    for i, j in itertools.combinations(range(m), 2):
        for first, second in itertools.product((far, -far), repeat=2):
            points.append(np.eye(m)[i] * first + np.eye(m)[j] * second)
            weights.append(1.0 / 36.0)
    return np.array(points), np.array(weights)


def _product(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    (x, w), (y, v) = first, second
    points = np.concatenate([np.repeat(x, len(y), axis=0), np.tile(y, (len(x), 1))], axis=1)
    return points, np.repeat(w, len(v)) * np.tile(v, len(w))
