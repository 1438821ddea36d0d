"""What a PyTorch model returns: its outputs, and a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from dynagram.errors import InvalidTypeError
from dynagram.live._torch_layers import first_tensor


def outputs_of(output: Any) -> torch.Tensor:
    """The outputs: a tensor, the first one of a tuple or mapping, or what an object calls `logits`.

    >>> outputs_of((torch.ones(2, 3), torch.tensor(0.5))).shape
    torch.Size([2, 3])
    """
    logits = getattr(output, "logits", None)
    return first_tensor(logits if isinstance(logits, torch.Tensor) else output)


def is_scalar(value: Any) -> bool:
    """Whether it is one real number with a gradient, as a loss is."""
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.requires_grad


def one_number(loss: Any) -> torch.Tensor:
    """What a loss of the user's gives; refused where it is not one number."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss.reshape(())
    given = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
    raise InvalidTypeError("loss", given, "expected a tensor of one number, a mean over samples")


def usual_loss(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy for classes, the mean squared error for reals, as torch.nn has them.

    Classes lie along the last axis, or along the second where only that fits, as in images.
    """
    if y.is_floating_point():
        return F.mse_loss(z, y.reshape(z.shape))
    if y.shape == (len(z), *z.shape[2:]) and y.shape != z.shape[:-1]:
        return F.cross_entropy(z, y.long())
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1).long())
