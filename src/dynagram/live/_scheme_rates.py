"""Rates of learning that a scheme has for every layer, and how steps at these rates should scale.

SGD, for the weights as they are computed with (factors in front of them included), n the width:

                     first layer, biases   hidden layers   readout
sp                   1                     1               1
ntk                  1/fan-in, 1           1/fan-in        1/fan-in
mup                  n                     1               1/n

The mean square of what the step of a layer changes in it goes as n to the power

                     first   hidden   readout, outputs
sp, SGD              −1      1        2
sp, Adam             0       2        2
ntk, SGD             −1      −1       0
mup                  0       0        0

since ∂f/∂z of a hidden z is n^−1/2 for a readout of variance 1/n and n^−1 for one of 1/n², and a
step in W moves W x by |x|², which is n in hidden layers. Adam moves every entry by its rate; the
rates of sp are then 1, those of mup 1, 1/n and 1/n. With depth-muP branches have a factor L^−1/2
and rates do not change with the depth L, or 1/L where that factor is in the weights themselves;
the outputs then change by as much at every depth (Yang et al., Tensor Programs V, table 3, and VI).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.live._recognition import Recognised, Weight
from dynagram.live._steps import OUTPUTS, Rule
from dynagram.networks.blocks import Residual
from dynagram.theory.chain._scalings import count_layers

FIRST, HIDDEN, READOUT = "first", "hidden", "readout"
CHANGES: dict[tuple[str, str], dict[str, float]] = {
    ("sp", "sgd"): {FIRST: -1.0, HIDDEN: 1.0, READOUT: 2.0, OUTPUTS: 2.0},
    # Outputs go from n² by the readout to n³ by hidden layers: no power at widths that one has.
    ("sp", "adam"): {FIRST: 0.0, HIDDEN: 2.0, READOUT: 2.0},
    ("ntk", "sgd"): {FIRST: -1.0, HIDDEN: -1.0, READOUT: 0.0, OUTPUTS: 0.0},
    ("mup", "sgd"): {FIRST: 0.0, HIDDEN: 0.0, READOUT: 0.0, OUTPUTS: 0.0},
    ("mup", "adam"): {FIRST: 0.0, HIDDEN: 0.0, READOUT: 0.0, OUTPUTS: 0.0},
    ("depth-mup", "sgd"): {OUTPUTS: 0.0},
    ("depth-mup", "adam"): {OUTPUTS: 0.0},
}


def expected_changes(scheme: str, kind: str) -> dict[str, float]:
    """Powers of the size by role; refuses Adam where a scheme has no rates for it."""
    if (scheme, kind) not in CHANGES:
        raise InvalidValueError("optimizer", kind, f"{scheme} has rates for SGD only")
    return CHANGES[scheme, kind]


def roles_of(read: Recognised) -> dict[str, str]:
    """First, hidden or readout for every parameter that holds a matrix or a table."""
    arrays = [w for w in read.weights if _is_matrix(w)]
    tables = {w.name for w in arrays if w.letter in ("token", "position")}
    roles = {w.name: HIDDEN for w in arrays}
    roles[arrays[-1].name] = READOUT
    roles |= dict.fromkeys(tables or (arrays[0].name,), FIRST)
    return roles


def _is_matrix(weight: Weight) -> bool:
    return not weight.letter.startswith("b")


def scheme_rule(scheme: str, read: Recognised, parameters: Mapping[str, np.ndarray]) -> Rule:
    """SGD at the rates of a scheme, for parameters with factors in front of them.

    W = c w moves by c² times the rate of w: a factor in the model is made up for.
    """
    roles = roles_of(read)
    width = next(w.fan_in for w in reversed(read.weights) if _is_matrix(w))
    branches = max(count_layers(read.network)[1], 1)
    ends = _branch_ends(read)
    rates = dict.fromkeys(parameters, float(width) if scheme == "mup" else 1.0)  # gains
    squares: dict[str, list[tuple[float, int]]] = {}
    for weight in read.weights:
        squares.setdefault(weight.name, []).append(
            (float(np.mean(weight.values**2)), weight.values.size)
        )
    for weight in read.weights:
        raw = float(np.mean(np.square(parameters[weight.name])))
        parts = squares[weight.name]
        factor = sum(s * n for s, n in parts) / sum(n for _, n in parts) / raw if raw > 0 else 1.0
        rate = _rate(scheme, weight, roles.get(weight.name, ""))
        if scheme == "depth-mup" and (weight.block, weight.place) in ends:
            rate /= branches * ends[weight.block, weight.place] ** 2
        rates[weight.name] = rate / factor if factor > 0 else rate
    return Rule("sgd", rates)


def _rate(scheme: str, weight: Weight, role: str) -> float:
    if scheme == "ntk":
        return 1.0 / weight.fan_in if role and role != FIRST else 1.0
    if scheme == "mup":
        return {HIDDEN: 1.0, READOUT: 1.0 / weight.fan_in}.get(role, float(weight.fan_out))
    return 1.0


def _branch_ends(read: Recognised) -> dict[tuple[int, tuple[object, ...]], float]:
    """Places of the last matrices of branches, with the strengths of these branches."""
    ends = {}
    for number, block in enumerate(read.network.blocks):
        if not isinstance(block, Residual):
            continue
        for b, branch in enumerate(block.branches):
            places = [w.place for w in read.weights if w.block == number and w.place[0] == b]
            last = max(place[1] for place in places)
            attends = branch[last].kind == "attention"
            for place in places:
                if place[1] == last and (place[-1] in ("O", "b") if attends else True):
                    ends[number, place] = block.strength
    return ends
