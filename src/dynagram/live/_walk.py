"""Every array of parameters of a network of blocks: where it stands, its fans and its variance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Attention, Conv, Dense, Embedding, Gated, Residual
from dynagram.networks.blocks._block import Block, Shape

Place = tuple[Any, ...]


@dataclass(frozen=True)
class Matrix:
    """One array of parameters of a network.

    **Arguments:**

    - `place`: number of the block, places within it and the key of its parameters.
    - `role`: matrices with the same role are drawn alike: where it stands and its letter.
    - `variance`: of an entry.
    - `fan_in`, `fan_out`: of a matrix; for biases and tables 1 and the width.
    - `is_branch_end`: whether it is the last matrix of a residual branch.
    - `activation`: the name of σ whose values it reads, "" for none.
    - `taps`: positions that a convolution reads, each of which counts in its fans.
    """

    place: Place
    role: str
    variance: float
    fan_in: int
    fan_out: int
    is_branch_end: bool = False
    activation: str = ""
    taps: int = 1

    @property
    def key(self) -> str:
        """Its letter in the parameters of its block."""
        return str(self.place[-1])

    @property
    def is_weight(self) -> bool:
        """Whether it is a matrix or a table, and no vector of biases."""
        return self.key != "b"


def matrices_of(network: Chain) -> tuple[Matrix, ...]:
    """All arrays of parameters in order.

    >>> net = Chain([Dense(4, C_W=2.0), Activate("relu"), Dense(1)], 8)
    >>> [(matrix.role, matrix.variance) for matrix in matrices_of(net)]
    [('first W', 0.25), ('last W', 0.25)]
    """
    return tuple(_of_row(network.blocks, network.in_shape, ()))


def _of_row(
    blocks: tuple[Block, ...], shape: Shape, place: Place, branch: str = ""
) -> Iterator[Matrix]:
    weighted = [i for i, block in enumerate(blocks) if (not isinstance(block, Activate)
                and _variances(block, shape)) or isinstance(block, Residual)]  # fmt: skip
    sigma = ""
    for number, block in enumerate(blocks):
        if isinstance(block, Residual):
            for b, row in enumerate(block.branches):
                kind = "attention" if any(isinstance(p, Attention) for p in row) else "mlp"
                yield from _of_row(row, shape, (*place, number, b), kind)
        else:
            where = branch or _where(number, weighted, block)
            for key, (variance, fan_in, fan_out) in _variances(block, shape).items():
                last = bool(branch) and number == weighted[-1] and key in ("W", "O", "b")
                order = f" {weighted.index(number) + 1}" if branch else ""
                taps = len(block.taps(shape)) if isinstance(block, Conv) and key == "W" else 1
                yield Matrix(
                    (*place, number, key), f"{where}{order} {key}", variance, fan_in, fan_out,
                    last, sigma, taps,
                )  # fmt: skip
        sigma = block.activation.name if isinstance(block, Activate | Gated) else ""
        shape = block.out_shape(shape)


def _where(number: int, weighted: list[int], block: Block) -> str:
    if number == weighted[-1]:
        return "last"
    return "first" if number == weighted[0] else f"hidden {block.kind}"


def _variances(block: Block, shape: Shape) -> dict[str, tuple[float, int, int]]:
    """Variance, fan-in and fan-out of every array of a block that is no sum of others."""
    n = shape.channels
    if isinstance(block, Dense):
        fan_in, taps = block.taps(shape).shape[0] * n, block.taps(shape).shape[0]
        made = {"W": (block.C_W / fan_in, fan_in, block.width * (taps if block.kind == "conv"
                                                                  else 1))}  # fmt: skip
        return made | {"b": (block.C_b, 1, block.width)} if block.has_biases else made
    if isinstance(block, Gated):
        return {"W": (block.C_W / n, n, block.width), "gate": (block.C_gate / n, n, block.width)}
    if isinstance(block, Attention):
        return {key: (variance, size[1], size[0])
                for key, (size, variance, _) in block._sizes(shape).items()}  # fmt: skip
    if isinstance(block, Embedding):
        made = {"token": (block.C_token, 1, block.width)}
        positions = {"position": (block.C_position, 1, block.width)}
        return made | positions if block.has_positions else made
    return {}


def with_variances(network: Chain, variance: Callable[[Matrix], float]) -> Chain:
    """The network with other variances of its entries, array by array."""
    wanted = {matrix.place: (matrix, variance(matrix)) for matrix in matrices_of(network)}

    def changed(block: Block, place: Place) -> Block:
        if isinstance(block, Residual):
            rows = [[changed(part, (*place, b, p)) for p, part in enumerate(row)]
                    for b, row in enumerate(block.branches)]  # fmt: skip
            return replace(block, branches=rows)
        new = {}
        for key, name in _FIELDS.items():
            if (*place, key) in wanted and hasattr(block, name):
                matrix, value = wanted[(*place, key)]
                new[name] = value * (1 if key in ("b", "token", "position") else matrix.fan_in)
        return replace(block, **new) if new else block

    return Chain([changed(b, (i,)) for i, b in enumerate(network.blocks)], network.inputs)


_FIELDS = {
    "W": "C_W", "b": "C_b", "gate": "C_gate", "q": "C_q", "k": "C_k", "v": "C_v", "O": "C_O",
    "token": "C_token", "position": "C_position",
}  # fmt: skip
