"""Finite width: entropy (A.66), mutual (A.67) and tripartite information (A.75) of neurons.

Given Ĝ the neurons of a plain layer are independent, N(0, Ĝ); its fluctuation makes them dependent.
For one input only x = V/(n_{ℓ-1}G²) = Var Ĝ/(E Ĝ)² enters, and to this order the shape of its
distribution does not: the six-point vertex drops out. In nats; order "leading" is x² (1/n²),
"next" adds x³ (1/n³).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.statistics._couplings import inverse

Value = Float[np.ndarray, "*shape"]
ORDERS = ("leading", "next")


def relative_variance(V: Value | float, G: Value | float, *, fan_in: int) -> Value:
    """x = V/(n_{ℓ-1}G²), the relative variance of the metric.

    **Arguments:**

    - `V`: the four-point vertex of one input, one number or an array.
    - `G`: the metric, of the same shape.
    - `fan_in`: n_{ℓ-1}, the width of the layer below.

    **Returns:** x, of the shape of `V` and `G`.

    >>> float(relative_variance(5.0, 1.0, fan_in=100))
    0.05
    """
    if fan_in < 1:
        raise InvalidValueError("fan_in", fan_in, "expected a positive number of neurons")
    return np.asarray(np.asarray(V) / (fan_in * np.asarray(G) ** 2))


def entropy(
    x: Value | float, *, neurons: int, G: Value | float = 1.0, order: str = "next"
) -> Value:
    """S_m = (m/2) log(2πeG) − (m² + 2m)/16 x² + (m³ + 10m² + 16m)/48 x³ (A.52), (A.66).

    **Arguments:**

    - `x`: V/(n_{ℓ-1}G²), one number or an array.
    - `neurons`: m.
    - `G`: the metric, one number or of the shape of `x`.
    - `order`: "leading" stops at x², "next" adds x³.

    **Returns:** S_m in nats, of the shape of `x`.

    >>> round(float(entropy(0.1, neurons=1)), 6)
    1.417626
    """
    _check(order, neurons=neurons)
    x, m = np.asarray(x, dtype=np.float64), neurons
    value = 0.5 * m * np.log(2.0 * math.pi * math.e * np.asarray(G)) - (m * m + 2 * m) / 16 * x**2
    if order == "next":
        value = value + (m**3 + 10 * m**2 + 16 * m) / 48 * x**3
    return np.asarray(value)


def mutual_information(x: Value | float, *, first: int, second: int, order: str = "next") -> Value:
    """I between m_1 = `first` and m_2 = `second` neurons of a layer (A.53), (A.67).

    m_1m_2/8 x² − m_1m_2(20 + 3m_1 + 3m_2)/48 x³. The series is useless beyond its maximum at
    x* = 4/(20 + 3m_1 + 3m_2) and negative beyond 1.5x*: see `ScaleMixture` for the exact value.

    **Arguments:**

    - `x`: V/(n_{ℓ-1}G²), one number or an array.
    - `first`, `second`: m_1 and m_2, the sizes of the two groups.
    - `order`: "leading" stops at x², "next" adds x³.

    **Returns:** I in nats, of the shape of `x`.

    >>> float(mutual_information(0.01, first=1, second=1).round(9))
    1.1958e-05
    """
    _check(order, first=first, second=second)
    x, product = np.asarray(x, dtype=np.float64), first * second
    value = product / 8 * x**2
    if order == "next":
        value = value - product * (20 + 3 * first + 3 * second) / 48 * x**3
    return np.asarray(value)


def tripartite_information(x: Value | float, *, first: int, second: int, third: int) -> Value:
    """I_3 = m_1m_2m_3/8 x³ > 0 (A.75), leading: what three groups know is redundant.

    **Arguments:**

    - `x`: V/(n_{ℓ-1}G²), one number or an array.
    - `first`, `second`, `third`: m_1, m_2 and m_3, the sizes of the three groups.

    **Returns:** I_3 in nats, of the shape of `x`.

    >>> float(tripartite_information(0.1, first=1, second=1, third=2).round(9))
    0.00025
    """
    _check("leading", first=first, second=second, third=third)
    return np.asarray(first * second * third / 8 * np.asarray(x, dtype=np.float64) ** 3)


def running_couplings(
    x: float, *, neurons: int, G: float = 1.0, sextic: float = 0.0
) -> tuple[float, float]:
    """g_m and v_m of the sextic action to order 1/n² (A.59), (A.63), u_m = `sextic` given.

    v_m = V/(nG⁴) − (m + 8)/2 (V/(nG³))² + (m + 4)u_m G; the action is (A.55).

    **Arguments:**

    - `x`: V/(n_{ℓ-1}G²).
    - `neurons`: m.
    - `G`: the metric.
    - `sextic`: u_m, the sextic coupling.

    **Returns:** (g_m, v_m).

    >>> g, v = running_couplings(0.1, neurons=2)
    >>> round(g, 4), round(v, 4)
    (1.105, 0.05)
    """
    m = neurons
    v = x / G**2 - 0.5 * (m + 8) * (x / G) ** 2 + (m + 4) * sextic * G
    g = 1.0 / G + 0.5 * (m + 2) * v * G - 0.25 * (m + 2) * (m + 4) * sextic * G**2
    return g + 0.5 * (m + 2) * v**2 * G**3, v


def several_inputs_entropy(
    G: Float[np.ndarray, "a a"],
    V: Float[np.ndarray, "a a a a"],
    *,
    fan_in: int,
    neurons: int,
) -> float:
    """S of m neurons on several inputs at leading order, with indices raised by G⁻¹.

    (m/2) log|2πeG| − [m² V_(ab)(cd)V^(ab)(cd) + 2m V_(ab)(cd)V^(ac)(bd)]/(16n²).

    **Arguments:**

    - `G`: the metric of the inputs, regular.
    - `V`: the four-point vertex V_(ab)(cd), indices in this order.
    - `fan_in`: n, the width of the layer below.
    - `neurons`: m.

    **Returns:** S in nats.

    >>> one = np.ones((1, 1))
    >>> S = several_inputs_entropy(one, 5 * np.ones((1,) * 4), fan_in=100, neurons=3)
    >>> round(S - float(entropy(0.05, neurons=3, order="leading")), 12)
    0.0
    """
    from dynagram.theory.information._gaussian import gaussian_entropy

    _check("leading", neurons=neurons)
    straight, crossed = _squares(G, V)
    lost = (neurons**2 * straight + 2 * neurons * crossed) / (16 * fan_in**2)
    return gaussian_entropy(G, neurons=neurons) - lost


def several_inputs_information(
    G: Float[np.ndarray, "a a"],
    V: Float[np.ndarray, "a a a a"],
    *,
    fan_in: int,
    first: int,
    second: int,
) -> float:
    """I between two groups of neurons, each seen on all inputs, at leading order.

    m_1m_2 V_(ab)(cd)V^(ab)(cd)/(8n²): (A.53) for one input.

    **Arguments:**

    - `G`: the metric of the inputs, regular.
    - `V`: the four-point vertex V_(ab)(cd), indices in this order.
    - `fan_in`: n, the width of the layer below.
    - `first`, `second`: m_1 and m_2, the sizes of the two groups.

    **Returns:** I in nats.

    >>> one = np.ones((1, 1))
    >>> I = several_inputs_information(one, np.ones((1,) * 4), fan_in=10, first=1, second=2)
    >>> round(I, 9)
    0.0025
    """
    _check("leading", first=first, second=second)
    return first * second * _squares(G, V)[0] / (8 * fan_in**2)


def _squares(G: np.ndarray, V: np.ndarray) -> tuple[float, float]:
    """V_(ab)(cd)V^(ab)(cd) and V_(ab)(cd)V^(ac)(bd)."""
    up = inverse(G, "G")
    raised = np.einsum("abcd,ae,bf,cg,dh->efgh", V, up, up, up, up, optimize=True)
    return float(np.sum(V * raised)), float(np.sum(V * raised.transpose(0, 2, 1, 3)))


def _check(order: str, **groups: int) -> None:
    if order not in ORDERS:
        raise InvalidValueError("order", order, f"expected {' or '.join(ORDERS)}")
    for name, size in groups.items():
        if size < 1:
            raise InvalidValueError(name, size, "expected at least one neuron")
