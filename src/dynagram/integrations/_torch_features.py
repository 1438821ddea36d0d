"""Feature learning in PyTorch, made faster or slower: hooks on any optimizer."""

from __future__ import annotations

from typing import Any

import torch

from dynagram.errors import InvalidValueError
from dynagram.integrations._feature_part import feature_part


class ModulateFeatures:
    """Multiplies the part of every step that changes a Gram matrix WᵀW by `factor`.

    0 leaves rotations of the outputs, 1 changes nothing, more than 1 learns features faster. It
    hooks into `step` of `optimizer` and leaves it as it is; `remove` ends it. Parameters of two or
    more dimensions are weight matrices (out, in, …). The part is computed in float64.

    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    >>> handle = ModulateFeatures(optimizer, 0.0)
    >>> layer.weight.grad = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> optimizer.step()
    >>> layer.weight.tolist()
    [[1.0, -0.5], [0.5, 1.0]]
    """

    def __init__(self, optimizer: torch.optim.Optimizer, factor: float):
        if not 0.0 <= factor < float("inf"):
            raise InvalidValueError("factor", factor, "must be ≥ 0 and finite")
        self.factor = factor
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._hooks = [
            optimizer.register_step_pre_hook(self._remember),
            optimizer.register_step_post_hook(self._scale),
        ]

    def remove(self) -> None:
        """Let the optimizer step freely again."""
        for hook in self._hooks:
            hook.remove()

    def _remember(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._before = [(p, p.detach().clone()) for p in matrices(optimizer)]

    @torch.no_grad()
    def _scale(self, *_: Any) -> None:
        for parameter, old in self._before:
            W = old.reshape(old.shape[0], -1).double()
            step = parameter.reshape(old.shape[0], -1).double() - W
            moved = W + step + (self.factor - 1.0) * feature_part(torch, W, step)
            parameter.copy_(moved.reshape(old.shape).to(parameter.dtype))
        self._before = []


class AnchorGram:
    """Adds the gradient of (strength/4) Σ ‖WᵀW − W₀ᵀW₀‖² before every step of `optimizer`.

    W₀ are the weights at the time this is made; a negative strength drives features away from
    their start. `remove` ends it.

    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    >>> handle = AnchorGram(optimizer, 1.0)
    >>> _ = layer.weight.data.mul_(2.0)
    >>> layer.weight.grad = torch.zeros(1, 1)
    >>> optimizer.step()
    >>> layer.weight.tolist()
    [[-4.0]]
    """

    def __init__(self, optimizer: torch.optim.Optimizer, strength: float):
        self.strength = strength
        self._start = [(p, p.detach().clone()) for p in matrices(optimizer)]
        self._hook = optimizer.register_step_pre_hook(self._pull)

    def remove(self) -> None:
        """Let the optimizer step freely again."""
        self._hook.remove()

    @torch.no_grad()
    def _pull(self, *_: Any) -> None:
        for parameter, start in self._start:
            if parameter.grad is None:
                continue
            W, W0 = (part.reshape(part.shape[0], -1) for part in (parameter, start))
            pull = self.strength * ((W @ W.T) @ W - (W @ W0.T) @ W0)
            parameter.grad.add_(pull.reshape(parameter.shape))


def matrices(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters of two or more dimensions."""
    groups = optimizer.param_groups
    return [p for group in groups for p in group["params"] if p.ndim >= 2]
