"""Two nearby inputs: the γ basis (5.15)-(5.20), the δ recursions (5.46)-(5.48) and the vertex.

A symmetric 2×2 matrix over the samples (+, −) has three components: [0] the midpoint, [1] half
the difference of norms, [2] a quarter of the squared distance. Small-separation results assume a
smooth σ; a slope kink at 0 changes them beyond the crossover depth (5.169). The vertex is derived
in docs/derivations/depth-laws.md (D9.5), (D9.6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import joint_average, power_average, slope_average, slopes
from dynagram.gaussian._quadrature import check_variance
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory.criticality._flow import kernel_flow
from dynagram.theory.criticality._one_input import width_ratios
from dynagram.theory.criticality._point import CriticalPoint

# γ^[0], γ^[1], γ^[2] (5.16): orthogonal, with squared norms 4, 2, 4.
GAMMA = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]], [[1.0, -1.0], [-1.0, 1.0]]])
_PROJECTION = GAMMA / np.sum(GAMMA**2, axis=(1, 2), keepdims=True)


def to_gamma(matrix: Float[np.ndarray, "*batch 2 2"]) -> Float[np.ndarray, "*batch 3"]:
    """Components M_[0], M_[1], M_[2] of a symmetric matrix over the samples (+, −) (5.20).

    **Arguments:**

    - `matrix`: symmetric 2×2 matrices, any batch of them.

    **Returns:** their components M_[0], M_[1], M_[2].

    >>> to_gamma(np.array([[0.9, 0.4], [0.4, 0.6]]))
    array([0.575, 0.15 , 0.175])
    """
    return np.einsum("...ij,aij->...a", matrix, _PROJECTION)


def from_gamma(components: Float[np.ndarray, "*batch 3"]) -> Float[np.ndarray, "*batch 2 2"]:
    """The symmetric matrix Σ_a M_[a] γ^[a] (5.15).

    **Arguments:**

    - `components`: M_[0], M_[1], M_[2], any batch of them.

    **Returns:** the matrices.

    >>> from_gamma(np.array([0.575, 0.15, 0.175]))
    array([[0.9, 0.4],
           [0.4, 0.6]])
    """
    return np.einsum("...a,aij->...ij", components, GAMMA)


def vertex_to_gamma(vertex: Float[np.ndarray, "*batch 2 2 2 2"]) -> Float[np.ndarray, "*batch 3 3"]:
    """V_[a][b] of V_(α₁α₂)(α₃α₄), symmetric in each pair and under exchange of the pairs.

    **Arguments:**

    - `vertex`: V over the samples (+, −), any batch.

    **Returns:** V_[a][b].

    >>> vertex_to_gamma(np.ones((2, 2, 2, 2)))[0, 0]
    np.float64(1.0)
    """
    return np.einsum("...ijkl,aij,bkl->...ab", vertex, _PROJECTION, _PROJECTION)


def vertex_from_gamma(components: Float[np.ndarray, "*batch 3 3"]) -> Float[np.ndarray, "..."]:
    """V_(α₁α₂)(α₃α₄) = Σ V_[a][b] γ^[a] γ^[b], shape (*batch, 2, 2, 2, 2).

    **Arguments:**

    - `components`: V_[a][b], any batch of them.

    **Returns:** V over the samples (+, −).

    >>> vertex_from_gamma(np.eye(3))[0, 0, 1, 1]
    np.float64(1.0)
    """
    return np.einsum("...ab,aij,bkl->...ijkl", components, GAMMA, GAMMA)


@dataclass(frozen=True)
class SmallSeparationFlow:
    """Two nearby inputs through the layers, to second order in their separation.

    `K00` is the midpoint input's kernel, `delta_1` = δK_[1], `delta_2` = δδK_[2] and `delta_0` =
    δδK_[0] = K_[0] − K00.
    """

    K00: Float[np.ndarray, "layer *sample"]
    delta_1: Float[np.ndarray, "layer *sample"]
    delta_2: Float[np.ndarray, "layer *sample"]
    delta_0: Float[np.ndarray, "layer *sample"]


def small_separation(
    network: MLP,
    K1: Float[np.ndarray, "*sample"] | float,
    *,
    delta_1: float = 0.0,
    delta_2: float = 0.0,
    delta_0: float = 0.0,
) -> SmallSeparationFlow:
    """The bootstrapped recursions (5.46)-(5.48) from δK_[1], δδK_[2], δδK_[0] of the first layer.

    The recursion of δδK_[0] is beyond the book. Cost: about 50 μs per layer and sample.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `K1`: the kernel of the midpoint x of the inputs x ± δx/2, one number or one per sample.
    - `delta_1`, `delta_2`, `delta_0`: C_W x·δx/n_0, C_W|δx|²/4n_0 and 0 for such inputs.

    **Returns:** a `SmallSeparationFlow`.

    >>> net = MLP([1] * 4, "tanh", C_b=0.0, C_W=1.0)
    >>> small_separation(net, 1.0, delta_1=1.0).delta_2.round(9)
    array([ 0.        , -0.08914814, -0.06445537])
    """
    sigma, depth, first = network.activation, network.depth, check_variance(K1, "K1")
    flow = _positive_flow(network, first)
    K, weight = flow[:-1], np.array(network.C_W)[1:, None]
    parallel, perpendicular = power_average(sigma, K, 2, 1), slope_average(sigma, K)
    h = 0.5 * slope_average(sigma, K, derivative=1)
    bend = np.zeros(K.shape)
    if slopes(sigma) is None:
        bend = joint_average(sigma, K, (0, 2), hermite=2) / (4.0 * K)
    d0, d1, d2 = (np.full(flow.shape, start) for start in (delta_0, delta_1, delta_2))
    for layer in range(depth - 1):
        chi, chi_perp, W = parallel[layer], perpendicular[layer], weight[layer]
        square = d1[layer] ** 2
        d0[layer + 1] = W * (chi * d0[layer] + (chi - chi_perp) * d2[layer] + bend[layer] * square)
        d1[layer + 1] = W * chi * d1[layer]
        d2[layer + 1] = W * (chi_perp * d2[layer] + h[layer] * square)
    shape = (depth, *first.shape)
    return SmallSeparationFlow(*(part.reshape(shape) for part in (flow, d1, d2, d0)))


def _positive_flow(network: MLP, first: np.ndarray) -> np.ndarray:
    """The kernel flow, refused at K = 0: a separation is small only against a finite kernel."""
    require_plain(network, "the recursion of nearby inputs")
    C_b, C_W = np.array(network.C_b), np.array(network.C_W)
    flow = kernel_flow(network.activation, first.reshape(-1), C_b, C_W)
    if not np.all(flow > 0.0):
        raise InvalidValueError("K1", 0.0, "small separations need a kernel > 0 at every layer")
    return flow


@dataclass(frozen=True)
class SeparationVertex:
    """The four-point vertex of a close pair of equal norm, in the γ basis.

    `K` is the kernel of their midpoint and `distance` is d = δδK_[2]. `V00`, `V02`, `V11` and `V22`
    are V_[0][0], V_[0][2], V_[1][1] and V_[2][2]; V_[0][1] = V_[1][2] = 0. V22/n is the variance of
    a network's own squared distance, that is of its squared Jacobian along the separation.
    """

    K: Float[np.ndarray, "layer *sample"]
    distance: Float[np.ndarray, "layer *sample"]
    V00: Float[np.ndarray, "layer *sample"]
    V02: Float[np.ndarray, "layer *sample"]
    V11: Float[np.ndarray, "layer *sample"]
    V22: Float[np.ndarray, "layer *sample"]


def separation_vertex(
    network: MLP, K1: Float[np.ndarray, "*sample"] | float, *, distance: float = 1.0
) -> SeparationVertex:
    """V_[a][b] of two inputs of equal norm at small squared distance (D9.5), beyond the book.

    Cost: about 60 μs per layer and sample.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `K1`: the kernel of their midpoint, one number or one per sample.
    - `distance`: δδK_[2] of the first layer; V02 and V11 are linear, V22 quadratic in it, so its
        size only sets the units.

    **Returns:** a `SeparationVertex`.

    >>> separation_vertex(MLP([1] * 5, "relu", C_b=0.0, C_W=2.0), 1.0).V22
    array([ 0.,  5., 10., 15.])
    """
    sigma, depth, first = network.activation, network.depth, check_variance(K1, "K1")
    flow = _positive_flow(network, first)
    K, weight = flow[:-1], np.array(network.C_W)[1:, None]
    ratio = width_ratios(network.widths)[:, None]
    g, slope = power_average(sigma, K, 2), slope_average(sigma, K)
    parallel, perpendicular = weight * power_average(sigma, K, 2, 1), weight * slope
    drift = weight * slope_average(sigma, K, derivative=1)
    mixed = joint_average(sigma, K, (0, 0, 1, 1))
    squared = weight**2
    source_00 = squared * (power_average(sigma, K, 4) - g**2)
    source_02 = squared * (mixed - g * slope)
    source_11 = squared * 4.0 * mixed
    source_22 = squared * (3.0 * joint_average(sigma, K, (1, 1, 1, 1)) - slope**2)
    start = np.full((1, K.shape[1]), distance)
    d = np.concatenate([start, distance * np.cumprod(perpendicular, axis=0)])
    V00, V02, V11, V22 = (np.zeros(flow.shape) for _ in range(4))
    for i in range(depth - 1):
        chi, chi_perp, turn, n = parallel[i], perpendicular[i], drift[i] * d[i], ratio[i]
        V00[i + 1] = source_00[i] + n * chi**2 * V00[i]
        V02[i + 1] = source_02[i] * d[i] + n * chi * (chi_perp * V02[i] + turn * V00[i])
        V11[i + 1] = source_11[i] * d[i] + n * chi**2 * V11[i]
        V22[i + 1] = source_22[i] * d[i] ** 2 + n * (
            chi_perp**2 * V22[i] + 2.0 * chi_perp * turn * V02[i] + turn**2 * V00[i]
        )
    shape = (depth, *first.shape)
    return SeparationVertex(*(part.reshape(shape) for part in (flow, d, V00, V02, V11, V22)))


def separation_vertex_slopes(point: CriticalPoint) -> dict[str, float]:
    """Slopes s of V00/K², V02/(Kd), V11/(Kd), V22/d² → s·ℓ at criticality (D9.6), beyond the book.

    Scale-invariant: exact, at infinitesimal angle. K* = 0: asymptotic, for p_perpendicular < 4.

    **Arguments:**

    - `point`: a critical point, from `critical_initialisation`.

    **Returns:** the slopes by name.

    >>> from dynagram.theory.criticality._points import critical_initialisation
    >>> separation_vertex_slopes(critical_initialisation("relu"))
    {'V00': 5.0, 'V02': 1.0, 'V11': 8.0, 'V22': 5.0}
    """
    constants, p = point.constants, point.exponents.p_perpendicular
    if point.kind == "scale-invariant" and constants.S is not None:
        ratio = (constants.S + 1.0) / 3.0  # A4/A2²
        return {"V00": constants.S, "V02": ratio - 1.0, "V11": 4.0 * ratio, "V22": constants.S}
    if point.kind == "K*=0" and p is not None and p < 4.0 and constants.rho == 0.0:
        return {"V00": 2 / 3, "V02": -p / 3, "V11": 4 / (4 - p), "V22": 2 + 2 * p**2 / 3}
    raise InvalidValueError(
        "point", point.kind, "expected scale-invariant, or a stable smooth K*=0 with p_perp < 4"
    )
