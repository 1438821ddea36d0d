"""Attention in a graph: which products are queries, keys and values, how many heads, which mask."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from dynagram._precision import float64
from dynagram.live._graph import Graph, Node
from dynagram.live._layouts import LiveSignal, alike
from dynagram.live._rows import Part, UnreadableError, weight_of
from dynagram.networks.blocks import Attention
from dynagram.networks.blocks._block import Shape

_ROTARY = 10000.0
_HALVES, _PAIRS = (
    "halves",
    "pairs",
)  # planes of a rotation: channels i and i + d/2, or 2i and 2i + 1


def read_attention(
    graph: Graph, cuts: list[int], place: int, signal: LiveSignal
) -> tuple[Part, LiveSignal, int] | None:
    """The attention block that begins at a cut, its signal and the cut where it ends."""
    span = _span(graph, cuts, place)
    if span is None:
        return None
    mark, last = span
    inside = [graph.nodes[i] for i in graph.between(cuts[place], cuts[last])[1:]]
    names = [name for node in inside for name in node.parameters]
    if mark.op == "multihead":
        weights, out, heads = _of_multihead(mark)
    else:
        weights, heads = _of_products(graph, cuts[place], mark, signal)
        out, bias = weight_of(graph.nodes[cuts[last]])
        if bias is not None and np.any(bias.value):
            raise UnreadableError("biases of attention that are not 0 have no theory", names)
    values = graph.nodes[cuts[last]].value
    made = signal.after(values)
    if made is None or signal.values.shape[1] == 1:
        raise UnreadableError("attention over one position or other axes", names)
    (q, k, v), size = weights, weights[0][1].shape[0] // heads
    plain = {"q": q[1], "k": k[1], "v": v[1], "O": out.value}
    sources = {"q": q[0], "k": k[0], "v": v[0], "O": out.parameters[0] if out.parameters else ""}
    n, groups = signal.values.shape[2], k[1].shape[0] // size
    variances = {f"C_{key}": _square(W) * W.shape[1] for key, W in plain.items()}
    rates = {f"lambda_{key}": float(W.shape[1]) for key, W in plain.items()}
    if groups < 1 or heads % groups or plain["q"].shape != (heads * size, n):
        raise UnreadableError("heads of shapes that do not fit", names)
    # An output matrix of zeros shows nothing: what it reads does.
    read = made if np.any(out.value) else _before_output(graph, mark, cuts[last], signal)
    if read is None or not np.any(read.values):
        raise UnreadableError("attention that adds nothing shows neither mask nor scale", names)
    ends = (graph.nodes[cuts[last]].inputs[0], cuts[last])
    shown = plain if read is made else {**plain, "O": np.eye(heads * size)}
    scales = (("1/sqrt(d)", 1.0), ("1/d", 1.0), ("1/sqrt(d)", size**0.5))  # √d: not divided
    choices = product(scales, (True, False), (None, _HALVES, _PAIRS), (False, True))
    for (scale, factor), causal, planes, qk_norm in choices:
        if (planes is not None and size % 2) or (qk_norm and factor != 1.0):
            continue
        rope, params = None, {**shown, "q": factor * shown["q"]}
        if planes is not None:
            rope, params = _ROTARY, params if planes == _HALVES else _by_halves(params, size)
        sizes = {**variances, "C_q": factor**2 * variances["C_q"]}
        block = Attention(
            heads, size, width=len(out.value), causal=causal, scale=scale, rope=rope,
            qk_norm=qk_norm, groups=None if groups == heads else groups, **sizes, **rates,
        )  # fmt: skip
        as_seen = replace(block, width=len(params["O"]))
        if alike(_applied(as_seen, params, signal), read.values) and _holds(
            graph, cuts[place], ends[read is made], signal, as_seen, params
        ):
            factors = {sources["q"]: factor} if factor != 1.0 else {}
            params = {**params, "O": plain["O"]}
            return Part(block, params, sources, factors=factors), made, last
    raise UnreadableError("attention with another mask, scale or position code than ours", names)


def _holds(
    graph: Graph, start: int, end: int, signal: LiveSignal, block: Attention,
    params: dict[str, np.ndarray],
) -> bool:  # fmt: skip
    """Whether attention is that of a signal of other numbers too: equal tokens show no mask."""
    value = graph.nodes[start].value
    other = np.random.default_rng(0).normal(size=value.shape)
    made, values = graph.replay(start, end, other), signal.canonical(other)
    if made is None or values is None:
        return True
    after = replace(signal, values=_applied(block, params, replace(signal, values=values)))
    wanted = signal.canonical(made)
    return wanted is not None and alike(after.values, wanted)


def _before_output(graph: Graph, mark: Node, last: int, signal: LiveSignal) -> LiveSignal | None:
    """What the output matrix of written attention reads."""
    return None if mark.op == "multihead" else signal.after(
        graph.nodes[graph.nodes[last].inputs[0]].value
    )  # fmt: skip


def _span(graph: Graph, cuts: list[int], place: int) -> tuple[Node, int] | None:
    """The node that marks attention and the cut of its output matrix, if it begins at a cut."""
    mark, inner_matrices = None, 0
    for number in range(place, len(cuts) - 1):
        inside = [graph.nodes[i] for i in graph.between(cuts[number], cuts[number + 1])[1:]]
        end = graph.nodes[cuts[number + 1]]
        if mark is None:
            marks = [n for n in inside if n.op in ("softmax", "attention", "multihead")]
            if any(n.op in ("add",) and len(n.inputs) > 1 and n is end for n in inside):
                return None  # a residual sum: what is in its branch is read there
            if marks:
                mark = marks[0]
                if mark.op == "multihead":
                    return (mark, number + 1) if mark is end else None
                continue
            matrices = [n for n in inside if n.op in ("linear", "conv", "embedding")]
            inner_matrices += len(matrices)
            if number == place and matrices != [end]:
                return None
            if inner_matrices > 1 or (number > place and any(n.parameters for n in inside)):
                return None
            continue
        if end.op == "linear" and len(inside) == 1:
            return mark, number + 1
        if any(n.parameters for n in inside):
            return None
    return None


def _of_multihead(mark: Node) -> tuple[list[tuple[str, np.ndarray]], Any, int]:
    """The matrices of `torch.nn.functional.multi_head_attention_forward`."""
    if len(set(mark.inputs)) != 1:
        raise UnreadableError("attention between different signals", mark.parameters)
    matrices = [c for c in mark.constants if c.parameters and c.value.ndim == 2]
    vectors = [c for c in mark.constants if c.parameters and c.value.ndim == 1]
    if len(matrices) != 2 or any(np.any(c.value) for c in vectors):
        raise UnreadableError("biases of attention that are not 0 have no theory", mark.parameters)
    whole, out = matrices
    weights = [(whole.parameters[0], W) for W in np.split(whole.value, 3)]
    return weights, out, int(mark.options["heads"])


def _of_products(
    graph: Graph, start: int, mark: Node, signal: LiveSignal
) -> tuple[list[tuple[str, np.ndarray]], int]:
    """W_q, W_k, W_v with their names, and the number of heads."""
    rank = mark.value.ndim
    heads = mark.value.shape[-3] if rank > 3 else len(mark.value) // len(signal.values)
    if mark.op == "attention":
        ends = list(mark.inputs[:3])
        if len(ends) < 3:
            raise UnreadableError("attention between a signal and constants", mark.parameters)
    else:
        ends = _ends_of_softmax(graph, mark)
    nodes = [_matrix_before(graph, start, end) for end in ends]
    weights = []
    for node in nodes:
        W, bias = weight_of(node)
        if bias is not None and np.any(bias.value):
            raise UnreadableError("biases of attention that are not 0 have no theory", W.parameters)
        weights.append((W.parameters[0] if W.parameters else "", W.value))
    if nodes[0] is nodes[1] is nodes[2]:
        name, whole = weights[0]
        if len(whole) % 3:
            raise UnreadableError("queries, keys and values of different sizes in one", (name,))
        weights = [(name, W) for W in np.split(whole, 3)]
    elif nodes[1] is nodes[2]:
        name, whole = weights[1]
        weights = [weights[0], *((name, W) for W in np.split(whole, 2))]
    return weights, heads


def _ends_of_softmax(graph: Graph, mark: Node) -> list[int]:
    """The nodes of queries, keys and values around a softmax that was written out."""
    logits = next(
        (n for n in reversed(graph.nodes[: mark.number]) if n.op == "matmul"
         and len(set(n.inputs)) == 2 and n.number in graph.between(n.number, mark.number)), None,
    )  # fmt: skip
    reads = next(
        (n for n in graph.nodes[mark.number + 1 :] if n.op == "matmul" and len(set(n.inputs)) == 2
         and n.number in graph.between(mark.number, n.number)), None,
    )  # fmt: skip
    if logits is None or reads is None:
        raise UnreadableError("a softmax that is not attention")
    behind = set(graph.between(mark.number, reads.number))
    value = next((number for number in reads.inputs if number not in behind), None)
    if value is None:
        raise UnreadableError("a softmax that is not attention")
    return [*logits.inputs[:2], value]


def _matrix_before(graph: Graph, start: int, end: int) -> Node:
    """The last linear node on the way from one node to another."""
    for number in reversed(graph.between(start, end)[1:]):
        if graph.nodes[number].op == "linear":
            return graph.nodes[number]
    raise UnreadableError("attention whose queries, keys or values are no products of the signal")


def _by_halves(params: dict[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Queries and keys that are turned in neighbouring channels, in the order of our heads.

    Their products do not know the order of channels.
    """
    order = np.concatenate([np.arange(0, size, 2), np.arange(1, size, 2)])
    turned = {key: params[key].reshape(-1, size, params[key].shape[1])[:, order].reshape(
        params[key].shape) for key in ("q", "k")}  # fmt: skip
    return {**params, **turned}


@float64
def _applied(block: Attention, params: dict[str, np.ndarray], signal: LiveSignal) -> np.ndarray:
    import jax.numpy as jnp

    arrays = {key: jnp.asarray(W) for key, W in params.items()}
    shape = Shape(signal.grid, signal.values.shape[2])
    return np.asarray(block.apply(arrays, jnp.asarray(signal.values), shape))


def _square(values: np.ndarray) -> float:
    return float(np.mean(np.square(values, dtype=np.float64)))
