"""The Gram chain: networks made of blocks, at infinite width and at order 1/n."""

from dynagram.theory.chain._birth import Birth as Birth
from dynagram.theory.chain._birth import Stage as Stage
from dynagram.theory.chain._birth import trace_birth as trace_birth

__all__ = ["Birth", "Stage", "trace_birth"]
