"""PyTorch: advice applied to a module, the NTK of any function, Gram-only training."""

from __future__ import annotations

from typing import Any

from dynagram.errors import AccuracyError, MissingExtraError, NonFiniteError

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "torch") from error

from dynagram.integrations._torch_advice import architecture_of as architecture_of
from dynagram.integrations._torch_advice import init_ as init_
from dynagram.integrations._torch_advice import param_groups as param_groups
from dynagram.integrations._torch_tangents import torch_ntk as torch_ntk

# What rounding may do to a Gram in one step, relative to it.
_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
_LOOSE = 1e-2  # half precision


class GramOnly:
    """Rotates every weight matrix of `optimizer` back after each of its steps.

    It hooks into `step` and leaves the optimizer itself as it is, so that schedulers, state dicts
    and closures work as before; `remove` ends it. Parameters of two or more dimensions are weight
    matrices (out, in, …); others move freely. The rotation is computed in float64 and checked:
    `gram_error` is the largest ‖W₂'ᵀW₂' − W₂ᵀW₂‖/‖W₂ᵀW₂‖ of any step, and a step that exceeds
    rounding of the parameters' type raises `AccuracyError`.

    >>> layer = torch.nn.Linear(3, 5, dtype=torch.float64)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    >>> handle = GramOnly(optimizer)
    >>> layer(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    >>> optimizer.step()
    >>> handle.steps, handle.gram_error < 1e-14
    (1, True)
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.steps = 0
        self.gram_error = 0.0
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._hooks = [
            optimizer.register_step_pre_hook(self._remember),
            optimizer.register_step_post_hook(self._rotate),
        ]

    def remove(self) -> None:
        """Let the optimizer step freely again."""
        for hook in self._hooks:
            hook.remove()

    def _remember(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._before = [
            (parameter, parameter.detach().clone())
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.ndim >= 2
        ]

    @torch.no_grad()
    def _rotate(self, *_: Any) -> None:
        for parameter, old in self._before:
            before = old.reshape(old.shape[0], -1).double()
            after = parameter.reshape(old.shape[0], -1).double()
            if not bool(torch.isfinite(after).all()):
                raise NonFiniteError(
                    f"the weights are not finite after step {self.steps + 1}: training diverged, "
                    "lower its rate"
                )
            parameter.copy_(rotate_back(before, after).reshape(old.shape).to(parameter.dtype))
            kept = parameter.reshape(old.shape[0], -1).double()
            self._check(kept, after, parameter.dtype)
        self._before = []
        self.steps += 1

    def _check(self, kept: torch.Tensor, after: torch.Tensor, dtype: torch.dtype) -> None:
        wanted = after.T @ after
        size = float(torch.linalg.norm(wanted))
        error = float(torch.linalg.norm(kept.T @ kept - wanted)) / (size or 1.0)
        self.gram_error = max(self.gram_error, error)
        tolerance = _TOLERANCE.get(dtype, _LOOSE)
        if not error <= tolerance:
            raise AccuracyError(
                f"Gram-only training changed a Gram matrix by {error:.1e} of itself in step "
                f"{self.steps + 1}, allowed {tolerance:.0e}: train in float64"
            )


def rotate_back(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """`dynagram.integrations._procrustes.rotate_back` for torch tensors (n_out, n_in).

    >>> before, turned = torch.eye(2), torch.tensor([[0.0, -2.0], [3.0, 0.0]])
    >>> rotate_back(before, turned).round(decimals=4).tolist()
    [[3.0, 0.0], [0.0, 2.0]]
    """
    if before.shape[0] <= before.shape[1]:
        u, _, vt = torch.linalg.svd(before @ after.T, full_matrices=False)
        return u @ (vt @ after)
    Q, R_before = torch.linalg.qr(before)
    R_after = torch.linalg.qr(after, mode="r").R
    u, _, vt = torch.linalg.svd(R_before @ R_after.T, full_matrices=False)
    return Q @ (u @ (vt @ R_after))
