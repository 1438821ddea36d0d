"""The kernel K (4.118), four-point vertex V (4.119) and metric correction G^{1} (4.115).

The recursions are coded in their inverse-free form: with F_ab = ⟨σ_aσ_b⟩_K, J = ∂F/∂K and
H = ∂²F/∂K², V' = C_W²[Cov(σσ,σσ) + (n_ℓ/n_{ℓ−1}) J V Jᵀ] and G'^{1} = (n_ℓ/n_{ℓ−1}) C_W
[J G^{1} + ½ H:V], where J and H of a pair of samples involve that pair only. Repeated, collinear
and zero inputs need no special care. Derivation: docs/derivations/recursions.md (D5.3)-(D5.8).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._layer import Modes, Step
from dynagram.theory._ntk import metric_shift


def vertex_step(step: Step, V: Modes) -> Modes:
    """V_(12)(34) of the next layer on pairs × pairs (4.119)."""
    family = step.family(0, 0)
    inherited = family.propagate(family.propagate(V).swapaxes(1, 2))
    return step.C_W**2 * (step.covariance(0, 0, 0, 0) + step.ratio * inherited)


def metric_correction_step(step: Step, V: Modes, G1: Modes) -> Modes:
    """G^{1}_12 of the next layer on pairs (4.115)."""
    return step.ratio * step.C_W * metric_shift(step, V, G1, 0)


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
    from dynagram.theory._predict import predict

    return predict(network, x, ("V",), accuracy=accuracy, seed=seed)["V"]


def metric_correction(
    network: MLP, x: object, *, accuracy: float = 1e-4, seed: int = 0
) -> Float[np.ndarray, "layer a b"]:
    """G^{1}(ℓ)_ab: E[z_a z_b] = K_ab + G^{1}_ab/n_{ℓ−1} + O(1/n²) (4.115).

    >>> net = MLP([3, 20, 20, 2], "tanh", C_b=0.0, C_W=1.0)
    >>> metric_correction(net, np.array([[1.0, 1.0, 1.0]])).ravel().round(8)
    array([ 0.        ,  0.        , -0.03093252])
    """
    from dynagram.theory._predict import predict

    return predict(network, x, ("G1",), accuracy=accuracy, seed=seed)["G1"]
