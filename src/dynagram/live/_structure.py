"""Where the structure of a model differs from the one declared, and weights that are no draws."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dynagram.activations import Activation
from dynagram.live._causes import Cause
from dynagram.live._graph import Graph
from dynagram.live._live import is_torch
from dynagram.live._recognition import Weight
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Attention, Gated, Residual, RMSNorm
from dynagram.networks.blocks._composite import every_block

_SAME = 0.01  # activations that differ by less are written differently and do the same
_NEARLY_ALL = 0.9  # of a signal dropped: p was taken for the share that is kept


def compare_structures(
    network: Chain, expected: Chain, factors: Mapping[str, float] | None = None
) -> list[Cause]:
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
    elif ours == theirs and _has_last_norm(expected) and not _has_last_norm(network):
        causes.append(Cause("norm missing", "norm missing: none stands behind the last branch"))
    causes += _missing_parts(network, expected)
    if len(_residuals(network)) < len(_residuals(expected)):
        text = f"{len(_residuals(network))} residual sums, {len(_residuals(expected))} declared"
        causes.append(Cause("skip missing", f"skip missing: {text}"))
    skips = [tuple(b.skip for b in _residuals(net)) for net in (network, expected)]
    if len(skips[0]) == len(skips[1]) and not np.allclose(*skips, rtol=0.01):
        off = np.flatnonzero(~np.isclose(*skips, rtol=0.01))
        ours, theirs = (some[off[0]] for some in skips)
        where = "every sum" if len(off) == len(skips[0]) else f"sum {_numbered(off)}"
        text = f"at {where} the stream is multiplied by {ours:.3g}, {theirs:.3g} is declared"
        causes.append(Cause("other skip", f"other skip: {text}"))
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
    if not _do_the_same(*kinds):
        ours, theirs = (", ".join(sorted(sigmas)) or "none" for sigmas in kinds)
        text = f"{ours} in the model, {theirs} declared"
        causes.append(Cause("other activation", f"other activation: {text}"))
    heads = [[b for b in every_block(net.blocks) if isinstance(b, Attention)]
             for net in (network, expected)]  # fmt: skip
    if factors and any(b.scale == "1/sqrt(d)" for b in heads[1]):
        more = f" and {len(factors) - 1} more" if len(factors) > 1 else ""
        text = f"logits of the queries of {next(iter(factors))}{more} are not divided by √d"
        return [*causes, Cause("other attention", f"other attention: {text}", tuple(factors))]
    for a, b in zip(*heads, strict=False):
        if _kind(a) != _kind(b):
            text = f"{_of_heads(a)} in the model, {_of_heads(b)} declared"
            causes.append(Cause("other attention", f"other attention: {text}"))
            break
    return causes


def _numbered(places: np.ndarray) -> str:
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    return f"{', '.join(str(place + 1) for place in places[:4])}{more} of the residual sums"


def _missing_parts(network: Chain, expected: Chain) -> list[Cause]:
    """Tables of positions and gates that only one of two networks has."""
    causes = []
    for name, counts in (
        ("positions", [_count(net, lambda b: getattr(b, "has_positions", False))
                       for net in (network, expected)]),
        ("gates", [_count(net, lambda b: isinstance(b, Gated)) for net in (network, expected)]),
    ):  # fmt: skip
        if counts[0] != counts[1]:
            word = "missing" if counts[0] < counts[1] else "not meant"
            text = f"{counts[0]} in the model, {counts[1]} declared"
            causes.append(Cause(f"{name} {word}", f"{name} {word}: {text}"))
    return causes


def _count(network: Chain, fits: Callable[[Any], bool]) -> int:
    return sum(bool(fits(block)) for block in every_block(network.blocks))


def _has_last_norm(network: Chain) -> bool:
    """Whether a norm stands behind the last residual sum."""
    places = [i for i, block in enumerate(network.blocks) if isinstance(block, Residual)]
    behind = network.blocks[places[-1] + 1 :] if places else ()
    return any(isinstance(block, RMSNorm) for block in behind)


def find_lone_mask(network: Chain) -> list[Cause]:
    """Attention that reads later positions where most of it does not."""
    masks = [b.causal for b in every_block(network.blocks) if isinstance(b, Attention)]
    open_ones = [place + 1 for place, causal in enumerate(masks) if not causal]
    if not open_ones or 2 * len(open_ones) >= len(masks):
        return []
    text = f"attention {', '.join(map(str, open_ones))} of {len(masks)} reads later positions, the "
    return [Cause("causal mask missing", f"causal mask missing: {text}others do not")]


def _kind(block: Attention) -> tuple[bool, str, int, int]:
    return block.causal, block.scale, block.heads, block.key_heads


def _of_heads(block: Attention) -> str:
    mask = "causal" if block.causal else "not causal"
    shared = "" if block.key_heads == block.heads else f" with {block.key_heads} of keys and values"
    return f"{block.heads} heads{shared}, {mask}, logits times {block.scale}"


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


def _activations(network: Chain) -> dict[str, Activation]:
    listed = every_block(network.blocks)
    return {b.activation.name: b.activation for b in listed if isinstance(b, Activate | Gated)}


def _do_the_same(ours: dict[str, Activation], theirs: dict[str, Activation]) -> bool:
    """Whether each activation of a network is nearly one of the other: both forms of GELU are."""
    z = np.linspace(-5.0, 5.0, 201)
    values = [[np.asarray(sigma(z)) for sigma in some.values()] for some in (ours, theirs)]
    values = [[made for made in some if np.max(np.abs(made - z)) > _SAME] for some in values]
    return all(
        any(np.max(np.abs(a - b)) < _SAME for b in values[1 - side])
        for side in (0, 1)
        for a in values[side]
    )


def find_copies(weights: Sequence[Weight], frozen: Collection[str] = ()) -> list[Cause]:
    """Weights that hold the same numbers, or one number in all entries.

    Of two that are the same one may be frozen: targets begin as what they will follow.
    """
    causes = []
    matrices = [w for w in weights if w.values.ndim > 1 and w.values.size > 8 and np.any(w.values)]
    for weight in matrices:
        if np.all(weight.values == weight.values.flat[0]):
            text = f"all entries of {weight.name} are {weight.values.flat[0]:.3g}: every unit is "
            causes.append(
                Cause("constant weights", f"constant weights: {text}the same", (weight.name,))
            )
        elif (rows := _equal_along(weight)) is not None:
            text = f"constant weights: {rows} of {weight.name} are the same"
            causes.append(Cause("constant weights", text, (weight.name,)))
    for a, b in combinations(matrices, 2):
        same_shape = a.values.shape == b.values.shape and a.name != b.name
        same_shape = same_shape and (a.name in frozen) == (b.name in frozen)
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


def _equal_along(weight: Weight) -> str | None:
    """Whether all units have the same weights, or all inputs."""
    values = weight.values
    if weight.letter == "token" and np.all(values == values[:1]):
        return "the vectors of all tokens"
    if weight.letter == "position" or values.shape[-2] < 3 or values.shape[-1] < 3:
        return None
    if np.all(values == values[..., :1, :]):
        return "the weights of all units"
    return "the weights of all inputs" if np.all(values == values[..., :1]) else None


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
            if before.shape == node.value.shape and not np.array_equal(
                before, node.value, equal_nan=node.value.dtype.kind == "f"
            ):
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
