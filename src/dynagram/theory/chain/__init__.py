"""The Gram chain: tensors of networks made of blocks, at infinite width and at order 1/n."""

from dynagram.theory.chain._kernels import ChainKernels as ChainKernels
from dynagram.theory.chain._kernels import chain_kernels as chain_kernels

__all__ = ["ChainKernels", "chain_kernels"]
