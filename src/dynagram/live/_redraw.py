"""The parameters of a model drawn again: same shapes, same sizes, other numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_OFF = 6.0  # standard errors of a mean beyond which numbers do not vary about 0
_UNIFORM = 1.9  # standard deviations that no number of a uniform distribution is beyond


def redrawn(
    parameters: Mapping[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Every array anew with its mean square, normal or uniform as it looks.

    Gains, zeros, rows that are all the same and all else of one value stay as they are. Numbers
    that do not vary about 0, such as gains about 1 or rates of decay, are drawn from themselves.

    >>> rng = np.random.default_rng(0)
    >>> made = redrawn({"g": np.ones(3), "W": rng.normal(size=(50, 50))}, rng)
    >>> made["g"].tolist(), round(float(np.mean(made["W"] ** 2)), 1)
    ([1.0, 1.0, 1.0], 1.0)
    >>> redrawn({"W": 3.0 * np.eye(2)}, rng)["W"].tolist()
    [[3.0, 0.0], [0.0, 3.0]]
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


def padding_of(table: np.ndarray) -> int | None:
    """The one row of zeros that a table of vectors keeps for padding; None where there is none.

    >>> padding_of(np.array([[1.0, 2.0], [0.0, 0.0]])), padding_of(np.zeros((3, 2)))
    (1, None)
    """
    empty = np.flatnonzero(~np.any(table, axis=-1))
    return int(empty[0]) if len(empty) == 1 and len(table) > 1 else None


def without_padding(table: np.ndarray) -> np.ndarray:
    """A table of vectors without the one that is kept for padding."""
    row = padding_of(table) if table.ndim == 2 else None
    return table if row is None else np.delete(table, row, axis=0)


def _again(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if values.dtype == np.complex128:  # as pairs of real numbers
        return _again(np.stack([np.real(values), np.imag(values)], -1), rng) @ np.array([1.0, 1.0j])
    if values.size < 2 or values.dtype.kind != "f":
        return values
    drawn = values[values != 0.0]
    rows_are_one = values.ndim > 1 and bool(np.all(values == values[:1]))
    if not drawn.size or np.all(drawn == drawn[0]) or rows_are_one:
        return values
    made = values.copy()
    made[values != 0.0] = _like(drawn, rng)
    return made


def _like(drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    square = float(np.mean(drawn**2))
    if abs(float(np.mean(drawn))) > _OFF * float(np.std(drawn)) / drawn.size**0.5:
        return rng.choice(drawn, drawn.size)
    if looks_uniform(drawn):
        bound = (3.0 * square) ** 0.5
        return rng.uniform(-bound, bound, drawn.size)
    return square**0.5 * rng.standard_normal(drawn.size)
