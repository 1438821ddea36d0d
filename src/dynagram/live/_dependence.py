"""What outputs of a PyTorch module depend on, asked by changing the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dynagram.live._torch_layers import (
    arguments_of,
    first_tensor,
    undisturbed,
    unwrapped,
)
from dynagram.live._torch_tensors import as_tensor, leading_parameter

_CHANGED = 1e-4  # of the largest output: far above the rounding of float32


def mixes_samples(module: nn.Module, x: Any) -> bool:
    """Whether the output of one sample depends on another, batch norms left aside.

    >>> mixes_samples(nn.Softmax(0), torch.randn(4, 3)), mixes_samples(nn.Softmax(1), torch.eye(3))
    (True, False)
    """
    x, count = _inputs(module, x), len(_first(x))
    if count < 2:
        return False

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 0 or len(tensor) != count:
            return tensor
        return torch.cat([tensor[1:2], tensor[1:]])

    return _changes(module, x, _each(x, copied), lambda out: out[1:] if len(out) == count else None)


def reads_later_tokens(module: nn.Module, x: Any) -> bool:
    """Whether logits of a position depend on later tokens, in what looks like a language model.

    That is: token ids go in, and as many numbers as there are tokens come out at every position.
    """
    x, sizes = _inputs(module, x), {len(p) for p in module.parameters() if p.ndim == 2}
    tokens = _first(x)
    if tokens.is_floating_point() or tokens.ndim != 2 or tokens.shape[1] < 3:
        return False
    other = tokens.clone()
    other[:, -1] = torch.where(tokens[:, -1] == tokens.min(), tokens.max(), tokens.min())

    def earlier(out: torch.Tensor) -> torch.Tensor | None:
        fits = out.ndim == 3 and out.shape[:2] == tokens.shape and out.shape[2] in sizes
        return out[:, :-1] if fits and out.shape[2] > int(tokens.max()) else None

    changed = _each(x, lambda tensor: other if tensor is tokens else tensor)
    return _changes(module, x, changed, earlier)


def _changes(module: nn.Module, x: Any, other: Any, part: Any) -> bool:
    try:
        before, after = part(_output(module, x)), part(_output(module, other))
    except Exception:  # a module that does not take the changed batch says nothing
        return False
    if before is None or before.shape != after.shape or not before.numel():
        return False
    return bool((before - after).abs().max() > _CHANGED * before.abs().max())


def _output(module: nn.Module, x: Any) -> torch.Tensor:
    module = unwrapped(module)
    arguments, options = arguments_of(module, x)
    with undisturbed(module), torch.no_grad():
        for part in module.modules():
            part.training = False
        return first_tensor(module(*arguments, **options)).double()


def _inputs(module: nn.Module, x: Any) -> Any:
    return as_tensor(x, leading_parameter(unwrapped(module)))


def _first(x: Any) -> torch.Tensor:
    found: list[torch.Tensor] = []
    _each(x, lambda tensor: found.append(tensor) or tensor)
    return found[0] if found and found[0].ndim else torch.zeros(0)


def _each(x: Any, change: Any) -> Any:
    """A batch with every tensor in it replaced."""
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, tuple):
        return tuple(_each(part, change) for part in x)
    if isinstance(x, Mapping):
        return {name: _each(part, change) for name, part in x.items()}
    return x
