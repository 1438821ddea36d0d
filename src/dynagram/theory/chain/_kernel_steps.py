"""The steps of a program on K and Θ: of inputs with themselves, and between two blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.theory.chain._kernel_averages import Values, average_cross, average_same
from dynagram.theory.chain._kernel_program import (
    Add,
    Affine,
    Average,
    Linear,
    Merge,
    Normalise,
    Push,
    Recall,
    Sparse,
    Step,
)
from dynagram.theory.chain._position_pairs import PositionPairs

Variances = Float[np.ndarray, "position input"]


@dataclass
class _Frame:
    """A stream put aside, and the sum of the branches that have ended."""

    stream: Values
    total: Values | None = None


@dataclass
class SameRun:
    """Steps on pairs of positions of one input, for many inputs: values (pair, input).

    `read` collects the variances (position, input) that averages and norms have read.
    """

    values: Values
    read: list[np.ndarray] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """One step."""
        if isinstance(step, Average | Normalise):
            variance = _variances(self.values.K, step.lists.same)
            self.read.append(variance)
            if isinstance(step, Normalise):
                _require_length(variance, step)
            if isinstance(step, Average):
                self.values = average_same(step, self.values, variance)
            else:
                pairs, scale = step.lists.same, _scale(variance, step.epsilon)
                factor = scale[pairs.first] * scale[pairs.second]
                self.values = self.values.each(lambda array: array * factor)
        else:
            self.values = _move(step, self.values, self.frames, 1)


@dataclass
class CrossRun:
    """Steps on pairs of positions of two inputs, for two blocks: values (pair, left, right).

    `left` and `right` are the variances that `SameRun` has read, of the two blocks.
    """

    values: Values
    left: Sequence[np.ndarray]
    right: Sequence[np.ndarray]
    reads: int = 0
    frames: list[_Frame] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """One step."""
        if isinstance(step, Average | Normalise):
            left, right = self.left[self.reads], self.right[self.reads]
            self.reads += 1
            if isinstance(step, Average):
                self.values = average_cross(step, self.values, left, right)
            else:
                pairs = step.lists.cross
                one = _scale(left, step.epsilon)[pairs.first][:, :, None]
                two = _scale(right, step.epsilon)[pairs.second][:, None, :]
                factor = one * two
                self.values = self.values.each(lambda array: array * factor)
        else:
            self.values = _move(step, self.values, self.frames, 0)


def _move(step: Step, values: Values, frames: list[_Frame], which: int) -> Values:
    """Steps that are linear; `which` list they act on, 0 for cross and 1 for same."""
    if isinstance(step, Linear):
        moved = values.each(lambda array: apply_map(step.maps[which], array))
        return apply_affine(step.affine, moved, is_new=step.maps[which] is not None)
    if isinstance(step, Push):
        frames.append(_Frame(values))
        return values
    if isinstance(step, Recall):
        return frames[-1].stream.each(lambda array: apply_map(step.maps[which], array))
    if isinstance(step, Add):
        frame = frames[-1]
        frame.total = values if frame.total is None else _sum(frame.total, values, 1.0, 1.0)
        return values
    if isinstance(step, Merge):
        frame = frames.pop()
        assert frame.total is not None
        stream = frame.stream.each(lambda array: apply_map(step.maps[which], array))
        return _sum(stream, frame.total, step.skip**2, step.strength**2)
    raise AssertionError(step)


def apply_map(matrix: Sparse | None, array: np.ndarray) -> np.ndarray:
    """A map over the list of pairs, the first axis."""
    if matrix is None:
        return array
    flat = array.reshape(array.shape[0], -1)
    return (matrix @ flat).reshape(-1, *array.shape[1:])


def apply_affine(affine: Affine, values: Values, *, is_new: bool) -> Values:
    """Weights and biases; arrays that `is_new` says are not shared are changed in place."""
    if affine == Affine():
        return values
    C_W, C_b, lambda_W, lambda_b = affine
    K, Theta = values
    if Theta is not None and C_W != 1.0:
        Theta = C_W * Theta
    elif Theta is not None and not is_new:
        Theta = Theta.copy()
    if lambda_W != 0.0:
        part = K if lambda_W == 1.0 and Theta is not None else lambda_W * K
        Theta = part if Theta is None else np.add(Theta, part, out=Theta)
    if lambda_b != 0.0:
        Theta = np.full_like(K, lambda_b) if Theta is None else np.add(Theta, lambda_b, out=Theta)
    if C_W != 1.0:
        K = C_W * K
    elif C_b != 0.0 and not is_new:
        K = K.copy()
    if C_b != 0.0:
        K = np.add(K, C_b, out=K)
    return Values(K, Theta)


def _sum(one: Values, two: Values, a: float, b: float) -> Values:
    if a == b == 1.0 and one.Theta is not None and two.Theta is not None:
        return Values(one.K + two.K, one.Theta + two.Theta)
    K = a * one.K + b * two.K
    if one.Theta is None or two.Theta is None:
        rest, factor = (two.Theta, b) if one.Theta is None else (one.Theta, a)
        return Values(K, None if rest is None else factor * rest)
    return Values(K, a * one.Theta + b * two.Theta)


def _variances(K: Float[np.ndarray, "pair input"], pairs: PositionPairs) -> Variances:
    """K at (p, p); positions that nothing reads have none, which stands as 0."""
    variance = np.zeros((pairs.positions, K.shape[1]))
    ends = pairs.first == pairs.second
    variance[pairs.first[ends]] = K[ends]
    if not np.all(np.isfinite(variance)) or np.any(variance > 1e200):
        raise NonFiniteError(
            "the kernel K overflows: it grows from block to block; use smaller C_W, fewer blocks "
            "or norms"
        )
    return np.maximum(variance, 0.0)


def _require_length(variance: Variances, step: Normalise) -> None:
    """Refuse to normalise nothing."""
    pairs = step.lists.same
    read = pairs.first[pairs.first == pairs.second]
    if np.any(variance[read] + step.epsilon <= 0):
        allowed = "the signal is zero for some input, which has no norm: take epsilon > 0"
        raise InvalidValueError("epsilon", step.epsilon, allowed)


def _scale(variance: Variances, epsilon: float) -> Variances:
    total = variance + epsilon
    return np.where(total > 0, 1.0 / np.sqrt(np.where(total > 0, total, 1.0)), 0.0)
