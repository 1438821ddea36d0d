"""Faults that one traced pass shows by itself, whatever is declared.

Signals that get lost on their way, units that are silent, a softmax over the wrong axis, inputs
that were never scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from dynagram.live._causes import Cause
from dynagram.live._graph import NORMS, Graph, Node
from dynagram.results._table import short

_ENOUGH = 16  # values of a unit before it can be called silent
_SILENT = 1e-3  # |σ(z)| over |z| below which nothing passes
_CHANCE = 1e-5  # of so many more silent units than units that are always on
_SOME = 0.1
_MATRICES = ("linear", "conv", "embedding", "multihead")
_CHOICES = ("topk", "argmax", "argmin", "sort", "argsort", "multinomial", "nonzero", "one_hot",
            "round", "sign")  # fmt: skip
_SCALINGS = ("rsqrt", "sqrt", "std", "var", "std_mean", "var_mean", "norm", "normalize")
_BRIGHT, _LARGE_SQUARE = 100.0, 1e3  # pixels that were divided by 255 are at most 1


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
    return NORMS.get(str(node.options.get("name", "")))


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


def find_unscaled_inputs(graph: Graph) -> tuple[list[Cause], list[str]]:
    """Pixels from 0 to 255 that go into a layer as they are; a note on other large inputs.

    A norm behind the layer makes up for it.
    """
    inside = [graph.nodes[number] for number in graph.between(0, graph.output)]
    matrices = [node for node in inside if node.op in ("linear", "conv") and node.parameters]
    if not matrices:
        return [], []
    first, read = matrices[0], graph.nodes[matrices[0].inputs[0]]
    end = matrices[1].number if len(matrices) > 1 else graph.output
    around = [node for node in inside if node.number <= end and node is not first]
    norms = any(str(node.options.get("name", "")) in (*NORMS, *_SCALINGS) for node in around)
    weighted = any(node.op in _MATRICES for node in around if node.number < read.number)
    x = read.value
    if norms or weighted or x.dtype.kind != "f" or not np.all(np.isfinite(x)):
        return [], []
    square, name = float(np.mean(x**2)), first.parameters[0]
    size = f"the mean square of what {name} reads is {short(square, 3)}"
    pixels = x.min() >= 0.0 and _BRIGHT < x.max() <= 255.0 and np.array_equal(x, np.rint(x))
    if pixels and square > _LARGE_SQUARE:
        text = f"inputs not scaled: {size}, whole numbers up to {x.max():.0f}: divide by 255 first"
        return [Cause("inputs not scaled", text)], []
    return [], [f"inputs are not scaled: {size}, and of the order of 1 is usual"] * (
        square > _LARGE_SQUARE
    )


def find_no_effect(model: Any, batch: Any, graph: Graph, unused: Sequence[str]) -> list[Cause]:
    """Matrices of a PyTorch module that nothing it returns depends on, in training either.

    And those whose values it depends on while no gradient reaches them.
    """
    from dynagram.live._torch_layers import matrices_without_gradient

    if any(node.options.get("name") in _CHOICES for node in graph.nodes):
        return []  # experts that were not chosen
    without = matrices_without_gradient(model, batch)
    causes = []
    for name, text, names in (
        ("unused layer", "nothing that the model returns depends on",
         [n for n in without if n in unused]),
        ("no gradient", "gradients of what the model returns do not reach",
         [n for n in without if n not in unused]),
    ):  # fmt: skip
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            listed = f"{', '.join(names[:4])}{more}"
            causes.append(Cause(name, f"{name}: {text} {listed}", tuple(names)))
    return causes
