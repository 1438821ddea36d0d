"""Blocks of well-known architectures: transformers, convolutional networks, residual MLPs."""

from __future__ import annotations

from typing import Any

from dynagram.errors import InvalidValueError
from dynagram.networks._checks import checked_choice, checked_integer
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import AveragePool, Conv, Dense, Flatten, Select
from dynagram.networks.blocks._nonlinear import Activate, Gated, LayerNorm, RMSNorm

NORMS = ("rms", "layer", "none")
PLACES = ("pre", "post")
READOUTS = ("last", "mean", "all")


def transformer_blocks(
    *,
    width: int,
    depth: int,
    heads: int,
    outputs: int,
    vocabulary: int | None,
    hidden: int | None,
    activation: Any,
    gated: bool,
    norm: str,
    place: str,
    causal: bool,
    readout: str,
    strength: float,
    embedding: dict[str, float],
    attention: dict[str, Any],
    hidden_C: tuple[float, float],
    readout_C: float,
) -> Blocks:
    """The blocks of a transformer; see `Chain.transformer`."""
    checked_choice("norm", norm, NORMS)
    checked_choice("place", place, PLACES)
    checked_choice("readout", readout, READOUTS)
    for name, value in (("width", width), ("depth", depth), ("heads", heads)):
        checked_integer(name, value, 1)
    size = attention.pop("head_size", None)
    if size is None:
        if width % heads:
            raise InvalidValueError("heads", heads, f"must divide the width {width}")
        size = width // heads
    hidden = 4 * width if hidden is None else hidden
    first, last = hidden_C
    heads_block = Attention(heads, size, causal=causal, **attention)
    inner: list[Block] = (
        [Gated(hidden, activation, C_W=first, C_gate=first)]
        if gated
        else [Dense(hidden, C_W=first), Activate(activation)]
    )
    normed: list[Block] = [] if norm == "none" else [{"rms": RMSNorm, "layer": LayerNorm}[norm]()]
    blocks: list[Block] = []
    if vocabulary is None:
        blocks.append(Dense(width, C_W=embedding.get("C_token", 1.0)))
    else:
        blocks.append(Embedding(vocabulary, width, **embedding))
    if place == "post":
        blocks += normed
    for _ in range(depth):
        for branch in ([heads_block], [*inner, Dense(width, C_W=last)]):
            if place == "pre":
                blocks.append(Residual([*normed, *branch], strength=strength))
            else:
                blocks += [Residual(list(branch), strength=strength), *normed]
    if place == "pre":
        blocks += normed
    blocks += {"last": [Select(-1)], "mean": [AveragePool()], "all": []}[readout]
    return (*blocks, Dense(outputs, C_W=readout_C))


def convolutional_blocks(
    *,
    width: int,
    depth: int,
    outputs: int,
    activation: Any,
    size: int,
    stride: int,
    padding: str,
    C_W: float,
    C_b: float,
    readout: str,
) -> Blocks:
    """Convolutions and activations, then an average over positions or a matrix of its own each."""
    checked_choice("readout", readout, ("mean", "flatten"))
    blocks: list[Block] = []
    for index in range(checked_integer("depth", depth, 1)):
        step = stride if index else 1
        conv = Conv(width, size=size, stride=step, padding=padding, C_W=C_W, C_b=C_b)
        blocks += [conv, Activate(activation)]
    if readout == "mean":
        return (*blocks, AveragePool(), Dense(outputs, C_W=C_W, C_b=C_b))
    return (*blocks, Flatten(outputs, C_W=C_W, C_b=C_b))
