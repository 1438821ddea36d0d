"""Finite angles under scale-invariant activations (book §5.5): (5.146)-(5.171).

σ(z) = a₊z for z ≥ 0 and a₋z for z < 0. Two inputs at angle ψ drift together with depth: the
angle closes like 3/(ρℓ), which an expansion in small separations does not see.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import ActivationLike, even_slope, required_slopes
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory.criticality._flow import check_depth
from dynagram.theory.criticality._origin import angle_constant


def arc(psi: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """sin ψ − ψ cos ψ, by its series where the difference would cancel.

    >>> round(float(arc(np.array(1e-4)) / 1e-12), 12)
    0.333333333
    """
    series = psi**3 * (1 / 3 - psi**2 * (1 / 30 - psi**2 * (1 / 840 - psi**2 / 45360)))
    return np.where(psi < 0.1, series, np.sin(psi) - psi * np.cos(psi))


def angle(kernel: Float[np.ndarray, "*batch 2 2"]) -> Float[np.ndarray, "*batch"]:
    """ψ between the two samples of a 2×2 kernel (5.146), without the loss of digits of arccos.

    **Arguments:**

    - `kernel`: K of two samples, any batch of them.

    **Returns:** ψ in [0, π], one per kernel.

    >>> round(float(angle(np.array([[1.0, 0.5], [0.5, 1.0]]))), 12)
    1.047197551197
    """
    determinant = kernel[..., 0, 0] * kernel[..., 1, 1] - kernel[..., 0, 1] ** 2
    return np.asarray(np.arctan2(np.sqrt(np.maximum(determinant, 0.0)), kernel[..., 0, 1]))


def pair_kernel_flow(
    network: MLP, kernel: Float[np.ndarray, "2 2"]
) -> Float[np.ndarray, "layer 2 2"]:
    """The exact two-input kernel of all layers from that of the first (5.159), (5.160).

    Norms may differ: K_d → √(K₊₊K₋₋). Cost: microseconds per layer.

    **Arguments:**

    - `network`: an `MLP` without skips, of a scale-invariant activation.
    - `kernel`: K^(1) of the two inputs.

    **Returns:** K^(ℓ), ℓ = 1..L.

    >>> net = MLP([1] * 3, "relu", C_b=0.0, C_W=2.0)
    >>> flow = pair_kernel_flow(net, np.array([[2.0, 0.5], [0.5, 0.4]]))
    >>> round(float(flow[1, 0, 1]), 12)
    0.58047560625
    """
    require_plain(network, "the recursion of angles")
    pair, C_b, C_W = required_slopes(network.activation), network.C_b, network.C_W
    A2, bend = even_slope(pair, 2), (pair[0] - pair[1]) ** 2 / (2.0 * np.pi)
    rows = [kernel]
    for layer in range(1, network.depth):
        below = rows[-1]
        scale = np.sqrt(below[0, 0] * below[1, 1])
        averages = A2 * below + bend * scale * arc(angle(below)) * np.array([[0, 1], [1, 0]])
        rows.append(C_b[layer] + C_W[layer] * averages)
    return np.stack(rows)


def slope_product(
    activation: ActivationLike, psi: Float[np.ndarray, "*shape"] | float
) -> Float[np.ndarray, "*shape"]:
    """⟨σ'₊σ'₋⟩ = A₂ − (a₊ − a₋)²ψ/2π at angle ψ, for any norms (5.161).

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `psi`: angle ψ between the inputs, 0 to π.

    **Returns:** ⟨σ'₊σ'₋⟩, of the shape of `psi`.

    >>> float(slope_product("relu", np.pi / 2))
    0.25
    """
    pair = required_slopes(activation)
    bend = (pair[0] - pair[1]) ** 2 / (2.0 * np.pi)
    return np.asarray(even_slope(pair, 2) - bend * check_angle(psi))


def check_angle(psi: Float[np.ndarray, "*shape"] | float) -> Float[np.ndarray, "*shape"]:
    """ψ as a float64 array, refused outside [0, π]."""
    angles = np.asarray(psi, dtype=np.float64)
    if not np.all((angles >= 0.0) & (angles <= np.pi)):
        raise InvalidValueError("psi", psi, "expected angles from 0 to π")
    return angles


def angle_flow(
    activation: ActivationLike, psi: Float[np.ndarray, "*sample"] | float, depth: int
) -> Float[np.ndarray, "layer *sample"]:
    """ψ^(ℓ), ℓ = 1..`depth`, at criticality: cos ψ' = cos ψ + ρ(sin ψ − ψ cos ψ) (5.162).

    Iterates 1 − cos ψ, which keeps its digits as the angle closes.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `psi`: angles of the first layer, 0 to π.
    - `depth`: number of layers.

    **Returns:** ψ of layers 1 to `depth`.

    >>> angle_flow("relu", np.pi, 4).round(9)
    array([3.14159265, 1.57079633, 1.24685022, 1.05442126])
    """
    rho, current = angle_constant(*required_slopes(activation)), check_angle(psi)
    rows = [current]
    for _ in range(check_depth(depth) - 1):
        if rho > 0.0:
            closeness = 2.0 * np.sin(0.5 * current) ** 2 - rho * arc(current)
            closeness = np.clip(closeness, 0.0, 2.0)
            current = np.asarray(2.0 * np.arctan2(np.sqrt(closeness), np.sqrt(2.0 - closeness)))
        rows.append(current)
    return np.stack(rows)


def angle_law(
    activation: ActivationLike, layers: Float[np.ndarray, " layer"], *, ell_0: float
) -> Float[np.ndarray, " layer"]:
    """ψ^(ℓ) ≃ (3/ρℓ)[1 − (3/2) log(ℓ/ℓ₀)/ℓ] (5.166); the log is beyond the book.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `layers`: layers ℓ, as floats.
    - `ell_0`: carries the starting angle; has to be fitted.

    **Returns:** ψ of these layers.

    >>> round(float(angle_law("relu", np.array([1000.0]), ell_0=1.0)[0]), 6)
    0.009327
    """
    rho = _bent(activation)
    return 3.0 / (rho * layers) * (1.0 - 1.5 * np.log(layers / ell_0) / layers)


def angle_estimate(
    activation: ActivationLike, psi: float, layers: Float[np.ndarray, " layer"]
) -> Float[np.ndarray, " layer"]:
    """ψ^(ℓ) ≈ 1/[1/ψ^(1) + ρ(ℓ − 1)/3]: right before and after the crossover.

    Beyond the book: docs/derivations/depth-laws.md (D9.7).

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `psi`: the angle of the first layer.
    - `layers`: layers ℓ, as floats.

    **Returns:** ψ of these layers.

    >>> round(float(angle_estimate("relu", 0.01, np.array([1000.0]))[0]), 5)
    0.00485
    """
    return 1.0 / (1.0 / float(check_angle(psi)) + _bent(activation) * (layers - 1.0) / 3.0)


def crossover_depth(activation: ActivationLike, psi: float) -> float:
    """ℓ_cross = 3/(ρψ^(1)): beyond it angles close as 1/ℓ and small-δ results fail (5.169).

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `psi`: the angle of the first layer.

    **Returns:** ℓ_cross.

    >>> round(crossover_depth("relu", 0.01), 3)
    942.478
    """
    return 3.0 / (_bent(activation) * float(check_angle(psi)))


def distance_law(
    activation: ActivationLike, layers: Float[np.ndarray, " layer"], K: float
) -> Float[np.ndarray, " layer"]:
    """K_[2]^(ℓ) ≃ (9/4ρ²) K/ℓ² beyond the crossover, K the common norm (5.168): p_perp = 2.

    **Arguments:**

    - `activation`: a scale-invariant activation.
    - `layers`: layers ℓ, as floats.
    - `K`: the kernel of both inputs.

    **Returns:** K_[2] of these layers.

    >>> round(float(distance_law("relu", np.array([1.0]), 1.0)[0]), 4)
    22.2066
    """
    return 9.0 * K / (4.0 * _bent(activation) ** 2 * layers**2)


def _bent(activation: ActivationLike) -> float:
    """ρ, refused when it is 0: angles of a linear network never change."""
    rho = angle_constant(*required_slopes(activation))
    if rho == 0.0:
        raise InvalidValueError(
            "activation", resolve(activation).name, "ρ = 0: angles do not change with depth"
        )
    return rho
