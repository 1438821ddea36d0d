"""What a recorder of one framework hands over at a recorded step: arrays, and nothing measured yet.

The arrays are those of NumPy or of PyTorch on the device of the model. What is measured on them
uses only what both have: products, sums, reshapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dynagram.networks import Model
else:
    Model = object

Array = Any  # of NumPy or PyTorch


@dataclass(eq=False)
class LayerLook:
    """One layer with weights, seen on the probe.

    Signals are (samples, tokens, channels); every call of a shared layer adds its tokens.

    **Arguments:**

    - `name`, `kind`: as in the model; "linear", "conv", "embedding" or "other".
    - `weight`: (n_out, …), at least float32.
    - `step`, `step_stride`: the last update of the rows `weight[::step_stride]`; None before one.
    - `bias_step`: the last update of the bias.
    - `inputs`: what enters, for a convolution its patches; None where it is not known.
    - `outputs`: what leaves, before any activation.
    - `errors`: samples · ∂loss/∂outputs; None without a loss.
    - `response`: ∂f/∂outputs of a random combination f of the outputs of the network.
    - `bias`: the bias, or None.
    - `learns`: whether its weights are trained.
    """

    name: str
    kind: str
    weight: Array
    step: Array | None = None
    step_stride: int = 1
    bias_step: Array | None = None
    inputs: Array | None = None
    outputs: Array | None = None
    errors: Array | None = None
    response: Array | None = None
    bias: Array | None = None
    learns: bool = True

    @functools.cached_property
    def weight_square(self) -> float:
        """‖W‖²."""
        return square_of(self.weight)

    @functools.cached_property
    def step_square(self) -> float | None:
        """The squared norm of the last update, from the rows that are known of it."""
        return None if self.step is None else square_of(self.step) * self.step_stride

    @functools.cached_property
    def moved_square(self) -> float | None:
        """The same with the bias."""
        if self.step_square is None or self.bias_step is None:
            return self.step_square
        return self.step_square + square_of(self.bias_step)


@dataclass(frozen=True, eq=False)
class Task:
    """What a model learns, for theory.

    **Arguments:**

    - `read`: gives the model as one of ours; raises a `DynagramError` where it is none.
    - `x`, `y`: the whole probe.
    - `loss`: "mean" or "cross-entropy"; None for any other.
    """

    read: Callable[[], Model]
    x: Array
    y: np.ndarray
    loss: str | None


@dataclass(eq=False)
class Look:
    """All layers in the order in which they are called, and what belongs to the whole.

    **Arguments:**

    - `layers`: `LayerLook`s.
    - `loss`: on the probe; None without targets.
    - `eta`: the learning rate of the last step; None where it is not known.
    - `momentum`: of plain gradient descent at one rate for all; None for any other update rule.
    - `is_written`: whether anything but steps has written to the weights, such as a projection.
    - `nesterov`: whether gradients are those a step ahead.
    - `weight_decay`: likewise.
    - `curvature`: a function that gives the top eigenvalue of the Gauss–Newton matrix.
    - `elsewhere`: a function that gives the curvature along its direction on other samples of the
        probe; None where there are too few.
    - `is_as_trained`: whether the function looked at is the one that is trained; that of batch
        norms, whose statistics of a batch depend on the weights, is another.
    - `task`: the model and the targets as theory knows them; None without targets.
    - `features`: a function that gives, for the number of a layer, its outputs on more samples of
        the probe, a row each, and their targets.
    """

    layers: list[LayerLook]
    loss: float | None = None
    eta: float | None = None
    momentum: float | None = None
    is_written: bool = False
    nesterov: bool = False
    weight_decay: float = 0.0
    curvature: Callable[[], float] | None = None
    elsewhere: Callable[[], float] | None = None
    is_as_trained: bool = True
    task: Task | None = None
    features: Callable[[int], tuple[np.ndarray, np.ndarray] | None] | None = None


def square_of(values: Array) -> float:
    """The sum of the squares of all entries.

    >>> square_of(np.full((2, 3), 2.0))
    24.0
    """
    return float((values * values).sum())


def to_numpy(values: Array) -> np.ndarray:
    """A float64 copy on the host.

    >>> to_numpy(np.ones(2, np.float32)).dtype
    dtype('float64')
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.array(values, dtype=np.float64)


def as_matrix(weight: Array) -> Array:
    """(n_out, everything else)."""
    return weight.reshape(weight.shape[0], -1)


def some_columns(values: Array, stride: int) -> Array:
    """Every so many columns, side by side in memory: products would copy them there each time."""
    columns = values[:, ::stride]
    if isinstance(columns, np.ndarray):
        return np.ascontiguousarray(columns)
    return columns.contiguous()


def thinned(size: int, most: int) -> int:
    """The stride that leaves at most `most` of `size` rows.

    >>> thinned(512, 256), thinned(100, 256)
    (2, 1)
    """
    return max(1, -(-size // most))
