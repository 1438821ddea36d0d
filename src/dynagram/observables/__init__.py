"""What can be read off one concrete network: pure functions of a `Model` or of its arrays.

Grouped by what they look at: `tangents` (NTK, dNTK, ddNTKs, gradients), `fields` (of networks with
one output), `gram` (weight Gram matrices, and what features say about targets), `spectra` (of
weights). Here are `measure`, which uses them all, and what belongs to no group.
"""

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.observables._collapse import Collapse as Collapse
    from dynagram.observables._collapse import CollapseTracker as CollapseTracker
    from dynagram.observables._collapse import collapse as collapse
    from dynagram.observables._imbalance import homogeneity_deficit as homogeneity_deficit
    from dynagram.observables._imbalance import imbalance as imbalance
    from dynagram.observables._imbalance import imbalance_drift as imbalance_drift
    from dynagram.observables._imbalance import imbalance_matrix as imbalance_matrix
    from dynagram.observables._imbalance import imbalance_matrix_drift as imbalance_matrix_drift
    from dynagram.observables._imbalance import imbalance_step as imbalance_step
    from dynagram.observables._measure import measure as measure
    from dynagram.observables._measurement import LayerMeasurement as LayerMeasurement
    from dynagram.observables._measurement import Measurement as Measurement
    from dynagram.observables._nulls import Alignment as Alignment
    from dynagram.observables._nulls import Null as Null
    from dynagram.observables._plateaus import LossPlateau as LossPlateau
    from dynagram.observables._plateaus import find_plateaus as find_plateaus
    from dynagram.observables._population import gaussian_batch as gaussian_batch
    from dynagram.observables._signal import LayerSignals as LayerSignals
    from dynagram.observables._signal import SmallSignal as SmallSignal
    from dynagram.observables._signal import bottleneck_layers as bottleneck_layers
    from dynagram.observables._signal import layer_signals as layer_signals
    from dynagram.observables._signal import small_signal as small_signal

_HOMES = {
    "Alignment": "_nulls",
    "Collapse": "_collapse",
    "CollapseTracker": "_collapse",
    "LayerMeasurement": "_measurement",
    "LayerSignals": "_signal",
    "LossPlateau": "_plateaus",
    "Measurement": "_measurement",
    "Null": "_nulls",
    "SmallSignal": "_signal",
    "bottleneck_layers": "_signal",
    "collapse": "_collapse",
    "find_plateaus": "_plateaus",
    "gaussian_batch": "_population",
    "homogeneity_deficit": "_imbalance",
    "imbalance": "_imbalance",
    "imbalance_drift": "_imbalance",
    "imbalance_matrix": "_imbalance",
    "imbalance_matrix_drift": "_imbalance",
    "imbalance_step": "_imbalance",
    "layer_signals": "_signal",
    "measure": "_measure",
    "small_signal": "_signal",
}
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = load_on_demand(__name__, _HOMES)
