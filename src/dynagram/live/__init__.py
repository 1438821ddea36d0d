"""A user's own live model: traced, read as a network, measured and checked before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.live._torch_layers import TorchLayer as TorchLayer
    from dynagram.live._torch_layers import TorchLayers as TorchLayers
    from dynagram.live._torch_layers import torch_layers as torch_layers

__all__ = ["TorchLayer", "TorchLayers", "torch_layers"]

# PyTorch is loaded only when it is asked for.
__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "TorchLayer": "_torch_layers",
        "TorchLayers": "_torch_layers",
        "torch_layers": "_torch_layers",
    },
)
