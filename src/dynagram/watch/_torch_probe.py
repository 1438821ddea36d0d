"""The batch that a PyTorch model is looked at with: arguments, targets, and the first of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.watch._torch_parts import as_real
from dynagram.watch._torch_quiet import on_device


class Probe:
    """Samples in the first dimension of every tensor, on the device of the model.

    **Arguments:**

    - `batch`: x, (x, y), or a mapping of arguments by name, or (mapping, y).
    - `like`: a parameter, whose device and precision the numbers get.
    - `forward`: what they are passed to; one that takes no arguments of these names gets the
        mapping itself.
    """

    def __init__(self, batch: Any, like: torch.Tensor, forward: Callable[..., Any]):
        self.arguments, self.options, self.y = _taken_apart(on_device(batch, like))
        if self.options and not _takes(forward, self.options):
            self.arguments, self.options = (self.options,), {}
        self.count = _length(self.arguments, self.options)

    @property
    def x(self) -> Any:
        """The inputs: one tensor, or all arguments by name."""
        return self.arguments[0] if len(self.arguments) == 1 else self.options

    @property
    def targets(self) -> np.ndarray | None:
        """The targets of all samples; None without."""
        if not isinstance(self.y, torch.Tensor):
            return None
        return (as_real(self.y) if self.y.is_floating_point() else self.y).cpu().numpy()

    @property
    def has_targets(self) -> bool:
        """Whether there are targets, for us or for the model itself."""
        return self.y is not None or isinstance(self.options.get("labels"), torch.Tensor)

    def head(self, samples: int, first: int = 0) -> tuple[Any, Any, Any]:
        """Arguments, arguments by name and targets of some samples, from the first on."""
        rows = slice(first, first + samples)
        arguments, options, y = (
            _head(part, rows, self.count) for part in (self.arguments, self.options, self.y)
        )
        return arguments, options, y

    def __repr__(self) -> str:
        shapes = [tuple(v.shape) for v in self.arguments if isinstance(v, torch.Tensor)]
        return str(shapes or list(self.x))


def _taken_apart(probe: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Arguments, arguments by name, targets."""
    if isinstance(probe, Mapping):
        return (), dict(probe), None
    if isinstance(probe, torch.Tensor):
        return (probe,), {}, None
    if isinstance(probe, tuple) and len(probe) == 2:
        x, y = probe
        if y is None and isinstance(x, torch.Tensor | Mapping):
            return _taken_apart(x)
        if isinstance(x, Mapping):
            return (), dict(x), y
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            return (x,), {}, y
    allowed = "expected a batch x, a pair (x, y), or a mapping of arguments"
    kinds = [type(v).__name__ for v in probe] if isinstance(probe, tuple) else type(probe).__name__
    raise InvalidTypeError("probe", kinds, allowed)


def _takes(forward: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(forward).bind(**options)
    except TypeError:
        return False
    except ValueError:  # no signature to be had
        pass
    return True


def _length(arguments: Any, options: Mapping[str, Any]) -> int:
    tensors = [tensor for tensor in _tensors((arguments, options)) if tensor.ndim]
    if not tensors or len(tensors[0]) < 2:
        raise InvalidValueError("probe", len(tensors[0]) if tensors else 0, "at least 2 samples")
    return len(tensors[0])


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


def _head(values: Any, rows: slice, count: int) -> Any:
    """Some samples of everything that has a row for each."""
    if isinstance(values, torch.Tensor):
        return values[rows] if values.ndim and len(values) == count else values
    if isinstance(values, Mapping):
        return {key: _head(value, rows, count) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_head(value, rows, count) for value in values)
    return values
