"""One layer that is not like the others of its name: a sum, an activation, a gradient is missing.

A model that makes one layer in a row unlike those before and behind it does so by mistake; a first
or a last layer may be another one on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dynagram.live._causes import Cause
from dynagram.live._graph import NORMS, Graph, Node
from dynagram.live._layouts import alike
from dynagram.live._recognition import Weight


def find_odd_gains(graph: Graph, parameters: Mapping[str, np.ndarray]) -> list[Cause]:
    """Gains of zeros, where those of other layers of the same name are not 0."""
    gains = {node.parameters[0] for node in graph.nodes if node.parameters
             and (node.op == "multiply" or node.options.get("name") in NORMS)}  # fmt: skip
    values = {name: float(np.max(np.abs(v))) for name, v in parameters.items()
              if name in gains and v.ndim == 1}  # fmt: skip
    odd = []
    for name in (name for name, value in values.items() if value == 0.0):
        groups = [[values[other] for other in group] for group in _siblings(name, list(values))]
        full = [group for group in groups if len(group) > 1 and all(group)]
        if full and not any(0.0 in group for group in groups):
            odd.append(name)
    text = f"all entries of {', '.join(odd)} are 0, and not in other layers of that name"
    return [Cause("weights are zero", f"weights are zero: {text}", tuple(odd))] if odd else []


def find_lone_layer(weights: Sequence[Weight], ends: set[int]) -> list[Cause]:
    """A matrix between others of its name that end in a residual sum, and which does not."""
    members = {w.name: (w.values.shape, w.block in ends) for w in weights}
    lone = []
    for name, (shape, is_end) in members.items():
        if is_end:
            continue
        for group in _siblings(name, list(members)):
            ending = [other for other in group if members[other] == (shape, True)]
            if len(ending) == len(group) and _is_between(name, ending):
                lone.append(name)
    if not lone:
        return []
    text = f"what comes out of {', '.join(lone)} is added to nothing, as it is in other layers"
    return [Cause("skip missing", f"skip missing: {text} of that name", tuple(lone))]


def find_lone_linear(
    graph: Graph, weights: Sequence[Weight], others: Sequence[Cause] = ()
) -> list[Cause]:
    """A matrix without an activation behind it, between others of its name that have one.

    `others` explain more: what is added to nothing goes into the next layer for that reason.
    """
    explained = {name for cause in others for name in cause.parameters}
    readers = graph.readers()
    widths = {w.name: len(w.values) for w in weights if w.letter == "W"}  # a code is narrower
    bare = {w.name for w in weights if w.letter == "W" and _goes_on(graph, w.block, readers)}
    lone = []
    for name in bare - explained:
        for group in _siblings(name, list(widths)):
            as_wide = [other for other in group if widths[other] == widths[name]]
            if _is_between(name, as_wide) and not bare.intersection(group):
                lone.append(name)
    if not lone:
        return []
    text = f"no activation stands behind {', '.join(lone)}, as it does in other layers of that name"
    return [Cause("activation missing", f"activation missing: {text}", tuple(lone))]


def _goes_on(graph: Graph, number: int, readers: Mapping[int, list[Node]]) -> bool:
    """Whether what comes out of a matrix goes into the next as it is, or only normalised."""
    while True:
        later = readers.get(number, [])
        if len(later) != 1:
            return False
        node = later[0]
        if node.op in ("linear", "conv"):
            return True
        value = graph.nodes[number].value
        if not np.any(value):
            return False  # zeros show no activation
        same = node.value.size == value.size and alike(np.ravel(node.value), np.ravel(value))
        if same and not np.any(value < 0):  # ReLU leaves what is positive as it is
            turned = graph.replay(number, node.number, -value)
            same = turned is None or alike(np.ravel(turned), -np.ravel(value))
        biased = node.op == "add" and len(node.inputs) == 1 and bool(node.parameters)
        if not same and not biased and node.options.get("name") not in NORMS:
            return False
        number = node.number


def find_lone_sharing(
    shared: Sequence[Sequence[str]], shapes: Mapping[str, tuple[int, ...]]
) -> list[Cause]:
    """Matrices that some layers of one name share, and one of that name and shape does not.

    Who shares layers on purpose shares all of them, or in groups.
    """
    names = {name for group in shared for name in group}
    causes = []
    for group in shared:
        first = group[0]
        if len(shapes.get(first, ())) < 2:
            continue
        for others in _siblings(first, [*shapes, *names]):
            alone = [o for o in others if o not in names and shapes[o] == shapes[first]]
            if alone and len(set(others).intersection(group)) == len(group) - 1:
                text = f"{' and '.join(group)} are one parameter, and {alone[0]} is not"
                causes.append(Cause("shared weights", f"shared weights: {text}", tuple(group)))
    return causes


def find_frozen(learns: Mapping[str, bool], widths: Mapping[str, int]) -> list[Cause]:
    """Matrices that are not trained while an earlier one of that name is.

    Who fine-tunes freezes the first layers, or all. `widths` are those of matrices alone.
    """
    frozen = []
    for name in (name for name in widths if not learns[name]):
        for group in _siblings(name, list(widths)):
            others = [other for other in group if widths[other] == widths[name] and learns[other]]
            if len(others) > 1 and min(_steps(name, others)) < 0:
                frozen.append(name)
    names = tuple(dict.fromkeys(frozen))
    if not names:
        return []
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    text = f"{', '.join(names[:4])}{more} (requires_grad is False), and others of that name are not"
    return [Cause("frozen layer", f"frozen layer: {text}", names)]


def _is_between(name: str, others: Sequence[str]) -> bool:
    steps = _steps(name, others)
    return len(steps) > 1 and min(steps) < 0 < max(steps)


def _steps(name: str, others: Sequence[str]) -> list[int]:
    """How far others stand from a layer, by the number in which their names differ."""
    own = re.findall(r"\d+", name)
    return [int(re.findall(r"\d+", other)[i]) - int(own[i])
            for other in others for i in _differing(name, other)]  # fmt: skip


def _siblings(name: str, names: Sequence[str]) -> Iterator[list[str]]:
    """Other names that differ from this one in one number only, for every number in it."""
    parts = re.split(r"(\d+)", name)
    for place in range(1, len(parts), 2):
        pattern = re.compile(
            "".join(r"\d+" if i == place else re.escape(part) for i, part in enumerate(parts))
        )
        yield [other for other in names if other != name and pattern.fullmatch(other)]


def _differing(name: str, other: str) -> list[int]:
    pairs = zip(re.findall(r"\d+", name), re.findall(r"\d+", other), strict=True)
    return [i for i, (a, b) in enumerate(pairs) if a != b]
