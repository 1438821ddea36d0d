"""Primitives of JAX in the words of a graph: products with parameters, sums, softmax, lookups."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from dynagram.live._graph import Constant

_ADDS = ("add", "add_any")


def is_opaque(eqn: Any) -> bool:
    """Whether a call is one operation and not looked into: softmax, and loops."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return True
    return "softmax" in _name(eqn)


def concrete(value: Any) -> np.ndarray:
    """The array; without numbers where JAX is differentiating, which asks for none."""
    try:
        return np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        return np.zeros(())


def _name(eqn: Any) -> str:
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    return str(eqn.params.get("name") or getattr(getattr(inner, "jaxpr", inner), "debug_info", ""))


def classify(
    eqn: Any, arguments: list[Any], value: Any, per_sample: bool
) -> tuple[str, dict[str, Any], Any]:
    """The operation, what matters about it, and its value with channels where a layer has them."""
    name = eqn.primitive.name
    is_data = [a.node is not None for a in arguments]
    if name == "dot_general":
        return _product(eqn, arguments, is_data, value, per_sample)
    if name == "conv_general_dilated" and is_data == [True, False]:
        return _convolution(eqn, arguments, value, per_sample)
    if name == "gather" and is_data == [False, True] and np.ndim(arguments[0].value) == 2:
        return "embedding", {}, value
    if name in _ADDS:
        return "add", {}, value
    if name == "mul":
        return "multiply", {}, value
    if "softmax" in _name(eqn) or (name == "div" and all(is_data) and _sums_to_one(value)):
        return "softmax", {"name": "softmax"}, value
    return "other", {"name": name}, value


def _sums_to_one(value: Any) -> bool:
    """Whether a quotient is a softmax that was written out."""
    if np.ndim(value) < 3 or value.shape[-1] == 1:
        return False
    array = concrete(value)
    if array.shape != value.shape:
        return False
    return bool(np.all(array >= 0) and np.allclose(array.sum(axis=-1), 1.0, atol=1e-9))


def _product(
    eqn: Any, arguments: list[Any], is_data: list[bool], value: Any, per_sample: bool
) -> tuple[str, dict[str, Any], Any]:
    (left, right), (batch, _) = eqn.params["dimension_numbers"]
    if all(is_data) or batch:
        return "matmul", {}, value
    place = is_data.index(False)
    weight, data = arguments[place], arguments[1 - place]
    contracted = (left, right)[place]
    read = (left, right)[1 - place]
    rank = np.ndim(data.value) - int(per_sample)
    if np.ndim(weight.value) != 2 or len(contracted) != 1 or tuple(read) != (rank - 1,):
        return "other", {"name": "dot_general"}, value
    if place == 0 and rank > 1:  # the new channels come first
        value = jax.numpy.moveaxis(value, int(per_sample), -1)
    W = weight.value if contracted[0] == 1 else weight.value.T
    return "linear", {"constants": (Constant(concrete(W), weight.names),)}, value


def _convolution(
    eqn: Any, arguments: list[Any], value: Any, per_sample: bool
) -> tuple[str, dict[str, Any], Any]:
    numbers, weight = eqn.params["dimension_numbers"], arguments[1]
    rank = np.ndim(weight.value) - 2
    first = tuple(range(rank + 2))
    last = (0, rank + 1, *range(1, rank + 1))
    if numbers.lhs_spec != numbers.out_spec or numbers.lhs_spec not in (first, last):
        return "other", {"name": "conv_general_dilated"}, value
    W = concrete(jax.numpy.transpose(weight.value, numbers.rhs_spec))
    pads = tuple(eqn.params["padding"])
    dilated = set(eqn.params["rhs_dilation"]) != {1} or set(eqn.params["lhs_dilation"]) != {1}
    grouped = eqn.params["feature_group_count"] * eqn.params["batch_group_count"] != 1
    even = all(low == high for low, high in pads)
    about = {
        "stride": tuple(eqn.params["window_strides"]),
        "padding": tuple(low for low, _ in pads) if even else "uneven",
        "groups": 2 if dilated or grouped else 1,
        "layout": "first" if numbers.lhs_spec == first else "last",
        "axis": 1 if numbers.lhs_spec == first else rank + 1,
        "constants": (Constant(W, weight.names),),
    }
    if per_sample and np.ndim(value) == rank + 3 and value.shape[1] == 1:
        value = value[:, 0]  # one sample as a batch of one
    return "conv", about, value
