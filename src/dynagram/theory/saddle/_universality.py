"""Universality: on the clock K t every activation of classes A to C escapes alike (Corollary 7).

At leading order the activation enters through K = √N β h_σ α^{L−1} alone; the first correction is
of relative order ε^{q−1}, with a factor log(1/ε) at the resonance L = q + 1. Shallower networks,
L < q + 1, deviate as ε^{L−2}: docs/derivations/escape-times.md (D3.7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.networks import ActivationLike
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._laws import balanced_escape_time, bottleneck, check_threshold
from dynagram.theory.saddle._symmetric import SymmetricNetwork, checked_count, require_drive


@dataclass(frozen=True)
class Correction:
    """The first deviation from the universal curve: ε^power, times log(1/ε) if `logarithm`."""

    power: int
    logarithm: bool

    def size(self, epsilon: float) -> float:
        """ε^power (log 1/ε): the scale of the deviation, without its coefficient."""
        return epsilon**self.power * (math.log(1.0 / epsilon) if self.logarithm else 1.0)


def escape_ratio(first: ActivationLike, second: ActivationLike, depth: int) -> float:
    """t_first/t_second in the limit of small scales: h_2 α_2^{L−1}/(h_1 α_1^{L−1}) (Corollary 7).

    **Arguments:**

    - `first`, `second`: the two activations: names, callables or `Activation`s.
    - `depth`: L ≥ 2, the number of weight matrices of both networks.

    **Returns:** the ratio of the escape times.

    >>> round(escape_ratio("gelu", "tanh", depth=4), 4)
    9.6913
    """
    depth = checked_count("depth", depth, least=2)
    return classify(second).chain_drive(depth) / classify(first).chain_drive(depth)


def universal_time(network: SymmetricNetwork, threshold: float, time: float) -> float:
    """A reduced time over its universal scale: K t / ((ε^{−(L−2)} − θ^{−(L−2)})/(L−2)).

    1 at leading order for every activation, depth and width of a balanced network, so that
    curves of any of them collapse.

    **Arguments:**

    - `network`: a balanced `SymmetricNetwork` with K > 0.
    - `threshold`: θ, above X_1 at the start.
    - `time`: t, a time in which X_1 reached θ, on the reduced clock.

    **Returns:** the ratio.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> round(universal_time(network, 0.3, 257.68349), 5)
    1.00337
    """
    theta, K = check_threshold(network, threshold), require_drive(network)
    epsilon, _ = bottleneck(network)
    return K * time / balanced_escape_time(1.0, network.depth, epsilon, theta)


def first_correction(activation: ActivationLike, depth: int) -> Correction | None:
    """Power and logarithm of the first correction; None in class A, and where σ has no such term.

    ε^{q−1} for L > q + 1, with a logarithm at L = q + 1, and ε^{L−2} below, where the end of the
    plateau counts for more (D3.7); Corollary 7 prints ε^{q−1} there too.

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`.
    - `depth`: L ≥ 3, the number of weight matrices.

    **Returns:** a `Correction`, or None.

    >>> first_correction("tanh", depth=4), first_correction("gelu", depth=4)
    (Correction(power=2, logarithm=True), Correction(power=1, logarithm=False))
    >>> first_correction("tanh", depth=3)
    Correction(power=1, logarithm=False)
    """
    q, depth = classify(activation).q, checked_count("depth", depth, least=3)
    return None if q is None else Correction(min(q - 1, depth - 2), depth == q + 1)
