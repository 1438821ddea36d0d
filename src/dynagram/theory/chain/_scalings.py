"""Ways to scale the branches of a residual network with its depth, as networks."""

from __future__ import annotations

from dataclasses import replace

from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block
from dynagram.networks.blocks._composite import Residual
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import RMSNorm


def scale_branches(network: Chain, strength: float) -> Chain:
    """The network with α = `strength` in front of every branch.

    >>> from dynagram.networks.blocks import Activate
    >>> net = Chain([Dense(4), Residual([Dense(4), Activate("relu"), Dense(4)]), Dense(1)], 3)
    >>> scale_branches(net, 0.5).blocks[1].strength
    0.5
    """
    blocks = [
        replace(block, strength=strength) if isinstance(block, Residual) else block
        for block in network.blocks
    ]
    return Chain(blocks, network.inputs)


def shrink_outputs(network: Chain, factor: float) -> Chain:
    """The network with the variances of the last matrix of every branch times `factor`.

    What comes out is that of α² = `factor`; the gradients of these matrices are larger.
    """

    def shrunk(block: Block) -> Block:
        if isinstance(block, Attention):
            return replace(block, C_O=factor * block.C_O)
        if isinstance(block, Dense):
            return replace(block, C_W=factor * block.C_W, C_b=factor * block.C_b)
        return block

    blocks: list[Block] = []
    for block in network.blocks:
        if isinstance(block, Residual):
            branches = [[*branch[:-1], shrunk(branch[-1])] for branch in block.branches]
            blocks.append(replace(block, branches=branches))
        else:
            blocks.append(block)
    return Chain(blocks, network.inputs)


def count_layers(network: Chain) -> tuple[int, int]:
    """Layers and branches: a layer of a transformer has a branch of attention and one of an MLP."""
    branches = [b for block in network.blocks if isinstance(block, Residual)
                for b in block.branches]  # fmt: skip
    attending = sum(any(part.kind == "attention" for part in branch) for branch in branches)
    others = len(branches) - attending
    return max(attending, others), len(branches)


def post_norm(network: Chain) -> Chain | None:
    """The network with the norms of its branches moved onto the stream, behind every branch.

    None where a branch does not begin with a norm.
    """
    residuals = [block for block in network.blocks if isinstance(block, Residual)]
    if not residuals or not all(
        isinstance(branch[0], RMSNorm) and len(branch) > 1
        for block in residuals
        for branch in block.branches
    ):
        return None
    norm = residuals[0].branches[0][0]
    blocks: list[Block] = []
    for block in network.blocks:
        if isinstance(block, Residual):
            if not any(isinstance(made, Residual) for made in blocks):
                blocks.append(norm)  # the stream that the first branch reads
            bare = [branch[1:] for branch in block.branches]
            blocks += [Residual(bare, block.skip, block.strength), norm]
        elif not isinstance(block, RMSNorm):  # the last norm is there already
            blocks.append(block)
    return Chain(blocks, network.inputs)


def scaled_variants(plain: Chain) -> dict[str, Chain]:
    """The usual ways to scale a residual network with depth, by name; none without branches.

    GPT-2 draws the last matrix of every branch smaller, depth-muP has a factor in front of it.
    """
    layers, branches = count_layers(plain)
    if branches == 0:
        return {}
    variants = {
        "plain": plain,
        "1/√(2L), GPT-2": shrink_outputs(plain, 1.0 / branches),
        "1/√L, depth-muP": scale_branches(plain, layers**-0.5),
    }
    if layers == branches:  # one branch a layer
        variants["1/√L, GPT-2"] = variants.pop("1/√(2L), GPT-2")
    on_stream = post_norm(plain)
    return variants if on_stream is None else variants | {"post-norm": on_stream}
