"""The parameters of a model drawn again: same shapes, same sizes, other numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_UNIFORM = 1.9  # standard deviations that no number of a uniform distribution is beyond


def redrawn(
    parameters: Mapping[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Every array anew with its mean square, normal or uniform as it looks.

    Gains, zeros and all else of one value stay as they are.

    >>> rng = np.random.default_rng(0)
    >>> made = redrawn({"g": np.ones(3), "W": rng.normal(size=(50, 50))}, rng)
    >>> made["g"].tolist(), round(float(np.mean(made["W"] ** 2)), 1)
    ([1.0, 1.0, 1.0], 1.0)
    """
    return {name: _again(values, rng) for name, values in parameters.items()}


def looks_uniform(values: np.ndarray) -> bool:
    """Whether numbers are spread evenly rather than normally.

    >>> rng = np.random.default_rng(0)
    >>> looks_uniform(rng.uniform(-1, 1, 500)), looks_uniform(rng.normal(size=500))
    (True, False)
    """
    square = float(np.mean(np.square(values, dtype=np.float64)))
    if values.size < 64 or square == 0.0:
        return False
    # Of 64 normal numbers one lies beyond all but surely; uniform ones end at √3.
    return float(np.max(np.abs(values))) < _UNIFORM * square**0.5


def error_of_square(values: np.ndarray) -> float:
    """The relative standard deviation of a mean square between draws of this distribution.

    >>> round(error_of_square(np.random.default_rng(0).normal(size=(100, 200))), 3)
    0.01
    """
    square = np.square(np.asarray(values, dtype=np.float64))
    mean = float(square.mean())
    if mean == 0.0:
        return (2.0 / square.size) ** 0.5
    return max(float(square.std()) / mean, 0.5) / square.size**0.5


def _again(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if values.size < 2 or values.dtype.kind != "f" or np.all(values == values.flat[0]):
        return values
    square = float(np.mean(values**2))
    if looks_uniform(values):
        bound = (3.0 * square) ** 0.5
        return rng.uniform(-bound, bound, values.shape)
    return square**0.5 * rng.standard_normal(values.shape)
