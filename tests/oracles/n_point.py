"""⟨Π_i σ^(p_i)(z_i)⟩_K for up to four samples, any covariance, kinks as deltas.

One and two samples are exact quadratures. Three and four use shared nodes (a product grid for
smooth σ, scrambled Sobol points otherwise) and carry a standard error. A factor that holds a
delta (σ'' of ReLU) is integrated exactly by conditioning on its sample sitting at the kink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._core import both_sides
from dynagram.errors import InvalidValueError
from dynagram.gaussian._nodes import NodeSet, grid_nodes, sobol_nodes, square_root
from dynagram.gaussian._quadrature import (
    REACH,
    check_variance,
    feature_scale,
    normal_density,
    panel_rule,
)
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import two_point

_FIRST_COUNT, _LAST_COUNT = 2**11, 2**17


@dataclass(frozen=True)
class Average:
    """A Gaussian average and its numerical standard error (0 when exact to rounding)."""

    value: float
    standard_error: float


def n_point(
    sigma: Activation,
    orders: Sequence[int],
    K: Float[np.ndarray, "n n"],
    *,
    accuracy: float = 1e-6,
    seed: int = 0,
) -> Average:
    """⟨Π_i σ^(p_i)(z_i)⟩ with p = `orders` and covariance `K`, one to four samples.

    `accuracy` is relative to the root mean square of the product. Cost: a quadrature for n ≤ 2,
    up to 10⁶ evaluations of σ otherwise.

    >>> from dynagram.activations import activation
    >>> K = np.array([[1.0, 0.5], [0.5, 2.0]])
    >>> round(n_point(activation("relu"), (2, 0), K).value, 9)    # √det K/(2π K_11)
    0.2105422
    """
    K = np.asarray(K, dtype=np.float64)
    if K.ndim != 2 or K.shape != (len(orders), len(orders)) or not 1 <= len(orders) <= 4:
        raise InvalidValueError("K", K.shape, "expected one row per order, one to four samples")
    check_variance(np.diagonal(K))
    if not np.allclose(K, K.T, rtol=1e-12) or np.linalg.eigvalsh(K)[0] < -1e-9 * np.trace(K):
        raise InvalidValueError("K", K.tolist(), "expected a symmetric, positive covariance")
    if len(orders) == 1:
        return Average(float(moment(sigma, K[0, 0], (orders[0],))), 0.0)
    if len(orders) == 2:
        pair = (K[0, :1], K[1, 1:], K[0, 1:])
        return Average(float(two_point(sigma, *pair, orders[0], orders[1])[0]), 0.0)
    return _conditioned(sigma, list(orders), np.zeros(len(orders)), K, accuracy, seed)


def _conditioned(
    sigma: Activation,
    orders: list[int],
    mean: np.ndarray,
    K: np.ndarray,
    accuracy: float,
    seed: int,
) -> Average:
    """Peel off the deltas one factor at a time, then average what is regular."""
    singular = [
        (i, kink)
        for i, order in enumerate(orders)
        for kink in sigma.kinks
        if any(kink.jumps[:order])
    ]
    parts = [_regular(sigma, orders, mean, K, accuracy, seed)]
    done: set[int] = set()
    for i, kink in singular:
        order = orders[i]
        if any(kink.jumps[: order - 1]):
            raise InvalidValueError(
                "orders", tuple(orders), f"derivatives of deltas of {sigma.name} are not averaged"
            )
        if K[i, i] == 0.0:
            return Average(math.inf, 0.0)
        # Factors before i count with their regular parts only: their deltas had their turn.
        rest = [j for j in range(len(orders)) if j != i]
        slope = K[rest, i] / K[i, i]
        shifted = mean[rest] + slope * (kink.location - mean[i])
        remaining = K[np.ix_(rest, rest)] - np.outer(slope, K[i, rest])
        t = np.array((kink.location - mean[i]) / math.sqrt(K[i, i]))
        weight = kink.jumps[order - 1] * float(normal_density(t)) / math.sqrt(K[i, i])
        later = [orders[j] if j not in done else -1 - orders[j] for j in rest]
        inner = _without_deltas(sigma, later, shifted, remaining, accuracy, seed)
        parts.append(Average(weight * inner.value, abs(weight) * inner.standard_error))
        done.add(i)
    return Average(
        sum(part.value for part in parts),
        math.sqrt(sum(part.standard_error**2 for part in parts)),
    )


def _without_deltas(
    sigma: Activation,
    orders: list[int],
    mean: np.ndarray,
    K: np.ndarray,
    accuracy: float,
    seed: int,
) -> Average:
    """Negative entries −1−p mark factors whose deltas are left out."""
    marked = [order < 0 for order in orders]
    plain = [-1 - order if order < 0 else order for order in orders]
    if any(
        any(kink.jumps[:order])
        for order, skip in zip(plain, marked, strict=True)
        for kink in sigma.kinks
        if not skip
    ):
        return _conditioned(sigma, plain, mean, K, accuracy, seed)
    return _regular(sigma, plain, mean, K, accuracy, seed)


def _regular(
    sigma: Activation,
    orders: list[int],
    mean: np.ndarray,
    K: np.ndarray,
    accuracy: float,
    seed: int,
) -> Average:
    """Average of the regular parts, z ~ N(mean, K)."""
    root = square_root(K)
    if root.shape[1] == 1:
        return Average(_along_a_line(sigma, orders, mean, root[:, 0]), 0.0)
    for refine in (1.0, 1.4, 2.0):
        grid = grid_nodes(sigma, K, min(accuracy, 1e-9), refine)
        if grid is None:
            break
        replicas, size = _replicas(sigma, orders, mean, grid)
        error = 0.5 * abs(replicas[1] - replicas[0])
        if error <= accuracy * size:
            return Average(float(replicas.mean()), float(error))
    count = _FIRST_COUNT
    while True:
        replicas, size = _replicas(sigma, orders, mean, sobol_nodes(K, count, seed))
        error = replicas.std(ddof=1) / math.sqrt(replicas.size)
        if error <= accuracy * size or count >= _LAST_COUNT:
            return Average(float(replicas.mean()), float(error))
        count *= 4


def _along_a_line(
    sigma: Activation, orders: list[int], mean: np.ndarray, root: np.ndarray
) -> float:
    """All samples move together, z = mean + root·t: one quadrature with panels at every kink."""
    moving = [i for i in range(len(orders)) if root[i] != 0.0]
    fixed = [
        float(np.mean(sigma.values(both_sides(mean[i]), orders[i])))
        for i in range(len(orders))
        if i not in moving
    ]
    edges = [(k.location - mean[i]) / root[i] for i in moving for k in sigma.kinks]
    scale = feature_scale(sigma) / max((abs(root[i]) for i in moving), default=1.0)
    t, w = panel_rule(np.array(edges or [0.0]), scale, REACH + 4 * sigma.growth)
    product = w * math.prod(fixed)
    for i in moving:
        product = product * sigma.values(mean[i] + root[i] * t, orders[i])
    return float(np.sum(product))


def _replicas(
    sigma: Activation, orders: list[int], mean: np.ndarray, nodes: NodeSet
) -> tuple[np.ndarray, float]:
    """The average in each replica, and the root mean square of the product."""
    totals, square = np.zeros(nodes.replicas), 0.0
    for replica in range(nodes.replicas):
        for z, weights in nodes.chunks(replica):
            product = np.ones(weights.size)
            for i, order in enumerate(orders):
                product *= sigma.values(mean[i] + z[:, i], order)
            totals[replica] += float(weights @ product)
            square += float(weights @ product**2) / nodes.replicas
    return totals, math.sqrt(square)
