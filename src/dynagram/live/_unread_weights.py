"""Weights of a model that is not read as a network of ours: their sizes beside what they should be.

What multiplies the signal is known from the trace all the same. A recipe says the variance of
every matrix; with none declared, those whose names differ in numbers only must be of one size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dynagram.live._causes import WeightReading
from dynagram.live._graph import Graph, Node
from dynagram.live._recipes import Recipe, common_size
from dynagram.live._recognition import Weight
from dynagram.live._redraw import error_of_square, without_padding
from dynagram.live._rows import UnreadableError, weight_of
from dynagram.live._walk import Matrix


def weights_of(graph: Graph) -> list[Weight]:
    """The arrays that multiply the signal, each once, in the order in which they are used."""
    return _of_nodes(graph.nodes[number] for number in graph.between(0, graph.output))


def sizes_beside(graph: Graph, recipe: Recipe | None) -> list[WeightReading]:
    """Arrays that other outputs depend on, or that other inputs alone go into, and their sizes.

    Nothing but their sizes is asked. What other inputs alone go into is held against recipes that
    do not care whether a matrix ends a branch, which is not known of it.
    """
    own = {weight.name for weight in weights_of(graph)}
    every = _of_nodes(graph.nodes)
    sizes = read_sizes(branch_ends(graph, everywhere=True), every, recipe)[0]
    known = own | {weight.name for weight in every}
    outer = [weight for weight in _of_nodes(graph.beside) if weight.name not in known]

    def certain(matrix: Matrix, branches: int) -> float | None:
        assert recipe is not None
        ways = {recipe(replace(matrix, is_branch_end=end), branches + 1) for end in (True, False)}
        return ways.pop() if len(ways) == 1 else None

    return [size for size in sizes if size.parameter not in own] + read_sizes(
        set(), outer, None if recipe is None else certain
    )[0]


def layer_of_size(size: WeightReading) -> str:
    """The layer that a weight belongs to: its name without the last part."""
    return size.parameter.rpartition(".")[0] or size.parameter


def _of_nodes(nodes: Iterable[Node]) -> list[Weight]:
    weights: dict[str, Weight] = {}
    for node in nodes:
        for weight in _of_node(node):
            weights.setdefault(weight.name, weight)
    return list(weights.values())


def _of_node(node: Node) -> list[Weight]:
    def weight(name: str, key: str, values: np.ndarray, fan_in: int, fan_out: int) -> Weight:
        return Weight(name, node.number, key, (key,), values, fan_in, fan_out)

    if node.op == "multihead":
        matrices = [c for c in node.constants if len(c.parameters) == 1 and c.value.ndim == 2]
        return [weight(c.parameters[0], "W", c.value, c.value.shape[1], c.value.shape[0])
                for c in matrices]  # fmt: skip
    if node.op not in ("linear", "conv", "embedding") or not node.constants:
        return []
    try:
        constant = weight_of(node)[0] if node.op == "linear" else node.constants[0]
    except UnreadableError:
        return []
    if len(constant.parameters) != 1 or constant.value.ndim < 2 or np.iscomplexobj(constant.value):
        return []  # made of several parameters: its entries are no draws; complex: no recipe's
    values, name = constant.value, constant.parameters[0]
    if node.op == "embedding":
        return [weight(name, "token", values, 1, values.shape[1])]
    taps = int(np.prod(values.shape[2:]))
    return [weight(name, "W", values, values.shape[1] * taps, values.shape[0] * taps)]


def read_sizes(
    ends: set[int], weights: Sequence[Weight], recipe: Recipe | None
) -> tuple[list[WeightReading], int]:
    """Every array beside the variance that it should have, and the number of residual branches."""
    branches = sum(weight.block in ends for weight in weights)
    last = weights[-1].block if weights else 0
    matrices = [
        Matrix((w.block, w.letter), _role(w, w.block in ends, w.block == last), _square(w),
               w.fan_in, w.fan_out, w.block in ends, taps=int(np.prod(w.values.shape[2:])))
        for w in weights
    ]  # fmt: skip
    errors = [error_of_square(w.values) for w in weights]
    readings = []
    for place, (weight, matrix) in enumerate(zip(weights, matrices, strict=True)):
        if recipe is not None:
            variance, error = recipe(matrix, max(branches, 1)), errors[place]
            if variance is None:
                continue
            meant = variance
        else:
            like = [i for i, m in enumerate(matrices) if m.role == matrix.role]
            common = common_size(
                [matrices[i].variance for i in like], [errors[i] for i in like], same_shape=True
            )
            if common is None:
                continue
            meant, error = common[0], common[1][like.index(place)]
        readings.append(
            WeightReading(weight.name, replace(matrix, variance=meant), matrix.variance, error)
        )
    return readings, branches


def _role(weight: Weight, is_end: bool, is_last: bool) -> str:
    """What is drawn alike: ends of branches and readouts are often drawn smaller than others."""
    pattern = re.sub(r"\d+", "*", weight.name)
    where = "end" if is_end else "last" if is_last else ""
    return f"{pattern} {weight.values.shape} {where}"


def _square(weight: Weight) -> float:
    return float(np.mean(np.square(without_padding(weight.values), dtype=np.float64)))


def branch_ends(graph: Graph, *, everywhere: bool = False) -> set[int]:
    """Products whose values go straight into a sum with another signal: ends of branches.

    On the way to the output, or everywhere.
    """
    readers, ends = graph.readers(everywhere=everywhere), set()
    for number in range(len(graph.nodes)) if everywhere else graph.between(0, graph.output):
        node = graph.nodes[number]
        if node.op not in ("linear", "conv", "multihead"):
            continue
        later = readers.get(number, [])
        while len(later) == 1 and later[0].op in ("other", "add") and len(later[0].inputs) == 1:
            # dropout, casts, and a bias that is added by itself
            later = readers.get(later[0].number, [])
        if len(later) == 1 and later[0].op == "add" and len(set(later[0].inputs)) > 1:
            ends.add(number)
    return ends
