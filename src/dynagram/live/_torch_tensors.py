"""Arrays as tensors of PyTorch and the reverse, in the precision and on the device of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.errors import InvalidTypeError


def as_tensor(value: Any, like: torch.Tensor) -> Any:
    """Arrays and tensors on the device and in the precision of another; all else as it is."""
    if isinstance(value, tuple):
        return tuple(as_tensor(part, like) for part in value)
    if isinstance(value, Mapping):
        return {name: as_tensor(part, like) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = tensor_of(value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to(like.device)
    return value.to(like.dtype) if value.is_floating_point() else value


def leading_parameter(module: nn.Module) -> torch.Tensor:
    """The first parameter of real numbers: inputs go to its device, and have its precision.

    >>> mixed = nn.Sequential(nn.Linear(1, 1, dtype=torch.cfloat), nn.Linear(1, 1))
    >>> leading_parameter(mixed).dtype
    torch.float32
    """
    parameters = list(module.parameters())
    real = (p for p in parameters if p.is_floating_point())
    return next(real, torch.zeros((), device=parameters[0].device if parameters else None))


def learns(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers that have gradients."""
    return tensor.is_floating_point() or tensor.is_complex()


def numbers_of(tensor: torch.Tensor) -> np.ndarray:
    """A parameter in double precision, real or complex.

    >>> numbers_of(torch.ones(2, dtype=torch.bfloat16)).dtype, numbers_of(1j * torch.ones(2)).dtype
    (dtype('float64'), dtype('complex128'))
    """
    kind = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.detach().cpu().to(kind).numpy()


def tensor_of(values: np.ndarray, name: str = "inputs") -> torch.Tensor:
    """An array as a tensor: PyTorch has no other byte order and nothing beyond float64.

    >>> tensor_of(np.ones(2, ">f4")).dtype, tensor_of(np.ones(2, np.longdouble)).dtype
    (torch.float32, torch.float64)
    """
    is_long = values.dtype.kind == "f" and values.dtype.itemsize > 8
    kind = np.dtype(np.float64) if is_long else values.dtype.newbyteorder("=")
    try:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=kind))
    except TypeError as error:
        raise InvalidTypeError(name, str(values.dtype), "expected an array of numbers") from error
