"""Signals of the layers of a PyTorch module and gradients of a loss, for given parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.errors import InvalidTypeError
from dynagram.live._steps import Probe, Rule
from dynagram.live._torch_layers import first_tensor, torch_layers, undisturbed, unwrapped


def probe_torch(
    module: nn.Module, x: Any
) -> Callable[[Mapping[str, np.ndarray], float | None], Probe]:
    """A function of parameters and a target y: signals by layer, f and the slopes of ½(f − y)².

    In float64 and on a copy of the module.
    """
    copied = copy.deepcopy(unwrapped(module)).to(device="cpu", dtype=torch.float64)
    arguments = tuple(_double(part) for part in (x if isinstance(x, tuple) else (x,)))
    layers = torch_layers(copied, arguments).layers
    owners = {name: layer.name for layer in layers for name in layer.parameters}

    def probe(values: Mapping[str, np.ndarray], target: float | None) -> Probe:
        seen: dict[str, torch.Tensor] = {}

        def keep(name: str) -> Any:
            return lambda _, __, output: seen.setdefault(
                name, first_tensor(output).detach().clone()
            )

        handles = [layer.module.register_forward_hook(_silent(keep(layer.name)))
                   for layer in layers]  # fmt: skip
        tensors = {name: torch.tensor(v, dtype=torch.float64, requires_grad=target is not None)
                   for name, v in values.items()}  # fmt: skip
        try:
            with undisturbed(copied), torch.enable_grad():
                outputs = first_tensor(torch.func.functional_call(copied, tensors, arguments))
        finally:
            for handle in handles:
                handle.remove()
        f = outputs.reshape(-1, outputs.shape[-1])[-1, 0]
        slopes: dict[str, np.ndarray] = {}
        if target is not None:
            made = torch.autograd.grad(
                0.5 * (f - target) ** 2, list(tensors.values()), allow_unused=True
            )
            slopes = {name: np.zeros_like(values[name]) if g is None else g.numpy()
                      for name, g in zip(tensors, made, strict=True)}  # fmt: skip
        signals = {name: signal.numpy() for name, signal in seen.items()}
        return Probe(signals, float(f.detach()), slopes, owners)

    return probe


def _silent(hook: Any) -> Any:
    def wrapped(*arguments: Any) -> None:
        hook(*arguments)

    return wrapped


def _double(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return value.double() if value.is_floating_point() else value
    return value


def rule_of(optimizer: Any, module: nn.Module) -> Rule:
    """The rule and the rates of a PyTorch optimiser: plain SGD, Adam or AdamW."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        allowed = "expected a function that makes torch.optim.SGD, Adam or AdamW of the model"
        raise InvalidTypeError("optimizer", type(optimizer).__name__, allowed)
    adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
    plain = isinstance(optimizer, torch.optim.SGD) and not any(
        group["momentum"] for group in optimizer.param_groups
    )
    if not adam and not plain:
        allowed = "expected SGD without momentum, Adam or AdamW"
        raise InvalidTypeError("optimizer", type(optimizer).__name__, allowed)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    rates = dict.fromkeys(names.values(), 0.0)  # what no group holds does not learn
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in names:
                rates[names[id(parameter)]] = float(group["lr"])
    return Rule("adam" if adam else "sgd", rates)
