"""What every block offers: shapes, parameters, learning rates, the forward pass, a TOML table.

A signal has shape (samples, positions, channels). Positions are those of a sequence or the pixels
of an image in row order; a vector has one. Blocks are frozen records, so that a network made of
them is hashable, printable and comparable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dynagram._trust import check_trusted
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks._checks import checked_number

Signal = Float[Array, "samples _ _"]  # (samples, positions, channels)


class Shape(NamedTuple):
    """The grid of positions, () for one position, and the number of channels of a signal."""

    grid: tuple[int, ...]
    channels: int

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Block:
    """Base of all blocks. A block without parameters has an empty pytree of them."""

    kind: ClassVar[str] = ""

    def out_shape(self, shape: Shape) -> Shape:
        """The shape of what comes out; raises `InvalidValueError` where the block does not fit."""
        return shape

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """Parameters for a signal of this shape, from `key`; traceable."""
        return ()

    def rates(self, shape: Shape) -> Any:
        """The learning rate of each array of parameters, a pytree like that of `draw`."""
        return ()

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """The signal that comes out; traceable."""
        raise NotImplementedError

    def table(self) -> dict[str, Any]:
        """The block as a mapping of TOML values, `kind` first."""
        entries: dict[str, Any] = {"kind": self.kind}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Activation):
                if value.anonymous:
                    allowed = "a callable has no name to write: pass 'package.module:function'"
                    raise InvalidValueError("activation", value.name, allowed)
                value = value.name
            entries[field.name] = value
        return entries

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Block:
        """The block that `table` describes; unknown keys and code not trusted are refused."""
        known = [field.name for field in fields(cls)]
        if unknown := [key for key in table if key not in (*known, "kind")]:
            allowed = f"unknown key; known: {', '.join(known)}"
            raise InvalidValueError(f"block {cls.kind}", ", ".join(unknown), allowed)
        if "activation" in table:
            check_trusted("activation", table["activation"])
        try:
            return cls(**{key: value for key, value in table.items() if key != "kind"})
        except TypeError as error:
            raise InvalidValueError(f"block {cls.kind}", dict(table), str(error)) from error


def store(block: Block, **values: object) -> None:
    """Write checked values into a frozen block."""
    for name, value in values.items():
        object.__setattr__(block, name, value)


def check_variances(block: Any, *names: str) -> None:
    """Variances and learning rates as finite floats ≥ 0."""
    for name in names:
        allowed = "a learning rate must be ≥ 0" if name[:3] == "lam" else "a variance must be ≥ 0"
        store(block, **{name: checked_number(name, getattr(block, name), allowed)})


def draw_normal(key: Array, shape: tuple[int, ...], variance: float, dtype: Any) -> Array:
    """Independent normal numbers of this variance."""
    return math.sqrt(variance) * jax.random.normal(key, shape, dtype)


def as_grid(x: Signal, shape: Shape) -> Array:
    """The signal with its positions on their grid."""
    return jnp.reshape(x, (x.shape[0], *shape.grid, x.shape[-1]))
