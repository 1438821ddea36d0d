"""Gaussian inputs as a few weighted rows, so that observables of a batch give population values.

A network whose first layer and target see inputs x ~ N(0, I) through the span of a few vectors
only has population averages in as many dimensions: nodes of a quadrature rule in that span take
the place of samples, their weights that of 1/samples.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian.quadrature import feature_scale, normal_density, standard_nodes
from dynagram.networks import ActivationLike, checked_activation, checked_number

RADIUS = 7.5  # |g| beyond which nodes of several dimensions are dropped: e^{-28} of the peak
_MOST_NODES = 1_600_000
_SAME_SPAN = 1e-12  # singular values below this, of unit vectors, are rounding


@functools.lru_cache(maxsize=32)
def gaussian_grid(
    sigma: Activation, dimensions: int, spacing: float = 0.33
) -> tuple[Float[np.ndarray, "nodes dimensions"], Float[np.ndarray, " nodes"]]:
    """Nodes and weights of N(0, I) in two or three dimensions, for functions made of σ.

    The product trapezoid rule within |g| ≤ 7.5; its error falls like e^{−π²/spacing} for tanh.
    """
    if not sigma.is_smooth or sigma.growth:
        raise InvalidValueError(
            "activation", sigma.name, "several modes need a smooth σ of polynomial growth"
        )
    step = spacing * min(1.0, 2.0 * feature_scale(sigma))
    half = math.floor(RADIUS / step)
    if (2 * half + 1) ** dimensions > _MOST_NODES:
        raise InvalidValueError("number of modes", dimensions, "too many for a grid: at most 3")
    axis = step * np.arange(-half, half + 1)
    g = np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), axis=-1)
    g = g.reshape(-1, dimensions)
    g = g[np.sum(g * g, axis=1) <= RADIUS**2]
    return g, np.prod(step * normal_density(g), axis=1)


def gaussian_batch(
    vectors: Float[np.ndarray, "vectors n_0"],
    activation: ActivationLike,
    *,
    spacing: float = 0.33,
) -> tuple[Float[np.ndarray, "nodes n_0"], Float[np.ndarray, " nodes"]]:
    """Rows x and weights that stand for x ~ N(0, I): averages of anything read through `vectors`.

    `vectors` are the rows of the first weight matrix together with the directions of the target.
    They may span three dimensions at most. Give the rows and weights to `small_signal` or
    `imbalance_drift`. One dimension: the rule of `dynagram.gaussian`; two or three: a grid with
    this `spacing` for scales up to 1, finer for longer vectors. Cost: some 200, 2000 or 50 000
    rows.

    >>> v = np.eye(6)[:1]                                  # the target sees the first of 6 inputs
    >>> x, weights = gaussian_batch(np.vstack([0.3 * v, v]), "tanh")
    >>> y = np.tanh(x @ v.T)[:, 0]
    >>> x.shape[1], round(float(np.sum(weights * x[:, 0] * y)), 12)          # h_σ
    (6, 0.605705509602)
    """
    sigma = checked_activation(activation)
    spacing = checked_number("spacing", spacing, "must be > 0", positive=True)
    rows = np.asarray(vectors, dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise InvalidValueError("vectors", "not finite", "finite numbers needed")
    lengths = np.linalg.norm(rows, axis=1)
    longest = float(np.max(lengths, initial=0.0))
    if longest == 0.0:
        raise InvalidValueError("vectors", "all zero", "at least one direction needed")
    units = rows[lengths > 0] / lengths[lengths > 0, None]
    _, sizes, basis = np.linalg.svd(units, full_matrices=False)
    basis = basis[sizes > _SAME_SPAN * sizes[0]]
    if len(basis) > 3:
        raise InvalidValueError(
            "vectors", f"{len(basis)} directions", "a grid serves 3 at most: sample a batch instead"
        )
    if len(basis) > 1:
        g, w = gaussian_grid(sigma, len(basis), spacing / max(1.0, longest))
        return g @ basis, w
    if any(kink.location != 0.0 for kink in sigma.kinks):
        raise InvalidValueError("activation", sigma.name, "a kink away from 0 moves with the layer")
    t, weights = standard_nodes(sigma, np.array([max(1.0, longest) ** 2]))
    return t[0][:, None] * basis, weights[0]
