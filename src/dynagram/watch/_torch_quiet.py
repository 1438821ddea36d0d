"""Looking at a PyTorch module without a trace: modes, buffers, gradients, random numbers, hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._torch_tensors import tensor_of
from dynagram.watch._randomness import same_numbers
from dynagram.watch._torch_attributes import same_attributes

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


@contextlib.contextmanager
def quiet(module: nn.Module) -> Iterator[None]:
    """In evaluation mode and eager, with gradients; afterwards all is back but tensors written to.

    Modes and other attributes, and random numbers. Parameters and buffers: see `Copy`.
    """
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
        stack.enter_context(same_attributes(module))
        for part in module.modules():
            stack.callback(setattr, part, "training", part.training)
            part.training = False
            if "_original_forward" in vars(part):  # what accelerate wraps in autocast
                part.forward = vars(part)["_original_forward"]
        yield


class Copy:
    """Parameters as new leaves that share their storage, buffers and inputs as copies.

    Autograd hooks on the parameters, those of data-parallel training among them, are not on the
    leaves, and whatever a forward pass does to a buffer it does to the copy.

    **Arguments:**

    - `module`: the module.
    - `gradients`: whether they are taken by the leaves.
    - `apart`: names of parameters that a forward pass writes to, as an embedding with `max_norm`
        does: their leaves have a storage of their own. None: all.
    """

    def __init__(
        self, module: nn.Module, *, gradients: bool, apart: Collection[str] | None = frozenset()
    ):
        self._module = module
        self.leaves = {
            name: (value.detach().clone() if apart is None or name in apart else value.detach())
            .requires_grad_(gradients and value.is_floating_point())
            for name, value in module.named_parameters()
        }  # fmt: skip
        self._buffers = {name: value.detach().clone() for name, value in module.named_buffers()}

    def __call__(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """What the module returns."""
        values = {**self.leaves, **self._buffers}
        return torch.func.functional_call(
            self._module, values, _cloned(arguments), _cloned(dict(options))
        )

    def written(self) -> frozenset[str]:
        """The parameters that passes have written to, where all leaves are apart from them."""
        values = dict(self._module.named_parameters())
        return frozenset(
            name
            for name, leaf in self.leaves.items()
            if leaf._version > 0 or not torch.equal(leaf, values[name])
        )

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


def adapts(part: nn.Module) -> bool:
    """Whether it is a batch norm that is trained with the statistics of each batch, and looked at
    with constant ones."""
    return isinstance(part, _BATCH_NORMS) and part.track_running_stats and part.training


def _cloned(values: Any) -> Any:
    """Tensors of our own: a forward pass may work in place on what it is given."""
    if isinstance(values, torch.Tensor):
        return values.clone()
    if isinstance(values, Mapping):
        return {key: _cloned(value) for key, value in values.items()}
    return tuple(map(_cloned, values)) if isinstance(values, tuple) else values


def on_device(values: Any, like: torch.Tensor) -> Any:
    """Copies of tensors, and arrays, where the parameters are; real numbers in their precision."""
    if isinstance(values, np.ndarray):
        values = tensor_of(values, "probe")
    if isinstance(values, torch.Tensor):
        if values.device.type == "meta":
            raise InvalidValueError("probe", "meta", "is on a device that holds no numbers")
        dtype = like.dtype if values.is_floating_point() else values.dtype
        return values.detach().to(device=like.device, dtype=dtype, copy=True)
    if isinstance(values, Mapping):
        return {key: on_device(value, like) for key, value in values.items()}
    if isinstance(values, tuple | list):
        return tuple(on_device(value, like) for value in values)
    return values


def reference_parameter(module: nn.Module) -> torch.Tensor:
    """The parameter whose device and precision the probe gets; refused where none can be used."""
    if isinstance(module, torch.jit.ScriptModule):
        allowed = "TorchScript is not looked into: watch the module that it was made from"
        raise InvalidTypeError("model", type(module).__name__, allowed)
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        allowed = "has lazy layers without weights yet: pass a batch through it first"
        raise InvalidValueError("model", type(module).__name__, allowed)
    floating = [p for p in module.parameters() if p.is_floating_point()]
    if not floating:
        raise InvalidValueError("model", type(module).__name__, "has no parameters to watch")
    if any(p.device.type == "meta" for p in floating):
        allowed = "its parameters are on the device 'meta', which holds no numbers: load them first"
        raise InvalidValueError("model", type(module).__name__, allowed)
    return floating[0]
