"""The top eigenvalue of the Gauss–Newton matrix of a PyTorch model, by the power method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dynagram.watch._mixing import first_direction
from dynagram.watch._settings import FIRST_ITERATIONS, ITERATIONS

_SAME = 1e-3  # rounding of float32 in two ways to one product


@dataclass(eq=False)
class DenseCall:
    """A layer s = h Wᵀ + b that was called once: its parameters act through s alone.

    With δ = ∂/∂s, the product of ∂s/∂(W, b) with its transpose makes (h hᵀ + 1)δ of it: for few
    rows that takes less than the gradients of the weights, and no memory of their size.

    **Arguments:**

    - `signal`: s, in the graph.
    - `inputs`: h.
    - `leaves`: W, and b where there is one.
    """

    signal: torch.Tensor
    inputs: torch.Tensor
    leaves: list[torch.Tensor]

    @property
    def is_cheaper(self) -> bool:
        """Whether it takes fewer multiplications than the gradients of the weights."""
        rows = self.signal.numel() // self.signal.shape[-1]
        n_in, n_out = self.inputs.shape[-1], self.signal.shape[-1]
        return rows * (n_in + n_out) < 2 * n_in * n_out

    def overlaps(self) -> torch.Tensor:
        """h hᵀ + 1, a row and column for each sample and token."""
        h = self.inputs.reshape(-1, self.inputs.shape[-1])
        return h @ h.T + (1.0 if len(self.leaves) > 1 else 0.0)


class PowerMethod:
    """λ_max of JᵀL''J; goes on where it was at the last record.

    JJᵀ goes through the gradients of the weights, or through those of the signals of dense layers
    where that is cheaper. Whether weights act through these signals alone, and are not used
    elsewhere as well, is tried once: both ways must give the same.
    """

    def __init__(self) -> None:
        self._direction: torch.Tensor | None = None
        self._by_signals: bool | None = None  # None: not tried yet

    def largest(
        self,
        z: torch.Tensor,
        loss: torch.Tensor,
        leaves: Sequence[torch.Tensor],
        dense: Sequence[DenseCall] = (),
    ) -> float:
        """For outputs z and a loss of them, with the graph that leads from the leaves to them."""
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        direction, iterations = self._direction, ITERATIONS
        if direction is None or direction.shape != z.shape:
            direction = torch.from_numpy(first_direction(tuple(z.shape))).to(z)
            iterations = FIRST_ITERATIONS
        product = self._product(z, direction, leaves, [call for call in dense if call.is_cheaper])
        value = 0.0
        for _ in range(iterations):
            moved = product(direction)
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

    def direction_in(
        self, z: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor | None, ...]:
        """The direction that was found among the outputs, in the parameters."""
        return torch.autograd.grad(z, leaves, self._direction, retain_graph=True, allow_unused=True)

    def _product(
        self,
        z: torch.Tensor,
        direction: torch.Tensor,
        leaves: Sequence[torch.Tensor],
        dense: Sequence[DenseCall],
    ) -> Product:
        """u → JJᵀu, the cheaper way if it is right."""
        if not dense or self._by_signals is False:
            return Product(z, direction, leaves, ())
        quick = Product(z, direction, leaves, dense)
        if self._by_signals is None:
            one, other = quick(direction), Product(z, direction, leaves, ())(direction)
            self._by_signals = bool((one - other).norm() <= _SAME * other.norm())
            return self._product(z, direction, leaves, dense)
        return quick


def curvature_along(
    z: torch.Tensor,
    loss: torch.Tensor,
    leaves: Sequence[torch.Tensor],
    direction: Sequence[torch.Tensor | None],
) -> float:
    """vᵀJᵀL''Jv/|v|² of outputs z and their loss, for a direction v of the parameters."""
    (slope,) = torch.autograd.grad(loss, z, create_graph=True)
    u = torch.zeros_like(z, requires_grad=True)
    pulled = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
    pairs = [(row, v) for row, v in zip(pulled, direction, strict=True)
             if row is not None and v is not None]  # fmt: skip
    (moved,) = torch.autograd.grad([row for row, _ in pairs], u, [v for _, v in pairs])
    (image,) = torch.autograd.grad(slope, z, moved)
    square = sum(float((v * v).sum()) for v in direction if v is not None)
    return float((moved * image).sum()) / square


class Product:
    """u → JJᵀu, from the graph of Jᵀu, which is linear in u: its transpose gives J.

    **Arguments:**

    - `z`: the outputs, in the graph.
    - `first`: the u that it is called with first; its Jᵀu comes with the graph.
    - `leaves`: the parameters.
    - `dense`: layers whose parameters are gone through by their signals.
    """

    def __init__(
        self,
        z: torch.Tensor,
        first: torch.Tensor,
        leaves: Sequence[torch.Tensor],
        dense: Sequence[DenseCall],
    ):
        passed = {id(leaf) for call in dense for leaf in call.leaves}
        ends = [call.signal for call in dense]
        ends += [leaf for leaf in leaves if id(leaf) not in passed]
        overlaps = [call.overlaps() for call in dense] + [None] * (len(ends) - len(dense))
        self._u = first.clone().requires_grad_()
        pulled = torch.autograd.grad(z, ends, self._u, create_graph=True, allow_unused=True)
        used = [
            (end, slope, overlap)
            for end, slope, overlap in zip(ends, pulled, overlaps, strict=True)
            if slope is not None
        ]
        self._z, self._first = z, first
        self._ends = [end for end, _, _ in used]
        self._graph = [slope for _, slope, _ in used]
        self._overlaps = [overlap for _, _, overlap in used]

    def __call__(self, u: torch.Tensor) -> torch.Tensor:
        """JJᵀu."""
        if u is self._first:
            slopes = [slope.detach() for slope in self._graph]
        else:
            slopes = torch.autograd.grad(self._z, self._ends, u, retain_graph=True)
        pushed = [
            slope
            if overlap is None
            else (overlap.to(slope.dtype) @ slope.flatten(0, -2)).reshape(slope.shape)
            for slope, overlap in zip(slopes, self._overlaps, strict=True)
        ]
        (moved,) = torch.autograd.grad(self._graph, self._u, pushed, retain_graph=True)
        return moved
