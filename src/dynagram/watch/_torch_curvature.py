"""The top eigenvalue of the Gauss–Newton matrix of a PyTorch model, by the power method."""

from __future__ import annotations

import torch

from dynagram.watch._mixing import first_direction
from dynagram.watch._settings import FIRST_ITERATIONS, ITERATIONS


class PowerMethod:
    """λ_max of JᵀL''J; goes on where it was at the last record."""

    def __init__(self) -> None:
        self._direction: torch.Tensor | None = None

    def largest(self, z: torch.Tensor, loss: torch.Tensor, leaves: list[torch.Tensor]) -> float:
        """For outputs z and a loss of them, with the graph that leads from the leaves to them."""
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        u = torch.zeros_like(z, requires_grad=True)
        pulled = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
        used = [(leaf, g) for leaf, g in zip(leaves, pulled, strict=True) if g is not None]
        inputs, graph = [leaf for leaf, _ in used], [g for _, g in used]
        direction, iterations = self._direction, ITERATIONS
        if direction is None or direction.shape != z.shape:
            direction = torch.from_numpy(first_direction(tuple(z.shape))).to(z)
            iterations = FIRST_ITERATIONS
        value = 0.0
        for _ in range(iterations):
            back = torch.autograd.grad(z, inputs, direction, retain_graph=True)
            (moved,) = torch.autograd.grad(graph, u, back, retain_graph=True)
            (image,) = torch.autograd.grad(slope, z, moved, retain_graph=True)
            size = sum(float((g * g).sum()) for g in back)
            if size == 0.0:
                return 0.0
            value = float((moved * image).sum()) / size
            norm = image.norm()
            if not bool(torch.isfinite(norm)) or float(norm) == 0.0:
                return value
            direction = (image / norm).detach()
        self._direction = direction
        return value
