"""The frozen NTK of two inputs: γ basis, nearby inputs, finite angles (10.58)-(10.98).

Θ_[0] is the NTK at the midpoint, Θ_[1] half the difference of the two diagonal entries, Θ_[2] a
quarter of the squared distance in feature space (10.58). Small separations need a smooth slope σ';
scale-invariant activations have an exact recursion in the angle instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import joint_average, power_average, slope_average
from dynagram.gaussian._quadrature import check_variance
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.criticality._angles import angle, pair_kernel_flow, slope_product
from dynagram.theory.criticality._one_input_tangents import slope_bend
from dynagram.theory.criticality._two_inputs import small_separation, to_gamma


@dataclass(frozen=True, eq=False)
class GammaNTK:
    """K_[a] and Θ_[a], a = 0, 1, 2, of every layer for the samples (+, −) in that order.

    Column a of `K` and `Theta` holds the component [a].
    """

    K: Float[np.ndarray, "layer 3"]
    Theta: Float[np.ndarray, "layer 3"]


def gamma_ntk(network: MLP, x: object) -> GammaNTK:
    """K and Θ of two inputs, the rows x₊, x₋ of `x`, in the γ basis (10.58), at any separation.

    For separations δ below about 1e-5 the components [1], [2] lose digits to cancellation:
    use `small_separation_ntk` there.

    **Arguments:**

    - `network`: an `MLP`, with or without skips.
    - `x`: the two inputs x₊, x₋, one per row.

    **Returns:** a `GammaNTK`.

    >>> net = MLP([2, 9, 9, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> gamma_ntk(net, [[1.0, 0.5], [0.5, 1.0]]).Theta.round(6)
    array([[1.5625  , 0.      , 0.0625  ],
           [2.113846, 0.      , 0.091873],
           [2.598292, 0.      , 0.102746]])
    """
    frozen = frozen_kernels(network, x)
    if frozen.K.shape[1] != 2:
        raise InvalidValueError("shape of x", frozen.K.shape[1], "expected two rows: x₊ and x₋")
    return GammaNTK(to_gamma(frozen.K), to_gamma(frozen.Theta))


@dataclass(frozen=True, eq=False)
class SmallSeparationNTK:
    """Two nearby inputs x₀ ± δx/2: the midpoint's K and Θ and their γ components to order δ².

    `K_midpoint` and `Theta_midpoint` belong to x₀. `K_1`, `Theta_1` are the [1] components (order
    δ); `K_2`, `Theta_2` and `K_0`, `Theta_0` the [2] components and what [0] adds to the midpoint
    (order δ²) (10.59)-(10.61).
    """

    K_midpoint: Float[np.ndarray, "layer *sample"]
    Theta_midpoint: Float[np.ndarray, "layer *sample"]
    K_0: Float[np.ndarray, "layer *sample"]
    K_1: Float[np.ndarray, "layer *sample"]
    K_2: Float[np.ndarray, "layer *sample"]
    Theta_0: Float[np.ndarray, "layer *sample"]
    Theta_1: Float[np.ndarray, "layer *sample"]
    Theta_2: Float[np.ndarray, "layer *sample"]


def small_separation_ntk(
    network: MLP,
    mean_square: Float[np.ndarray, "*sample"] | float,
    *,
    along: float = 0.0,
    distance: float = 0.0,
) -> SmallSeparationNTK:
    """The δ recursions (10.66), (10.70) of Θ, with the terms that unequal norms add to (10.70).

    The unequal-norm terms and Θ_0 are beyond the book. σ' must not jump: ⟨σ''σ''⟩ diverges then.
    Cost: about 0.1 ms per layer and sample.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `mean_square`: |x₀|²/n_0 of the midpoint, one number or one per sample.
    - `along`: x₀·δx/n_0, 0 for equal norms.
    - `distance`: |δx|²/n_0.

    **Returns:** a `SmallSeparationNTK`.

    >>> net = MLP([1] * 4, "tanh", C_b=0.0, C_W=1.0)
    >>> (small_separation_ntk(net, 1.0, distance=4e-4).Theta_2 * 1e4).round(6)
    array([1.      , 1.529213, 1.617113])
    """
    sigma, depth = network.activation, network.depth
    if any(any(kink.jumps[:2]) for kink in sigma.kinks):
        raise InvalidValueError(
            "activation",
            sigma.name,
            "σ' jumps, so ⟨σ''σ''⟩ diverges: use angle_ntk or gamma_ntk",
        )
    squares = check_variance(mean_square, "mean_square")
    C_W, bias, weight = network.C_W, network.lambda_b, network.lambda_W
    kernel = small_separation(
        network, network.C_b[0] + C_W[0] * squares.reshape(-1),
        delta_1=C_W[0] * along, delta_2=C_W[0] * distance / 4,
    )  # fmt: skip
    K = kernel.K00[:-1]
    g, s, s1 = power_average(sigma, K, 2), slope_average(sigma, K), slope_average(sigma, K, 1)
    w = joint_average(sigma, K, (2, 2))
    # Half the K-derivatives of ⟨σ''²⟩, and of ⟨σ'σ'''⟩ = d⟨σ'²⟩/dK − ⟨σ''²⟩.
    w_bend = joint_average(sigma, K, (2, 2), hermite=2) / (4.0 * K)
    s_bend = 0.5 * slope_bend(sigma, K) - w_bend
    midpoint, t0, t1, t2 = (np.empty(kernel.K00.shape) for _ in range(4))
    midpoint[0] = bias[0] + weight[0] * squares.reshape(-1)
    t0[0], t1[0], t2[0] = 0.0, weight[0] * along, weight[0] * distance / 4
    for i in range(depth - 1):
        C, W = C_W[i + 1], weight[i + 1]
        k0, k1, k2, theta = kernel.delta_0[i], kernel.delta_1[i], kernel.delta_2[i], midpoint[i]
        slope_0 = s1[i] * k0 + (s1[i] - w[i]) * k2 + s_bend[i] * k1**2
        slope_2 = w[i] * k2 + w_bend[i] * k1**2
        midpoint[i + 1] = bias[i + 1] + W * g[i] + C * s[i] * theta
        mixed = 0.5 * s1[i] * k1 * t1[i]
        # The kernel's own step holds C_W times what λ_W multiplies here.
        learned = W / C
        t0[i + 1] = learned * kernel.delta_0[i + 1] + C * (s[i] * t0[i] + theta * slope_0 + mixed)
        t1[i + 1] = learned * kernel.delta_1[i + 1] + C * (s[i] * t1[i] + theta * s1[i] * k1)
        t2[i + 1] = learned * kernel.delta_2[i + 1] + C * (s[i] * t2[i] + theta * slope_2 + mixed)
    parts = (kernel.K00, midpoint, kernel.delta_0, kernel.delta_1, kernel.delta_2, t0, t1, t2)
    return SmallSeparationNTK(*(part.reshape(depth, *squares.shape) for part in parts))


@dataclass(frozen=True, eq=False)
class AngleNTK:
    """K and Θ of two inputs under a scale-invariant σ, and the angle ψ between them in K.

    `K` and `Theta` are the 2×2 matrices over the inputs in every layer, `psi` is ψ.
    """

    K: Float[np.ndarray, "layer 2 2"]
    Theta: Float[np.ndarray, "layer 2 2"]
    psi: Float[np.ndarray, " layer"]

    @property
    def cosine(self) -> Float[np.ndarray, " layer"]:
        """cos ζ = Θ₊₋/√(Θ₊₊Θ₋₋) (10.87); → 1/4 at criticality unless σ is linear (10.93)."""
        return self.Theta[:, 0, 1] / np.sqrt(self.Theta[:, 0, 0] * self.Theta[:, 1, 1])


def angle_ntk(network: MLP, gram: Float[np.ndarray, "2 2"]) -> AngleNTK:
    """The exact two-input NTK of a scale-invariant network at any angle and norms (10.85)-(10.89).

    Cost: about 20 μs per layer.

    **Arguments:**

    - `network`: an `MLP` without skips, of a scale-invariant activation.
    - `gram`: x·x/n_0 of the two inputs.

    **Returns:** an `AngleNTK`.

    >>> pair = angle_ntk(MLP([1] * 101, "relu", C_b=0.0, C_W=2.0), np.eye(2))
    >>> pair.cosine[[0, 9, 99]].round(4)
    array([0.5   , 0.3635, 0.2736])
    """
    sigma, depth, C_b, C_W = network.activation, network.depth, network.C_b, network.C_W
    bias, weight = network.lambda_b, network.lambda_W
    check_variance(np.linalg.eigvalsh(gram) + 1e-12 * np.trace(gram), "eigenvalues of gram")
    K = pair_kernel_flow(network, C_b[0] + C_W[0] * gram)
    psi = np.asarray(angle(K))
    same = slope_product(sigma, np.zeros(depth))
    apart = slope_product(sigma, psi)
    slope = np.moveaxis(np.array([[same, apart], [apart, same]]), -1, 0)
    rows = [bias[0] + weight[0] * gram]
    for i in range(1, depth):
        product = (K[i] - C_b[i]) / C_W[i]  # ⟨σσ⟩
        rows.append(bias[i] + weight[i] * product + C_W[i] * slope[i - 1] * rows[-1])
    return AngleNTK(K, np.stack(rows), psi)
