"""One order further in 1/n for a few inputs: the six-point vertex κ₃, V^{1} and G^{2}.

G = K + G^{1}/n + G^{2}/n², Cov Ĝ = (V + V^{1}/n)/n and κ₃ Ĝ = six_point/n² with n = n_{ℓ−1}: the
delta method, given that layer ℓ is Gaussian with covariance Ĝ^(ℓ). Derivatives in K of Gaussian
averages are averages of derivatives (Price), so repeated and collinear inputs are allowed and K is
never inverted. Derivation: docs/derivations/next-order.md (D6).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pair_indices, pairs_to_matrix
from dynagram.activations import Activation
from dynagram.errors import AccuracyError, InvalidValueError, NonFiniteError
from dynagram.gaussian._nodes import NodeSet, grid_nodes
from dynagram.gaussian._rounding import resolved_order
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.theory._kernels import frozen_kernels

_MOST_SAMPLES = 3
_ACCURACY = 1e-10
# (accuracy, refinement) of the grids tried in turn: finer ones first, then ones that reach further
# out, as powers of z need.
_GRIDS = ((1e-10, 1.0), (1e-10, 1.5), (1e-10, 2.2), (1e-24, 0.7), (1e-24, 1.2))

# ⟨Π_s (σ^m_s)^(k_s)(z_s)⟩ is named by the powers m and the derivative orders k of the samples.
_Key = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class NextOrder:
    """The six-point vertex, V^{1} and G^{2} of every layer, and the leading orders they correct.

    `six_point` multiplies 1/n²_{ℓ−1} in κ₃[Ĝ_ab, Ĝ_cd, Ĝ_ef], `V1` and `G2` multiply 1/n²_{ℓ−1} in
    the connected four-point function and in the metric. All vanish at layer 1; V1 and G2 also at 2.
    """

    network: MLP
    K: Float[np.ndarray, "layer a b"]
    G1: Float[np.ndarray, "layer a b"]
    G2: Float[np.ndarray, "layer a b"]
    V: Float[np.ndarray, "layer a b c d"]
    V1: Float[np.ndarray, "layer a b c d"]
    six_point: Float[np.ndarray, "layer a b c d e f"]

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n + G^{2}/n² to order 1/n²."""
        n = self._fan_in[:, None, None]
        return self.K + self.G1 / n + self.G2 / n**2

    @property
    def vertex(self) -> Float[np.ndarray, "layer a b c d"]:
        """n_{ℓ−1} Cov[Ĝ_ab, Ĝ_cd] = V + V^{1}/n to order 1/n."""
        return self.V + self.V1 / self._fan_in[:, None, None, None, None]

    @property
    def _fan_in(self) -> np.ndarray:
        return np.array([np.inf, *self.network.widths[1:-1]])


def next_order(network: MLP, x: object) -> NextOrder:
    """Six-point vertex, V^{1} and G^{2} for up to three inputs and a smooth activation, to 1e-9.

    Cost per layer: one pass over a product grid in as many dimensions as there are inputs; 10 ms
    for one input, 50 ms for two, a second for three. The derivatives of σ, up to the eighth, take
    seconds to compile on first use.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `x`: up to three inputs (N, n_0), one per row.

    **Returns:** a `NextOrder`.

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> result = next_order(net, np.array([[1.0, 1.0, 1.0]]))
    >>> result.six_point.ravel().round(7), result.V1.ravel().round(7), result.G2.ravel().round(7)
    (array([0.       , 0.0100808, 0.0229934]),
     array([ 0.       ,  0.       , -0.0037444]),
     array([ 0.       ,  0.       , -0.0068231]))
    """
    require_plain(network, "the next order in 1/n")
    inputs = check_inputs(x, network.widths[0])
    _check_request(network.activation, inputs.shape[0])
    K = frozen_kernels(network, inputs).K
    tensors = _recursions(network, K)
    for name, tensor in tensors.items():
        if not np.all(np.isfinite(tensor)):
            raise NonFiniteError(f"{name} of {network.activation.name} leaves float64")
        for axis in range(1, 2 * tensor.ndim - 2, 2):
            tensors[name] = pairs_to_matrix(tensors[name], axis)
    return NextOrder(network, K, **tensors)


def _check_request(sigma: Activation, samples: int) -> None:
    if not sigma.is_smooth or resolved_order(sigma, 8) < 8:
        raise InvalidValueError(
            "activation",
            sigma.name,
            "V^{1} and G^{2} need up to eight derivatives of σ, which a kinked or singular "
            "activation does not have as functions; for one input use "
            "`single_input(..., next_order=True)`",
        )
    if sigma.growth:
        raise InvalidValueError(
            "activation", sigma.name, "grows exponentially: no product grid covers its averages"
        )
    if samples > _MOST_SAMPLES:
        raise InvalidValueError(
            "number of samples", samples, f"at most {_MOST_SAMPLES}: the grid has one axis for each"
        )


def _recursions(network: MLP, K: np.ndarray) -> dict[str, np.ndarray]:
    """V, G^{1} (4.119), (4.115) and their next orders in pair form: (layer, pair, …)."""
    depth, samples = K.shape[:2]
    pairs = samples * (samples + 1) // 2
    G1, G2, V, V1, six = (np.zeros((depth, *[pairs] * rank)) for rank in (1, 1, 2, 2, 3))
    for i in range(depth - 1):  # from layer ℓ = i + 1 to the next
        at, C_W = _LayerAverages.at(network.activation, K[i]), network.C_W[i + 1]
        # Layer 1 does not fluctuate: n_0 never enters a ratio.
        r = network.widths[i + 1] / network.widths[i] if i else 0.0
        _, J, H, _, _ = at.F
        V[i + 1] = C_W**2 * (at.c[0] + r * J @ V[i] @ J.T)
        G1[i + 1] = C_W * r * (J @ G1[i] + 0.5 * np.einsum("ABC,BC->A", H, V[i]))
        six[i + 1] = C_W**3 * _six_point(at, r, V[i], six[i])
        V1[i + 1] = C_W**2 * _vertex_correction(at, r, V[i], G1[i], six[i], V1[i])
        G2[i + 1] = C_W * r**2 * _metric(at, V[i], G1[i], six[i], V1[i], G2[i])
    return {"G1": G1, "G2": G2, "V": V, "V1": V1, "six_point": six}


@dataclass(frozen=True, eq=False)
class _LayerAverages:
    """Averages over N(0, K) of one layer, in pair form: what the recursions contract.

    `F`[k] is the k-th derivative in K of F_A = ⟨σ_aσ_b⟩, `c`[k] that of Cov(σσ, σσ)_AB (derivative
    indices last), `kappa3` the third cumulant of σσ. Off-diagonal K_ab count once.
    """

    F: tuple[np.ndarray, ...]
    c: tuple[np.ndarray, ...]
    kappa3: np.ndarray

    @classmethod
    def at(cls, sigma: Activation, K: np.ndarray) -> _LayerAverages:
        samples = K.shape[0]
        first, second = pair_indices(samples)
        pairs = [tuple((np.eye(samples, dtype=int)[a] + np.eye(samples, dtype=int)[b]).tolist())
                 for a, b in zip(first, second, strict=True)]  # fmt: skip
        average = _averages(sigma, K, _requests(pairs))
        F, J, H, T, Q = (_tensor(average, pairs, 1, order) for order in range(5))
        M, dM, ddM = (_tensor(average, pairs, 2, order) for order in range(3))
        sixth = _tensor(average, pairs, 3, 0)
        c = M - np.einsum("A,B->AB", F, F)
        dc = dM - _both("AD,B->ABD", J, F)
        ddc = ddM - _both("ADE,B->ABDE", H, F) - _both("AD,BE->ABDE", J, J)
        kappa3 = sixth - np.einsum("A,B,C->ABC", F, F, F) - _thrice("A,BC->ABC", F, c)
        return cls((F, J, H, T, Q), (c, dc, ddc), kappa3)


def _both(subscripts: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The contraction plus itself with the first two indices, A and B, exchanged."""
    term = np.einsum(subscripts, left, right)
    return term + np.swapaxes(term, 0, 1)


def _thrice(subscripts: str, *factors: np.ndarray) -> np.ndarray:
    """The contraction, symmetric in B and C, summed over which of A, B, C comes first."""
    term = np.einsum(subscripts, *factors)
    return term + term.transpose(1, 0, 2) + term.transpose(1, 2, 0)


def _six_point(at: _LayerAverages, r: float, V: np.ndarray, six: np.ndarray) -> np.ndarray:
    """κ₃'_ABC/C_W³ (D6.5)."""
    _, J, H, _, _ = at.F
    JV = J @ V
    carried = np.einsum("AD,BE,CF,DEF->ABC", J, J, J, six, optimize=True)
    bent = _thrice("ADE,BD,CE->ABC", H, JV, JV)
    return at.kappa3 + r * _thrice("AE,BCE->ABC", JV, at.c[1]) + r**2 * (carried + bent)


def _vertex_correction(
    at: _LayerAverages, r: float, V: np.ndarray, G1: np.ndarray, six: np.ndarray, V1: np.ndarray
) -> np.ndarray:
    """V'^{1}_AB/C_W² (D6.6)."""
    _, J, H, T, _ = at.F
    JV = J @ V
    shift = at.c[1] @ G1 + 0.5 * np.einsum("ABDE,DE->AB", at.c[2], V)
    carried = (
        J @ V1 @ J.T
        + _both("AD,BD->AB", H @ G1, JV)
        + 0.5 * _both("AD,BD->AB", J, np.einsum("BEF,DEF->BD", H, six))
        + 0.5 * np.einsum("ADE,BFG,DF,EG->AB", H, H, V, V, optimize=True)
        + 0.5 * _both("AE,BE->AB", JV, np.einsum("BEFG,FG->BE", T, V))
    )
    return r * shift + r**2 * carried


def _metric(
    at: _LayerAverages,
    V: np.ndarray,
    G1: np.ndarray,
    six: np.ndarray,
    V1: np.ndarray,
    G2: np.ndarray,
) -> np.ndarray:
    """G'^{2}_A/(r² C_W) (D6.7)."""
    _, J, H, T, Q = at.F
    return (
        J @ G2
        + 0.5 * np.einsum("ABC,BC->A", H, V1 + np.outer(G1, G1))
        + np.einsum("ABCD,BCD->A", T, six / 6.0 + 0.5 * V[:, :, None] * G1)
        + 0.125 * np.einsum("ABCDE,BC,DE->A", Q, V, V, optimize=True)
    )


def _sum(vectors: Iterable[tuple[int, ...]], samples: int) -> tuple[int, ...]:
    return tuple(map(sum, zip((0,) * samples, *vectors, strict=True)))


def _requests(pairs: Sequence[tuple[int, ...]]) -> set[_Key]:
    """Every average the tensors hold: up to 4 derivatives of ⟨σσ⟩, 2 of ⟨σσσσ⟩, 0 of six σ."""
    samples = len(pairs[0])
    keys: set[_Key] = set()
    for factors, most in ((1, 4), (2, 2), (3, 0)):
        for chosen in combinations_with_replacement(pairs, factors):
            powers = _sum(chosen, samples)
            for order in range(most + 1):
                for moved in combinations_with_replacement(pairs, order):
                    orders = _sum(moved, samples)
                    if _exists(powers, orders):
                        keys.add((powers, orders))
    return keys


def _exists(powers: tuple[int, ...], orders: tuple[int, ...]) -> bool:
    """Whether no derivative falls on a sample that the product does not contain."""
    return all(m > 0 or k == 0 for m, k in zip(powers, orders, strict=True))


def _tensor(
    average: dict[_Key, float], pairs: Sequence[tuple[int, ...]], factors: int, order: int
) -> np.ndarray:
    """∂^order/∂K of averages of `factors` pairs: shape (P,)*factors + (P,)*order."""
    samples = len(pairs[0])
    # Price: ∂/∂K_ab puts one derivative on a and on b, ∂/∂K_aa two on a with a factor ½.
    weight = [0.5 if max(pair) == 2 else 1.0 for pair in pairs]
    values = np.zeros((len(pairs),) * (factors + order))
    for index in product(range(len(pairs)), repeat=factors + order):
        chosen, moved = index[:factors], index[factors:]
        powers = _sum((pairs[i] for i in chosen), samples)
        orders = _sum((pairs[i] for i in moved), samples)
        if _exists(powers, orders):
            values[index] = math.prod(weight[i] for i in moved) * average[powers, orders]
    return values


def _averages(sigma: Activation, K: np.ndarray, keys: set[_Key]) -> dict[_Key, float]:
    """Each average on the grid of the samples it contains: one, two or three dimensions."""
    groups: dict[tuple[int, ...], list[_Key]] = {}
    for key in sorted(keys):
        support = tuple(s for s, power in enumerate(key[0]) if power)
        groups.setdefault(support, []).append(key)
    result: dict[_Key, float] = {}
    for support, members in groups.items():
        within = [
            (tuple(powers[s] for s in support), tuple(orders[s] for s in support))
            for powers, orders in members
        ]
        block = K[np.ix_(support, support)]
        result.update(zip(members, _converged(sigma, block, within), strict=True))
    return result


def _converged(sigma: Activation, K: np.ndarray, keys: Sequence[_Key]) -> np.ndarray:
    """Refine the grid until its two halves agree on all averages, order by order."""
    kind = np.array([(sum(powers), sum(orders)) for powers, orders in keys])
    for accuracy, refine in _GRIDS:
        grid = grid_nodes(sigma, K, accuracy, refine)
        if grid is None:
            continue
        halves = np.stack([_on_grid(sigma, grid, replica, keys) for replica in range(2)])
        mean, error = halves.mean(axis=0), 0.5 * np.abs(halves[1] - halves[0])
        same = np.all(kind[:, None] == kind[None, :], axis=2)
        scale = np.max(np.where(same, np.abs(mean)[None, :], 0.0), axis=1)
        if np.all(error <= _ACCURACY * scale + 1e-290):
            return mean
    raise AccuracyError(
        f"averages of {sigma.name} did not reach {_ACCURACY:g} on a product grid: K is too large "
        "or the activation too steep; rescale the inputs"
    )


def _on_grid(sigma: Activation, grid: NodeSet, replica: int, keys: Sequence[_Key]) -> np.ndarray:
    total = np.zeros(len(keys))
    for z, weights in grid.chunks(replica):
        tables = [
            _power_derivatives(sigma, z[:, s], {(m[s], k[s]) for m, k in keys})
            for s in range(z.shape[1])
        ]
        for number, (powers, orders) in enumerate(keys):
            term = weights
            for table, m, k in zip(tables, powers, orders, strict=True):
                term = term * table[m, k]
            total[number] += np.sum(term)
    return total


def _power_derivatives(
    sigma: Activation, z: np.ndarray, wanted: set[tuple[int, int]]
) -> dict[tuple[int, int], np.ndarray]:
    """(σ^m)^(k)(z) for (m, k) in `wanted`, by multiplying Taylor series."""
    highest = [max((k for m, k in wanted if m >= power), default=0) for power in range(8)]
    single = [sigma.values(z, k) / math.factorial(k) for k in range(highest[1] + 1)]
    series, table = single, {}
    for power in range(1, max(m for m, _ in wanted) + 1):
        if power > 1:
            series = [
                sum((series[i] * single[k - i] for i in range(k + 1)), np.zeros_like(z))
                for k in range(highest[power] + 1)
            ]
        for k in {k for m, k in wanted if m == power}:
            table[power, k] = series[k] * math.factorial(k)
    return table
