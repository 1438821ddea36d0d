"""V and G^{1} of a network with skips for any number of inputs: printed and corrected vertex.

On pairs of inputs, with J = ∂⟨σσ⟩/∂K, l = ⟨∂(σσ)⟩ and X = C_W J + γ². As printed (B.25):

    V' = C_W² Cov(σσ, σσ) + X V Xᵀ + C_W γ² (J K₂ + K₂ Jᵀ),   K₂ = Cov(zz, zz).

Corrected: of the response Φ = n E[ΔK̂ | path of a neuron], T = Cov(Φ, z), Φ₂ = Cov(Φ, zz) and the
rest (`paths`) all count,

    T' = γ(C_W l K + X T),   Φ₂' = γ²(C_W J K₂ + X Φ₂),   D = T lᵀ + Φ₂ Jᵀ + D_{p≥3},
    W' = X W Xᵀ + C_W² Cov(σσ, σσ) + C_W(X D + Dᵀ Xᵀ),      V = W + Φ₂ + Φ₂ᵀ,
    G^{1}' = X G^{1} + C_W[½∂²⟨σσ⟩:V + ½⟨∂∂∂(σσ)⟩·T + B_{p≥3}].

What layers below gave is multiplied by n_ℓ/n_{ℓ−1} where the width changes; no skip crosses there.
Derivation: docs/derivations/residual-vertex.md (D2.10)-(D2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._pairs import pair_indices, pair_numbers
from dynagram.errors import NonFiniteError
from dynagram.gaussian._families import TwoPoint, contract, curvature
from dynagram.gaussian._four_point import MODES, FourPoint, wick_covariance
from dynagram.gaussian._nodes import REPLICAS
from dynagram.gaussian._one_input import power_average
from dynagram.gaussian._quadrature import product_rule
from dynagram.networks import MLP
from dynagram.theory.skips._flow import Vertex
from dynagram.theory.skips._paths import PathLayer, path_averages
from dynagram.theory.skips._response import (
    COMPONENTS,
    bend_components,
    respond,
    square_components,
)

_VALUES = ((0, 0), (0, 0))
_FIRST_COUNT, _LAST_COUNT = 2**11, 2**15


@dataclass(frozen=True, eq=False)
class ResidualTensors:
    """V and G^{1} on pairs, all layers; mode 0 is the value, the others carry its error."""

    V: Float[np.ndarray, "layer mode pair pair"]
    G1: Float[np.ndarray, "layer mode pair"] | None


def residual_tensors(
    network: MLP,
    K: Float[np.ndarray, "layer a b"],
    *,
    vertex: Vertex,
    metric: bool,
    accuracy: float,
    seed: int,
) -> ResidualTensors:
    """Run all layers for distinct inputs with the kernels `K`; `metric` asks for G^{1}.

    One input, or inputs taken two by two on the diagonal, are exact to rounding; the rest carries
    the numerical error of `paths`, brought below `accuracy` of a layer's largest entry if 2¹⁸
    paths suffice.
    """
    steps = [
        _LayerStep.at(network, index, K[index], accuracy, seed + index)
        for index in range(network.depth - 1)
    ]
    if vertex == "published":
        return ResidualTensors(_published(steps), None)
    known = _diagonal_response(network, steps, K)
    if K.shape[1] == 1 or not any(step.skip_here for step in steps):
        return _corrected(steps, known, None, metric)
    layers = [
        PathLayer(step.K, step.four.family(0, 0), step.skip_here, step.C_W, step.X)
        for step in steps
    ]
    count = _FIRST_COUNT
    while True:
        sampled = path_averages(network.activation, layers, count=count, seed=seed, bend=metric)
        modes = (_replica_modes(sampled.overlap), _replica_modes(sampled.bend))
        result = _corrected(steps, known, modes, metric)
        if count >= _LAST_COUNT or _worst_error(result) <= accuracy:
            return result
        count *= 4


@dataclass(frozen=True, eq=False)
class _LayerStep:
    """The averages of one hidden layer and the hyperparameters of the step to the next.

    `skip_here` is the γ that led to this layer, `skip` that of the step.
    """

    K: np.ndarray
    averages: TwoPoint
    four: FourPoint
    covariance: np.ndarray
    J: np.ndarray
    C_W: float
    skip_here: float
    skip: float
    ratio: float

    @classmethod
    def at(cls, network: MLP, index: int, K: np.ndarray, accuracy: float, seed: int) -> _LayerStep:
        averages = TwoPoint(network.activation, K)
        four = FourPoint(averages, accuracy=accuracy, seed=seed)
        covariance = np.asarray(four.covariances([_VALUES])[_VALUES].modes)
        J = four.family(0, 0).propagate(np.eye(covariance.shape[1])).T
        widths, gammas = network.widths, network.skip_of_layers
        # Layer 1 does not fluctuate: n_0 never enters a ratio.
        ratio = widths[index + 1] / widths[index] if index else 0.0
        C_W = network.C_W[index + 1]
        return cls(K, averages, four, covariance, J, C_W, gammas[index], gammas[index + 1], ratio)

    @property
    def X(self) -> np.ndarray:
        """C_W J + γ²: how a shift of the common variance is passed on."""
        return self.C_W * self.J + self.skip**2 * np.eye(self.J.shape[0])

    @property
    def linear(self) -> np.ndarray:
        """l, dense: ⟨∂_c(σ_aσ_b)⟩ as (pair, sample)."""
        family, dense = self.four.family(0, 0), np.zeros((self.J.shape[0], self.K.shape[0]))
        rows = np.arange(dense.shape[0])
        np.add.at(dense, (rows, family.first), family.linear[:, 0])
        np.add.at(dense, (rows, family.second), family.linear[:, 1])
        return dense


def _published(steps: list[_LayerStep]) -> np.ndarray:
    """(B.25) in its form without inverses."""
    V = [np.zeros_like(steps[0].covariance)]
    for step in steps:
        mixed = np.zeros_like(V[-1])
        mixed[0] = step.C_W * step.skip**2 * step.J @ wick_covariance(step.K)
        inherited = step.ratio * step.X @ V[-1] @ step.X.T
        V.append(step.C_W**2 * step.covariance + inherited + _with_transpose(mixed))
    return _finite("V", np.stack(V))


def _corrected(
    steps: list[_LayerStep],
    known: tuple[np.ndarray, np.ndarray],
    sampled: tuple[np.ndarray, np.ndarray] | None,
    metric: bool,
) -> ResidualTensors:
    pairs, samples = steps[0].J.shape[0], steps[0].K.shape[0]
    W = np.zeros((MODES, pairs, pairs))
    G1 = np.zeros((MODES, pairs))
    T, Phi = np.zeros((pairs, samples)), np.zeros((pairs, pairs))
    all_V, all_G1 = [W], [G1]
    diagonal = np.diagonal(pair_numbers(samples))
    for index, step in enumerate(steps):
        X, C_W, linear, J, V = step.X, step.C_W, step.linear, step.J, all_V[-1]
        D, bend = np.zeros((MODES, pairs, pairs)), np.zeros((MODES, pairs))
        if sampled is not None:
            D, bend = sampled[0][:, index], sampled[1][:, index]
        D[:, diagonal[:, None], diagonal[None, :]], bend[:, diagonal] = 0.0, 0.0
        D[0][np.ix_(diagonal, diagonal)] = known[0][index]
        bend[0, diagonal] = known[1][index]
        D[0] += T @ linear.T + Phi @ J.T
        if metric:
            table = curvature(step.averages, 0)
            shift = step.ratio * contract(table, V) + bend
            shift[0] += np.sum(_third_derivatives(step) * T[None], axis=(1, 2))
            G1 = step.ratio * G1 @ X.T + C_W * shift
            all_G1.append(G1)
        carried = step.ratio * X @ W @ X.T
        W = carried + C_W**2 * step.covariance + _with_transpose(C_W * X @ D)
        T = step.skip * (C_W * linear @ step.K + X @ T)
        Phi = step.skip**2 * (C_W * J @ wick_covariance(step.K) + X @ Phi)
        V = W.copy()
        V[0] += Phi + Phi.T
        all_V.append(V)
    return ResidualTensors(
        _finite("V", np.stack(all_V)), _finite("G1", np.stack(all_G1)) if metric else None
    )


def _with_transpose(matrix: np.ndarray) -> np.ndarray:
    return matrix + np.swapaxes(matrix, -1, -2)


def _diagonal_response(
    network: MLP, steps: list[_LayerStep], K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """D_(aa)(bb) and B_(aa) of p ≥ 3 for every layer, by the Hermite components of σ²."""
    samples = K.shape[1]
    phi = np.zeros((COMPONENTS, samples, samples))
    overlaps, bends = [], []
    for index, step in enumerate(steps):
        variance = np.diagonal(step.K)
        s = square_components(network.activation, variance)
        bend, s = bend_components(s, variance), s[:COMPONENTS]
        overlaps.append(np.einsum("pab,pb->ab", phi[3:], s[3:]))
        bends.append(np.einsum("paa,pa->a", phi[3:], bend[3:]))
        chi = step.skip**2 + step.C_W * power_average(network.activation, variance, 2, 1)
        phi = respond(
            phi, s, step.K, np.diagonal(K[index + 1]), C_W=step.C_W, chi=chi, skip=step.skip
        )
    return np.stack(overlaps), np.stack(bends)


def _third_derivatives(step: _LayerStep) -> np.ndarray:
    """⟨∂_e ½∂_c∂_d(σ_aσ_b)⟩ as (pair ab, pair cd, sample e), multiplicities included."""
    samples = step.K.shape[0]
    number, (a, b) = pair_numbers(samples), pair_indices(samples)
    rows, dense = np.arange(a.size), np.zeros((a.size, a.size, samples))
    ratio = step.averages.on_ray(a, b)
    for row in rows[~np.isnan(ratio)]:
        value = _third_along_ray(step, int(a[row]), float(ratio[row]))
        dense[row, number[a[row], a[row]], a[row]] = 0.5 * value
    rest = rows[np.isnan(ratio)]
    for (p, q), places in {
        (2, 1): (("ab", "a", 1.0), ("aa", "b", 0.5)),
        (1, 2): (("ab", "b", 1.0), ("bb", "a", 0.5)),
        (3, 0): (("aa", "a", 0.5),),
        (0, 3): (("bb", "b", 0.5),),
    }.items():
        if rest.size == 0:
            break
        i, j = a[rest], b[rest]
        values = step.averages(p, q)[i, j]
        at = {"a": i, "b": j}
        for pair, sample, weight in places:
            dense[rest, number[at[pair[0]], at[pair[1]]], at[sample]] += weight * values
    # A sample that is zero does not fluctuate: its (possibly infinite) derivatives never count.
    zero = (step.K[a, a] == 0.0) | (step.K[b, b] == 0.0)
    dense[zero] = 0.0
    return dense


def _third_along_ray(step: _LayerStep, a: int, s: float) -> float:
    """⟨f'''⟩ of f(z) = σ(z)σ(sz), with all derivatives on the Gaussian: kinks need no care."""
    sigma, K = step.averages.sigma, float(step.K[a, a])
    if K == 0.0:
        return 0.0
    root = np.sqrt(K)
    t, w = product_rule([(sigma, root), (sigma, s * root)])
    f = sigma.values(root * t) * sigma.values(s * root * t)
    return float(np.sum(w * f * (t**3 - 3.0 * t))) / root**3


def _replica_modes(replicas: np.ndarray) -> np.ndarray:
    """The mean of independent replicas, and deviations that add up to its variance."""
    mean = replicas.mean(axis=0)
    scale = np.sqrt(REPLICAS * (REPLICAS - 1.0))
    return np.concatenate([mean[None], (replicas - mean) / scale])


def _worst_error(result: ResidualTensors) -> float:
    worst = 0.0
    for modes in (result.V, result.G1):
        if modes is None:
            continue
        axes = tuple(range(1, modes.ndim - 1))
        error = np.sqrt(np.sum(modes[:, 1:] ** 2, axis=1)).max(axis=axes)
        size = np.abs(modes[:, 0]).max(axis=axes)
        worst = max(worst, float(np.max(error / np.maximum(size, 1e-290) * (size > 0.0))))
    return worst


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    if not np.all(finite):
        layer = 1 + int(np.argwhere(~finite)[0][0])
        raise NonFiniteError(
            f"{name} of the network with skips is not finite at layer {layer}: nearly collinear "
            "inputs meet a kink, or the kernel grows; drop near-duplicates or initialise critically"
        )
    return values
