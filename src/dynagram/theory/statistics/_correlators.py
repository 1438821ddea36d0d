"""Correlators of preactivations with neural indices, from the statistics of the metric (4.71).

Given the layer below, the neurons of a layer are independent Gaussians with one random covariance
Ĝ. Hence E[z_{i_1 a_1} ⋯ z_{i_2m a_2m}] is a sum over pairings of δ_ii' times moments of Ĝ, and the
connected correlator is the same sum with joint cumulants of Ĝ: G, V/n and six_point/n² (4.77).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._wick import joint_moment, pairings
from dynagram.networks._checks import require_plain
from dynagram.results._tensors import Tensors
from dynagram.theory._next_order import NextOrder

_MOST_POINTS = 6


@dataclass(frozen=True, eq=False)
class MetricCumulants:
    """Joint cumulants of the random metric Ĝ of one layer with fan-in n = n_{ℓ−1}.

    Exact if these are, whatever the width.

    **Arguments:**

    - `G`: the mean.
    - `V`: n times the covariance of Ĝ_ab and Ĝ_cd, indices in the order (ab)(cd).
    - `fan_in`: n, the width of the layer below.
    - `six_point`: n² times the third cumulant; may be left out when no six-point function is
        asked for.
    """

    G: Float[np.ndarray, "a a"]
    V: Float[np.ndarray, "a a a a"]
    fan_in: int
    six_point: Float[np.ndarray, "a a a a a a"] | None = None

    def __post_init__(self) -> None:
        if self.fan_in < 1:
            raise InvalidValueError("fan_in", self.fan_in, "expected a positive number of neurons")


def metric_cumulants(prediction: Tensors | NextOrder, layer: int) -> MetricCumulants:
    """What a prediction says about Ĝ of layer ℓ = `layer`, 1..L, at the order it has.

    **Arguments:**

    - `prediction`: a `Tensors` (of K, V and G1), which gives K + G^{1}/n and V, or a `NextOrder`,
        which gives one order more and the third cumulant; of a network without skips.
    - `layer`: ℓ, 1 to L.

    **Returns:** `MetricCumulants`.

    >>> from dynagram.networks import MLP
    >>> from dynagram.theory._predict import predict
    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> found = metric_cumulants(predict(net, np.ones((1, 3))), 3)
    >>> found.G.round(6), found.fan_in                     # K − 0.0309/20
    (array([[0.234904]]), 20)
    """
    depth = prediction.network.depth
    require_plain(prediction.network, "the law of a layer given its metric")
    if not 1 <= layer <= depth:
        raise InvalidValueError("layer", layer, f"this network has the layers 1 to {depth}")
    fan_in, index = prediction.network.fan_in(layer), layer - 1
    if isinstance(prediction, NextOrder):
        G, V = prediction.metric[index], prediction.vertex[index]
        return MetricCumulants(G, V, fan_in, prediction.six_point[index])
    return MetricCumulants(prediction.metric[index], prediction["V"][index], fan_in)


def correlator(cumulants: MetricCumulants, neurons: Sequence[int], samples: Sequence[int]) -> float:
    """E[z_{i_1 a_1} z_{i_2 a_2} ⋯] for up to six points (4.71), neurons i and samples a in order.

    **Arguments:**

    - `cumulants`: the `MetricCumulants` of the layer.
    - `neurons`: i_1, i_2, …, up to six; only which of them are equal matters.
    - `samples`: a_1, a_2, …, as many, counted from 0.

    **Returns:** the average.

    >>> one = MetricCumulants(np.array([[2.0]]), np.full((1, 1, 1, 1), 3.0), fan_in=10)
    >>> correlator(one, [0, 0, 1, 1], [0, 0, 0, 0])        # G² + V/n on two neurons
    4.3
    >>> round(correlator(one, [0, 0, 0, 0], [0, 0, 0, 0]), 9)   # 3 (G² + V/n) on one
    12.9
    """
    size = cumulants.G.shape[0]
    return _over_pairings(size, neurons, samples, lambda pairs: _metric_moment(cumulants, pairs))


def connected_correlator(
    cumulants: MetricCumulants, neurons: Sequence[int], samples: Sequence[int]
) -> float:
    """The connected part of `correlator`: two, four (4.77) or six points.

    **Arguments:**

    - `cumulants`: the `MetricCumulants` of the layer.
    - `neurons`: i_1, i_2, …, up to six; only which of them are equal matters.
    - `samples`: a_1, a_2, …, as many, counted from 0.

    **Returns:** the connected average.

    >>> one = MetricCumulants(np.array([[2.0]]), np.full((1, 1, 1, 1), 3.0), fan_in=10)
    >>> connected_correlator(one, [0, 0, 1, 1], [0, 0, 0, 0])   # V/n; 3 V/n on one neuron
    0.3
    """
    size = cumulants.G.shape[0]
    return _over_pairings(size, neurons, samples, lambda pairs: _metric_cumulant(cumulants, pairs))


def averaged_covariance(cumulants: MetricCumulants, width: int) -> Float[np.ndarray, "a a a a"]:
    """Cov[(1/n_ℓ) Σ_i z_ia z_ib, (1/n_ℓ) Σ_i z_ic z_id] over n_ℓ = `width` neurons.

    V_(ab)(cd)/n_{ℓ−1} is common to all neurons; (G_acG_bd + G_adG_bc)/n_ℓ and the crossed V are
    the scatter of single ones. Exact at any width.

    **Arguments:**

    - `cumulants`: the `MetricCumulants` of the layer.
    - `width`: n_ℓ, the number of neurons averaged over.

    **Returns:** the covariance, indices in the order abcd.

    >>> one = MetricCumulants(np.array([[2.0]]), np.full((1, 1, 1, 1), 3.0), fan_in=10)
    >>> float(averaged_covariance(one, 5).item())          # 3/10 + 2·4/5 + 2·3/50
    2.02
    """
    if width < 1:
        raise InvalidValueError("width", width, "expected a positive number of neurons")
    V = cumulants.V / cumulants.fan_in
    pair = np.einsum("ac,bd->abcd", cumulants.G, cumulants.G) + np.einsum("abcd->acbd", V)
    return V + (pair + pair.transpose(0, 1, 3, 2)) / width


Pairs = tuple[tuple[int, int], ...]


def _over_pairings(
    size: int, neurons: Sequence[int], samples: Sequence[int], value: Callable[[Pairs], float]
) -> float:
    """Σ over pairings of Π δ_{i i'} · value(the pairs of samples), which are 0..size − 1."""
    points = len(neurons)
    if points != len(samples):
        raise InvalidValueError(
            "samples", list(samples), f"expected one per neural index, {points} in all"
        )
    if points > _MOST_POINTS:
        raise InvalidValueError("neurons", list(neurons), f"at most {_MOST_POINTS} points")
    if any(not 0 <= sample < size for sample in samples):
        raise InvalidValueError("samples", list(samples), f"expected 0 to {size - 1}")
    return math.fsum(
        value(tuple((samples[i], samples[j]) for i, j in pairing))
        for pairing in pairings(points)
        if all(neurons[i] == neurons[j] for i, j in pairing)
    )


def _metric_moment(cumulants: MetricCumulants, pairs: Pairs) -> float:
    """E[Ĝ_ab Ĝ_cd ⋯] = GG + V/n, GGG + 3 terms G V/n + κ₃."""
    return float(
        joint_moment(
            lambda block: _metric_cumulant(cumulants, tuple(pairs[i] for i in block)), len(pairs)
        )
    )


def _metric_cumulant(cumulants: MetricCumulants, pairs: Pairs) -> float:
    match pairs:
        case (ab,):
            return float(cumulants.G[ab])
        case (ab, cd):
            return float(cumulants.V[*ab, *cd]) / cumulants.fan_in
        case (ab, cd, ef):
            if cumulants.six_point is None:
                raise InvalidValueError(
                    "six_point", None, "six-point functions need it: use those of `next_order`"
                )
            return float(cumulants.six_point[*ab, *cd, *ef]) / cumulants.fan_in**2
        case _:
            return 0.0
