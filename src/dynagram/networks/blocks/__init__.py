"""Blocks that compose to networks: dense, convolution, norms, gates, attention, residual."""

from dynagram.networks.blocks._attention import Attention as Attention
from dynagram.networks.blocks._block import Block as Block
from dynagram.networks.blocks._composite import Embedding as Embedding
from dynagram.networks.blocks._composite import Residual as Residual
from dynagram.networks.blocks._linear import AveragePool as AveragePool
from dynagram.networks.blocks._linear import Conv as Conv
from dynagram.networks.blocks._linear import Dense as Dense
from dynagram.networks.blocks._linear import Flatten as Flatten
from dynagram.networks.blocks._linear import Select as Select
from dynagram.networks.blocks._nonlinear import Activate as Activate
from dynagram.networks.blocks._nonlinear import Gated as Gated
from dynagram.networks.blocks._nonlinear import LayerNorm as LayerNorm
from dynagram.networks.blocks._nonlinear import RMSNorm as RMSNorm

__all__ = [
    "Activate",
    "Attention",
    "AveragePool",
    "Block",
    "Conv",
    "Dense",
    "Embedding",
    "Flatten",
    "Gated",
    "LayerNorm",
    "RMSNorm",
    "Residual",
    "Select",
]
