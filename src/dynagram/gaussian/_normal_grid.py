"""A grid for N(0, I) in two or three dimensions: all of it at once, for functions made of one σ."""

from __future__ import annotations

import functools
import math

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._quadrature import feature_scale, normal_density

RADIUS = 7.5  # |g| beyond which nodes of several dimensions are dropped: e^{-28} of the peak
_MOST_NODES = 1_600_000


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
