"""A part of a batch that bands can be worked out for: few samples, few positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dynagram.live._recognition import Recognised
from dynagram.live._redraw import padding_of
from dynagram.networks import Chain
from dynagram.networks.blocks import Conv, Dense, Embedding, Flatten, Select
from dynagram.networks.blocks._composite import every_block

_MOST_INDICES = 6  # samples times tokens: what theory costs goes with the fourth power
_MOST_PIXELS = 64


def crop(read: Recognised) -> tuple[Chain, tuple[Any, ...], np.ndarray]:
    """The network on fewer samples and positions, with its parameters and the rows of inputs.

    Convolutions keep up to 64 positions, sequences as many as make 6 with two samples or less;
    where a matrix reads all positions, all stay. A readout that is also the embedding keeps the
    outputs of tokens that do not occur, for which it is as good as a matrix of its own. Tokens of
    padding, whose vector is 0, are taken for others.
    """
    network, params, rows = _fewer(read)
    row = padding_of(params[0]["token"]) if isinstance(network.blocks[0], Embedding) else None
    if row is not None:
        rows = np.where(rows == row, (row + 1) % len(params[0]["token"]), rows)
    return _of_other_tokens(network, params, rows) if read.is_tied else (network, params, rows)


def _of_other_tokens(
    network: Chain, params: tuple[Any, ...], rows: np.ndarray
) -> tuple[Chain, tuple[Any, ...], np.ndarray]:
    readout = network.blocks[-1]
    assert isinstance(readout, Dense)
    others = np.setdiff1d(np.arange(readout.width), rows.astype(int))
    row = padding_of(params[0]["token"])
    others = others if row is None else others[others != row]
    if not others.size:
        return network, params, rows
    last = {key: values[..., others, :] if key == "W" else values[others]
            for key, values in params[-1].items()}  # fmt: skip
    blocks = [*network.blocks[:-1], replace(readout, width=others.size)]
    return Chain(blocks, network.inputs), (*params[:-1], last), rows


def _fewer(read: Recognised) -> tuple[Chain, tuple[Any, ...], np.ndarray]:
    network, params, rows = read.network, read.params, read.rows
    shape = network.in_shape
    listed = every_block(network.blocks)
    mixes = any(isinstance(b, Flatten) or (isinstance(b, Select) and b.position > 0)
                for b in listed)  # fmt: skip
    if shape.positions == 1 or mixes:
        return network, params, rows[:2]
    is_image = any(isinstance(block, Conv) for block in listed)
    if is_image:
        side = round(_MOST_PIXELS ** (1 / len(shape.grid)))
        grid = tuple(min(length, side) for length in shape.grid)
        samples = 2
    else:
        samples = 1 if len(rows) == 1 or shape.positions > 3 else 2
        grid = (min(shape.positions, _MOST_INDICES // samples),)
        if len(shape.grid) != 1:
            return network, params, rows[:1]
    signal = rows[:samples].reshape(-1, *shape.grid, shape.channels)
    window = (slice(None), *(slice(0, length) for length in grid))
    cut = signal[window].reshape(len(signal), -1)
    if isinstance(network.blocks[0], Embedding) and "position" in params[0]:
        first = {**params[0], "position": params[0]["position"][: grid[0]]}
        params = (first, *params[1:])
    try:
        return Chain(network.blocks, (*grid, shape.channels)), params, cut
    except ValueError:  # a stride or a window that does not fit any more
        return network, read.params, rows[:samples]
