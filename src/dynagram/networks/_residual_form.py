"""Networks of blocks whose activations act on the residual stream, as MLPs with skips."""

from __future__ import annotations

from dynagram.networks._chain import Chain
from dynagram.networks._mlp import MLP
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Residual
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import Activate


def as_residual_mlp(network: Chain) -> MLP | None:
    """The MLP with skips, z' = b + W σ(z) + γz, that a network of blocks is; None if it is none.

    **Arguments:**

    - `network`: a `Chain`. To be such an MLP its blocks are a matrix, residual blocks of one
        activation and one matrix each, or plain pairs of these, and at the end an activation and a
        matrix, all with the same activation.

    **Returns:** the `MLP`, or None.

    >>> block = Residual([Activate("relu"), Dense(20, C_W=2.0)], skip=0.5)
    >>> as_residual_mlp(Chain([Dense(20), block, Activate("relu"), Dense(1)], 3)).skip
    (0.5,)
    """
    if len(network.inputs) != 1 or len(network.blocks) < 3:
        return None
    first, rest = network.blocks[0], list(network.blocks[1:])
    layers: list[tuple[Dense, float]] = []
    sigma = None
    while rest:
        step = _step(rest)
        if step is None:
            return None
        act, matrix, skip, taken = step
        if sigma not in (None, act.activation):
            return None
        sigma, rest = act.activation, rest[taken:]
        layers.append((matrix, skip))
    if type(first) is not Dense or layers[-1][1] != 0.0 or sigma is None:
        return None
    matrices = [first, *(matrix for matrix, _ in layers)]
    rates = {name: [getattr(m, name) for m in matrices] for name in
             ("C_b", "C_W", "lambda_b", "lambda_W")}  # fmt: skip
    widths = [network.inputs[0], *(matrix.width for matrix in matrices)]
    return MLP(widths, sigma, **rates, skip=[skip for _, skip in layers[:-1]] or 0.0)


def _step(blocks: list[Block]) -> tuple[Activate, Dense, float, int] | None:
    """σ, W, γ of the first layer of these blocks, and how many of them it takes."""
    head = blocks[0]
    if isinstance(head, Residual):
        if len(head.branches) != 1 or head.strength != 1.0 or len(head.branches[0]) != 2:
            return None
        act, matrix = head.branches[0]
        skip, taken = head.skip, 1
    elif len(blocks) > 1:
        act, matrix, skip, taken = head, blocks[1], 0.0, 2
    else:
        return None
    if isinstance(act, Activate) and type(matrix) is Dense:
        return act, matrix, skip, taken
    return None
