"""A user's own live model: traced, read as a network, measured and checked before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.live._causes import Cause as Cause
    from dynagram.live._check import check as check
    from dynagram.live._layers import LayerNumbers as LayerNumbers
    from dynagram.live._live import Live as Live
    from dynagram.live._live import read_live as read_live
    from dynagram.live._result import Check as Check
    from dynagram.live._result import LayerReading as LayerReading
    from dynagram.live._torch_layers import TorchLayer as TorchLayer
    from dynagram.live._torch_layers import TorchLayers as TorchLayers
    from dynagram.live._torch_layers import torch_layers as torch_layers
    from dynagram.live._torch_probe import measure_torch as measure_torch

__all__ = [
    "Cause",
    "Check",
    "LayerNumbers",
    "LayerReading",
    "Live",
    "TorchLayer",
    "TorchLayers",
    "check",
    "measure_torch",
    "read_live",
    "torch_layers",
]

# PyTorch is loaded only when it is asked for.
__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "Cause": "_causes",
        "Check": "_result",
        "LayerNumbers": "_layers",
        "LayerReading": "_result",
        "Live": "_live",
        "TorchLayer": "_torch_layers",
        "TorchLayers": "_torch_layers",
        "check": "_check",
        "measure_torch": "_torch_probe",
        "read_live": "_live",
        "torch_layers": "_torch_layers",
    },
)
