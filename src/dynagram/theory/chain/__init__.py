"""The Gram chain: networks made of blocks, at infinite width and at order 1/n."""

from dynagram.theory.chain._birth import Birth as Birth
from dynagram.theory.chain._birth import Stage as Stage
from dynagram.theory.chain._birth import trace_birth as trace_birth
from dynagram.theory.chain._kernels import ChainKernels as ChainKernels
from dynagram.theory.chain._kernels import chain_kernels as chain_kernels

__all__ = ["Birth", "ChainKernels", "Stage", "chain_kernels", "trace_birth"]
