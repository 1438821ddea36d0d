"""What the steps of optimizers do to the weights of a PyTorch model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from dynagram.watch._torch_parts import Part, as_real, some_rows

Update = tuple[torch.Tensor, torch.Tensor | None]  # of the weight, and of the bias


class Updates:
    """The last update of every layer, by whichever optimizer.

    **Arguments:**

    - `parts`: the layers.
    """

    def __init__(self, parts: Sequence[Part]):
        self._parts = parts
        self._before: dict[int, dict[int, Update]] = {}  # by optimizer: they may be nested
        self._last: dict[int, Update] = {}

    @torch.no_grad()
    def remember(self, owner: object, held: Collection[int]) -> None:
        """Keep the weights (of very large layers some rows) until the step of `owner` is done.

        `held`: by identity, the parameters that it moves.
        """
        kept = {}
        for number, part in enumerate(self._parts):
            W, b = part.parameter(), part.bias()
            if W is not None and id(W) in held:
                kept[number] = some_rows(W).clone(), None if b is None else b.detach().clone()
        self._before[id(owner)] = kept

    @torch.no_grad()
    def settle(self, owner: object) -> None:
        """The step is done: W and b after it minus what they were before it."""
        for number, (W, b) in self._before.pop(id(owner), {}).items():
            part = self._parts[number]
            now, bias = part.parameter(), part.bias()
            if now is not None:
                moved = None if b is None or bias is None else _moved(bias, b)
                self._last[number] = _moved(some_rows(now), W), moved

    def told(self) -> dict[int, Update]:
        """By the number of the layer, each told once; nothing of weights made from others."""
        last, self._last = self._last, {}
        return last


def _moved(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """In the memory of what was before: fresh pages cost more than the difference."""
    return as_real(torch.sub(now.detach(), before, out=before))
