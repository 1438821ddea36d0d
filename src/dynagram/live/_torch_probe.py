"""The numbers of the layers of a PyTorch module on a batch, by hooks; nothing about it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.live._layers import LayerNumbers, layer_numbers
from dynagram.live._torch_layers import (
    TorchLayer,
    arguments_of,
    first_tensor,
    torch_layers,
    undisturbed,
    unwrapped,
)
from dynagram.live._torch_tensors import as_tensor, leading_parameter, learns


def measure_torch(
    module: nn.Module,
    x: Any,
    parameters: Mapping[str, np.ndarray] | None = None,
    *,
    channel: int = 0,
) -> list[LayerNumbers]:
    """The numbers of every layer, in the precision of the module; one pass forth and back.

    **Arguments:**

    - `module`, `x`: as for `torch_layers`.
    - `parameters`: values to take in place of the module's own, by name.
    - `channel`: which output is f.

    **Returns:** `LayerNumbers` in order of the calls.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> [layer.name for layer in measure_torch(model, torch.ones(2, 3))]
    ['0', '2']
    """
    module = unwrapped(module)
    x = as_tensor(x, leading_parameter(module))
    arguments, options = arguments_of(module, x)
    layers = torch_layers(module, x).layers
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> Any:
            if isinstance(output, torch.Tensor) and output.is_complex():
                pairs = torch.view_as_real(output.resolve_conj()).flatten(-2)
                seen.setdefault(name, pairs)
                return torch.view_as_complex(pairs.unflatten(-1, (-1, 2)).clone())
            seen.setdefault(name, first_tensor(output))
            # What comes next may work in place: it gets a copy.
            return output.clone() if isinstance(output, torch.Tensor) else None

        return hook

    handles = [layer.module.register_forward_hook(keep(layer.name)) for layer in layers]
    values = {
        name: p.detach() if parameters is None else as_tensor(parameters[name], p).to(p.dtype)
        for name, p in module.named_parameters()
    }
    values = {name: p.clone().requires_grad_(learns(p)) for name, p in values.items()}
    try:
        with undisturbed(module), torch.enable_grad():
            output = first_tensor(torch.func.functional_call(module, values, arguments, options))
            f = output.reshape(-1, output.shape[-1])[:, channel].mean()
            # With other weights a model that chooses, as experts do, may leave some layers out.
            layers = [layer for layer in layers if layer.name in seen]
            signals = [seen[layer.name] for layer in layers]
            slopes = torch.autograd.grad(f, [*signals, *values.values()], allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    back, gradients = slopes[: len(signals)], slopes[len(signals) :]
    squares = {
        name: 0.0 if g is None else float((g.abs().double() ** 2).sum())
        for name, g in zip(values, gradients, strict=True)
    }
    return [
        _numbers(layer, x, g, squares) for layer, x, g in zip(layers, signals, back, strict=True)
    ]


def _numbers(
    layer: TorchLayer, x: torch.Tensor, slope: torch.Tensor | None, squares: dict[str, float]
) -> LayerNumbers:
    value = x.detach().double().cpu().numpy()
    back = np.zeros_like(value) if slope is None else slope.double().cpu().numpy()
    axis = 1 if layer.kind in ("conv", "batch norm") and value.ndim > 2 else value.ndim - 1
    gradient = sum(squares[name] for name in layer.parameters)
    return layer_numbers(layer.name, value, back, gradient, sum(squares.values()), axis)
