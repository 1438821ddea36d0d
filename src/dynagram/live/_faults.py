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
_MEDIAN = 0.4549  # of the square of a normal number
_LARGE_LOGITS = 16.0  # of them the most likely token alone has nearly all the probability
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


def find_silent_layers(graph: Graph) -> list[Cause]:
    """Layers that read nothing but zeros, and the gains or weights of zeros that are to blame.

    What is zero at the end of a branch or in a readout is added to others, or read by nobody; a
    layer behind it gets no gradient.
    """
    if not np.any(graph.nodes[0].value):
        return []
    reads: dict[str, list[Node]] = {}
    for node in (graph.nodes[number] for number in graph.between(0, graph.output)):
        if node.op in ("linear", "conv") and node.parameters and node.inputs:
            reads.setdefault(node.parameters[0], []).append(graph.nodes[node.inputs[0]])
    silent, blamed = [], []
    for name, sources in reads.items():
        if any(np.any(source.value) for source in sources):
            continue  # a recurrent layer reads zeros once
        empty = _empty_before(graph, sources[0])
        if empty:
            silent.append(name)
            blamed += empty
    if not silent:
        return []
    names = tuple(dict.fromkeys(blamed))
    text = f"all entries of {_listed(names)} are 0: nothing passes to {_listed(silent)}"
    return [Cause("weights are zero", f"weights are zero: {text}", names)]


def _empty_before(graph: Graph, node: Node) -> list[str]:
    """The parameters of zeros that made a signal of zeros."""
    waiting, seen = [node], set()
    while waiting:
        one = waiting.pop()
        if one.number in seen or np.any(one.value):
            continue
        seen.add(one.number)
        empty = [c.parameters[0] for c in one.constants if c.parameters and not np.any(c.value)]
        if any(np.any(graph.nodes[i].value) for i in one.inputs) and empty:
            return empty[:1]
        waiting += [graph.nodes[i] for i in one.inputs]
    return []


def find_large_epsilon(graph: Graph) -> list[Cause]:
    """Norms whose ε is larger than the variance of what they read: they do not normalise."""
    large = []
    for node in (graph.nodes[number] for number in graph.between(0, graph.output)):
        epsilon = node.options.get("eps")
        if node.options.get("name") not in NORMS or not isinstance(epsilon, float):
            continue
        read = graph.nodes[node.inputs[0]].value
        variance = float(np.mean(np.square(read)))
        if 0.0 < variance < epsilon:
            large.append((node.parameters[0] if node.parameters else "a norm", epsilon, variance))
    if not large:
        return []
    name, epsilon, variance = large[0]
    text = f"ε of {name} is {short(epsilon, 3)}, and the mean square of what it reads "
    text += f"{short(variance, 3)}: it hardly normalises"
    more = f" (and {len(large) - 1} more)" if len(large) > 1 else ""
    return [Cause("epsilon too large", f"epsilon too large: {text}{more}", tuple(
        dict.fromkeys(name for name, _, _ in large)))]  # fmt: skip


def find_large_readout(graph: Graph) -> list[Cause]:
    """A readout that is also the embedding and as large as one: logits are far beyond 1.

    Most logits are asked: those of the tokens that are read are large in healthy models too.
    """
    tables = {name for node in graph.nodes if node.op == "embedding" for name in node.parameters}
    inside = [graph.nodes[number] for number in graph.between(0, graph.output)]
    for node in (node for node in inside if node.op == "linear"):
        tied = tables.intersection(node.parameters)
        square = float(np.median(np.square(node.value))) / _MEDIAN if tied else 0.0
        if square < _LARGE_LOGITS:
            continue
        (name,), n = list(tied)[:1], graph.nodes[node.inputs[0]].value.shape[-1]
        text = f"{name} is both embedding and readout, and the mean square of most logits is "
        text += f"{short(square, 3)}: a standard deviation of 1/√{n} = {short(n**-0.5, 2)} or less "
        text += "serves a readout, or a factor in front of it"
        return [Cause("readout too large", f"readout too large: {text}", (name,))]
    return []


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


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
