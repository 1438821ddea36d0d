"""Blocks that are linear in the signal: dense layers, convolutions, pooling, selecting, flattening.

Each says which positions it reads (`taps` or `mixing`), in the form that the theory uses too: a
matrix with weights of fan-in n·k sends the Gram matrix of the signal to C_b + C_W times its
average over the k taps, both positions of a pair shifted alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dynagram.errors import InvalidValueError
from dynagram.networks._checks import as_list, checked_choice, checked_integer
from dynagram.networks.blocks._block import (
    Block,
    Shape,
    Signal,
    check_variances,
    draw_normal,
    store,
)

Taps = Int[np.ndarray, "tap position"]
_PADDINGS = ("circular", "zero", "valid")


@dataclass(frozen=True)
class Dense(Block):
    """A weight matrix and biases, the same at every position: h = b + W x.

    **Arguments:**

    - `width`: channels that come out.
    - `C_W`, `C_b`: variances of weights times fan-in, and of biases.
    - `lambda_W`, `lambda_b`: learning rates of weights times fan-in, and of biases. Where C_b and
        λ_b are 0 there are no biases.

    >>> Dense(5, C_W=2.0)
    Dense(width=5, C_W=2.0, C_b=0.0, lambda_W=1.0, lambda_b=0.0)
    """

    kind: ClassVar[str] = "dense"

    width: int
    C_W: float = 1.0
    C_b: float = 0.0
    lambda_W: float = 1.0
    lambda_b: float = 0.0

    def __post_init__(self) -> None:
        store(self, width=checked_integer("width", self.width, 1))
        check_variances(self, "C_W", "C_b", "lambda_W", "lambda_b")

    @property
    def has_biases(self) -> bool:
        """Whether biases are drawn or learn."""
        return self.C_b > 0 or self.lambda_b > 0

    def out_shape(self, shape: Shape) -> Shape:
        """The same positions with `width` channels."""
        return Shape(shape.grid, self.width)

    def taps(self, shape: Shape) -> Taps:
        """Which position each tap reads for each position that comes out; −1 for none."""
        return np.arange(shape.positions)[None, :]

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """W (taps, width, channels) and, where there are biases, b (width,)."""
        key_b, key_W = jax.random.split(key)
        taps = self.taps(shape).shape[0]
        size = (taps, self.width, shape.channels)
        W = draw_normal(key_W, size, self.C_W / (taps * shape.channels), dtype)
        if not self.has_biases:
            return {"W": W}
        return {"W": W, "b": draw_normal(key_b, (self.width,), self.C_b, dtype)}

    def rates(self, shape: Shape) -> Any:
        """λ_b and λ_W over fan-in."""
        fan_in = self.taps(shape).shape[0] * shape.channels
        rates = {"W": self.lambda_W / fan_in}
        return rates | {"b": self.lambda_b} if self.has_biases else rates

    def metric(self, x: Signal, shape: Shape) -> Float[Array, "indices indices"]:
        """The covariance of what comes out, over weights and biases, between (sample, position)."""
        total = jnp.asarray(self.C_b, x.dtype)
        reads = self._reads(x, shape)
        for read in reads:
            rows = read.reshape(-1, shape.channels)
            total = total + self.C_W / (len(reads) * shape.channels) * (rows @ rows.T)
        return total

    def _reads(self, x: Signal, shape: Shape) -> list[Signal]:
        """What each tap reads."""
        taps = self.taps(shape)
        if np.any(taps < 0):  # position −1 reads zero
            x = jnp.concatenate([x, jnp.zeros_like(x[:, :1])], axis=1)
        return [x[:, read] for read in taps]

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """b + Σ_taps W_tap x."""
        pairs = zip(self._reads(x, shape), params["W"], strict=True)
        out = jnp.sum(jnp.stack([read @ W.T for read, W in pairs]), axis=0)
        return out + params["b"][None, None, :] if self.has_biases else out


@dataclass(frozen=True)
class Conv(Dense):
    """A convolution over the grid of positions, in one or two dimensions.

    **Arguments:**

    - `width`: channels that come out.
    - `size`: taps along each axis of the grid, one number for all.
    - `stride`: every how many positions are kept, likewise.
    - `padding`: "circular", "zero" (as many positions as before the stride) or "valid".
    - `C_W`, `C_b`, `lambda_W`, `lambda_b`: as for `Dense`; the fan-in is channels times taps.

    >>> Conv(8, size=3).out_shape(Shape((6, 6), 2))
    Shape(grid=(6, 6), channels=8)
    """

    kind: ClassVar[str] = "conv"

    size: Any = 3
    stride: Any = 1
    padding: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("size", "stride"):
            value = as_list(getattr(self, name))
            values = [getattr(self, name)] if value is None else value
            numbers = tuple(checked_integer(name, number, 1) for number in values)
            store(self, **{name: numbers[0] if value is None else numbers})
        store(self, padding=checked_choice("padding", self.padding, _PADDINGS))

    def _along(self, name: str, shape: Shape) -> tuple[int, ...]:
        value = getattr(self, name)
        values = value if isinstance(value, tuple) else (value,) * len(shape.grid)
        if len(values) != len(shape.grid) or not shape.grid:
            allowed = f"the grid of positions is {shape.grid}: one number per axis of it"
            raise InvalidValueError(f"{name} of conv", value, allowed)
        return values

    def _axis_length(self, length: int, size: int, stride: int) -> int:
        """How many positions along one axis come out."""
        if self.padding != "valid":
            return -(-length // stride)
        if size > length:
            raise InvalidValueError("size of conv", size, f"at most {length}, the grid")
        return (length - size) // stride + 1

    def _axis_taps(self, length: int, size: int, stride: int) -> np.ndarray:
        """(size, out): which position along one axis each tap reads; −1 for none."""
        if self.padding == "valid":
            start = np.arange(0, length - size + 1, stride)
            return start[None, :] + np.arange(size)[:, None]
        centre = np.arange(0, length, stride)
        read = centre[None, :] + np.arange(size)[:, None] - (size - 1) // 2
        if self.padding == "circular":
            return read % length
        return np.where((read < 0) | (read >= length), -1, read)

    def _axes(self, shape: Shape) -> list[tuple[int, int, int]]:
        """Length, taps and stride along each axis of the grid."""
        sizes, strides = self._along("size", shape), self._along("stride", shape)
        return list(zip(shape.grid, sizes, strides, strict=True))

    def out_shape(self, shape: Shape) -> Shape:
        """The positions that are left, with `width` channels."""
        return Shape(tuple(self._axis_length(*axis) for axis in self._axes(shape)), self.width)

    def taps(self, shape: Shape) -> Taps:
        """Which position each tap reads for each position that comes out; −1 for none."""
        axes = [self._axis_taps(*axis) for axis in self._axes(shape)]
        numbers = np.arange(shape.positions).reshape(shape.grid)
        rows = []
        for tap in product(*(range(axis.shape[0]) for axis in axes)):
            reads = np.meshgrid(
                *(axis[t] for axis, t in zip(axes, tap, strict=True)), indexing="ij"
            )
            outside = np.any([read < 0 for read in reads], axis=0)
            rows.append(np.where(outside, -1, numbers[tuple(reads)]).reshape(-1))
        return np.stack(rows)


@dataclass(frozen=True)
class Flatten(Dense):
    """A dense layer that reads all positions, each with weights of its own: one position comes out.

    **Arguments:** as for `Dense`; the fan-in is channels times positions.

    >>> Flatten(10).out_shape(Shape((4, 4), 8))
    Shape(grid=(), channels=10)
    """

    kind: ClassVar[str] = "flatten"

    def out_shape(self, shape: Shape) -> Shape:
        """One position."""
        return Shape((), self.width)

    def taps(self, shape: Shape) -> Taps:
        """Every position is a tap."""
        return np.arange(shape.positions)[:, None]

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """b + Σ_positions W_position x: one product, since images have thousands of positions."""
        del shape
        out = jnp.einsum("spc,pwc->sw", x, params["W"])[:, None]
        return out + params["b"][None, None, :] if self.has_biases else out


@dataclass(frozen=True)
class Mixing(Block):
    """Base of blocks that average over positions, channel by channel, without parameters."""

    def mixing(self, shape: Shape) -> Float[np.ndarray, "out position"]:
        """The weights of the average."""
        raise NotImplementedError

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """The averages."""
        weights = jnp.asarray(self.mixing(shape), x.dtype)
        return jnp.einsum("op,spc->soc", weights, x)


@dataclass(frozen=True)
class AveragePool(Mixing):
    """Averages over windows of the grid that do not overlap.

    **Arguments:**

    - `size`: positions of a window along every axis; None for all positions, one comes out.

    >>> AveragePool(2).out_shape(Shape((4, 4), 8)), AveragePool().out_shape(Shape((4,), 8))
    (Shape(grid=(2, 2), channels=8), Shape(grid=(), channels=8))
    """

    kind: ClassVar[str] = "average-pool"

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            store(self, size=checked_integer("size", self.size, 1))

    def out_shape(self, shape: Shape) -> Shape:
        """The windows."""
        if self.size is None:
            return Shape((), shape.channels)
        if any(length % self.size for length in shape.grid):
            allowed = f"must divide the grid {shape.grid}"
            raise InvalidValueError("size of average-pool", self.size, allowed)
        return Shape(tuple(length // self.size for length in shape.grid), shape.channels)

    def mixing(self, shape: Shape) -> Float[np.ndarray, "out position"]:
        """1 over the positions of a window inside it."""
        if self.size is None:
            return np.full((1, shape.positions), 1.0 / shape.positions)
        out = self.out_shape(shape)
        where = np.indices(shape.grid).reshape(len(shape.grid), -1) // self.size
        window = np.ravel_multi_index(tuple(where), out.grid)
        matrix = np.zeros((out.positions, shape.positions))
        matrix[window, np.arange(shape.positions)] = float(self.size) ** -len(shape.grid)
        return matrix


@dataclass(frozen=True)
class Select(Mixing):
    """One position of the sequence, such as the last.

    **Arguments:**

    - `position`: its number, from the end where negative.

    >>> Select(-1).out_shape(Shape((7,), 8))
    Shape(grid=(), channels=8)
    """

    kind: ClassVar[str] = "select"

    position: int = -1

    def __post_init__(self) -> None:
        store(self, position=checked_integer("position", self.position, -(2**31)))

    def out_shape(self, shape: Shape) -> Shape:
        """One position."""
        if not -shape.positions <= self.position < shape.positions:
            raise InvalidValueError("position", self.position, f"there are {shape.positions}")
        return Shape((), shape.channels)

    def mixing(self, shape: Shape) -> Float[np.ndarray, "out position"]:
        """1 at the position."""
        row = np.zeros((1, shape.positions))
        row[0, self.position] = 1.0
        return row
