"""What computations return: estimates, tensors, outputs, regimes, comparisons, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.results._agreement import Agreement as Agreement
    from dynagram.results._agreement import Comparison as Comparison
    from dynagram.results._comparison import compare as compare
    from dynagram.results._estimate import Estimate as Estimate
    from dynagram.results._estimate import Moments as Moments
    from dynagram.results._letters import LETTERS as LETTERS
    from dynagram.results._load import load as load
    from dynagram.results._outputs import Outputs as Outputs
    from dynagram.results._regime import Regime as Regime
    from dynagram.results._tensors import Tensors as Tensors

__all__ = [
    "LETTERS",
    "Agreement",
    "Comparison",
    "Estimate",
    "Moments",
    "Outputs",
    "Regime",
    "Tensors",
    "compare",
    "load",
]

__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "Agreement": "_agreement",
        "Comparison": "_agreement",
        "Estimate": "_estimate",
        "LETTERS": "_letters",
        "Moments": "_estimate",
        "Outputs": "_outputs",
        "Regime": "_regime",
        "Tensors": "_tensors",
        "compare": "_comparison",
        "load": "_load",
    },
)
