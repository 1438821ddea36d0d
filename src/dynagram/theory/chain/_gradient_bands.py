"""How far the squared gradient of a block differs between networks, to order 1/n.

With learning rates of 1 for the parameters θ of one block and 0 elsewhere, ‖∂f/∂θ‖² of f = Σ_a ε_a
z_a is the contraction of Ĥ with εε: its mean is Θ + H1/n and its variance (A + 2B)/n, all
contracted with ε (docs/derivations/birth.md, D14.3).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block, Shape
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import Gated
from dynagram.theory.chain._predict import chain_modes, has_attention

ROUNDING = 1e-7  # a relative spread below it is the rounding of none
WITH_HEADS = ("Theta", "A", "B")  # the shift of the mean would need second derivatives of heads
WITHOUT_HEADS = ("Theta", "H1", "A", "B")


@dataclass(frozen=True)
class GradientBand:
    """Mean and standard deviation between networks of the squared gradient of one block."""

    square: float
    std: float


@float64
def gradient_band(
    network: Chain,
    x: Float[np.ndarray, "samples n_0"],
    signals: Float[np.ndarray, " a"],
    index: int,
    *,
    accuracy: float = 1e-3,
    seed: int = 0,
    samples: int = 2**10,
    shifted: bool | None = None,
) -> GradientBand:
    """Mean and spread of ‖∂f/∂θ‖² over the parameters θ of block number `index`.

    Cost: one run of the tensors A and B through the network, and of H1 where asked for.

    **Arguments:**

    - `network`, `x`, `signals`: as in `squared_gradients`.
    - `index`: which block of `network.blocks`.
    - `accuracy`, `seed`, `samples`: of four-sample averages and sampled heads.
    - `shifted`: whether the mean has its term of order 1/n; by default without attention.

    **Returns:** `GradientBand`.
    """
    alone = only_block(network, index)
    shifted = not has_attention(network.blocks) if shifted is None else shifted
    letters = WITHOUT_HEADS if shifted else WITH_HEADS
    modes = chain_modes(
        alone, x, letters, accuracy=accuracy, seed=seed, samples=samples, replicas=2
    )
    e, n = signals, network.width
    mean = e @ modes["Theta"][0] @ e
    if shifted:
        mean = mean + e @ modes["H1"][0] @ e / n
    A, B = (np.einsum("abcd,a,b,c,d->", modes[letter][0], e, e, e, e) for letter in "AB")
    spread = float(np.sqrt(max(A + 2.0 * B, 0.0) / n))
    return GradientBand(float(mean), 0.0 if spread < ROUNDING * abs(mean) else spread)


def only_block(network: Chain, index: int) -> Chain:
    """The network with rates of 1 for every parameter of one block, and 0 elsewhere."""
    blocks, shape = [], network.in_shape
    for number, block in enumerate(network.blocks):
        blocks.append(_with_rates(block, shape, number == index))
        shape = block.out_shape(shape)
    return Chain(blocks, network.inputs)


def _with_rates(block: Block, shape: Shape, learns: bool) -> Block:
    if isinstance(block, Residual):
        branches = [_row_with_rates(branch, shape, learns) for branch in block.branches]
        return Residual(branches, block.skip, block.strength)
    names = [field.name for field in fields(block) if field.name.startswith("lambda_")]
    rates = dict.fromkeys(names, 0.0)
    if learns:
        rates |= {name: _fan_in(block, shape, name) for name in names if _is_there(block, name)}
    return replace(block, **rates)


def _row_with_rates(blocks: Blocks, shape: Shape, learns: bool) -> list[Block]:
    made = []
    for block in blocks:
        made.append(_with_rates(block, shape, learns))
        shape = block.out_shape(shape)
    return made


def _fan_in(block: Block, shape: Shape, name: str) -> float:
    """λ that makes the learning rate of every parameter 1."""
    if isinstance(block, Dense) and name == "lambda_W":
        return float(block.taps(shape).shape[0] * shape.channels)
    if isinstance(block, Attention) and name == "lambda_O":
        return float(block.heads * block.head_size)
    if isinstance(block, Attention | Gated):
        return float(shape.channels)
    return 1.0


def _is_there(block: Block, name: str) -> bool:
    """Whether the network has the parameters that this rate belongs to."""
    if name == "lambda_b":
        return isinstance(block, Dense) and block.has_biases
    return name != "lambda_position" or (isinstance(block, Embedding) and block.has_positions)
