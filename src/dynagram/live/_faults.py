"""Faults that one traced pass shows by itself, whatever is declared.

Signals that get lost on their way, units that are silent, a softmax over the wrong axis, one layer
that is not like the others of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dynagram.live._causes import Cause
from dynagram.live._graph import Graph, Node
from dynagram.live._recognition import Weight

_ENOUGH = 16  # values of a unit before it can be called silent
_SILENT = 1e-3  # |σ(z)| over |z| below which nothing passes
_CHANCE = 1e-5  # of so many more silent units than units that are always on
_SOME = 0.1
_NORMS = {"batch_norm": 1, "instance_norm": 1, "group_norm": 1, "layer_norm": -1, "rms_norm": -1}
_MATRICES = ("linear", "conv", "embedding", "multihead")
_CHOICES = ("topk", "argmax", "sort", "argsort", "multinomial", "nonzero", "one_hot")


def find_dead_units(graph: Graph) -> tuple[list[Cause], dict[str, float]]:
    """Layers with units that no input of the batch passes, and that share of all other layers.

    Inputs that look alike silence units in healthy networks too, but then as many are always on:
    rows of weights are as likely as their negatives. More silent ones than chance allows, or
    silent ones alone, are a fault.
    """
    shares: dict[str, float] = {}
    causes = []
    for node in graph.nodes:
        if node.op != "other" or len(node.inputs) != 1 or node.parameters:
            continue
        before = graph.nodes[node.inputs[0]]
        axis = _channels(before)
        if axis is None or before.value.shape != node.value.shape or not np.any(before.value):
            continue
        if any(constant.value.dtype == bool for constant in node.constants):
            continue  # masked
        axis %= node.value.ndim
        rest = tuple(i for i in range(node.value.ndim) if i != axis)
        if node.value.size // node.value.shape[axis] < _ENOUGH or not before.parameters:
            continue
        nothing = np.abs(node.value) <= -_SILENT * before.value
        silent = int(np.sum(np.all(nothing, axis=rest)))
        always = int(np.sum(np.all(before.value > 0.0, axis=rest)))
        share = silent / node.value.shape[axis]
        name = before.parameters[0].rpartition(".")[0] or before.parameters[0]
        chance = float(stats.binom.sf(silent - 1, silent + always, 0.5))
        if share == 1.0 or (share > _SOME and chance < _CHANCE):
            text = f"{100 * share:.0f} % of the units behind {name} are 0 on the whole batch"
            causes.append(Cause("dead units", f"dead units: {text}", before.parameters))
        elif np.any(node.value == 0.0):
            shares[name] = share
    return causes, shares


def _channels(node: Node) -> int | None:
    """The axis of the units of a layer; None for what is no layer."""
    if node.op in ("linear", "conv"):
        return 1 if node.op == "conv" and node.options.get("layout") != "last" else -1
    if node.op == "add" and node.parameters and len(node.inputs) == 1:
        return -1
    return _NORMS.get(str(node.options.get("name", "")))


def find_no_numbers(graph: Graph) -> list[Cause]:
    """The operation that gives the first NaN."""
    names: tuple[str, ...] = ()
    for node in (graph.nodes[number] for number in graph.between(0, graph.output)):
        names = node.parameters or names
        if node.value.dtype.kind == "f" and np.any(np.isnan(node.value)):
            text = f"NaN comes out of {node.options.get('name') or node.op}"
            text += f" behind {names[0]}" if names else ""
            return [Cause("not a number", f"not a number: {text}", names)]
    return []


def find_lost_signal(graph: Graph) -> list[Cause]:
    """The first place that all of the signal passes and behind which all samples are the same."""
    batch = graph.nodes[0].value
    inside = graph.between(0, graph.output)
    matrices = [number for number in inside if graph.nodes[number].op in _MATRICES]
    if not matrices or _is_one(batch):
        return []
    place = 0
    for number in graph.cuts(0, graph.output):
        value = graph.nodes[number].value
        if number >= matrices[-1]:
            break  # readouts may begin at 0
        if value.shape[:1] == batch.shape[:1] and _is_one(value):
            between = [graph.nodes[i] for i in graph.between(place, number)[1:]]
            firsts = [next((c for c in n.constants if c.parameters), None) for n in between]
            empty = [c.parameters[0] for c in firsts if c is not None and not np.any(c.value)]
            names = tuple(dict.fromkeys(empty or [n for node in between for n in node.parameters]))
            if empty:
                text = f"all entries of {', '.join(names)} are 0: nothing passes"
                return [Cause("weights are zero", f"weights are zero: {text}", names)]
            kinds = ", ".join(dict.fromkeys(str(n.options.get("name") or n.op) for n in between))
            text = f"behind {', '.join(names[:2]) or kinds} all samples of the batch are the same"
            return [Cause("signal lost", f"signal lost: {text}: nothing of them passes", names)]
        place = number
    return []


def _is_one(value: np.ndarray) -> bool:
    return value.ndim == 0 or len(value) < 2 or bool(np.all(value == value[:1]))


def find_wrong_softmax(graph: Graph) -> list[Cause]:
    """Weights of attention that do not sum to 1 over what they are summed over."""
    names: list[str] = []
    for node in graph.nodes:
        if node.op != "matmul" or node.options.get("einsum") or len(node.inputs) != 2:
            continue
        left = mark = graph.nodes[node.inputs[0]]
        while mark.op == "other" and len(mark.inputs) == 1 and np.array_equal(
            mark.value, graph.nodes[mark.inputs[0]].value
        ):  # dropout, and casts  # fmt: skip
            mark = graph.nodes[mark.inputs[0]]
        if mark.op != "softmax" or not np.all(np.isfinite(left.value)) or left.value.ndim < 2:
            continue
        if not np.allclose(left.value.sum(axis=-1), 1.0, atol=1e-6):
            earlier = [graph.nodes[i] for i in graph.between(0, mark.number)]
            matrices = [n.parameters[0] for n in earlier if n.op == "linear" and n.parameters]
            names += matrices[-1:]
    if not names:
        return []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    text = f"the weights of attention behind {names[0]}{more} do not sum to 1 over the positions "
    name = "softmax over the wrong axis"
    return [Cause(name, f"{name}: {text}that are read", tuple(names))]


def find_odd_gains(graph: Graph, parameters: Mapping[str, np.ndarray]) -> list[Cause]:
    """Gains of zeros, where those of other layers of the same name are not 0."""
    gains = {node.parameters[0] for node in graph.nodes if node.parameters
             and (node.op == "multiply" or node.options.get("name") in _NORMS)}  # fmt: skip
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
            alike = [other for other in group if members[other] == (shape, True)]
            numbers = [int(re.findall(r"\d+", other)[i]) - int(re.findall(r"\d+", name)[i])
                       for other in alike for i in _differing(name, other)]  # fmt: skip
            if len(alike) == len(group) > 1 and min(numbers) < 0 < max(numbers):
                lone.append(name)
    if not lone:
        return []
    text = f"what comes out of {', '.join(lone)} is added to nothing, as it is in other layers"
    return [Cause("skip missing", f"skip missing: {text} of that name", tuple(lone))]


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


def find_unused(model: Any, batch: Any, graph: Graph, unused: Sequence[str]) -> list[Cause]:
    """Matrices of a PyTorch module on which nothing that it returns depends, in training either."""
    from dynagram.live._torch_layers import matrices_without_effect

    if not unused or any(node.options.get("name") in _CHOICES for node in graph.nodes):
        return []  # experts that were not chosen
    names = matrices_without_effect(model, batch, unused)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    text = f"nothing that the model returns depends on {', '.join(names[:4])}{more}"
    return [Cause("unused layer", f"unused layer: {text}", names)] if names else []
