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
        direction, iterations = self._direction, ITERATIONS
        if direction is None or direction.shape != z.shape:
            direction = torch.from_numpy(first_direction(tuple(z.shape))).to(z)
            iterations = FIRST_ITERATIONS
        # Jᵀu is linear in u: its graph gives Jv for any v, its values the first Jᵀu of all.
        u = direction.clone().requires_grad_()
        pulled = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
        used = [(leaf, g) for leaf, g in zip(leaves, pulled, strict=True) if g is not None]
        inputs, graph = [leaf for leaf, _ in used], [g for _, g in used]
        back, value = [g.detach() for g in graph], 0.0
        for iteration in range(iterations):
            if iteration:
                back = torch.autograd.grad(z, inputs, direction, retain_graph=True)
            (moved,) = torch.autograd.grad(graph, u, back, retain_graph=True)
            (image,) = torch.autograd.grad(slope, z, moved, retain_graph=True)
            size = float((direction * moved).sum())  # |Jᵀu|² = u·JJᵀu
            if size <= 0.0:
                return 0.0
            value = float((moved * image).sum()) / size
            norm = image.norm()
            if not bool(torch.isfinite(norm)) or float(norm) == 0.0:
                return value
            direction = (image / norm).detach()
        self._direction = direction
        return value
