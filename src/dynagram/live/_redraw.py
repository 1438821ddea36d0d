"""The parameters of a model drawn again: same shapes, same sizes, other numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_UNIFORM = 2.4  # kurtosis halfway between that of a uniform and of a normal distribution


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
    if values.size < 32 or square == 0.0:
        return False
    return float(np.mean(np.float64(values) ** 4)) / square**2 < _UNIFORM


def _again(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if values.size < 2 or values.dtype.kind != "f" or np.all(values == values.flat[0]):
        return values
    square = float(np.mean(values**2))
    if looks_uniform(values):
        bound = (3.0 * square) ** 0.5
        return rng.uniform(-bound, bound, values.shape)
    return square**0.5 * rng.standard_normal(values.shape)
