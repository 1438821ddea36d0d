"""Where a JAX function multiplies by its parameters: found in its jaxpr, seen and shifted there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

# Calls that are looked into where a weight goes in; others are evaluated as they stand.
_CALLS = {"pjit", "jit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call",
          "custom_vjp_call"}  # fmt: skip
_SAME = {"convert_element_type", "copy", "stop_gradient"}


@dataclass(frozen=True)
class Use:
    """A product with a weight.

    **Arguments:**

    - `leaf`: the number of the weight among the leaves of the parameters.
    - `shape`: of the result.
    - `axis`: of the result along which the outputs of the layer lie.
    - `output_axis`: the same after its bias is added.
    - `is_dense`: whether it is a plain matrix product over one axis of the weight.
    - `inputs_first`: whether that axis is the weight's first.
    - `bias`: the number of the leaf that is added; None where there is none.
    """

    leaf: int
    shape: tuple[int, ...]
    axis: int
    output_axis: int
    is_dense: bool
    inputs_first: bool
    bias: int | None = None


Function = Callable[[Any, Any], Any]


def trace(function: Function, params: Any, x: Any) -> tuple[Any, list[Use]]:
    """The shape of the output (None if there are several), and all products with weights.

    >>> _, uses = trace(lambda W, x: jnp.tanh(x @ W), jnp.ones((2, 3)), jnp.ones((5, 2)))
    >>> uses
    [Use(leaf=0, shape=(5, 3), axis=1, output_axis=1, is_dense=True, inputs_first=True, bias=None)]
    """
    uses: list[Use] = []

    def run(params: Any, x: Any) -> Any:
        uses.clear()
        return _run(function, params, x, None, uses)[0]

    outputs = jax.eval_shape(run, params, jnp.asarray(x))
    leaves = jax.tree.leaves(outputs)
    return (leaves[0] if len(leaves) == 1 else None), uses


def evaluate(
    function: Function, params: Any, x: Any, shifts: list[Any] | None
) -> tuple[Any, dict[str, list[Any]]]:
    """f(params, x) with `shifts` added to the results of the products, and what they see."""
    outputs, seen = _run(function, params, x, shifts, [])
    (output,) = jax.tree.leaves(outputs)
    return output, seen


def _run(
    function: Function, params: Any, x: Any, shifts: list[Any] | None, uses: list[Use]
) -> tuple[Any, dict[str, list[Any]]]:
    leaves, tree = jax.tree.flatten(params)

    def flat(*arguments: Any) -> Any:
        return function(jax.tree.unflatten(tree, arguments[:-1]), arguments[-1])

    closed, shape = jax.make_jaxpr(flat, return_shape=True)(*leaves, x)
    seen: dict[str, list[Any]] = {"inputs": [], "outputs": []}
    marks = {i: _Mark("leaf", i) for i, leaf in enumerate(leaves) if jnp.ndim(leaf) >= 1}
    values, _ = _Walk(shifts, uses, seen).closed(closed, [*leaves, x], marks)
    return jax.tree.unflatten(jax.tree.structure(shape), values), seen


@dataclass(frozen=True)
class _Mark:
    """What a variable is: a weight or bias, or the result of a product."""

    kind: str  # "leaf" or "result"
    number: int  # of the leaf, or of the product
    turned: bool = False  # a weight that is transposed
    axis: int = 0  # along which the outputs lie in a result


@dataclass(eq=False)
class _Walk:
    """Evaluates jaxprs; marks follow every weight and bias, and every product."""

    shifts: list[Any] | None
    uses: list[Use]
    seen: dict[str, list[Any]]

    def closed(
        self, closed: ClosedJaxpr, arguments: list[Any], marked: dict[int, _Mark]
    ) -> tuple[list[Any], dict[int, _Mark]]:
        """Values and marks of the outputs."""
        jaxpr = closed.jaxpr
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        marks = {jaxpr.invars[i]: mark for i, mark in marked.items()}

        def read(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else values[variable]

        def mark(variable: Any) -> _Mark | None:
            return None if isinstance(variable, Literal) else marks.get(variable)

        for equation in jaxpr.eqns:
            inputs = [read(variable) for variable in equation.invars]
            own = {i: m for i, v in enumerate(equation.invars) if (m := mark(v)) is not None}
            outputs, made = self._equation(jaxpr, equation, inputs, own)
            values.update(zip(equation.outvars, outputs, strict=True))
            marks.update({equation.outvars[i]: m for i, m in made.items()})
        found = {i: m for i, v in enumerate(jaxpr.outvars) if (m := mark(v)) is not None}
        return [read(variable) for variable in jaxpr.outvars], found

    def _equation(
        self, jaxpr: Jaxpr, equation: Any, inputs: list[Any], own: dict[int, _Mark]
    ) -> tuple[list[Any], dict[int, _Mark]]:
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        if own and name in _CALLS and inner is not None:
            return self.closed(
                inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), inputs, own
            )
        outputs = _alone(jaxpr, equation, inputs)
        if not own:
            return outputs, {}
        leaves = {i: m for i, m in own.items() if m.kind == "leaf"}
        if name in ("dot_general", "conv_general_dilated") and len(leaves) == 1:
            return self._product(equation, inputs, leaves, outputs[0])
        if name in ("add", "add_any") and len(own) == 2 and len(leaves) == 1:
            (bias,), (result,) = leaves.values(), [m for m in own.values() if m.kind == "result"]
            number = result.number
            self.seen["outputs"][number] = outputs[0]
            self.uses[number] = dataclasses.replace(
                self.uses[number], bias=bias.number, output_axis=result.axis
            )
            return outputs, {0: result}
        return outputs, _followed(equation, own)

    def _product(
        self, equation: Any, inputs: list[Any], leaves: dict[int, _Mark], output: Any
    ) -> tuple[list[Any], dict[int, _Mark]]:
        ((side, mark),) = leaves.items()
        features, is_dense, inputs_first = inputs[1 - side], False, False
        if equation.primitive.name == "conv_general_dilated":
            if side != 1:
                return [output], {}
            axis = equation.params["dimension_numbers"].out_spec[1]
        else:
            contract, batch = equation.params["dimension_numbers"]
            if batch[0] or len(contract[side]) != 1 or inputs[side].ndim != 2:
                return [output], {}
            axis = 0 if side == 0 else output.ndim - 1
            is_dense = True
            inputs_first = (contract[side][0] == 0) != mark.turned
            features = jnp.moveaxis(features, contract[1 - side][0], -1)
        number = len(self.uses)
        if self.shifts is not None:
            output = output + self.shifts[number].astype(output.dtype)
        shape = tuple(output.shape)
        self.uses.append(Use(mark.number, shape, axis, axis, is_dense, inputs_first))
        self.seen["inputs"].append(features)
        self.seen["outputs"].append(output)
        return [output], {0: _Mark("result", number, axis=axis)}


def _alone(whole: Jaxpr, equation: Any, inputs: list[Any]) -> list[Any]:
    """One equation evaluated, as a jaxpr of its own: derivatives that are given with it stay."""
    variables = list(dict.fromkeys(v for v in equation.invars if not isinstance(v, Literal)))
    known = {
        variable: value
        for variable, value in zip(equation.invars, inputs, strict=True)
        if not isinstance(variable, Literal)
    }
    jaxpr = whole.replace(
        constvars=[], invars=variables, outvars=list(equation.outvars), eqns=[equation]
    )
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*(known[variable] for variable in variables))


def _followed(equation: Any, own: dict[int, _Mark]) -> dict[int, _Mark]:
    """What is still the same leaf or result: in another precision, transposed, spread out."""
    name = equation.primitive.name
    if len(own) != 1 or 0 not in own or len(equation.outvars) != 1:
        return {}
    mark = own[0]
    if name in _SAME:
        return {0: mark}
    if name == "transpose":
        order = tuple(equation.params["permutation"])
        if mark.kind == "result":
            return {0: dataclasses.replace(mark, axis=order.index(mark.axis))}
        return {0: dataclasses.replace(mark, turned=not mark.turned)} if order == (1, 0) else {}
    is_vector = mark.kind == "leaf" and max(equation.outvars[0].aval.shape, default=0) > 0
    if name in ("broadcast_in_dim", "reshape") and is_vector:
        before, after = (v[0].aval.shape for v in (equation.invars, equation.outvars))
        if sum(size > 1 for size in before) <= 1 and len(after) > len(before):
            return {0: mark}
    return {}
