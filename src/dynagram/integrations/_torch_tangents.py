"""The neural tangent kernel of any PyTorch function, by its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dynagram.errors import InvalidValueError

# Numbers in the gradients held at a time; more rows than fit are taken in blocks.
_NUMBERS_AT_ONCE = 2**26

Parameters = Mapping[str, torch.Tensor]
Rates = float | Mapping[str, float | torch.Tensor]


def torch_ntk(
    function: Callable[[Parameters, Any], torch.Tensor] | torch.nn.Module,
    params: Parameters | None,
    x: Any,
    rates: Rates = 1.0,
) -> torch.Tensor:
    """The NTK H_ij;ab = Σ_μ λ_μ dz_i;a/dθ_μ dz_j;b/dθ_μ of a PyTorch function or module (8.1).

    Samples may depend on each other, as in a batch norm. A module is evaluated in the mode it is
    in; put it in `eval()` if it has dropout.

    **Arguments:**

    - `function`: f(params, x) → (N, outputs), or a module that takes x.
    - `params`: tensors by name; None for the parameters of a module that require gradients.
    - `x`: whatever f takes.
    - `rates`: the diagonal λ, one number for all parameters, or numbers or tensors of the shapes of
        the parameters by name.

    **Returns:** [a, b, i, j], in the dtype of the output. Cost: N·outputs backward passes, and as
    many again for every further block of rows where gradients exceed 2²⁶ numbers.

    >>> layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
    >>> torch_ntk(layer, None, x, {"weight": 0.5, "bias": 2.0})[..., 0, 0].tolist()
    [[4.5, 3.5], [3.5, 6.5]]
    """
    leaves = _leaves(function, params)
    scales = _scales(leaves, rates)
    with torch.enable_grad():
        if isinstance(function, torch.nn.Module):
            output = torch.func.functional_call(function, leaves, (x,))
        else:
            output = function(leaves, x)
    if not isinstance(output, torch.Tensor) or output.ndim != 2:
        got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise InvalidValueError("shape of f(params, x)", got, "expected (samples, outputs)")
    if not output.requires_grad:
        raise InvalidValueError("params", ", ".join(leaves), "f(params, x) does not depend on them")
    flat = output.reshape(-1)
    numbers = sum(leaf.numel() for leaf in leaves.values())
    most = max(1, _NUMBERS_AT_ONCE // max(2 * numbers, 1))
    blocks = [range(start, min(start + most, len(flat))) for start in range(0, len(flat), most)]
    H = torch.empty(len(flat), len(flat), dtype=flat.dtype, device=flat.device)
    for i, rows in enumerate(blocks):
        left = [g * scale for g, scale in zip(_gradients(flat, rows, leaves), scales, strict=True)]
        for columns in blocks[i:]:
            right = _gradients(flat, columns, leaves)
            parts = (
                one.flatten(1) @ two.flatten(1).T for one, two in zip(left, right, strict=True)
            )
            product = sum(parts, start=torch.zeros((), dtype=flat.dtype, device=flat.device))
            H[rows.start : rows.stop, columns.start : columns.stop] = product
            H[columns.start : columns.stop, rows.start : rows.stop] = product.T
    samples, outputs = output.shape
    return H.reshape(samples, outputs, samples, outputs).permute(0, 2, 1, 3).contiguous()


def _leaves(function: Any, params: Parameters | None) -> dict[str, torch.Tensor]:
    """Tensors of their own that gradients are taken in."""
    if params is None:
        if not isinstance(function, torch.nn.Module):
            raise InvalidValueError("params", None, "a function needs its parameters by name")
        named = function.named_parameters()
        params = {name: value for name, value in named if value.requires_grad}
    if not params:
        raise InvalidValueError("params", {}, "expected one tensor at least")
    return {name: value.detach().clone().requires_grad_() for name, value in params.items()}


def _scales(leaves: Parameters, rates: Rates) -> list[float | torch.Tensor]:
    """λ of every parameter, in their order."""
    if not isinstance(rates, Mapping):
        return [float(rates)] * len(leaves)
    if set(rates) != set(leaves):
        names = ", ".join(sorted(set(rates) ^ set(leaves)))
        raise InvalidValueError("rates", names, "expected the names of the parameters")
    scales = []
    for name, leaf in leaves.items():
        rate = rates[name]
        if (
            isinstance(rate, torch.Tensor)
            and math.prod(rate.shape) > 1
            and rate.shape != leaf.shape
        ):
            raise InvalidValueError(f"rates[{name!r}]", tuple(rate.shape), f"{tuple(leaf.shape)}")
        scales.append(rate)
    return scales


def _gradients(flat: torch.Tensor, rows: range, leaves: Parameters) -> list[torch.Tensor]:
    """dz/dθ of some rows, (row, *parameter) for every parameter."""
    found = list(_each_gradient(flat, rows, leaves))
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


def _each_gradient(
    flat: torch.Tensor, rows: range, leaves: Parameters
) -> Iterator[list[torch.Tensor]]:
    for row in rows:
        found = torch.autograd.grad(
            flat[row], list(leaves.values()), retain_graph=True, materialize_grads=True
        )
        yield list(found)
