"""A row of a graph read as blocks of ours, each checked against the numbers that were computed.

Between two nodes that every way goes through there is one operation, a residual sum, a gate or
attention. A reading that does not give the recorded numbers is no reading: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dynagram.activations import Activation
from dynagram.live._graph import Constant, Graph, Node
from dynagram.live._layouts import LiveSignal, alike, proportion
from dynagram.live._matching import is_activation, match_activation, matching_blocks
from dynagram.live._redraw import without_padding
from dynagram.networks.blocks import Activate, Conv, Dense, Embedding, Flatten, Gated, Residual
from dynagram.networks.blocks._block import Block

_MARKS = ("softmax", "attention", "multihead")
_SIGNED = ("linear", "conv", "add")
_LARGE = 64.0  # times what the model computes: bounds such as that of ReLU6 show there


class UnreadableError(Exception):
    """A place of a graph that is none of our blocks: why, and the parameters there."""

    def __init__(self, reason: str, parameters: Sequence[str] = ()):
        self.reason, self.parameters = reason, tuple(parameters)
        super().__init__(reason)


@dataclass(eq=False)
class Part:
    """A block, its parameters in our form, and where they come from.

    **Arguments:**

    - `block`, `params`: ours.
    - `sources`: name in the model of every array of `params`, by its letter.
    - `scale`: a factor that stands behind it, not yet part of its weights.
    - `factors`: factors that are part of its weights though no parameter holds them, by name:
        √d of queries whose logits are not divided by it.
    """

    block: Block
    params: Any
    sources: dict[str, str] = field(default_factory=dict)
    scale: float = 1.0
    factors: dict[str, float] = field(default_factory=dict)


def read_row(
    graph: Graph, start: int, end: int, signal: LiveSignal
) -> tuple[list[Part], LiveSignal]:
    """The blocks from one node to another, both of which all ways go through."""
    from dynagram.live._heads import read_attention

    parts: list[Part] = []
    cuts, place = graph.cuts(start, end), 0
    tables = [i for i, number in enumerate(cuts) if graph.nodes[number].op == "embedding"]
    if start == 0 and tables and not any(graph.nodes[i].parameters for i in cuts[: tables[0]]):
        place = tables[0]  # what is done to the numbers of the tokens is checked by their vectors
        signal = _step(graph, cuts[0], cuts[place], [], signal, parts)
    while place < len(cuts) - 1:
        taken = read_attention(graph, cuts, place, signal)
        if taken is not None:
            part, signal, place = taken
            parts.append(part)
            continue
        before, after = cuts[place], cuts[place + 1]
        inner = graph.between(before, after)[1:-1]
        try:
            signal = _step(graph, before, after, inner, signal, parts)
            place += 1
        except UnreadableError:
            taken = _leap(graph, cuts, place, signal)
            if taken is None:
                raise
            block, signal, place = taken
            parts.append(Part(block, ()))
    return parts, signal


def _leap(
    graph: Graph, cuts: list[int], place: int, signal: LiveSignal
) -> tuple[Block, LiveSignal, int] | None:
    """A norm, an average or an activation that is written out over several cuts."""
    start = graph.nodes[cuts[place]]
    for number in range(place + 1, len(cuts)):
        inside = graph.between(cuts[number - 1], cuts[number])[1:]
        if any(graph.nodes[i].op in (*_MARKS, "linear", "conv", "embedding") for i in inside):
            return None
        for block, made in matching_blocks(signal, start.value, graph.nodes[cuts[number]].value):
            if _is_kept(block, graph, start.number, cuts[number]):
                return block, made, number
    return None


def _step(
    graph: Graph, before: int, after: int, inner: list[int], signal: LiveSignal, parts: list[Part]
) -> LiveSignal:
    node, value = graph.nodes[after], graph.nodes[before].value
    if not inner and node.op == "linear":
        part, signal = read_linear(node, value, signal)
        parts.append(part)
        return signal
    if not inner and node.op == "conv":
        part, signal = _read_conv(node, signal)
        parts.append(part)
        return signal
    if node.op == "embedding":
        table = node.constants[0]
        tokens = signal.values[..., 0].astype(int)
        if not alike(node.value.reshape(*tokens.shape, -1), table.value[tokens]):
            raise UnreadableError("vectors that are not those of the tokens", table.parameters)
        size, width = table.value.shape
        block = Embedding(
            size, width, C_token=_square(without_padding(table.value)), lambda_token=1.0
        )
        parts.append(Part(block, {"token": table.value}, {"token": _name(table)}))
        return LiveSignal(node.value.reshape(*tokens.shape, width), signal.grid, "last")
    waiting = parts and isinstance(parts[-1].block, Dense | Embedding)
    if not inner and node.op == "add" and node.constants and waiting:
        return _add_constant(node, value, signal, parts)
    learns = _learns(graph, inner, node)
    layout = None if learns else signal.layout_of(node.value)
    if layout is not None and _is_linear_too(graph, before, after):
        return replace(signal, layout=layout)
    factor = None if learns else proportion(node.value, value)
    if factor is not None and parts and _is_linear_too(graph, before, after):
        parts[-1].scale *= factor
        return _after(signal, node)
    # A branch of zeros changes nothing either: what has weights is never an activation or a norm.
    for block, made in () if learns else matching_blocks(signal, value, node.value):
        if _is_kept(block, graph, before, after):
            parts.append(Part(block, ()))
            return made
    if node.op == "add" and len(node.inputs) > 1:
        part, signal = _read_residual(graph, before, after, signal)
        parts.append(part)
        return signal
    if node.op == "multiply":
        gated = _read_gate(graph, before, node, inner, parts)
        if gated is not None:
            parts.append(gated)
            return _after(signal, node)
    inside = [graph.nodes[number] for number in (*inner, after)]
    names = [name for one in inside for name in one.parameters]
    kinds = dict.fromkeys(one.options.get("name") or one.op for one in inside)
    raise UnreadableError(f"{', '.join(list(kinds)[:4])} is none of our blocks", names)


def _is_kept(block: Block, graph: Graph, before: int, after: int) -> bool:
    """Whether a block that agrees on this batch does so for numbers that are much larger too."""
    if isinstance(block, Activate):
        larger = _of_larger(graph, before, after)
        return all(is_activation(block.activation, z, made) for _, z, made in larger)
    return block.kind not in ("average-pool", "select") or _is_linear_too(graph, before, after)


def _is_linear_too(graph: Graph, before: int, after: int) -> bool:
    """Whether c times the signal gives c times the next; a bound that this batch keeps does not."""
    value = graph.nodes[after].value
    if not np.any(graph.nodes[before].value):
        made = graph.replay(before, after, _asked(graph, before))
        value = value if made is None else made
    return all(alike(made, c * value) for c, _, made in _of_larger(graph, before, after))


def _asked(graph: Graph, number: int) -> np.ndarray:
    """The numbers at a node; in place of zeros, which show nothing, others that may stand there."""
    node = graph.nodes[number]
    if np.any(node.value):
        return node.value
    value = np.random.default_rng(0).normal(size=node.value.shape)
    return value if node.op in _SIGNED else np.abs(value)


def _of_larger(
    graph: Graph, before: int, after: int
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Factors, the signal times them, and what comes out of that; nothing where it is not known.

    What is never negative, such as the values of ReLU, is not made so, unless a matrix gives it.
    """
    value = _asked(graph, before)
    has_signs = bool(np.any(value < 0)) or graph.nodes[before].op in _SIGNED
    for factor in (_LARGE, -_LARGE) if has_signs else (_LARGE,):
        made = graph.replay(before, after, factor * value)
        if made is not None:
            yield factor, factor * value, made


def _learns(graph: Graph, inner: list[int], node: Node) -> bool:
    """Whether parameters take part; where they change nothing they are gains of 1."""
    inside = [graph.nodes[number] for number in inner] + [node]
    return any(one.op in ("linear", "conv", "embedding") for one in inside)


def _after(signal: LiveSignal, node: Node) -> LiveSignal:
    made = signal.after(node.value)
    if made is None:
        raise UnreadableError(f"a shape {node.value.shape} that is not that of a signal")
    return made


def weight_of(node: Node) -> tuple[Constant, Constant | None]:
    """W (out, in) and b of a linear node."""
    arrays = list(node.constants)
    bias = None
    if node.options.get("bias_first"):
        bias, arrays = arrays[0], arrays[1:]
    W = arrays[0]
    if W.value.ndim != 2:
        raise UnreadableError(f"a product with an array of shape {W.value.shape}", W.parameters)
    if np.iscomplexobj(W.value):
        raise UnreadableError("a complex matrix", W.parameters)
    if node.options.get("transposed"):
        W = Constant(W.value.T, W.parameters)
    if bias is None and len(arrays) > 1:
        bias = arrays[1]
    return W, bias


def read_linear(node: Node, value: np.ndarray, signal: LiveSignal) -> tuple[Part, LiveSignal]:
    """A dense layer, or one that reads all positions; the value is what it reads."""
    W, bias = weight_of(node)
    samples, positions, channels = signal.values.shape
    sources, matrix = {"W": _name(W)}, W.value
    if matrix.shape[1] == channels and signal.layout not in ("first", "flat", "flat-first", "line"):
        block: Any = Dense
        params = {"W": matrix[None]}
        made = _after(signal, node)
    elif positions > 1 and signal.layout in ("flat", "flat-first"):
        block = Flatten
        first = signal.layout == "flat-first"
        parts = (len(matrix), channels, positions) if first else (len(matrix), positions, channels)
        axes = (2, 0, 1) if first else (1, 0, 2)
        params = {"W": matrix.reshape(parts).transpose(axes)}
        made = LiveSignal(node.value[:, None], (), "last")
    elif positions == 1 and matrix.shape[1] == channels:
        block, params = Dense, {"W": matrix[None]}
        made = LiveSignal(node.value.reshape(samples, 1, -1), (), "last")
    else:
        reason = f"a matrix of {matrix.shape[1]} inputs mixes {value.shape} otherwise than channels"
        raise UnreadableError(reason, node.parameters)
    return _with_bias(block, len(matrix), params, sources, bias, {}), made


def _with_bias(
    kind: Any, width: int, params: dict[str, Any], sources: dict[str, str],
    bias: Constant | None, options: dict[str, Any],
) -> Part:  # fmt: skip
    W = params["W"]
    fan_in = W.shape[0] * W.shape[2]
    C_b = 0.0
    if bias is not None:
        params, sources = {**params, "b": bias.value}, {**sources, "b": _name(bias)}
        C_b = _square(bias.value)
    block = kind(
        width, C_W=_square(W) * fan_in, C_b=C_b, lambda_W=float(fan_in),
        lambda_b=float(bias is not None), **options,
    )  # fmt: skip
    return Part(block, params, sources)


def _read_conv(node: Node, signal: LiveSignal) -> tuple[Part, LiveSignal]:
    W, bias = node.constants[0], node.constants[1] if len(node.constants) > 1 else None
    out, channels, *sizes = W.value.shape
    rank = len(sizes)
    if rank > 2:
        raise UnreadableError(f"a convolution in {rank} dimensions", node.parameters)

    def each(name: str, usual: int) -> tuple[int, ...]:
        value = node.options.get(name, usual)
        return (value,) * rank if isinstance(value, int) else tuple(value)

    if node.options.get("groups", 1) != 1 or set(each("dilation", 1)) != {1}:
        raise UnreadableError("a convolution in groups or dilated has no theory", node.parameters)
    stride, given = each("stride", 1), node.options.get("padding", 0)
    padding = each("padding", 0) if not isinstance(given, str) else given
    centred = tuple((size - 1) // 2 for size in sizes)
    if padding == (0,) * rank or padding == "valid":
        kind = "valid"
    elif (padding == centred or padding == "same") and all(size % 2 for size in sizes):
        kind = "zero"
    else:
        raise UnreadableError(f"a convolution with padding {given}", node.parameters)
    layout = node.options.get("layout", "first")
    if signal.layout != layout or signal.values.shape[2] != channels:
        raise UnreadableError("a convolution over other axes than positions", node.parameters)
    matrices = np.moveaxis(W.value.reshape(out, channels, -1), 2, 0)
    options = {"size": tuple(sizes), "stride": stride, "padding": kind}
    part = _with_bias(Conv, out, {"W": matrices}, {"W": _name(W)}, bias, options)
    samples, kept = len(signal.values), node.value
    if kept.ndim == rank + 3:  # one sample as a batch of one
        kept = kept[:, 0]
    if layout == "first":
        grid, values = kept.shape[2:], kept.reshape(samples, out, -1).transpose(0, 2, 1)
    else:
        grid, values = kept.shape[1:-1], kept.reshape(samples, -1, out)
    return part, LiveSignal(values, tuple(grid), layout)


def _add_constant(
    node: Node, value: np.ndarray, signal: LiveSignal, parts: list[Part]
) -> LiveSignal:
    """Biases behind a product, or vectors of positions behind an embedding."""
    constant, last = node.constants[0], parts[-1]
    if not alike(node.value, value + constant.value) or not constant.parameters:
        raise UnreadableError("a constant is added to the signal", node.parameters)
    made = _after(signal, node)
    if isinstance(last.block, Embedding) and "position" not in last.params and last.scale == 1.0:
        every = signal.canonical(np.broadcast_to(constant.value, node.value.shape))
        if every is None or not np.array_equal(every, np.broadcast_to(every[:1], every.shape)):
            raise UnreadableError("vectors of positions that samples do not share", node.parameters)
        vectors = every[0]
        block = replace(last.block, C_position=_square(vectors), lambda_position=1.0)
        params = {**last.params, "position": vectors}
        parts[-1] = Part(block, params, {**last.sources, "position": _name(constant)})
        return made
    width = signal.values.shape[2]
    if isinstance(last.block, Dense) and "b" not in last.params and constant.value.size == width:
        block = replace(last.block, C_b=_square(constant.value), lambda_b=1.0)
        params = {**last.params, "b": constant.value.reshape(-1)}
        parts[-1] = Part(block, params, {**last.sources, "b": _name(constant)}, last.scale)
        if last.scale == 1.0:
            return made
    raise UnreadableError("a parameter is added to the signal", node.parameters)


def _read_residual(
    graph: Graph, before: int, after: int, signal: LiveSignal
) -> tuple[Part, LiveSignal]:
    value, skip, branches = graph.nodes[before].value, 0.0, []
    waiting = list(graph.nodes[after].inputs)
    while waiting:
        number = waiting.pop()
        node = graph.nodes[number]
        factor = 1.0 if number == before else proportion(node.value, value)
        if factor is not None:
            skip += factor
        elif node.op == "add" and len(node.inputs) > 1 and number > before and not node.constants:
            waiting += node.inputs
        else:
            branches.append(number)
    names = [n for i in graph.between(before, after)[1:] for n in graph.nodes[i].parameters]
    if skip == 0.0 or not branches:
        raise UnreadableError("a sum of branches without a skip", names)
    rows = [fold_scales(read_row(graph, before, end, signal)[0]) for end in sorted(branches)]
    strengths = {row[-1].scale for row in rows}
    if len(strengths) > 1:
        raise UnreadableError("branches of different strengths side by side", names)
    block = Residual([[part.block for part in row] for row in rows], skip, strengths.pop())
    params = tuple(tuple(part.params for part in row) for row in rows)
    sources = {}
    for number, row in enumerate(rows):
        for place, part in enumerate(row):
            sources |= {f"{number}.{place}.{key}": name for key, name in part.sources.items()}
    factors = {n: f for row in rows for part in row for n, f in part.factors.items()}
    made = Part(block, params, sources, factors=factors)
    return made, _after(signal, graph.nodes[after])


def fold_scales(parts: list[Part]) -> list[Part]:
    """Factors between blocks as part of the weights before them; that of the last part stays."""
    for place, part in enumerate(parts[:-1]):
        if part.scale == 1.0:
            continue
        target = next((p for p in parts[place + 1 :] if _is_matrix(p.block)), None)
        if _is_matrix(part.block):
            target, with_bias = part, True
        elif target is None or any(not _is_linear(p.block) for p in
                                   parts[place + 1 : parts.index(target)]):  # fmt: skip
            raise UnreadableError("a factor before something that is not linear")
        else:
            with_bias = False
        multiply(target, part.scale, with_bias=with_bias)
        part.scale = 1.0
    if not parts:
        raise UnreadableError("a branch without weights")
    return parts


def _is_matrix(block: Block) -> bool:
    return isinstance(block, Dense | Embedding)


def _is_linear(block: Block) -> bool:
    return block.kind in ("average-pool", "select")


def multiply(part: Part, factor: float, *, with_bias: bool) -> None:
    """Weights times a factor, in the part itself."""
    scaled = {}
    for key, values in part.params.items():
        scaled[key] = values * factor if key != "b" or with_bias else values
    names = {"W": "C_W", "b": "C_b", "token": "C_token", "position": "C_position"}
    changed = {
        names[key]: getattr(part.block, names[key]) * factor**2
        for key in part.params
        if key != "b" or with_bias
    }
    part.params, part.block = scaled, replace(part.block, **changed)


def _read_gate(
    graph: Graph, before: int, node: Node, inner: list[int], parts: list[Part]
) -> Part | None:
    """σ(W x) ⊙ (W' x), with two matrices or one that was cut into halves."""
    linear = [graph.nodes[i] for i in inner if graph.nodes[i].op == "linear"]
    if len(linear) == 2:
        (W, b), (V, c) = (weight_of(one) for one in linear)
        values = [one.value for one in linear]
        options = [((W, b, values[0]), (V, c, values[1])), ((V, c, values[1]), (W, b, values[0]))]
    elif not linear and parts and type(parts[-1].block) is Dense:
        whole = parts[-1]
        halves = np.split(whole.params["W"][0], 2)
        z = np.split(graph.nodes[before].value, 2, axis=-1)
        name, b = whole.sources["W"], whole.params.get("b")
        bias = None if b is None else Constant(b)
        pair = [(Constant(half, (name,)), bias, out) for half, out in zip(halves, z, strict=True)]
        options = [(pair[0], pair[1]), (pair[1], pair[0])]
    else:
        return None
    for (W, b, z), (V, c, gate) in options:
        if z.shape != node.value.shape or any(x is not None and np.any(x.value) for x in (b, c)):
            continue
        safe = np.abs(gate) > 1e-3 * np.abs(gate).max()
        sigma = match_activation(z[safe], node.value[safe] / gate[safe])
        if sigma is None or not _is_gate(graph, before, node, (z, gate, safe), sigma):
            continue
        if not linear:
            parts.pop()
        n = W.value.shape[1]
        block = Gated(
            len(W.value), sigma, C_W=_square(W.value) * n, C_gate=_square(V.value) * n,
            lambda_W=float(n), lambda_gate=float(n),
        )  # fmt: skip
        return Part(block, {"W": W.value, "gate": V.value}, {"W": _name(W), "gate": _name(V)})
    return None


def _is_gate(
    graph: Graph, before: int, node: Node, arrays: tuple[np.ndarray, ...], sigma: Activation
) -> bool:
    """Whether a gate's activation is that for numbers that are much larger too."""
    z, gate, safe = arrays
    start, larger = before, _LARGE * z
    halves = np.split(graph.nodes[before].value, 2, axis=-1)
    inside = graph.between(before, node.number)
    at = next((i for i in inside if graph.nodes[i].value is z), None)
    if at is not None:
        start, value = at, larger
    else:
        first = np.array_equal(halves[0], z)
        value = np.concatenate([larger, gate] if first else [gate, larger], axis=-1)
    made = graph.replay(start, node.number, value)
    return made is None or is_activation(sigma, larger[safe], made[safe] / gate[safe])


def _square(values: np.ndarray) -> float:
    return float(np.mean(np.square(values, dtype=np.float64)))


def _name(constant: Constant) -> str:
    return constant.parameters[0] if constant.parameters else ""
