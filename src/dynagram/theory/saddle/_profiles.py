"""Modewise profiles (52)-(53): escape of mode k of the *decoupled* flow from X_{1,k} = 0.

With the other layers of block k at ρ, u = X_{1,k}/ρ obeys u̇ = Γ_k (1 + u²)^{(L−1)/2}, so that
t_k(u) = I_L(u)/Γ_k. The law is that of (10) for this start; corrected here: N_B for N, α^{L−1} for
the chain moment T_L. It orders the modes of the decoupled flow only: see `blocks` for the exact
one, in which the modes of a scalar output leave together.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike, checked_activation, checked_number
from dynagram.theory.saddle._blocks import BlockNetwork
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._clocks import REDUCED, Clock
from dynagram.theory.saddle._flow import gaussian_nodes
from dynagram.theory.saddle._symmetric import checked_count


def profile_integral(depth: int, u: float) -> float:
    """I_L(u) = ∫_0^u (1 + s²)^{−(L−1)/2} ds = u ₂F₁(½, (L−1)/2; 3/2; −u²) (53).

    **Arguments:**

    - `depth`: L ≥ 2, the number of weight matrices.
    - `u`: the upper end, ≥ 0.

    **Returns:** I_L(u).

    >>> [round(profile_integral(L, 3.0), 6) for L in (2, 3)]         # arcsinh 3, arctan 3
    [1.818446, 1.249046]
    """
    from scipy.special import hyp2f1

    depth = checked_count("depth", depth, least=2)
    u = checked_number("u", u, "must be ≥ 0")
    return u * float(hyp2f1(0.5, 0.5 * (depth - 1), 1.5, -(u**2)))


def profile_rates(
    network: BlockNetwork, rho: float | Float[np.ndarray, " mode"]
) -> Float[np.ndarray, " mode"]:
    """Γ_k = √N_B β_k h_σ α^{L−1} ρ_k^{L−2} in reduced time, for layers 2 … L of block k at ρ_k.

    **Arguments:**

    - `network`: a `BlockNetwork` with blocks of equal sizes.
    - `rho`: ρ_k > 0, one number or one per mode.

    **Returns:** Γ_k, one per mode.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3), block_size=20)
    >>> profile_rates(network, 0.05).round(6)
    array([0.006772, 0.002032])
    """
    if isinstance(network.block_size, tuple):
        raise InvalidValueError("block_size", network.block_size, "profiles need equal blocks")
    scales = np.broadcast_to(np.asarray(rho, dtype=np.float64), (network.modes,))
    if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
        raise InvalidValueError("rho", rho, "must be > 0 for every mode")
    return network.K * np.asarray(network.betas) * scales ** (network.depth - 2)


def profile_escape_times(
    network: BlockNetwork,
    rho: float | Float[np.ndarray, " mode"],
    u: float,
    clock: Clock = REDUCED,
) -> Float[np.ndarray, " mode"]:
    """When X_{1,k} reaches u·ρ_k, from X_{1,k} = 0, mode by mode (53); decoupled flow only.

    **Arguments:**

    - `network`: a `BlockNetwork` with blocks of equal sizes.
    - `rho`: ρ_k > 0, the scale of layers 2 … L of block k, one number or one per mode.
    - `u`: the value of X_{1,k}/ρ_k to reach, ≥ 0.
    - `clock`: the `Clock` of the result; reduced time by default.

    **Returns:** the time of every mode, on `clock`.
    """
    return profile_integral(network.depth, u) / profile_rates(network, rho) * clock.units


def chain_moment(
    activation: ActivationLike, depth: int, rho: float, *, weighted: bool = True
) -> float:
    """E[gσ(g) Π_j σ'(c_j)]/h_σ along the chain with all scales at ρ; the published T_L unweighted.

    How much a chain at scale ρ slows its own drive: α^{L−1} at ρ = 0.

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`.
    - `depth`: L ≥ 2; the product is over L − 1 activations.
    - `rho`: ρ, the scale of every layer.
    - `weighted`: whether to weight with gσ(g)/h_σ, the average that enters the gradient of X_1;
        without, T_L = E[Π_j σ'(c_j)], which is printed in (52).

    **Returns:** the average.

    >>> [round(chain_moment("tanh", 4, 0.05, weighted=w), 5) for w in (True, False)]
    [0.99403, 0.99751]
    """
    sigma, depth = checked_activation(activation), checked_count("depth", depth, least=2)
    nodes, w = gaussian_nodes(sigma, 1)
    g = nodes[:, 0]
    c, product = rho * g, np.ones_like(g)
    for _ in range(depth - 1):
        product = product * sigma.values(c, 1)
        c = rho * sigma.values(c)
    if not weighted:
        return float(np.sum(w * product))
    return float(np.sum(w * g * sigma.values(g) * product)) / classify(sigma).h
