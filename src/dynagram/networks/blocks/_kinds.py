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

# What is often asked for and is no chain of Gram matrices, or one whose averages are not computed.
REFUSED = {
    "max-pool": "the largest of several positions needs averages over all of them at once, which "
    "are not computed: use average-pool",
    "batch-norm": "a norm over the batch ties all inputs together and acts on single channels, "
    "which the Gram matrix does not know: use rms-norm or layer-norm",
    "dropout": "what is dropped differs from step to step: networks are those of evaluation",
    "shared": "weights shared between blocks are not fresh: the signal remembers them, and its "
    "Gram matrix is no Markov chain; each block has weights of its own",
    "tied": "a readout tied to the embedding: take a dense block, which has a matrix of its own, "
    "with C_W = C_token·width. All is exact for outputs of tokens that no input holds; those of "
    "tokens that occur meet their own vectors, of which there is no theory",
}


def block_from_table(table: object) -> Block:
    """The block that a TOML table describes."""
    if not isinstance(table, Mapping):
        raise InvalidTypeError("block", shortened(repr(table)), "expected a table with a kind")
    kind: Any = table.get("kind")
    if isinstance(kind, str) and kind in REFUSED:
        raise InvalidValueError("kind of block", kind, REFUSED[kind])
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidValueError("kind of block", kind, f"expected one of {', '.join(KINDS)}")
    return KINDS[kind].from_table(table)


def blocks_from_tables(tables: object) -> Blocks:
    """Blocks in a row from their tables."""
    listed = as_list(tables)
    if listed is None:
        raise InvalidTypeError("blocks", shortened(repr(tables)), "expected a list of tables")
    return tuple(block_from_table(table) for table in listed)
