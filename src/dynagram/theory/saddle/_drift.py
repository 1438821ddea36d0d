"""How fast X_i² − X_j² drifts on the symmetric ansatz: order and leading coefficient, (19)-(28).

The first term a_q z^q at activation k changes f by √N α^{L−1−k} X_{k+1}⋯X_L a_q (α^{k−1} c g)^q,
c = X_1⋯X_k. Layers up to k stand inside the power and count q times, those above once; so layers
i < j part at the first activation between them, k = i:

    d(X_i² − X_j²)/dt = 2(q−1) √N β a_q h_σ^(q) α^{L−1−i+q(i−1)} (X_1⋯X_i)^q X_{i+1}⋯X_L,

of order L + (q−1) i. There are L − 1 activations: i = L has no partner above. (28) is printed
with the opposite sign, and with an activation after the last layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._symmetric import SymmetricNetwork


@dataclass(frozen=True)
class Drift:
    """The leading drift of X_i² − X_j².

    **Arguments:**

    - `order`: L + (q−1) min(i, j), the power of the scales.
    - `rate`: d(X_i² − X_j²)/dt in reduced time at the network's scales.
    """

    order: int
    rate: float


def balance_drift(network: SymmetricNetwork, first: int, second: int) -> Drift | None:
    """Order and rate of the drift of X_i² − X_j², to leading order in the scales (28).

    **Arguments:**

    - `network`: a `SymmetricNetwork`; at its scales.
    - `first`, `second`: i ≠ j, layers from 1 to L.

    **Returns:** a `Drift`; None where σ is homogeneous (class A) and nothing drifts. The rate is
    nan where σ has no first nonlinear term (a kink at 0), and 0 where h_σ^(q) vanishes: the drift
    is then of a higher order.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.05)
    >>> [balance_drift(network, i, 4).order for i in (1, 2, 3)]
    [6, 8, 10]
    """
    L, kind = network.depth, network.activation_class
    for name, layer in (("first", first), ("second", second)):
        if not 1 <= layer <= L:
            raise InvalidValueError(name, layer, f"layers are counted from 1 to {L}")
    if first == second:
        raise InvalidValueError("second", second, "must be another layer than first")
    if kind.label == "A":
        return None
    k = min(first, second)
    if kind.q is None or kind.a_q is None or kind.h_q is None:
        return Drift(L, math.nan)
    q, sign = kind.q, 1.0 if first < second else -1.0
    inside, outside = math.prod(network.scales[:k]), math.prod(network.scales[k:])
    slopes = kind.alpha ** (L - 1 - k + q * (k - 1))
    drive = math.sqrt(network.width) * network.beta * kind.a_q * kind.h_q * slopes
    return Drift(L + (q - 1) * k, sign * 2.0 * (q - 1) * drive * inside**q * outside)
