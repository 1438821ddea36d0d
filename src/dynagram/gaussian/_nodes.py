"""Shared nodes z ~ N(0, K) over all samples at once, for averages of up to four of them.

One node set serves every tuple of samples: averages of products become matrix products. Two kinds:
a product trapezoid grid in the eigenbasis of K (smooth σ, few relevant directions; exponentially
accurate) and scrambled Sobol points (any σ, any number of samples). Both come in independent
replicas, whose scatter is the error estimate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.gaussian._quadrature import feature_scale, normal_density, shares_nodes

REPLICAS = 8  # scramblings behind every Sobol error bar
CHUNK = 8192
_MAX_GRID = 3_000_000
_WIDEST_STEP = 0.7
_NEGLIGIBLE = 1e-15  # directions with a smaller share of the variance are dropped


@dataclass(frozen=True)
class NodeSet:
    """Nodes of a rule for N(0, K): z = root·u, in `replicas` independent estimates.

    `axes` holds the one-dimensional (nodes, weights) of a grid, None for Sobol points.
    """

    root: Float[np.ndarray, "n rank"]
    replicas: int
    count: int  # nodes per replica
    axes: tuple[tuple[np.ndarray, np.ndarray], ...] | None
    seed: int = 0

    @property
    def is_grid(self) -> bool:
        """Deterministic product rule rather than quasi-random points."""
        return self.axes is not None

    def chunks(self, replica: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (z (m, n), weights (m,)) of one replica, a few thousand nodes at a time."""
        draw = self._grid_chunks if self.axes is not None else self._sobol_chunks
        for u, weights in draw(replica):
            yield u @ self.root.T, weights

    def _grid_chunks(self, replica: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        assert self.axes is not None
        shape = tuple(nodes.shape[1] for nodes, _ in self.axes)
        for start in range(0, self.count, CHUNK):
            flat = np.arange(start, min(start + CHUNK, self.count))
            index = np.unravel_index(flat, shape)
            u = np.empty((flat.size, len(shape)))
            weights = np.ones(flat.size)
            for axis, (nodes, w) in enumerate(self.axes):
                u[:, axis] = nodes[replica][index[axis]]
                weights *= w[replica][index[axis]]
            yield u, weights

    def _sobol_chunks(self, replica: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        from scipy.special import ndtri
        from scipy.stats import qmc

        rank = self.root.shape[1]
        engine = qmc.Sobol(rank, scramble=True, rng=np.random.default_rng((self.seed, replica)))
        half = self.count // 2
        for start in range(0, half, CHUNK // 2):
            size = min(CHUNK // 2, half - start)
            with warnings.catch_warnings():
                # Balance holds for the whole power of two, which the chunks add up to.
                warnings.simplefilter("ignore", UserWarning)
                points = engine.random(size)
            u = ndtri(np.clip(points, 1e-16, 1.0 - 1e-16))
            # ±u: odd parts average to zero exactly.
            yield np.concatenate([u, -u]), np.full(2 * size, 1.0 / self.count)


def square_root(K: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n rank"]:
    """R with R Rᵀ = K from the eigenvectors of K; singular K is fine, rank ≥ 1."""
    values, vectors = np.linalg.eigh(K)
    keep = values > _NEGLIGIBLE * max(float(values[-1]), 0.0)
    if not np.any(keep):
        return np.zeros((K.shape[0], 1))
    return (vectors[:, keep] * np.sqrt(values[keep]))[:, ::-1]


def grid_nodes(
    sigma: Activation,
    K: Float[np.ndarray, "n n"],
    accuracy: float,
    refine: float = 1.0,
    *,
    even: bool = False,
) -> NodeSet | None:
    """A product trapezoid grid aimed at `accuracy`, or None when it gets too large.

    The two replicas are shifted against each other by half a step along every axis: their leading
    errors are opposite, so half their difference bounds the error of their mean. `even` says that
    everything to be averaged is even under z → −z, so that half of the grid does. Kinked σ, and
    those that vary over more than one length, have none either.
    """
    if not sigma.is_smooth or sigma.growth or not shares_nodes(sigma):
        return None
    root = square_root(K)
    digits = -math.log(accuracy)
    reach = math.sqrt(2.0 * digits) + 1.5
    axes = []
    count = 1
    for direction in root.T:
        amplitude = float(np.max(np.abs(direction)))
        step = _WIDEST_STEP
        if amplitude > 0:
            # feature_scale steps of 0.3 reach e^{-30}; the exponent is proportional to 1/step.
            step = min(step, 0.3 * feature_scale(sigma) / amplitude * 30.0 / digits)
        step /= refine
        if count * reach / step > _MAX_GRID:  # asked before any of it is made
            return None
        half = math.ceil(reach / step)
        folded = even and not axes
        base = step * np.arange(0 if folded else -half, half + 1)
        nodes = np.stack([base, base + 0.5 * step])
        weights = step * normal_density(nodes)
        axes.append((nodes, np.where(nodes > 0, 2.0, 1.0) * weights if folded else weights))
        count *= base.size
        if count > _MAX_GRID:
            return None
    return NodeSet(root, 2, count, tuple(axes))


def sobol_nodes(K: Float[np.ndarray, "n n"], count: int, seed: int) -> NodeSet:
    """`count` (a power of two) antithetic scrambled Sobol points in each of eight replicas."""
    return NodeSet(square_root(K), REPLICAS, count, None, seed)
