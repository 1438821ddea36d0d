"""The Gram chain: networks made of blocks, at infinite width and at order 1/n."""

from dynagram.theory.chain._birth import Birth as Birth
from dynagram.theory.chain._birth import Stage as Stage
from dynagram.theory.chain._birth import trace_birth as trace_birth
from dynagram.theory.chain._examination import Examination as Examination
from dynagram.theory.chain._examination import Scaling as Scaling
from dynagram.theory.chain._examination import examine as examine
from dynagram.theory.chain._exponents import DepthLaw as DepthLaw
from dynagram.theory.chain._exponents import depth_law as depth_law
from dynagram.theory.chain._judgement import Judgement as Judgement
from dynagram.theory.chain._judgement import Reading as Reading
from dynagram.theory.chain._judgement import judge_birth as judge_birth
from dynagram.theory.chain._kernels import ChainKernels as ChainKernels
from dynagram.theory.chain._kernels import chain_kernels as chain_kernels

__all__ = [
    "Birth",
    "ChainKernels",
    "DepthLaw",
    "Examination",
    "Judgement",
    "Reading",
    "Scaling",
    "Stage",
    "chain_kernels",
    "depth_law",
    "examine",
    "judge_birth",
    "trace_birth",
]
