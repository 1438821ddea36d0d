"""The numbers of a layer of a live model, whatever framework it lives in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LayerNumbers:
    """What a layer shows on a batch, for f the mean of the first output.

    **Arguments:**

    - `name`: of the layer.
    - `mean_square`: of what comes out of it.
    - `similarity`: of tokens, nan where samples have one.
    - `gradient`: ‖∂f/∂θ‖² over its parameters.
    - `jacobian`: the mean over samples and positions of |∂f/∂x|² behind it.
    - `share`: of its parameters in the trace of the tangent kernel of f.
    - `channels`: how many come out.
    """

    name: str
    mean_square: float
    similarity: float
    gradient: float
    jacobian: float
    share: float
    channels: int

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers by the names that tables have."""
        return {
            "mean square": self.mean_square, "token similarity": self.similarity,
            "squared gradient": self.gradient, "Jacobian": self.jacobian,
            "share of the NTK": self.share,
        }  # fmt: skip


def layer_numbers(
    name: str, value: np.ndarray, slope: np.ndarray, gradient: float, total: float, axis: int
) -> LayerNumbers:
    """The numbers of a signal whose channels stand on an axis, samples being on the first."""
    rows = np.moveaxis(value, axis, -1).reshape(len(value), -1, value.shape[axis])
    back = np.moveaxis(slope, axis, -1).reshape(rows.shape)
    share = gradient / total if total > 0 else float("nan")
    return LayerNumbers(
        name, float(np.mean(rows**2)), token_similarity(rows), gradient,
        float(np.mean(np.sum(back**2, axis=-1))), share, rows.shape[-1],
    )  # fmt: skip


def token_similarity(rows: np.ndarray) -> float:
    """The mean of x_a·x_b/|x_a||x_b| over tokens a ≠ b of a sample; nan where there is one.

    >>> round(token_similarity(np.array([[[1.0, 0.0], [1.0, 1.0]]])), 4)
    0.7071
    """
    positions = rows.shape[1]
    if positions == 1:
        return float("nan")
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1.0)
    # The sum over all pairs is the square of the sum: no Gram matrix of many positions is made.
    pairs = np.sum(unit.sum(axis=1) ** 2, axis=-1) - np.sum(unit**2, axis=(1, 2))
    return float(np.mean(pairs) / (positions * (positions - 1)))
