"""Where the structure of a model differs from the one declared, and weights that are no draws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dynagram.live._causes import Cause
from dynagram.live._graph import Graph
from dynagram.live._live import is_torch
from dynagram.live._recognition import Weight
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Attention, Gated, Residual, RMSNorm
from dynagram.networks.blocks._composite import every_block

_DEAD = 0.6  # deep ReLU networks have up to half of their units silent on inputs that look alike
_ENOUGH = 16
_NEARLY_ALL = 0.9  # of a signal dropped: p was taken for the share that is kept


def compare_structures(network: Chain, expected: Chain) -> list[Cause]:
    """What is there in one network and not in the other."""
    causes = []
    ours, theirs = (_norm_places(net) for net in (network, expected))
    if ours and theirs and ours != theirs:
        words = {"before": "before every branch", "after": "on the stream, behind every branch"}
        causes.append(
            Cause(
                f"norm {ours} instead of {theirs}",
                f"norm {ours} instead of {theirs}: norms stand {words[ours]}, "
                f"{words[theirs]} is declared",
            )
        )
    if theirs and not ours and _residuals(network):
        causes.append(Cause("norm missing", "norm missing: the branches have no norms"))
    if len(_residuals(network)) < len(_residuals(expected)):
        text = f"{len(_residuals(network))} residual sums, {len(_residuals(expected))} declared"
        causes.append(Cause("skip missing", f"skip missing: {text}"))
    strengths = [tuple(b.strength for b in _residuals(net)) for net in (network, expected)]
    if len(strengths[0]) == len(strengths[1]) and strengths[0]:
        ratio = np.median(np.array(strengths[0]) / np.array(strengths[1]))
        if abs(ratio - 1.0) > 0.01:
            name = "depth scaling absent" if ratio > 1 else "depth scaling not meant"
            causes.append(
                Cause(
                    name,
                    f"{name}: branches have the strength {strengths[0][0]:.3g}, "
                    f"{strengths[1][0]:.3g} is declared",
                )
            )
    kinds = [_activations(net) for net in (network, expected)]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        text = f"{', '.join(kinds[0])} in the model, {', '.join(kinds[1])} declared"
        causes.append(Cause("other activation", f"other activation: {text}"))
    heads = [[b for b in every_block(net.blocks) if isinstance(b, Attention)]
             for net in (network, expected)]  # fmt: skip
    for a, b in zip(*heads, strict=False):
        if (a.causal, a.scale, a.heads, a.groups) != (b.causal, b.scale, b.heads, b.groups):
            text = f"{_of_heads(a)} in the model, {_of_heads(b)} declared"
            causes.append(Cause("other attention", f"other attention: {text}"))
            break
    return causes


def _of_heads(block: Attention) -> str:
    mask = "causal" if block.causal else "not causal"
    return f"{block.heads} heads, {mask}, logits times {block.scale}"


def _residuals(network: Chain) -> list[Residual]:
    return [block for block in network.blocks if isinstance(block, Residual)]


def _norm_places(network: Chain) -> str:
    inside = [isinstance(branch[0], RMSNorm) for block in _residuals(network)
              for branch in block.branches]  # fmt: skip
    if inside and all(inside):
        return "before"
    blocks = network.blocks
    behind = [isinstance(after, RMSNorm) for block, after in
              pairwise(blocks) if isinstance(block, Residual)]  # fmt: skip
    return "after" if behind and all(behind) and not any(inside) else ""


def _activations(network: Chain) -> list[str]:
    listed = every_block(network.blocks)
    return sorted({b.activation.name for b in listed if isinstance(b, Activate | Gated)})


def find_copies(weights: Sequence[Weight]) -> list[Cause]:
    """Weights that hold the same numbers, or one number in all entries."""
    causes = []
    matrices = [w for w in weights if w.values.ndim > 1 and w.values.size > 8 and np.any(w.values)]
    for weight in matrices:
        if np.all(weight.values == weight.values.flat[0]):
            text = f"all entries of {weight.name} are {weight.values.flat[0]:.3g}: every unit is "
            causes.append(
                Cause("constant weights", f"constant weights: {text}the same", (weight.name,))
            )
    for a, b in combinations(matrices, 2):
        same_shape = a.values.shape == b.values.shape and a.name != b.name
        if (
            same_shape
            and a.values.flat[0] == b.values.flat[0]
            and np.array_equal(a.values, b.values)
        ):
            causes.append(
                Cause(
                    "same draw twice",
                    f"same draw twice: {a.name} and {b.name} hold the same numbers; a seed was set "
                    "again, or one layer was copied",
                    (a.name, b.name),
                )
            )
    if len(causes) > 3:
        more = Cause(causes[0].name, f"{causes[0].message} (and {len(causes) - 1} more)")
        return [more]
    return causes


def find_zeros(network: Chain, weights: Sequence[Weight]) -> list[Cause]:
    """Matrices of zeros that all of the signal has to pass; branches and readouts may begin so."""
    last = len(network.blocks) - 1
    empty = [w.name for w in weights if w.letter == "W" and w.block < last and not np.any(w.values)
             and not isinstance(network.blocks[w.block], Residual)]  # fmt: skip
    text = f"all entries of {', '.join(empty)} are 0: nothing passes"
    return [Cause("weights are zero", f"weights are zero: {text}", tuple(empty))] if empty else []


def find_dropout(model: Any, graph: Graph) -> list[Cause]:
    """Dropout that acts outside of training, or leaves next to nothing in it."""
    causes = []
    for node in graph.nodes:
        if "dropout" in str(node.options.get("name", "")) and node.inputs:
            before = graph.nodes[node.inputs[0]].value
            if before.shape == node.value.shape and not np.array_equal(before, node.value):
                share = float(np.mean((node.value == 0.0) & (before != 0.0)))
                text = f"{100 * share:.0f} % of a signal are set to 0 though the model is not in "
                causes.append(Cause("dropout always on", f"dropout always on: {text}training"))
    for name, part in model.named_modules() if is_torch(model) else ():
        p = float(getattr(part, "p", 0.0)) if "Dropout" in type(part).__name__ else 0.0
        if p >= _NEARLY_ALL:
            text = f"{name or 'it'} leaves {100 * (1 - p):.0f} % of the signal in training; p is "
            text += "the share that is dropped"
            causes.append(Cause("dropout too large", f"dropout too large: {text}"))
    return causes


def find_dead_units(graph: Graph) -> tuple[list[Cause], dict[str, float]]:
    """Layers most of whose units are 0 for the whole batch, and the share of every layer."""
    shares: dict[str, float] = {}
    causes = []
    for node in graph.nodes:
        if len(node.inputs) != 1 or node.op in ("linear", "conv", "embedding", "softmax"):
            continue
        before = graph.nodes[node.inputs[0]]
        if before.op not in ("linear", "conv") or before.value.shape != node.value.shape:
            continue
        if not np.any(before.value):
            continue  # weights of zeros, with which branches may begin
        axis = 1 if before.op == "conv" else node.value.ndim - 1
        rest = tuple(i for i in range(node.value.ndim) if i != axis)
        count = node.value.size // node.value.shape[axis]
        if count < _ENOUGH or not before.parameters or not np.any(node.value == 0.0):
            continue
        name = before.parameters[0].rpartition(".")[0] or before.parameters[0]
        share = float(np.mean(np.all(node.value == 0.0, axis=rest)))
        shares[name] = share
        if share > _DEAD:
            text = f"{100 * share:.0f} % of the units behind {name} are 0 on the whole batch"
            causes.append(Cause("dead units", f"dead units: {text}", before.parameters))
    return causes, shares
