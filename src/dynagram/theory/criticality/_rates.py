"""Learning rates that let every layer learn alike: the equivalence principle (9.94)-(9.96).

Θ^(L) = Σ_ℓ [λ_b^(ℓ) + λ_W^(ℓ) g^(ℓ-1)] Π_{ℓ'≥ℓ} χ⊥^(ℓ') (9.28): each bias and weight group adds
its share. At criticality the products are powers of ℓ, and depth-scaled rates undo them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._one_input import ActivationLike, power_average, slope_average
from dynagram.gaussian._quadrature import check_variance
from dynagram.networks import MLP, checked_number
from dynagram.networks._checks import require_plain
from dynagram.theory.criticality._flow import check_depth
from dynagram.theory.criticality._one_input import single_input
from dynagram.theory.criticality._point import CriticalPoint
from dynagram.theory.criticality._points import critical_initialisation

_RATE = "a learning rate must be ≥ 0"


@dataclass(frozen=True)
class DepthScaledRates:
    """λ_b^(ℓ) and λ_W^(ℓ) of layers 1..L, the equation they come from, and how far it holds.

    `lambda_b` and `lambda_W` have one rate per layer; `equation` is its number in the book and
    `note` says how far it holds.
    """

    lambda_b: tuple[float, ...]
    lambda_W: tuple[float, ...]
    equation: str
    note: str


def depth_scaled_rates(
    activation: ActivationLike, depth: int, lambda_b: float = 1.0, lambda_W: float = 1.0
) -> DepthScaledRates:
    """Per-layer rates with which all layers contribute alike to the NTK of a network of L layers.

    With χ⊥-products (ℓ/L)^p and K ~ ℓ^{-p_0}: λ_b^(ℓ) = λ̃_b ℓ^{-p} L^{p−1} and λ_W^(ℓ) =
    λ̃_W ℓ^{p_0−p} L^{p−1}. Scale-invariant σ: p = p_0 = 0 (9.94); K* = 0: p_0 = 1 (9.95), and p = 1
    for odd σ (9.96). Raises `InvalidValueError` where the activation has no critical
    initialisation.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `depth`: L, the number of weight matrices.
    - `lambda_b`, `lambda_W`: the depth-independent λ̃_b, λ̃_W.

    **Returns:** `DepthScaledRates`.

    >>> rates = depth_scaled_rates("tanh", 4)
    >>> rates.lambda_b, rates.lambda_W, rates.equation
    ((1.0, 0.5, 0.3333333333333333, 0.25), (1.0, 1.0, 1.0, 1.0), '(9.96)')
    >>> depth_scaled_rates("relu", 4).lambda_W
    (0.25, 0.25, 0.25, 0.25)
    """
    bias = checked_number("lambda_b", lambda_b, _RATE)
    weight = checked_number("lambda_W", lambda_W, _RATE)
    depth = check_depth(depth)
    p_0, p, equation, note = _exponents(critical_initialisation(activation))
    layers = np.arange(1.0, depth + 1.0)
    common = depth ** (p - 1.0)
    return DepthScaledRates(
        tuple((bias * layers**-p * common).tolist()),
        tuple((weight * layers ** (p_0 - p) * common).tolist()),
        equation,
        note,
    )


def _exponents(point: CriticalPoint) -> tuple[float, float, str, str]:
    """p_0, p of the χ⊥ products, the equation, and a sentence on its validity."""
    if point.kind == "scale-invariant":
        return 0.0, 0.0, "(9.94)", "exact: every layer adds the same to the NTK at any depth"
    if point.kind == "half-stable":
        return 0.0, 0.0, "(9.94)", (
            "exact when K^(1) = K*, where χ⊥ = 1 in every layer; otherwise look at the shares"
        )  # fmt: skip
    p_0, p = point.exponents.p_0, point.exponents.p_perpendicular
    if p_0 is None or p is None:
        return 0.0, 0.0, "(9.94)", (
            f"the class {point.kind!r} has no known depth law: 1/L is a guess, look at the shares"
        )  # fmt: skip
    if point.kind == "K*=0":
        equation = "(9.96)" if p == 1.0 else "(9.95)"
        return p_0, p, equation, "holds from a few layers on: the first ones are not asymptotic"
    return p_0, p, "(9.95) with the p_0 of this class, beyond the book", (
        "holds at large depth: the first layers are not asymptotic"
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class NTKShares:
    """What each layer adds to Θ^(L): `bias` and `weight` of (9.28) sum to it over the layers.

    `chain_rule` is Π_{ℓ'=ℓ}^{L-1} χ⊥ = E Σ_j (dz^(L)_i/dz^(ℓ)_j)² at infinite width (9.93): the
    variance of the gradient's chain-rule factor, 1 at the last layer.
    """

    bias: Float[np.ndarray, "layer *sample"]
    weight: Float[np.ndarray, "layer *sample"]
    chain_rule: Float[np.ndarray, "layer *sample"]


def ntk_shares(network: MLP, mean_square: Float[np.ndarray, "*sample"] | float) -> NTKShares:
    """The contribution of every layer's biases and weights to the output's frozen NTK (9.28).

    Cost: about 30 μs per layer and sample.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `mean_square`: (1/n_0) Σ x² of single inputs, one number or one per sample.

    **Returns:** `NTKShares`.

    >>> net = MLP([1] * 5, "relu", C_b=0.0, C_W=2.0, lambda_b=0.25, lambda_W=0.25)
    >>> shares = ntk_shares(net, 1.0)
    >>> shares.bias + shares.weight
    array([0.5, 0.5, 0.5, 0.5])
    """
    require_plain(network, "what each layer contributes to the NTK")
    sigma, depth = network.activation, network.depth
    if sigma.jumps:
        raise InvalidValueError(
            "activation", sigma.name, "σ jumps, so σ' is a delta and the NTK does not exist"
        )
    squares = check_variance(mean_square, "mean_square").reshape(-1)
    C_W = np.array(network.C_W)
    bias, weight = (np.array(rate)[:, None] for rate in (network.lambda_b, network.lambda_W))
    K = single_input(network, network.C_b[0] + C_W[0] * squares).K[:-1]
    g = np.concatenate([squares[None, :], power_average(sigma, K, 2)])
    # From the last layer down, so that nothing is divided by a vanishing product.
    gains = np.concatenate([C_W[1:, None] * slope_average(sigma, K), np.ones((1, squares.size))])
    chain = np.cumprod(gains[::-1], axis=0)[::-1]
    shape = (depth, *np.shape(mean_square))
    return NTKShares(*(part.reshape(shape) for part in (bias * chain, weight * g * chain, chain)))
