"""A function of JAX, or a callable pytree, recorded operation by operation from its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError
from dynagram.live._flax import as_function
from dynagram.live._graph import Constant, Graph, Node
from dynagram.live._jax_ops import classify, concrete, is_opaque
from dynagram.live._layers import LayerNumbers, layer_numbers
from dynagram.networks import Model

Visit = Callable[[int, str, tuple[str, ...], tuple[int, ...], Any, dict[str, Any]], Any]
_WEIGHTED = ("linear", "conv", "embedding")
_LOOPS = ("scan", "while", "cond")


@dataclass(frozen=True, eq=False)
class Program:
    """A model as a function of a list of arrays and a batch.

    **Arguments:**

    - `function`: of (leaves, x); for one sample where `per_sample`.
    - `names`, `leaves`: the parameters.
    - `per_sample`: whether the batch is mapped over.
    """

    function: Callable[[Any, Any], Any]
    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    per_sample: bool


def trace_jax(model: Any, x: Any, params: Any = None) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph of one pass in float64, and the parameters by name.

    >>> params = {"first": jnp.ones((3, 4)), "last": jnp.ones((4, 1))}
    >>> net = lambda p, x: jnp.tanh(x @ p["first"]) @ p["last"]
    >>> graph, _ = trace_jax(net, np.ones((2, 3)), params)
    >>> [node.op for node in graph.nodes]
    ['input', 'linear', 'other', 'linear']
    """
    if isinstance(x, Mapping | tuple | list):
        allowed = "expected one array: a function of it may take it apart"
        raise InvalidTypeError("data", type(x).__name__, allowed)
    with jax.enable_x64(True):
        program = as_program(model, x, params)
        leaves = [_double(leaf) for leaf in program.leaves]
        nodes: list[Node] = []
        batch = _double(np.asarray(x))

        def visit(
            number: int, op: str, names: Any, inputs: Any, value: Any, about: dict[str, Any]
        ) -> Any:
            del names
            constants, again = about.pop("constants", ()), about.pop("again", None)
            nodes.append(Node(number, op, inputs, constants, np.asarray(value), about, again))
            return value

        output = evaluate(program, leaves, batch, visit)
        if output is None:
            allowed = "its output does not depend on the batch"
            raise InvalidValueError("model", type(model).__name__, allowed)
        arrays = dict(zip(program.names, (np.asarray(leaf) for leaf in leaves), strict=True))

    def again(values: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            one = lambda sample: program.function(leaves, sample)  # noqa: E731
            return np.asarray((jax.vmap(one) if program.per_sample else one)(jnp.asarray(values)))

    return Graph(tuple(nodes), output, again), arrays


def probe_jax_layers(
    model: Any, x: Any, params: Any, channel: int = 0
) -> Callable[[dict[str, np.ndarray] | None], list[LayerNumbers]]:
    """The numbers of every layer in the precision of the parameters, as a function of others.

    It is compiled at its first call and then goes for all draws. f is the output on a `channel`.
    """
    leaves = jax.tree.leaves(model if params is None else params)
    double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in leaves)
    with jax.enable_x64(double):
        program = as_program(model, x, params)
    dtype = program.leaves[0].dtype
    layers: dict[int, tuple[str, bool]] = {}

    def run(leaves: Any, shifts: dict[int, Any], batch: Any) -> Any:
        seen: dict[int, Any] = {}

        def visit(number: int, op: str, names: Any, inputs: Any, value: Any, about: Any) -> Any:
            about.pop("constants", ())
            own = op in _WEIGHTED and names
            biased = op == "add" and names and len(inputs) == 1 and inputs[0] in seen
            if own or biased:
                if biased:
                    seen.pop(inputs[0])
                    layers.pop(inputs[0], None)
                layers[number] = (layer_of(names[0]), about.get("axis") == 1)
                value = value + shifts[number] if number in shifts else value
                seen[number] = value
            return value

        output = evaluate(program, leaves, batch, visit, want_value=True)
        return jnp.mean(output.reshape(-1, output.shape[-1])[:, channel]), seen

    @jax.jit
    def slopes_of(leaves: Any, batch: Any) -> Any:
        _, first = jax.eval_shape(run, leaves, {}, batch)
        shifts = {number: jnp.zeros(value.shape, value.dtype) for number, value in first.items()}
        return jax.grad(run, argnums=(0, 1), has_aux=True)(leaves, shifts, batch)

    def measure(values: dict[str, np.ndarray] | None) -> list[LayerNumbers]:
        with jax.enable_x64(double):
            leaves = list(program.leaves)
            if values is not None:
                leaves = [jnp.asarray(values[name], dtype) for name in program.names]
            batch = np.asarray(x)
            inputs = jnp.asarray(batch, dtype) if batch.dtype.kind == "f" else jnp.asarray(batch)
            (slopes, back), seen = slopes_of(leaves, inputs)
        return _as_numbers(program.names, layers, slopes, back, seen)

    return measure


def _as_numbers(
    names: Sequence[str], layers: Mapping[int, tuple[str, bool]], slopes: Any, back: Any, seen: Any
) -> list[LayerNumbers]:
    squares = {
        name: float(np.sum(np.asarray(g, np.float64) ** 2))
        for name, g in zip(names, slopes, strict=True)
    }
    total, made = sum(squares.values()), []
    for number, value in seen.items():
        name, first_axis = layers[number]
        gradient = sum(s for other, s in squares.items() if layer_of(other) == name)
        array, slope = np.asarray(value, np.float64), np.asarray(back[number], np.float64)
        made.append(layer_numbers(name, array, slope, gradient, total,
                                  1 if first_axis else array.ndim - 1))  # fmt: skip
    return made


def layer_of(name: str) -> str:
    """The layer that a parameter belongs to: its name without the last part.

    >>> layer_of("layers.0.weight"), layer_of("W1")
    ('layers.0', 'W1')
    """
    return name.rpartition(".")[0] or name


def as_program(model: Any, x: Any, params: Any) -> Program:
    """A model as a function of a list of arrays and a batch."""
    per_sample = False
    from_flax = as_function(model, params)
    if from_flax is not None:
        function, tree = from_flax
    elif isinstance(model, Model):
        network = model.network
        tree, function = model.params, network.apply
    elif params is not None:
        if not callable(model):
            allowed = "expected a function of (params, x)"
            raise InvalidTypeError("model", type(model).__name__, allowed)
        tree, function = params, model
    elif callable(model) and jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)):
        quiet = eqx.nn.inference_mode(model)
        tree, rest = eqx.partition(quiet, eqx.is_inexact_array)
        function = lambda p, x: eqx.combine(p, rest)(x)  # noqa: E731
        per_sample = _takes_one(function, tree, np.asarray(x))
    else:
        allowed = (
            "expected a torch.nn.Module, a JAX function with params=, an equinox or flax module or "
            "a Model"
        )
        raise InvalidTypeError("model", type(model).__name__, allowed)
    paths, treedef = jax.tree_util.tree_flatten_with_path(tree)
    leaves = tuple(jnp.asarray(leaf) for _, leaf in paths)
    names = tuple(_named(jax.tree_util.keystr(path)) for path, _ in paths)
    if not leaves:
        raise InvalidValueError("params", params, "hold no arrays")

    def flat(leaves: Any, x: Any) -> Any:
        out = function(jax.tree.unflatten(treedef, list(leaves)), x)
        return jax.tree.leaves(out)[0]

    return Program(flat, names, leaves, per_sample)


def _named(path: str) -> str:
    """ ".layers[0].weight" and "['a']['b']" as layers.0.weight and a.b."""
    for old, new in (("['", "."), ("']", ""), ("[", "."), ("]", "")):
        path = path.replace(old, new)
    return path.strip(".").removesuffix(".value")  # which every parameter of flax.nnx ends with


def _takes_one(function: Any, tree: Any, batch: np.ndarray) -> bool:
    """Whether it is for one sample, as modules of equinox are; also where it takes neither.

    What is said about one sample is then what its author should read.
    """
    dtype = jax.tree.leaves(tree)[0].dtype if batch.dtype.kind == "f" else jnp.int32

    def runs(shape: tuple[int, ...]) -> bool:
        try:
            jax.eval_shape(function, tree, jax.ShapeDtypeStruct(shape, dtype))
        except Exception:  # a user's code may fail in any way
            return False
        return True

    return runs(batch.shape[1:]) or not runs(batch.shape)


def _double(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return jnp.asarray(array, jnp.float64) if array.dtype.kind in "fV" else jnp.asarray(array)


def evaluate(
    program: Program, leaves: Sequence[Any], x: Any, visit: Visit, *, want_value: bool = False
) -> Any:
    """Run a program operation by operation; `visit` sees every operation on the batch.

    Returns the number of the node that is the output, or its value.
    """
    sample = x[0] if program.per_sample else x
    try:
        closed = jax.make_jaxpr(program.function)(list(leaves), sample)
    except DynagramError:
        raise
    except Exception as error:  # the model's own complaint about the batch, in one line
        reason = " ".join(str(error).split())[:200]
        raise InvalidValueError("model", "call on the batch", f"fails: {reason}") from error
    machine = _Machine(program.per_sample, visit)
    constants = [_Known(value, (), None) for value in closed.consts]
    inputs = [_Known(v, (n,), None) for v, n in zip(leaves, program.names, strict=True)]
    batch = machine.enter(x)
    outputs = machine.run(closed.jaxpr, constants, [*inputs, batch])
    return outputs[0].value if want_value else outputs[0].node


@dataclass(frozen=True, eq=False)
class _Known:
    value: Any
    names: tuple[str, ...]
    node: int | None  # None for what does not depend on the batch


class _Machine:
    def __init__(self, per_sample: bool, visit: Visit):
        self.per_sample, self.visit, self.count = per_sample, visit, 0

    def enter(self, x: Any) -> _Known:
        return self._data("input", (), (), x, {})

    def _data(self, op: str, names: Any, inputs: Any, value: Any, about: dict[str, Any]) -> _Known:
        number = self.count
        self.count += 1
        return _Known(self.visit(number, op, names, inputs, value, about), (), number)

    def run(self, jaxpr: Any, constants: list[_Known], inputs: list[_Known]) -> list[_Known]:
        known: dict[Any, _Known] = {}
        known |= dict(zip(jaxpr.constvars, constants, strict=True))
        known |= dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> _Known:
            return _Known(atom.val, (), None) if hasattr(atom, "val") else known[atom]

        for eqn in jaxpr.eqns:
            arguments = [read(atom) for atom in eqn.invars]
            inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
            if inner is not None and not is_opaque(eqn):
                closed = [_Known(v, (), None) for v in getattr(inner, "consts", ())]
                made = self.run(getattr(inner, "jaxpr", inner), closed, arguments)
            else:
                made = self._apply(eqn, arguments)
            known |= dict(zip(eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _as_computed(self, node: _Known, shape: tuple[int, ...]) -> _Known:
        """What a layer gives in the shape that the program goes on with."""
        value = node.value
        if len(shape) == value.ndim:  # channels were first
            value = jnp.moveaxis(value, -1, int(self.per_sample))
        return self._data("other", (), (node.node,), value.reshape(shape), {"name": "reshape"})

    def _as_function(
        self, bind: Callable[..., Any], values: list[Any], is_data: list[bool], index: int
    ) -> Callable[..., np.ndarray]:
        """An operation as a function of the arrays that its inputs hold."""

        def again(*arrays: np.ndarray) -> np.ndarray:
            with jax.enable_x64(True):
                new = iter(arrays)
                filled = [jnp.asarray(next(new)) if data else v
                          for v, data in zip(values, is_data, strict=True)]  # fmt: skip
                axes = [0 if data else None for data in is_data]
                made = jax.vmap(bind, in_axes=axes)(*filled) if self.per_sample else bind(*filled)
                return np.asarray(made[index] if isinstance(made, list | tuple) else made)

        return again

    def _apply(self, eqn: Any, arguments: list[_Known]) -> list[_Known]:
        is_data = [a.node is not None for a in arguments]
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")

        def bind(*values: Any) -> Any:
            if inner is not None and eqn.primitive.name not in _LOOPS:
                return jaxpr_as_fun(inner)(*values)
            return eqn.primitive.bind(*values, **eqn.params)

        values = [a.value for a in arguments]
        if self.per_sample and any(is_data):
            axes = [0 if data else None for data in is_data]
            out = jax.vmap(bind, in_axes=axes)(*values)
        else:
            out = bind(*values)
        listed = list(out) if eqn.primitive.multiple_results else [out]
        names = tuple(dict.fromkeys(n for a in arguments for n in a.names))
        if not any(is_data):
            return [_Known(value, names, None) for value in listed]
        inputs = tuple(a.node for a in arguments if a.node is not None)
        constants = tuple(Constant(concrete(a.value), a.names) for a in arguments if a.node is None)
        op, about, new = classify(eqn, arguments, listed[0], self.per_sample)
        about = {**about, "constants": about.get("constants", constants)}
        if op in _WEIGHTED and new.shape != listed[0].shape:
            node = self._data(op, names, inputs, new, dict(about))
            return [self._as_computed(node, listed[0].shape)]
        made = []
        for index, value in enumerate(listed):
            detail = dict(about) if len(listed) == 1 else {**about, "output": index}
            detail["again"] = self._as_function(bind, values, is_data, index)
            made.append(self._data(op, names, inputs, value, detail))
        return made
