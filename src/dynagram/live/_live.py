"""A live model of any framework, read: as a network of ours where it is one, and as layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.live._graph import Graph
from dynagram.live._layers import LayerNumbers
from dynagram.live._recognition import Recognised, recognise
from dynagram.live._rows import UnreadableError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Live:
    """A model of a user's on a batch.

    **Arguments:**

    - `graph`: the operations of one pass.
    - `parameters`: by name, float64.
    - `recognised`: the network of ours that it is; None where it is none.
    - `reason`, `unread`: why not, and the parameters at that place.
    - `unused`, `shared`: parameters on which the output does not depend, and groups of names that
        are one parameter.
    - `measure`: the numbers of its layers, with its own parameters or with others.
    - `frozen`: parameters that are not trained.
    """

    graph: Graph
    parameters: Arrays
    recognised: Recognised | None
    reason: str
    unread: tuple[str, ...]
    unused: tuple[str, ...]
    shared: tuple[tuple[str, ...], ...]
    measure: Callable[[Arrays | None], list[LayerNumbers]]
    frozen: tuple[str, ...] = ()


def read_live(model: Any, x: Any, *, params: Any = None) -> Live:
    """Trace a model on a batch and read it.

    **Arguments:**

    - `model`: a `torch.nn.Module`; a function of (params, x) in JAX with `params`; a callable
        pytree such as an equinox module, for one sample or for a batch; a flax module, linen ones
        with their variables as `params`; or a `Model`.
    - `x`: a batch as the model takes it.
    - `params`: parameters of a JAX function, any pytree.

    **Returns:** `Live`.
    """
    if is_torch(model):
        from dynagram.live._torch_layers import require_weights, shared_parameters, unwrapped
        from dynagram.live._torch_probe import measure_torch
        from dynagram.live._torch_tensors import numbers_of
        from dynagram.live._torch_trace import trace_torch

        require_weights(unwrapped(model))
        _check_finite({n: numbers_of(p) for n, p in model.named_parameters()})
        graph, parameters = trace_torch(model, x)
        shared = shared_parameters(unwrapped(model))
        learns = {name: p.requires_grad for name, p in unwrapped(model).named_parameters()}
        frozen = tuple(name for name, does in learns.items() if not does)
        channel = first_output(graph)
        measure = lambda values: measure_torch(model, x, values, channel=channel)  # noqa: E731
    else:
        from dynagram.live._jax_trace import probe_jax_layers, trace_jax

        graph, parameters = trace_jax(model, x, params)
        shared = frozen = ()
        measure = probe_jax_layers(model, x, params, first_output(graph))
    _check_finite(parameters)
    used = graph.used()
    unused = tuple(name for name in parameters if name not in used)
    recognised, reason, unread = None, "", ()
    try:
        recognised = recognise(graph)
    except UnreadableError as error:
        reason, unread = error.reason, error.parameters
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # A model that the reading stumbles over is measured all the same.
        reason = f"its operations could not be followed: {' '.join(str(error).split())[:100]}"
    return Live(graph, parameters, recognised, reason, unread, unused, shared, measure, frozen)


def first_output(graph: Graph) -> int:
    """The first output that is not always 0, as that of a token of padding is in tied models."""
    value = graph.nodes[graph.output].value
    if value.ndim == 0:
        return 0
    others = np.flatnonzero(np.any(value.reshape(-1, value.shape[-1]), axis=0))
    return int(others[0]) if others.size else 0


def parameters_of(model: Any, x: Any) -> Arrays:
    """The parameters of a model by name."""
    if is_torch(model):
        from dynagram.live._torch_layers import unwrapped
        from dynagram.live._torch_tensors import numbers_of

        return {name: numbers_of(p) for name, p in unwrapped(model).named_parameters()}
    from dynagram.live._jax_trace import as_program

    program = as_program(model, x, None)
    return dict(zip(program.names, map(np.asarray, program.leaves), strict=True))


def measure_made(live: Live, model: Any, x: Any) -> list[LayerNumbers]:
    """The numbers of the layers of another model that was made like a live one."""
    if not is_torch(model):
        return live.measure(parameters_of(model, x))
    from dynagram.live._torch_probe import measure_torch

    return measure_torch(model, x, channel=first_output(live.graph))


def is_torch(model: Any) -> bool:
    """Whether it is a PyTorch module; PyTorch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def fitting_inputs(model: Any, inputs: Any) -> Any:
    """Arrays as tensors of the precision and on the device of a PyTorch module; else as given."""
    if not is_torch(model) or not isinstance(inputs, np.ndarray):
        return inputs
    from dynagram.live._torch_tensors import leading_parameter, tensor_of

    like = leading_parameter(model)
    tensor = tensor_of(inputs).to(like.device)
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it PyTorch draws with a seed, if it is loaded; then its random numbers go on."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _check_finite(parameters: Arrays) -> None:
    for name, values in parameters.items():
        if not np.all(np.isfinite(values)):
            raise NonFiniteError(f"{name} is not finite: nothing can be said about this model")


def batch_of(data: Any) -> Any:
    """The inputs of what a user passes: a `Data`, an array, a tensor or a tuple of arguments."""
    from dynagram.data import Data

    batch = data.x if isinstance(data, Data) else data
    if batch is None or isinstance(batch, str | bytes | int | float):
        allowed = "expected a batch: an array, a tensor, a Data or a tuple of arguments"
        raise InvalidTypeError("data", type(data).__name__, allowed)
    if isinstance(batch, np.ndarray) and batch.dtype.kind not in "biufcV":
        raise InvalidTypeError("data", f"an array of {batch.dtype}", "expected numbers")
    if getattr(batch, "is_meta", False):
        raise InvalidValueError("data", "a tensor on the meta device", "it holds no numbers")
    shape = getattr(batch, "shape", None)
    if shape is not None and (len(shape) < 2 or 0 in shape):
        raise InvalidValueError("shape of data", tuple(shape), "expected samples first, not empty")
    return batch
