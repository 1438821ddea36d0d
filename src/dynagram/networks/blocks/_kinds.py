"""Blocks by the names they have in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynagram._toml import shortened
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import as_list
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import AveragePool, Conv, Dense, Flatten, Select
from dynagram.networks.blocks._nonlinear import Activate, Gated, LayerNorm, RMSNorm

_ALL: tuple[type[Block], ...] = (
    Dense, Conv, Flatten, AveragePool, Select, Activate, Gated, RMSNorm, LayerNorm, Attention,
    Residual, Embedding,
)  # fmt: skip
KINDS: dict[str, type[Block]] = {block.kind: block for block in _ALL}


def block_from_table(table: object) -> Block:
    """The block that a TOML table describes."""
    if not isinstance(table, Mapping):
        raise InvalidTypeError("block", shortened(repr(table)), "expected a table with a kind")
    kind: Any = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidValueError("kind of block", kind, f"expected one of {', '.join(KINDS)}")
    return KINDS[kind].from_table(table)


def blocks_from_tables(tables: object) -> Blocks:
    """Blocks in a row from their tables."""
    listed = as_list(tables)
    if listed is None:
        raise InvalidTypeError("blocks", shortened(repr(tables)), "expected a list of tables")
    return tuple(block_from_table(table) for table in listed)
