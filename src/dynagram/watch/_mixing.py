"""Random directions among outputs, the same for every framework and every record."""

from __future__ import annotations

import functools

import numpy as np


@functools.lru_cache(maxsize=16)
def mixing_signs(shape: tuple[int, ...]) -> np.ndarray:
    """±1 for every output of a sample, for outputs of this shape (samples first).

    >>> mixing_signs((5, 4)).tolist()
    [1.0, 1.0, 1.0, -1.0]
    """
    return 2.0 * np.random.default_rng(0).integers(0, 2, shape[1:]) - 1.0


def first_direction(shape: tuple[int, ...]) -> np.ndarray:
    """Where the power method begins."""
    return np.random.default_rng(1).standard_normal(shape)
