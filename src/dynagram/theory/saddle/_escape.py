"""Leading, next-to-leading and exact escape times of one network, side by side on one clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.theory.saddle._classes import ActivationClass
from dynagram.theory.saddle._clocks import REDUCED, Clock
from dynagram.theory.saddle._laws import (
    bottleneck,
    leading_escape_time,
    next_to_leading_escape_time,
)
from dynagram.theory.saddle._reduced import reduced_escape_time
from dynagram.theory.saddle._symmetric import SymmetricNetwork


@dataclass(frozen=True)
class EscapeTimes:
    """When X_1 reaches `threshold`, three ways, on `clock`.

    `leading` (10) and `next_to_leading` are closed forms, `ode` is the exact reduced flow.
    `activation_class` is the class of σ and `K` the drive constant on `clock`. `notes` says where a
    law should not be trusted.
    """

    leading: float
    next_to_leading: float
    ode: float
    threshold: float
    clock: Clock
    activation_class: ActivationClass
    K: float
    notes: tuple[str, ...]


def escape_times(
    network: SymmetricNetwork, threshold: float = 0.3, clock: Clock = REDUCED
) -> EscapeTimes:
    """The escape time of `network` at three levels of accuracy.

    **Arguments:**

    - `network`: a `SymmetricNetwork`.
    - `threshold`: θ, the value X_1 has to reach, above X_1 at the start.
    - `clock`: the `Clock` to tell the times on; reduced time by default.

    **Returns:** `EscapeTimes`: leading, next-to-leading and exact, with notes on their validity.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> found = escape_times(network)
    >>> [round(time, 3) for time in (found.leading, found.next_to_leading, found.ode)]
    [256.817, 257.592, 257.683]
    """
    leading = leading_escape_time(network, threshold, clock)
    following = next_to_leading_escape_time(network, threshold, clock)
    return EscapeTimes(
        leading=leading,
        next_to_leading=following,
        ode=reduced_escape_time(network, threshold, clock),
        threshold=threshold,
        clock=clock,
        activation_class=network.activation_class,
        K=network.K / clock.units,
        notes=tuple(_notes(network, following)),
    )


def _notes(network: SymmetricNetwork, following: float) -> list[str]:
    kind, (epsilon, r) = network.activation_class, bottleneck(network)
    notes = []
    if kind.label == "D":
        notes.append(
            "class D: both laws are those of σ − σ(0). The output layer of σ itself first learns "
            "the mean of the target and so leaves the bottleneck: trust the ODE"
        )
    if kind.label == "unclassified":
        notes.append("unclassified activation: no size of the correction is known")
    if math.isnan(following):
        notes.append("no next-to-leading time: the correction is not small at this threshold")
    if network.depth == 3 and kind.label != "D":
        notes.append("L = 3: the self-interaction is of the order of the correction and left out")
    if r <= 2:
        words = "no power of ε" if r == 1 else "a logarithm of ε"
        notes.append(f"{r} layer(s) at the smallest scale {epsilon:g}: the time holds {words}")
    return notes
