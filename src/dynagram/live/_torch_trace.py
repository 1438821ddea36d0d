"""A pass of a PyTorch module recorded operation by operation, whatever its Python code does."""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dynagram.errors import DynagramError, InvalidValueError, MissingExtraError
from dynagram.live._graph import Constant, Graph, Node

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "torch") from error

from dynagram.live._torch_layers import arguments_of, first_tensor, undisturbed, unwrapped

_ADDS = ("add", "__add__", "__radd__", "add_", "__iadd__", "sub", "__sub__")
_MULTIPLIES = ("mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply")
_MATMULS = ("matmul", "__matmul__", "mm", "bmm", "einsum", "__rmatmul__")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_PLACES_OF_EPSILON = {"layer_norm": 4, "rms_norm": 3, "group_norm": 4, "batch_norm": 7,
                      "instance_norm": 7}  # fmt: skip
_EPSILON = 1e-5  # of a function of torch that is not told another
_WRITES = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__",
           "__iand__", "__ior__", "__ixor__", "__ifloordiv__", "__imod__")  # fmt: skip
_RAISED = {
    torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}  # fmt: skip
_CASTS = ("float", "half", "bfloat16", "type_as")


def trace_torch(module: nn.Module, x: Any) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of one pass in float64 on the CPU, dropout off, and the parameters by name.

    The module itself is not touched: a copy of it is run. Parameters under several names have the
    first.

    >>> graph, _ = trace_torch(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.ones(2, 3))
    >>> [node.op for node in graph.nodes], graph.nodes[1].parameters
    (['input', 'linear', 'other'], ('0.weight', '0.bias'))
    """
    copied = _double_copy(unwrapped(module))
    arguments, options = arguments_of(copied, _double(x))
    parameters = dict(copied.named_parameters())
    recorder = _Recorder(parameters, dict(copied.named_buffers()))
    tensors = _tensors((arguments, options))
    if not tensors:
        raise InvalidValueError("data", type(x).__name__, "expected a tensor, or several")
    recorder.enter(*tensors)
    try:
        with _doubles(), undisturbed(copied), torch.no_grad(), recorder:
            output = copied(*arguments, **options)
    except DynagramError:
        raise
    except Exception as error:  # the model's own complaint about the batch, in one line
        reason = " ".join(str(error).split())[:200]
        raise InvalidValueError("model", "call on the batch", f"fails: {reason}") from error
    number = recorder.number_of(first_tensor(output))
    if number is None:
        allowed = "its output does not depend on the batch by operations that can be traced"
        raise InvalidValueError("model", type(module).__name__, allowed)
    values = {name: parameter.detach().numpy() for name, parameter in parameters.items()}

    def again(batch: np.ndarray) -> np.ndarray:
        new = torch.from_numpy(np.array(batch))
        places = iter([new, *tensors[1:]])
        with _doubles(), undisturbed(copied), torch.no_grad():
            output = copied(*_refilled(arguments, places), **_refilled(options, places))
            return _numbers(first_tensor(output))

    return Graph(tuple(recorder.nodes), number, again, tuple(recorder.beside)), values


@contextmanager
def _doubles() -> Iterator[None]:
    """Within it what a model makes on its way is float64."""
    usual = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(usual)


def _refilled(part: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same arguments with other tensors, in order."""
    if isinstance(part, torch.Tensor):
        return next(tensors)
    if isinstance(part, tuple | list):
        return type(part)(_refilled(one, tensors) for one in part)
    if isinstance(part, Mapping):
        return {name: _refilled(one, tensors) for name, one in part.items()}
    return part


def _double_copy(module: nn.Module) -> nn.Module:
    try:
        copied = copy.deepcopy(module)
    except Exception as error:  # modules may hold anything
        allowed = f"cannot be copied: {' '.join(str(error).split())[:100]}"
        raise InvalidValueError("model", type(module).__name__, allowed) from error
    for part in copied.modules():  # hooks of others are not run twice
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            hooks = getattr(part, name)
            for key in [key for key, hook in hooks.items() if not _makes_weights(hook)]:
                del hooks[key]
        for name, value in vars(part).items():  # tensors that are no buffers stay behind
            if isinstance(value, torch.Tensor):
                vars(part)[name] = _double(value)
    # As functions: a module may have a part that it calls "to".
    copied = nn.Module.double(nn.Module.cpu(copied))
    for values in (*copied.parameters(), *copied.buffers()):
        if values.is_complex():  # `double` leaves them as they are
            values.data = values.data.to(torch.complex128)
    return copied


def _makes_weights(hook: Any) -> bool:
    """Whether a hook is that of torch's own weight or spectral norm, without which W is stale."""
    return type(hook).__module__.startswith("torch.nn.utils.")


def _double(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_double(part) for part in value)
    if isinstance(value, Mapping):
        return {name: _double(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value.double() if value.is_floating_point() else value


class _Recorder(TorchFunctionMode):
    """Records every function of torch that is called with something that it knows."""

    def __init__(self, parameters: Mapping[str, Any], buffers: Mapping[str, Any]):
        super().__init__()
        self.nodes: list[Node] = []
        self.beside: list[Node] = []
        self._others: dict[int, int | Constant] = {}  # as if it were the batch
        self._known: dict[int, int | Constant] = {}
        self._alive: list[Any] = []  # an id is only unique while its tensor lives
        for name, values in (*buffers.items(), *parameters.items()):
            names = (name,) if name in parameters else ()
            self._remember(values, Constant(_numbers(values, copied=False), names))

    def enter(self, source: torch.Tensor, *others: torch.Tensor) -> None:
        self._record("input", (), (), source, {})
        self._alive += others
        self._others = {id(other): 0 for other in others if other is not source}

    def number_of(self, tensor: torch.Tensor) -> int | None:
        known = self._known.get(id(tensor))
        return known if isinstance(known, int) else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        options = {name: _raised(value) for name, value in (kwargs or {}).items()}
        args = tuple(_raised(value) for value in args)
        read = [self._known.get(id(t)) for t in _tensors((args, options))]
        # Norms and softmaxes that a model casts to float32 are computed in float64 like the rest.
        name = getattr(func, "__name__", "")
        cast = name in _CASTS and (name != "type_as" or args[1].is_floating_point())
        computed = _as_double if cast else func
        target = _written(name, args, options)
        before = None if target is None else _numbers(target)
        result = computed(*args, **options)
        outputs = _tensors(result)
        if target is not None and all(output is not target for output in outputs):
            outputs.append(target)
        if not outputs or name == "__set__":
            return result
        inputs = tuple(known for known in read if isinstance(known, int))
        if not inputs:
            self._look_beside(func, args, options, outputs)
            names = tuple(n for k in read if isinstance(k, Constant) for n in k.parameters)
            for tensor in outputs:
                self._remember(tensor, Constant(_numbers(tensor), tuple(dict.fromkeys(names))))
            self._refresh(target)
            return result
        tensors = _tensors((args, options))
        is_data = [isinstance(known, int) for known in read]
        constants = tuple(
            known if isinstance(known, Constant) else Constant(_numbers(tensor))
            for tensor, known in zip(tensors, read, strict=True)
            if not isinstance(known, int)
        )
        op, about = _classify(func, args, options, self._known)
        for index, tensor in enumerate(outputs):
            detail = about if len(outputs) == 1 else {**about, "output": index}
            written = None if target is None else (target, before)
            again = _as_function(computed, args, options, is_data, index, written)
            self._record(op, inputs, constants, tensor, detail, again)
        self._refresh(target)
        return result

    def _record(
        self, op: str, inputs: Any, constants: Any, tensor: Any, about: Any, again: Any = None
    ) -> None:
        number = len(self.nodes)
        self.nodes.append(Node(number, op, inputs, constants, _numbers(tensor), about, again))
        self._remember(tensor, number)

    def _refresh(self, target: torch.Tensor | None) -> None:
        """What shares its memory with a tensor that was written to may hold other numbers now."""
        if target is None or target.layout is not torch.strided:
            return
        place, source = target.untyped_storage().data_ptr(), self._known.get(id(target))
        for tensor in {id(t): t for t in self._alive if id(t) in self._known}.values():
            known = self._known[id(tensor)]
            if tensor is target or tensor.layout is not torch.strided:
                continue
            if tensor.untyped_storage().data_ptr() != place:
                continue
            old = known.value if isinstance(known, Constant) else self.nodes[known].value
            value = _numbers(tensor)
            if np.array_equal(old, value, equal_nan=True):
                continue
            read = (known, source)
            inputs = tuple(part for part in read if isinstance(part, int))
            constants = tuple(part for part in read if isinstance(part, Constant))
            if inputs:
                self._record("other", inputs, constants, tensor, {"name": "write to a view"})
            else:
                names = (name for constant in constants for name in constant.parameters)
                self._remember(tensor, Constant(value, tuple(dict.fromkeys(names))))

    def _look_beside(self, func: Any, args: Any, options: Any, outputs: list[Any]) -> None:
        """Follow what other inputs give, and keep the products with parameters."""
        tensors = _tensors((args, options))
        if not any(id(tensor) in self._others for tensor in tensors):
            return
        read = (self._known.get(id(t)) for t in tensors if id(t) not in self._others)
        constants = tuple(known for known in read if isinstance(known, Constant))
        op, about = _classify(func, args, options, ChainMap(self._others, self._known))
        self.beside.append(Node(0, op, (), constants, np.zeros(()), about))
        self._others |= {id(tensor): 0 for tensor in outputs}

    def _remember(self, tensor: Any, what: int | Constant) -> None:
        self._alive.append(tensor)
        self._known[id(tensor)] = what


def _as_double(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor.double()


def _as_function(
    func: Callable[..., Any], args: Any, options: Any, is_data: list[bool], index: int,
    written: tuple[torch.Tensor, Any] | None = None,
) -> Callable[..., np.ndarray]:  # fmt: skip
    """An operation as a function of the arrays that its inputs hold.

    `written` is the tensor that it writes to, if it does, and the numbers that it held before.
    """

    def again(*arrays: np.ndarray) -> np.ndarray:
        new, tensors, places = iter(arrays), [], []
        for tensor, data in zip(_tensors((args, options)), is_data, strict=True):
            made = torch.from_numpy(np.array(next(new))) if data else tensor
            if written is not None and tensor is written[0]:
                made = made if data else torch.from_numpy(np.array(written[1]))
                places.append(made)
            tensors.append(made)
        refill = iter(tensors)
        filled = _refilled(args, refill), _refilled(options, refill)
        with _doubles(), torch.random.fork_rng(devices=[]), torch.no_grad():
            result = func(*filled[0], **filled[1])
        return _numbers(places[0] if places else _tensors(result)[index])

    return again


def _written(name: str, args: Any, options: Mapping[str, Any]) -> torch.Tensor | None:
    """The tensor that an operation writes to; None where it makes a new one."""
    if isinstance(options.get("out"), torch.Tensor):
        return options["out"]
    by_name = name.endswith("_") and not name.endswith("__")
    if not (by_name or name in _WRITES or options.get("inplace")):
        return None
    return args[0] if args and isinstance(args[0], torch.Tensor) else None


def _raised(value: Any) -> Any:
    """Double precision in place of a lower one that is asked for; all else as it is."""
    return _RAISED.get(value, value) if isinstance(value, torch.dtype) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in arguments, in order, each as often as it stands there."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in _tensors(part)]
    return []


def _numbers(tensor: torch.Tensor, *, copied: bool = True) -> np.ndarray:
    with torch._C.DisableTorchFunction():
        values = tensor.detach()
        if values.dtype in (torch.bfloat16, torch.float16):
            values = values.double()
        if values.layout is not torch.strided:  # adjacency matrices of graphs
            values = values.to_dense()
        return np.array(values.numpy()) if copied else values.numpy()


def _classify(
    func: Callable[..., Any], args: Any, options: Any, known: Mapping[int, Any]
) -> tuple[str, dict[str, Any]]:
    """The operation in our words, and what matters about how it was called."""
    name = getattr(func, "__name__", "")
    if func is functional.linear or name == "linear":
        return "linear", {}
    if name == "addmm":
        return "linear", {"transposed": True, "bias_first": True}
    if name in _MATMULS:
        is_data = [isinstance(known.get(id(t)), int) for t in _tensors(args)]
        if name in ("matmul", "__matmul__", "mm") and is_data == [True, False]:
            return "linear", {"transposed": True}
        if name == "einsum" and (transposed := _is_transposed(args, is_data)) is not None:
            return "linear", {"transposed": transposed}
        return "matmul", {"einsum": name == "einsum"}
    if name in _CONVOLUTIONS:
        given = dict(zip(("stride", "padding", "dilation", "groups"), args[3:], strict=False))
        named = {k: v for k, v in options.items() if isinstance(v, int | tuple | str)}
        return "conv", {**given, **named}
    if name == "embedding":
        return "embedding", {}
    if name in _ADDS and not (name in ("sub", "__sub__") and len(_tensors(args)) > 1):
        return "add", {}
    if name in _MULTIPLIES:
        return "multiply", {}
    if name in ("softmax", "_softmax"):
        return "softmax", {}
    if name == "scaled_dot_product_attention":
        return "attention", {}
    if name == "multi_head_attention_forward":
        return "multihead", {"heads": args[4] if len(args) > 4 else options.get("num_heads")}
    if name in _PLACES_OF_EPSILON:
        place = _PLACES_OF_EPSILON[name]
        given = args[place] if len(args) > place else options.get("eps", _EPSILON)
        return "other", {"name": name, "eps": given}
    return "other", {"name": name}


def _is_transposed(args: Any, is_data: Sequence[bool]) -> bool | None:
    """Whether an einsum is a product with a matrix (in, out), or with one (out, in); else None.

    >>> x, W = torch.ones(2, 3, 4), torch.ones(5, 4)
    >>> _is_transposed(("b t i, o i -> b t o", x, W), [True, False])
    False
    >>> _is_transposed(("...i,io->...o", x, W), [True, False])
    True
    >>> _is_transposed(("bti,oi->boi", x, W), [True, False])
    """
    if not isinstance(args[0], str) or sorted(is_data) != [False, True]:
        return None
    reads, arrow, made = args[0].replace(" ", "").partition("->")
    terms = reads.split(",")
    if not arrow or len(terms) != 2 or not made:
        return None
    data, matrix = (terms[is_data.index(which)] for which in (True, False))
    new = made[-1]
    if data[:-1] + new != made or new in data or data[-1] in data[:-1]:
        return None
    return {data[-1] + new: True, new + data[-1]: False}.get(matrix)
