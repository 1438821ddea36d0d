"""The layers of a live PyTorch module in the order in which they are called, by their hooks."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dynagram.errors import InvalidTypeError, InvalidValueError, MissingExtraError

try:
    import torch
    from torch import nn
    from torch.nn.utils.spectral_norm import SpectralNorm
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "torch") from error

from dynagram.live._torch_tensors import as_tensor, leading_parameter, learns

_POWERS = 30  # iterations of a spectral norm; 15 are those of torch at the beginning
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_KINDS: tuple[tuple[Any, str], ...] = (
    (nn.Linear, "linear"),
    (nn.modules.conv._ConvNd, "conv"),
    (nn.Embedding, "embedding"),
    ((nn.LayerNorm, nn.RMSNorm), "norm"),
    (_BATCH_NORMS, "batch norm"),
    (nn.MultiheadAttention, "attention"),
)


@dataclass(frozen=True, eq=False)
class TorchLayer:
    """A module that computes with parameters of its own: what a hook is put on.

    **Arguments:**

    - `name`: its name in the model, "" for the model itself.
    - `kind`: "linear", "conv", "embedding", "norm", "batch norm", "attention" or "other".
    - `module`: the module; forward hooks on it see its signal.
    - `parameters`: the names in the model of the parameters that it computes with.
    - `calls`: how often one pass calls it; more than once means that its weights are shared.
    """

    name: str
    kind: str
    module: nn.Module
    parameters: tuple[str, ...]
    calls: int = 1


@dataclass(frozen=True, eq=False)
class TorchLayers:
    """The layers of a module on a batch, and what about them keeps a theory away.

    **Arguments:**

    - `layers`: those that are called, in order of their first call.
    - `unused`: names of parameters on which the output does not depend.
    - `shared`: groups of names that are one and the same parameter.
    """

    layers: tuple[TorchLayer, ...]
    unused: tuple[str, ...]
    shared: tuple[tuple[str, ...], ...]


def unwrapped(module: Any) -> nn.Module:
    """The eager module behind `torch.compile` and data-parallel wrappers.

    >>> unwrapped(nn.DataParallel(nn.Linear(2, 2)))
    Linear(in_features=2, out_features=2, bias=True)
    """
    if not isinstance(module, nn.Module):
        raise InvalidTypeError("model", type(module).__name__, "expected a torch.nn.Module")
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        inner = getattr(module, "_orig_mod", None)  # of torch.compile
        if inner is None and isinstance(module, wrappers):
            inner = module.module
        if inner is None:
            return module
        module = inner


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Within it dropout is off and batch norms see their batch, as in training; then all is as was.

    Spectral norms find the largest singular value of the weights that they are given: what they
    remember belongs to others where weights are drawn anew. Modes of every module, buffers and the
    state of random numbers are put back.
    """
    modes = [(part, part.training) for part in module.modules()]
    spectral = list(_spectral_norms(module))
    powers = [norm.n_power_iterations for norm, _ in spectral]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    try:
        for part, _ in modes:
            part.training = isinstance(part, _BATCH_NORMS)
        for norm, part in spectral:
            part.training, norm.n_power_iterations = True, _POWERS
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        for (norm, _), power in zip(spectral, powers, strict=True):
            norm.n_power_iterations = power
        with torch.no_grad():
            for buffer, values in buffers:
                buffer.copy_(values)


def _spectral_norms(module: nn.Module) -> Iterator[tuple[Any, nn.Module]]:
    """Spectral norms of both kinds that torch has, each with the module whose mode they follow."""
    for part in module.modules():
        if isinstance(part, nn.utils.parametrizations._SpectralNorm):
            yield part, part
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm):
                yield hook, part


def arguments_of(module: nn.Module, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch as the arguments of a module: a tuple is several, a mapping those of its names.

    >>> arguments_of(nn.Linear(2, 2), {"input": 1}), arguments_of(nn.Linear(2, 2), {"rows": 1})
    (((), {'input': 1}), (({'rows': 1},), {}))
    """
    if not isinstance(x, Mapping):
        return (x if isinstance(x, tuple) else (x,)), {}
    try:
        inspect.signature(module.forward).bind(**x)
    except (TypeError, ValueError):  # it takes the mapping itself
        return (x,), {}
    return (), dict(x)


def require_weights(module: nn.Module) -> None:
    """Refuse a module that has no parameters, or whose parameters hold no numbers yet."""
    parameters = dict(module.named_parameters())
    if not parameters:
        allowed = "has no parameters: there is nothing to hold against a draw"
        raise InvalidValueError("model", type(module).__name__, allowed)
    for name, parameter in parameters.items():
        if nn.parameter.is_lazy(parameter):
            allowed = "holds no numbers yet: call the lazy module on a batch once"
            raise InvalidValueError("model", name, allowed)
        if parameter.is_meta:
            raise InvalidValueError("model", name, "holds no numbers: it is on the meta device")


def first_tensor(output: Any) -> torch.Tensor:
    """The first floating-point tensor of what a module returns: tuples, mappings, HF outputs."""
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        return output
    values: list[Any] = []
    if isinstance(output, dict):
        values = [output[key] for key in ("logits", "last_hidden_state") if key in output]
        values += list(output.values())
    elif isinstance(output, tuple | list):
        values = list(output)
    for value in values:
        try:
            return first_tensor(value)
        except InvalidTypeError:
            continue
    kind = str(output.dtype) if isinstance(output, torch.Tensor) else type(output).__name__
    raise InvalidTypeError("output of the model", kind, "expected a tensor of real numbers")


def torch_layers(module: nn.Module, x: Any) -> TorchLayers:
    """The layers that a module calls on a batch; cost: one pass forward and one back.

    **Arguments:**

    - `module`: any module; compiled and data-parallel ones are seen through.
    - `x`: a batch as the module takes it, or a tuple of its arguments.

    **Returns:** `TorchLayers`. Nothing about the module changes: modes, buffers, gradients, random
    numbers.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> [(layer.name, layer.kind) for layer in torch_layers(model, torch.ones(2, 3)).layers]
    [('0', 'linear'), ('2', 'linear')]
    """
    module = unwrapped(module)
    names = {id(part): name for name, part in module.named_modules()}
    order: list[nn.Module] = []
    handles = [
        part.register_forward_pre_hook(lambda part, _: order.append(part))
        for part in module.modules()
    ]
    parameters = dict(module.named_parameters())
    learning = {name: p for name, p in parameters.items() if learns(p)}
    frozen = [p for p in learning.values() if not p.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        with undisturbed(module), torch.enable_grad():
            arguments, options = arguments_of(module, x)
            output = first_tensor(module(*arguments, **options))
            slopes: tuple[Any, ...] = tuple([None] * len(learning))
            if output.requires_grad:
                slopes = torch.autograd.grad(
                    output.double().sum(), list(learning.values()), allow_unused=True
                )
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        for handle in handles:
            handle.remove()
    unused = tuple(n for n, slope in zip(learning, slopes, strict=True) if slope is None)
    called = {id(part): sum(1 for other in order if other is part) for part in order}
    by_owner = _by_owner(module, called, unused)
    first = list({id(part): part for part in order}.values())
    listed = tuple(
        TorchLayer(names[id(p)], kind_of(p), p, tuple(by_owner[id(p)]), called[id(p)])
        for p in first
        if by_owner.get(id(p))
    )
    if not listed:
        raise InvalidValueError("model", type(module).__name__, "has no parameters that are used")
    return TorchLayers(listed, unused, shared_parameters(module))


def matrices_without_gradient(module: nn.Module, x: Any) -> tuple[str, ...]:
    """Weights of dense layers and convolutions that no gradient reaches of what a module returns.

    It is asked in training mode, as some layers are used in it only; frozen ones are left out.

    >>> model = nn.Linear(3, 2)
    >>> model.other = nn.Linear(2, 2)
    >>> matrices_without_gradient(model, torch.ones(2, 3))
    ('other.weight',)
    """
    module = unwrapped(module)
    owners = dict(module.named_modules())
    asked = {name: p for name, p in module.named_parameters() if p.requires_grad and p.ndim > 1
             and kind_of(owners[name.rpartition(".")[0]]) in ("linear", "conv")}  # fmt: skip
    if not asked:
        return ()
    values = {name: p.detach().clone().requires_grad_(True) for name, p in asked.items()}
    arguments, options = arguments_of(module, as_tensor(x, leading_parameter(module)))
    try:
        with undisturbed(module), torch.enable_grad():
            module.train()
            outputs = every_tensor(torch.func.functional_call(module, values, arguments, options))
            total = sum(output.double().sum() for output in outputs if output.requires_grad)
            if not isinstance(total, torch.Tensor):
                return ()
            slopes = torch.autograd.grad(total, list(values.values()), allow_unused=True)
    except Exception:  # a module that cannot be trained on this batch says nothing
        return ()
    return tuple(name for name, slope in zip(asked, slopes, strict=True) if slope is None)


def every_tensor(output: Any) -> list[torch.Tensor]:
    """All floating-point tensors of what a module returns."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    values = output.values() if isinstance(output, dict) else output
    if not isinstance(values, Iterable) or isinstance(values, str):
        return []
    return [tensor for value in values for tensor in every_tensor(value)]


def kind_of(module: nn.Module) -> str:
    """What kind of layer a module is, by its class.

    >>> kind_of(nn.Conv2d(1, 2, 3))
    'conv'
    """
    return next((kind for classes, kind in _KINDS if isinstance(module, classes)), "other")


def shared_parameters(module: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Names that stand for one and the same parameter, in groups.

    >>> layer = nn.Linear(2, 2)
    >>> shared_parameters(nn.Sequential(layer, layer))
    (('0.weight', '1.weight'), ('0.bias', '1.bias'))
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _by_owner(
    module: nn.Module, called: dict[int, int], unused: tuple[str, ...]
) -> dict[int, list[str]]:
    """Parameters by the module that computes with them: the owner, or what holds it, if called.

    The output projection of `torch.nn.MultiheadAttention` is a module that is never called. A
    parameter under several names has the first of them wherever it is used.
    """
    parts = dict(module.named_modules(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    owners: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if first[id(parameter)] in unused:
            continue
        path = name.split(".")[:-1]
        prefixes = itertools.accumulate(["", *path], lambda a, b: f"{a}.{b}" if a else b)
        holders = [parts[prefix] for prefix in prefixes if prefix in parts]
        holder = next((part for part in reversed(holders) if id(part) in called), module)
        listed = owners.setdefault(id(holder), [])
        if first[id(parameter)] not in listed:
            listed.append(first[id(parameter)])
    return owners
