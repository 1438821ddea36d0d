"""The network of ours that a traced model is, with its weights: verified, or refused in a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dynagram._precision import float64
from dynagram.errors import DynagramError
from dynagram.live._graph import Graph
from dynagram.live._layouts import LiveSignal, alike, proportion
from dynagram.live._rows import Part, UnreadableError, fold_scales, multiply, read_row
from dynagram.networks import Chain
from dynagram.networks.blocks import Dense, Residual

_WEIGHTED = ("linear", "conv", "embedding")


@dataclass(frozen=True, eq=False)
class Weight:
    """One array of parameters of a network that was read.

    **Arguments:**

    - `name`: in the model.
    - `block`: number of the block in the network, from 0.
    - `letter`: its name in that block, as `Stage.weights` has it: W, b, W1, W2, q, k, v, O, gate1.
    - `place`: where it stands in the parameters of the block.
    - `values`: in our form, (…, out, in), factors of the model included.
    - `fan_in`, `fan_out`: of a matrix; 1 and its width for a table of vectors.
    """

    name: str
    block: int
    letter: str
    place: tuple[Any, ...]
    values: np.ndarray
    fan_in: int
    fan_out: int


@dataclass(frozen=True, eq=False)
class Recognised:
    """A traced model as a network of ours, which gives the same outputs.

    **Arguments:**

    - `network`: a `Chain` whose variances are those that the weights have.
    - `params`: its parameters.
    - `rows`: the batch as the network takes it.
    - `weights`: every array of parameters.
    - `notes`: what is left out.
    - `factors`: √d by the names of queries whose logits the model does not divide by it.
    - `is_tied`: whether the embedding is the readout too.
    """

    network: Chain
    params: tuple[Any, ...]
    rows: np.ndarray
    weights: tuple[Weight, ...]
    notes: tuple[str, ...] = ()
    factors: Mapping[str, float] = field(default_factory=dict)
    is_tied: bool = False


def recognise(graph: Graph) -> Recognised:
    """The network that a graph computes; raises `UnreadableError` with the reason where none does.

    Every block reproduces its recorded numbers, and the whole the output: weights used twice,
    layers left out and reshapes that mix cannot pass.
    """
    shared = [name for name, uses in graph.uses().items() if uses > 1 and not _is_tied(graph, name)]
    if shared:
        raise UnreadableError(f"the weights {shared[0]} are used more than once", shared)
    end, notes = _last_matrix(graph), []
    heads = [n for i in graph.between(end, graph.output)[1:] for n in graph.nodes[i].parameters]
    if heads:
        reason = f"the output is made of several readouts, one of them by {heads[0]}"
        raise UnreadableError(reason, heads)
    signal = _entering(graph)
    parts, last = read_row(graph, 0, end, signal)
    parts = fold_scales(parts)
    if not parts or not isinstance(parts[-1].block, Dense):
        raise UnreadableError("the last block is no matrix")
    behind = _factor_behind(graph, end)
    parts[-1].scale *= behind
    if parts[-1].scale != 1.0:
        multiply(parts[-1], parts[-1].scale, with_bias=True)
        parts[-1].scale = 1.0
    if end != graph.output:
        kinds = [graph.nodes[i].options.get("name", graph.nodes[i].op)
                 for i in graph.between(end, graph.output)[1:]]  # fmt: skip
        value = behind * np.ravel(graph.nodes[end].value)
        if not alike(np.ravel(graph.nodes[graph.output].value), value):
            notes.append(f"{', '.join(map(str, kinds))} behind the last matrix is left out")
    tied = [name for name, uses in graph.uses().items() if uses > 1]
    if tied:
        notes.append(
            f"{tied[0]} is both embedding and readout: signals are as if it were not, and so are "
            "outputs of tokens that do not occur; outputs of tokens that do are left out of theory"
        )
    shape = (*signal.grid, signal.values.shape[2])
    try:
        network = Chain([part.block for part in parts], shape)
    except DynagramError as error:
        raise UnreadableError(str(error)) from error
    params = tuple(part.params for part in parts)
    rows = signal.values.reshape(len(signal.values), -1).astype(np.float64)
    wanted = behind * last.values.reshape(len(rows), -1)
    if not alike(_outputs(network, params, rows), wanted, 1e-6):
        raise UnreadableError("the blocks read do not give the outputs of the model")
    _verify_on_others(graph, end, behind, network, params)
    factors = {name: f for part in parts for name, f in part.factors.items()}
    return Recognised(
        network, params, rows, _weights(parts), tuple(notes), factors, is_tied=bool(tied)
    )


def _verify_on_others(graph: Graph, end: int, behind: float, network: Chain, params: Any) -> None:
    """Call the model on another batch: what it does may depend on its numbers, or on the call."""
    x = graph.nodes[0].value
    value = behind * np.ravel(graph.nodes[end].value)
    if graph.again is None or not alike(np.ravel(graph.nodes[graph.output].value), value):
        return  # what stands behind the last matrix is left out
    other = x[:, ::-1] if x.dtype.kind != "f" else -2.0 * x
    try:
        wanted = graph.again(other)
    except Exception:  # it takes no other batch
        return
    batch = Graph((replace(graph.nodes[0], value=other), *graph.nodes[1:]), graph.output)
    rows = _entering(batch).values.reshape(len(x), -1).astype(np.float64)
    if not alike(np.ravel(_outputs(network, params, rows)), np.ravel(wanted), 1e-6):
        raise UnreadableError("on another batch the blocks read are not the model")


def _factor_behind(graph: Graph, end: int) -> float:
    """The factor that outputs are multiplied by behind the last matrix, as muP does; else 1."""
    value, output = (np.ravel(graph.nodes[i].value) for i in (end, graph.output))
    return proportion(output, value) or 1.0


def _is_tied(graph: Graph, name: str) -> bool:
    """Whether a parameter is an embedding that also reads out at the end, as in GPT-2."""
    nodes = [graph.nodes[i] for i in graph.between(0, graph.output)]
    using = [node for node in nodes if name in node.parameters]
    return [node.op for node in using] == ["embedding", "linear"] and using[1].number == (
        _last_matrix(graph)
    )


def _last_matrix(graph: Graph) -> int:
    cuts = graph.cuts(0, graph.output)
    for number in reversed(cuts):
        if graph.nodes[number].op in _WEIGHTED:
            for later in cuts[cuts.index(number) + 1 :]:
                node = graph.nodes[later]
                if node.op == "add" and node.parameters:
                    return later  # a bias that is added behind a product is part of it
                if node.op != "other" or node.value.size != graph.nodes[number].value.size:
                    break
            return number
        if graph.nodes[number].parameters and graph.nodes[number].op != "add":
            break
    raise UnreadableError("the last block is no matrix")


def _entering(graph: Graph) -> LiveSignal:
    """The batch in our form: what is a channel and what a position, the first weights say."""
    x = graph.nodes[0].value
    inside = [graph.nodes[i] for i in graph.between(0, graph.output)]
    first = next((node for node in inside if node.op in (*_WEIGHTED, "multihead")), None)
    if first is None:
        raise UnreadableError("no weights are applied to the batch")
    if first.op == "embedding":
        if x.ndim != 2:
            raise UnreadableError(f"tokens of shape {x.shape}: samples and positions expected")
        return LiveSignal(x[:, :, None].astype(np.float64), (x.shape[1],), "last")
    if x.dtype.kind != "f":
        raise UnreadableError(f"a batch of {x.dtype} that no embedding reads")
    if first.op == "conv" and first.options.get("layout") == "last":
        return LiveSignal(x.reshape(len(x), -1, x.shape[-1]), x.shape[1:-1], "last")
    if first.op == "conv":
        samples, channels, *grid = x.shape
        values = x.reshape(samples, channels, -1).transpose(0, 2, 1)
        return LiveSignal(values, tuple(grid), "first")
    read = graph.nodes[first.inputs[0]].value
    if x.ndim == 2:
        return LiveSignal(x[:, None], (), "last")
    if read.ndim == 2 and read.shape[0] == x.shape[0]:
        return LiveSignal(x.reshape(len(x), 1, -1), (), "flat")
    return LiveSignal(x.reshape(len(x), -1, x.shape[-1]), x.shape[1:-1], "last")


@float64
def _outputs(network: Chain, params: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(network.apply(params, rows))


def _weights(parts: list[Part]) -> tuple[Weight, ...]:
    weights: list[Weight] = []
    for number, part in enumerate(parts):
        if isinstance(part.block, Residual):
            for b, branch in enumerate(part.block.branches):
                for p, block in enumerate(branch):
                    prefix = f"{b}.{p}."
                    here = {key: n for key, n in part.sources.items() if key.startswith(prefix)}
                    sources = {key.removeprefix(prefix): name for key, name in here.items()}
                    count = str(_order(branch, p)) if block.kind != "attention" else ""
                    weights += _arrays(number, sources, part.params[b][p], count, (b, p))
        else:
            weights += _arrays(number, part.sources, part.params, "", ())
    return tuple(weights)


def _order(branch: Any, place: int) -> int:
    """The number behind the letters of a block in a branch: which matrix it is."""
    return sum(block.kind in ("dense", "conv", "gated") for block in branch[: place + 1])


def _arrays(
    block: int, sources: dict[str, str], params: Any, count: str, place: tuple[int, ...]
) -> list[Weight]:
    made = []
    for key, name in sources.items():
        values = params[key]
        fan_in = fan_out = values.shape[-1]
        if key in ("token", "position"):
            fan_in = 1
        elif values.ndim > 1:
            fan_in = values.shape[-1] * (values.shape[0] if values.ndim == 3 else 1)
            fan_out = values.shape[-2]
        made.append(Weight(name, block, key + count, (*place, key), values, fan_in, fan_out))
    return made
