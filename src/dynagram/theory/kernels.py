"""The kernel K (4.118), four-point vertex V (4.119) and metric correction G^{1} (4.115).

The recursions are coded in their inverse-free form: with F_ab = ⟨σ_aσ_b⟩_K, J = ∂F/∂K and
H = ∂²F/∂K², V' = C_W²[Cov(σσ,σσ) + (n_ℓ/n_{ℓ−1}) J V Jᵀ] and G'^{1} = (n_ℓ/n_{ℓ−1}) C_W
[J G^{1} + ½ H:V], where J and H of a pair of samples involve that pair only. Repeated, collinear
and zero inputs need no special care.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian.four_point import PairDerivatives, pair_covariance, pair_derivatives
from dynagram.gaussian.scalar import kernel_derivative
from dynagram.gaussian.two_point import two_point_matrix
from dynagram.networks import MLP, check_inputs
from dynagram.pairs import pair_indices, pair_numbers
from dynagram.theory.frozen import frozen_kernels
from dynagram.theory.regime import Regime, kernel_regime

TENSORS = ("K", "V", "G1", "Theta")
_MAX_BYTES = 8 * 1024**3
_COLLINEAR = 1e-13


@dataclass(frozen=True, eq=False)
class KernelPrediction:
    """Statistics of the preactivations at initialisation, layer by layer; tensors not asked for
    are None.

    `K` and `Theta` are exact at infinite width (order "∞"). `V` and `G1` are coefficients of
    order "1/n": they multiply 1/n_{ℓ−1}. `V_error` and `G1_error` are numerical standard errors
    of the four-sample averages, zero where these are exact.
    """

    network: MLP
    K: Float[np.ndarray, "layer a b"]
    V: Float[np.ndarray, "layer a b c d"] | None
    V_error: Float[np.ndarray, "layer a b c d"] | None
    G1: Float[np.ndarray, "layer a b"] | None
    G1_error: Float[np.ndarray, "layer a b"] | None
    Theta: Float[np.ndarray, "layer a b"] | None
    regime: Regime

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n_{ℓ−1} to order 1/n (4.104)."""
        if self.G1 is None:
            raise InvalidValueError("tensors", "without G1", "ask for 'G1' to get the 1/n metric")
        fan_in = np.array([np.inf, *self.network.widths[1:-1]])
        return self.K + self.G1 / fan_in[:, None, None]


def kernel(network: MLP, x: object) -> Float[np.ndarray, "layer a b"]:
    """K^(ℓ)_ab, the infinite-width covariance of preactivations (4.118), for the rows of `x`.

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> kernel(net, np.array([[1.0, 1.0, 1.0]])).ravel().round(9)
    array([1.        , 0.39429449, 0.23645041])
    """
    return frozen_kernels(network, x).K


def four_point_vertex(
    network: MLP, x: object, *, accuracy: float = 1e-4, seed: int = 0
) -> Float[np.ndarray, "layer a b c d"]:
    """V^(ℓ)_(ab)(cd): the connected four-point function is V/n_{ℓ−1} (4.119).

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> four_point_vertex(net, np.array([[1.0, 1.0, 1.0]])).ravel().round(8)
    array([0.        , 0.09752374, 0.06780749])
    """
    prediction = predict_kernels(network, x, tensors=("V",), accuracy=accuracy, seed=seed)
    assert prediction.V is not None
    return prediction.V


def metric_correction(
    network: MLP, x: object, *, accuracy: float = 1e-4, seed: int = 0
) -> Float[np.ndarray, "layer a b"]:
    """G^{1}(ℓ)_ab: E[z_a z_b] = K_ab + G^{1}_ab/n_{ℓ−1} + O(1/n²) (4.115).

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> metric_correction(net, np.array([[1.0, 1.0, 1.0]])).ravel().round(8)
    array([ 0.        ,  0.        , -0.03093252])
    """
    prediction = predict_kernels(network, x, tensors=("G1",), accuracy=accuracy, seed=seed)
    assert prediction.G1 is not None
    return prediction.G1


def predict_kernels(
    network: MLP,
    x: object,
    *,
    tensors: Sequence[str] = ("K", "V", "G1"),
    accuracy: float = 1e-4,
    seed: int = 0,
) -> KernelPrediction:
    """K, V, G^{1} and Θ of every layer for the samples in the rows of `x`, with a regime report.

    `accuracy` is the numerical error allowed in the four-sample averages, relative to the
    diagonal of V; `seed` draws their nodes. Cost per layer: a few two-sample averages per pair
    and, for V, one matrix product of P = N(N+1)/2 pair features over the nodes (see
    `pair_covariance`). Memory: N⁴ numbers per layer for V.

    >>> net = MLP([4, 30, 30, 1], "relu", C_b=0.0, C_W=2.0)
    >>> result = predict_kernels(net, np.eye(4)[:2])
    >>> result.V[2, 0, 0, 0, 0].round(6), result.regime.verdict    # 5(ℓ−1)K², K = 1/2
    (np.float64(2.5), 'careful')
    """
    unknown = [name for name in tensors if name not in TENSORS]
    if unknown or len(tensors) == 0:
        raise InvalidValueError("tensors", ",".join(tensors), f"expected some of {TENSORS}")
    inputs = check_inputs(x, network.widths[0])
    with_vertex = "V" in tensors or "G1" in tensors
    if with_vertex:
        _require_memory(inputs.shape[0], network.depth)
    if network.activation.jumps and set(tensors) - {"K"}:
        raise InvalidValueError(
            "tensors",
            ",".join(tensors),
            f"{network.activation.name} jumps, so σ' is a delta: only K exists",
        )
    frozen = frozen_kernels(network, inputs)
    V = V_error = G1 = G1_error = None
    if with_vertex:
        V, V_error, G1, G1_error = _finite_width(
            network, inputs, frozen.K, accuracy, seed, "G1" in tensors
        )
    return KernelPrediction(
        network=network,
        K=frozen.K,
        V=V if "V" in tensors else None,
        V_error=V_error if "V" in tensors else None,
        G1=G1,
        G1_error=G1_error,
        Theta=frozen.Theta if "Theta" in tensors else None,
        regime=kernel_regime(network, frozen.K, V, V_error, order="1/n" if with_vertex else "∞"),
    )


def _require_memory(samples: int, depth: int) -> None:
    needed = 2 * depth * samples**4 * 8
    if needed > _MAX_BYTES:
        most = int((_MAX_BYTES / (16 * depth)) ** 0.25)
        raise InvalidValueError(
            "number of samples",
            samples,
            f"V of {depth} layers would need {needed / 1024**3:.0f} GiB; at most {most} samples",
        )


def _finite_width(
    network: MLP, x: np.ndarray, K: np.ndarray, accuracy: float, seed: int, with_metric: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Recursions on the distinct inputs, written out for the repeated ones afterwards."""
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    first, inverse = _in_order(first, inverse.reshape(-1))
    distinct = K[:, first][:, :, first]
    V, V_error, G1, G1_error = _recursions(network, distinct, accuracy, seed, with_metric)
    samples = first.size
    position = pair_numbers(samples)[inverse][:, inverse]
    quadruple = (slice(None), position[:, :, None, None], position[None, None, :, :])
    full = V[quadruple], V_error[quadruple]
    if not with_metric:
        return *full, None, None
    return *full, G1[:, position], G1_error[:, position]


def _in_order(first: np.ndarray, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct inputs in the order in which they come, not in sorted order."""
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse]


def _recursions(
    network: MLP, K: np.ndarray, accuracy: float, seed: int, with_metric: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    depth, samples = K.shape[:2]
    pairs = samples * (samples + 1) // 2
    V = np.zeros((depth, pairs, pairs))
    V_error = np.zeros_like(V)
    G1, G1_error = np.zeros((depth, pairs)), np.zeros((depth, pairs))
    for layer in range(depth - 1):  # from layer ℓ = layer + 1 to the next
        sigma, C_W = network.activation, network.C_W[layer + 1]
        # Layer 1 does not fluctuate: n_0 never enters a ratio.
        ratio = network.widths[layer + 1] / network.widths[layer] if layer else 0.0
        derivatives = pair_derivatives(sigma, K[layer])
        covariance = pair_covariance(
            sigma, K[layer], derivatives, accuracy=accuracy, seed=seed + layer
        )
        V[layer + 1] = C_W**2 * (
            covariance.value + ratio * _sandwich(derivatives, V[layer], samples)
        )
        V_error[layer + 1] = C_W**2 * (
            covariance.standard_error
            + ratio * _sandwich(derivatives.absolute(), V_error[layer], samples)
        )
        if with_metric and layer:
            curvature = _curvature(sigma, K[layer])
            G1[layer + 1] = (
                ratio
                * C_W
                * (
                    derivatives.propagate(G1[layer], samples)
                    + _contract(curvature, V[layer], samples)
                )
            )
            G1_error[layer + 1] = (
                ratio
                * C_W
                * (
                    derivatives.absolute().propagate(G1_error[layer], samples)
                    + _contract(np.abs(curvature), V_error[layer], samples)
                )
            )
        if not np.all(np.isfinite(V[layer + 1])) or not np.all(np.isfinite(G1[layer + 1])):
            raise NonFiniteError(
                f"V or G1 of {sigma.name} is not finite at layer {layer + 2}: nearly collinear "
                "inputs meet a kink; drop the near-duplicates"
            )
    return V, V_error, G1, G1_error


def _sandwich(derivatives: PairDerivatives, V: np.ndarray, samples: int) -> np.ndarray:
    return derivatives.propagate(derivatives.propagate(V, samples).T, samples)


def _curvature(sigma: Activation, K: np.ndarray) -> Float[np.ndarray, "pair 6"]:
    """½∂²F_ab with multiplicities, on (ab,ab), (aa,aa), (bb,bb), (ab,aa), (ab,bb), (aa,bb).

    On the diagonal only (aa,aa) is used, with ½F''. A pair that stays collinear in every network
    (a kinked σ and inputs ±x, or proportional ones and a scale-invariant σ) moves along a ray.
    """
    a, b = pair_indices(K.shape[0])
    with np.errstate(invalid="ignore"):
        second = two_point_matrix(sigma, K, 2, 2)[a, b]
        third = two_point_matrix(sigma, K, 1, 3)
        fourth = two_point_matrix(sigma, K, 0, 4)
    table = np.stack(
        [
            0.5 * second,
            0.125 * fourth[b, a],
            0.125 * fourth[a, b],
            0.5 * third[b, a],
            0.5 * third[a, b],
            0.25 * second,
        ],
        axis=1,
    )
    table = np.where(np.isfinite(table), table, np.inf)
    straight = 0.5 * kernel_derivative(sigma, np.diagonal(K), 2)
    limit = np.sqrt(K[a, a]) * np.sqrt(K[b, b])
    collinear = np.abs(K[a, b]) >= limit * (1.0 - _COLLINEAR)
    on_ray = collinear & ((a == b) | (not sigma.is_smooth))
    table[on_ray | (limit == 0.0)] = 0.0  # a sample that is zero does not fluctuate
    on_ray &= limit > 0.0
    table[on_ray, 1] = (straight[a] * np.sign(K[a, b] + (a == b)))[on_ray]
    return table


def _contract(curvature: np.ndarray, V: np.ndarray, samples: int) -> np.ndarray:
    """½ H:V: six entries of V per pair."""
    a, b = pair_indices(samples)
    position = pair_numbers(samples)
    ab, aa, bb = position[a, b], position[a, a], position[b, b]
    entries = np.stack([V[ab, ab], V[aa, aa], V[bb, bb], V[ab, aa], V[ab, bb], V[aa, bb]], axis=1)
    # A vertex entry that is exactly zero (a sample that does not fluctuate) kills its term.
    return np.sum(np.where(entries == 0.0, 0.0, curvature * entries), axis=1)
