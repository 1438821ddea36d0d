"""Looking at a PyTorch module without a trace: modes, buffers, gradients, random numbers, hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.errors import InvalidValueError
from dynagram.watch._randomness import same_numbers

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


@contextlib.contextmanager
def quiet(module: nn.Module) -> Iterator[None]:
    """In evaluation mode and eager, with gradients; afterwards modes and random numbers are back.

    Parameters and buffers are not protected by it: see `call`.
    """
    modes = [(part, part.training) for part in module.modules()]
    devices = {p.device for p in module.parameters()}
    numbers = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(same_numbers())
        stack.enter_context(torch.random.fork_rng(devices=numbers))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in {device.type for device in devices}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if hasattr(torch.compiler, "set_stance"):  # parts that are compiled by themselves
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        # Kernels of attention that have second derivatives.
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        try:
            for part, _ in modes:
                part.training = False
            yield
        finally:
            for part, mode in modes:
                part.training = mode


class Copy:
    """Parameters as new leaves that share their storage, buffers as copies.

    Autograd hooks on the parameters, those of data-parallel training among them, are not on the
    leaves, and whatever a forward pass does to a buffer it does to the copy.
    """

    def __init__(self, module: nn.Module, *, gradients: bool):
        self._module = module
        self.leaves = {
            name: value.detach().requires_grad_(gradients and value.is_floating_point())
            for name, value in module.named_parameters()
        }
        self._buffers = {name: value.clone() for name, value in module.named_buffers()}

    def __call__(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """What the module returns."""
        values = {**self.leaves, **self._buffers}
        return torch.func.functional_call(self._module, values, arguments, dict(options))

    def settle_batch_norms(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """Put the statistics of this batch into the copied buffers of batch norms.

        In evaluation mode they are then constants, and samples do not depend on each other.
        """
        norms = [
            part
            for part in self._module.modules()
            if isinstance(part, _BATCH_NORMS) and part.track_running_stats
        ]
        if not norms:
            return
        momenta = [part.momentum for part in norms]
        for name, value in self._buffers.items():
            if name.endswith("num_batches_tracked"):
                value.zero_()
        try:
            for part in norms:
                part.training, part.momentum = True, None  # None: the plain mean of what was seen
            with torch.no_grad():
                self(arguments, options)
        finally:
            for part, momentum in zip(norms, momenta, strict=True):
                part.training, part.momentum = False, momentum


def on_device(values: Any, like: torch.Tensor) -> Any:
    """Tensors, and arrays, where the parameters are; real numbers in their precision."""
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(values))
    if isinstance(values, torch.Tensor):
        dtype = like.dtype if values.is_floating_point() else values.dtype
        return values.detach().to(device=like.device, dtype=dtype)
    if isinstance(values, Mapping):
        return {key: on_device(value, like) for key, value in values.items()}
    if isinstance(values, tuple | list):
        return tuple(on_device(value, like) for value in values)
    return values


def reference_parameter(module: nn.Module) -> torch.Tensor:
    """The parameter whose device and precision the probe gets; refused where none can be used."""
    floating = [p for p in module.parameters() if p.is_floating_point()]
    if not floating:
        raise InvalidValueError("model", type(module).__name__, "has no parameters to watch")
    if any(p.device.type == "meta" for p in floating):
        allowed = "its parameters are on the device 'meta', which holds no numbers: load them first"
        raise InvalidValueError("model", type(module).__name__, allowed)
    return floating[0]
