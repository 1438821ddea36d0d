"""What computations return: estimates, tensors, outputs, regimes, comparisons, files."""

from dynagram.results._comparison import Agreement as Agreement
from dynagram.results._comparison import Comparison as Comparison
from dynagram.results._comparison import compare as compare
from dynagram.results._estimate import Estimate as Estimate
from dynagram.results._estimate import Moments as Moments
from dynagram.results._letters import LETTERS as LETTERS
from dynagram.results._letters import Letter as Letter
from dynagram.results._load import load as load
from dynagram.results._outputs import Outputs as Outputs
from dynagram.results._regime import Regime as Regime
from dynagram.results._tensors import Tensors as Tensors

__all__ = [
    "LETTERS",
    "Agreement",
    "Comparison",
    "Estimate",
    "Letter",
    "Moments",
    "Outputs",
    "Regime",
    "Tensors",
    "compare",
    "load",
]
