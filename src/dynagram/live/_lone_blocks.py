"""One residual block that is not built like the others: a double sum, a norm that is left out.

As with layers by name, a first or a last block may be another one on purpose, one in between not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagram.live._causes import Cause
from dynagram.live._recognition import Weight
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Attention, Gated, Residual, RMSNorm

_FEWEST = 4  # one that is unlike the others, and three that are alike


def find_lone_block(network: Chain, weights: Sequence[Weight]) -> list[Cause]:
    """A residual block between others of its kind that differs from all of them."""
    blocks = [(i, b) for i, b in enumerate(network.blocks) if isinstance(b, Residual)]
    causes: list[Cause] = []
    for has_attention in (True, False):
        alike = [(i, b) for i, b in blocks if _has(b, Attention) == has_attention]
        for name, read, words in _ASKED:
            odd = _odd_one([read(block) for _, block in alike])
            if odd is None:
                continue
            place, own, usual = odd
            number = alike[place][0]
            names = tuple(dict.fromkeys(w.name for w in weights if w.block == number))
            what = name if isinstance(name, str) else name(own, usual)
            text = f"the block of {names[0] if names else number} {words(own, usual)}"
            causes.append(Cause(what, f"{what}: {text} in the others of its kind", names))
    return causes


def _odd_one(values: Sequence[Any]) -> tuple[int, Any, Any] | None:
    """The place of one value between others that are all the same, it and theirs."""
    if len(values) < _FEWEST:
        return None
    odd = [i for i, value in enumerate(values) if value != values[0]]
    usual = values[0]
    if len(odd) != 1 or not 0 < odd[0] < len(values) - 1:
        return None
    return odd[0], values[odd[0]], usual


def _has(block: Residual, kind: Any) -> bool:
    return any(isinstance(part, kind) for branch in block.branches for part in branch)


def _norms(block: Residual) -> int:
    return sum(isinstance(part, RMSNorm) for branch in block.branches for part in branch)


def _sigmas(block: Residual) -> tuple[str, ...]:
    parts = [part for branch in block.branches for part in branch]
    return tuple(part.activation.name for part in parts if isinstance(part, Activate | Gated))


def _norm_name(own: int, usual: int) -> str:
    return "norm missing" if own < usual else "norm not meant"


# What is asked of every block, the name of the fault, and how it is told.
_ASKED: tuple[tuple[Any, Callable[[Residual], Any], Callable[[Any, Any], str]], ...] = (
    ("other skip", lambda b: round(b.skip, 6),
     lambda own, usual: f"multiplies the stream by {own:.3g} at its sum, and it is {usual:.3g}"),
    ("other strength", lambda b: round(b.strength, 6),
     lambda own, usual: f"multiplies its branch by {own:.3g}, and it is {usual:.3g}"),
    (_norm_name, _norms,
     lambda own, usual: f"has {own} norms before its matrices, and there are {usual}"),
    ("other activation", _sigmas,
     lambda own, usual: f"has {', '.join(own) or 'none'}, and it is {', '.join(usual) or 'none'}"),
)  # fmt: skip
