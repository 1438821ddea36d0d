"""Blocks made of blocks, and where signals come from: residual blocks and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import as_list, checked_integer, checked_real
from dynagram.networks.blocks._block import (
    Block,
    Shape,
    Signal,
    check_variances,
    draw_normal,
    store,
)

Blocks = tuple[Block, ...]


def draw_blocks(blocks: Blocks, key: Array, shape: Shape, dtype: Any) -> tuple[Any, ...]:
    """Parameters of blocks in a row."""
    drawn = []
    for block, block_key in zip(blocks, jax.random.split(key, max(len(blocks), 1)), strict=False):
        drawn.append(block.draw(block_key, shape, dtype))
        shape = block.out_shape(shape)
    return tuple(drawn)


def rates_of_blocks(blocks: Blocks, shape: Shape) -> tuple[Any, ...]:
    """Learning rates of blocks in a row."""
    rates = []
    for block in blocks:
        rates.append(block.rates(shape))
        shape = block.out_shape(shape)
    return tuple(rates)


def apply_blocks(blocks: Blocks, params: tuple[Any, ...], x: Signal, shape: Shape) -> Signal:
    """What comes out of blocks in a row."""
    for block, values in zip(blocks, params, strict=True):
        x = block.apply(values, x, shape)
        shape = block.out_shape(shape)
    return x


def shape_after(blocks: Blocks, shape: Shape) -> Shape:
    """The shape that comes out of blocks in a row."""
    for block in blocks:
        shape = block.out_shape(shape)
    return shape


def every_block(blocks: Blocks) -> list[Block]:
    """Every block, those of residual branches too."""
    listed: list[Block] = []
    for block in blocks:
        listed.append(block)
        if isinstance(block, Residual):
            for branch in block.branches:
                listed += every_block(branch)
    return listed


def checked_blocks(name: str, blocks: object) -> Blocks:
    """A non-empty list of blocks."""
    listed = as_list(blocks)
    if listed is None or not all(isinstance(block, Block) for block in listed):
        raise InvalidTypeError(name, type(blocks).__name__, "expected a list of blocks")
    if not listed:
        raise InvalidValueError(name, [], "at least one block needed")
    return tuple(listed)


@dataclass(frozen=True)
class Residual(Block):
    """γ x + α Σ branches(x): branches side by side, all reading the same signal.

    **Arguments:**

    - `branches`: a list of blocks, or a list of such lists. A branch ends with a matrix of its own
        (`Dense`, `Conv` or `Attention`) and keeps the shape of the signal.
    - `skip`: γ.
    - `strength`: α.
    """

    kind: ClassVar[str] = "residual"

    branches: Any
    skip: float = 1.0
    strength: float = 1.0

    def __post_init__(self) -> None:
        listed = as_list(self.branches)
        if listed is not None and listed and all(isinstance(block, Block) for block in listed):
            listed = [listed]
        if not listed:
            raise InvalidTypeError("branches", self.branches, "expected lists of blocks")
        store(self, branches=tuple(checked_blocks("branch", branch) for branch in listed))
        for name in ("skip", "strength"):
            store(self, **{name: checked_real(name, getattr(self, name))})

    def out_shape(self, shape: Shape) -> Shape:
        """The same shape."""
        for branch in self.branches:
            if (out := shape_after(branch, shape)) != shape:
                allowed = f"a residual branch must keep the shape: {shape} in, {out} out"
                raise InvalidValueError("branch", [block.kind for block in branch], allowed)
        return shape

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """Parameters of every branch."""
        keys = jax.random.split(key, len(self.branches))
        pairs = zip(self.branches, keys, strict=True)
        return tuple(draw_blocks(branch, k, shape, dtype) for branch, k in pairs)

    def rates(self, shape: Shape) -> Any:
        """Learning rates of every branch."""
        return tuple(rates_of_blocks(branch, shape) for branch in self.branches)

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """γ x + α Σ branches(x)."""
        pairs = zip(self.branches, params, strict=True)
        outputs = [apply_blocks(branch, values, x, shape) for branch, values in pairs]
        return self.skip * x + self.strength * sum(outputs[1:], start=outputs[0])

    def table(self) -> dict[str, Any]:
        """`kind`, the branches as lists of tables, γ and α."""
        branches = [[block.table() for block in branch] for branch in self.branches]
        return {
            "kind": self.kind,
            "branches": branches,
            "skip": self.skip,
            "strength": self.strength,
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Block:
        """The residual block that `table` describes."""
        from dynagram.networks.blocks._kinds import blocks_from_tables

        branches = as_list(table.get("branches"))
        if branches is None:
            raise InvalidValueError("block residual", dict(table), "needs lists of branches")
        made = [blocks_from_tables(branch) for branch in branches]
        return super().from_table({**table, "branches": made})


@dataclass(frozen=True)
class Embedding(Block):
    """Vectors for the tokens of a sequence, and for their positions; the first block.

    Inputs are the numbers of tokens, one per position.

    **Arguments:**

    - `vocabulary`: how many tokens there are.
    - `width`: channels that come out.
    - `C_token`, `C_position`: variances of the entries.
    - `lambda_token`, `lambda_position`: learning rates. Where variance and rate of the positions
        are 0 they have no vectors.
    """

    kind: ClassVar[str] = "embedding"

    vocabulary: int
    width: int
    C_token: float = 1.0
    C_position: float = 0.0
    lambda_token: float = 1.0
    lambda_position: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width"):
            store(self, **{name: checked_integer(name, getattr(self, name), 1)})
        check_variances(self, "C_token", "C_position", "lambda_token", "lambda_position")

    @property
    def has_positions(self) -> bool:
        """Whether positions have vectors."""
        return self.C_position > 0 or self.lambda_position > 0

    def out_shape(self, shape: Shape) -> Shape:
        """The same positions with `width` channels."""
        if shape.channels != 1:
            allowed = "tokens are one number per position"
            raise InvalidValueError("channels of an embedding", shape.channels, allowed)
        return Shape(shape.grid, self.width)

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """The tables of vectors."""
        token, position = jax.random.split(key)
        tables = {"token": draw_normal(token, (self.vocabulary, self.width), self.C_token, dtype)}
        if self.has_positions:
            size = (shape.positions, self.width)
            tables["position"] = draw_normal(position, size, self.C_position, dtype)
        return tables

    def rates(self, shape: Shape) -> Any:
        """λ of the tables."""
        rates = {"token": self.lambda_token}
        return rates | {"position": self.lambda_position} if self.has_positions else rates

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """The vectors of the tokens and of their positions, added."""
        tokens = jnp.asarray(x[..., 0], jnp.int32)
        vectors = jnp.asarray(params["token"])[tokens]
        return vectors + params["position"][None] if self.has_positions else vectors
