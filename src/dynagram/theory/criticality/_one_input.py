"""Single-input recursions over depth: K, V, G^{1} (5.108-5.110), (5.140) and the next order in 1/n.

One input, any widths, any C_b and C_W per layer. V, G^{1}, V^{1}, G^{2} and the six-point vertex
multiply powers of 1/n_{ℓ-1}, the width feeding the layer: E z² = K + G^{1}/n + G^{2}/n²,
Var Ĝ = (V + V^{1}/n)/n, κ₃ Ĝ = six_point/n². Derivation: docs/derivations/next-order.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import power_average, slope_average
from dynagram.gaussian._quadrature import check_variance
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory.criticality._flow import kernel_flow, per_layer

PerLayer = float | Sequence[float] | Float[np.ndarray, " layer"]


@dataclass(frozen=True)
class SingleInputFlow:
    """Single-input statistics of every layer ℓ = 1..L (index 0 ↔ ℓ = 1), one column per K^(1).

    `K` is the kernel, `V` the four-point vertex and `G1` G^{1}. `parallel_gain` and
    `perpendicular_gain` are the products of χ∥ and χ⊥ over the layers below, 1 at the first layer;
    the second does not exist (None) where σ jumps. `six_point` (the six-point vertex), `V1` and
    `G2` are there when asked for.
    """

    K: Float[np.ndarray, "layer *sample"]
    V: Float[np.ndarray, "layer *sample"]
    G1: Float[np.ndarray, "layer *sample"]
    parallel_gain: Float[np.ndarray, "layer *sample"]
    perpendicular_gain: Float[np.ndarray, "layer *sample"] | None
    six_point: Float[np.ndarray, "layer *sample"] | None = None
    V1: Float[np.ndarray, "layer *sample"] | None = None
    G2: Float[np.ndarray, "layer *sample"] | None = None


def single_input(
    network: MLP,
    K1: Float[np.ndarray, "*sample"] | float,
    *,
    c_b1: PerLayer = 0.0,
    c_W1: PerLayer = 0.0,
    next_order: bool = False,
) -> SingleInputFlow:
    """K, V, G^{1} and the susceptibility products of all layers, from K^(1) = `K1`.

    Cost: about 30 μs per layer and sample, three times that with `next_order`.

    **Arguments:**

    - `network`: an `MLP` without skips (with skips: `dynagram.theory.skips.residual_flow`).
    - `K1`: C_b + C_W Σx²/n_0 of the first layer, one number or one per sample.
    - `c_b1`, `c_W1`: the O(1/n) parts of C_b = c_b^{0} + c_b^{1}/n (5.138)-(5.140), one number or
        one per layer.
    - `next_order`: whether to add the six-point vertex, V^{1} and G^{2}.

    **Returns:** a `SingleInputFlow`.

    >>> net = MLP([1] * 6, "tanh", C_b=0.0, C_W=1.0)
    >>> single_input(net, 1.0).V.round(9)
    array([0.        , 0.09752374, 0.06780749, 0.0501466 , 0.03939844])
    >>> renormalised = single_input(net, 1.0, c_W1=2 / 3)
    >>> round(float(renormalised.G1[-1]), 12)
    0.16356339838
    """
    require_plain(network, "this recursion of one input")
    sigma, depth, first = network.activation, network.depth, check_variance(K1, "K1")
    corrections = per_layer("c_b1", c_b1, depth), per_layer("c_W1", c_W1, depth)
    C_b, C_W = np.array(network.C_b), np.array(network.C_W)
    K = kernel_flow(sigma, first.reshape(-1), C_b, C_W)
    if next_order and np.any(corrections[0]) and np.any(K == 0.0):
        raise InvalidValueError("c_b1", c_b1, "the next order at K = 0 needs c_b1 = 0")
    step = _Step.at(sigma, K[:-1], C_W, width_ratios(network.widths), next_order)
    with np.errstate(over="ignore", invalid="ignore"):
        fields = _leading_order(step, corrections)
        if next_order:
            fields |= _next_order(step, fields, corrections)
    fields["parallel_gain"] = _running_product(step.C_W * step.g[1])
    if step.slope is not None:
        fields["perpendicular_gain"] = _running_product(step.C_W * step.slope)
    for name, values in fields.items():
        if not np.all(np.isfinite(values)):
            layer = 1 + int(np.argmin(np.isfinite(values).all(axis=1)))
            raise NonFiniteError(f"{name} of {sigma.name} leaves float64 at layer {layer}")
    fields["K"] = K
    shaped = {name: values.reshape(depth, *first.shape) for name, values in fields.items()}
    return SingleInputFlow(**{"perpendicular_gain": None, **shaped})


def width_ratios(widths: Sequence[int]) -> Float[np.ndarray, " step"]:
    """n_ℓ/n_{ℓ-1} for the steps ℓ → ℓ+1, ℓ = 1..L-1; the first never uses n_0 and is 1.

    >>> width_ratios((3, 60, 240, 1))
    array([1., 4.])
    """
    sizes = np.asarray(widths, dtype=np.float64)
    ratios = sizes[1:-1] / sizes[:-2]
    ratios[:1] = 1.0
    return ratios


@dataclass(frozen=True)
class _Step:
    """What a step ℓ → ℓ+1 needs: derivatives of g = ⟨σ²⟩, cumulants of σ², C_W and n_ℓ/n_{ℓ-1}.

    Arrays are (step, sample); `g[k]` = d^k g/dK^k, `c[k]` = d^k Var(σ²)/dK^k, `kappa3` = κ₃(σ²).
    """

    g: list[np.ndarray]
    slope: np.ndarray | None
    c: list[np.ndarray]
    kappa3: np.ndarray | None
    C_W: np.ndarray
    ratio: np.ndarray

    @classmethod
    def at(
        cls, sigma: Activation, K: np.ndarray, C_W: np.ndarray, ratio: np.ndarray, deep: bool
    ) -> _Step:
        # At K = 0 nothing fluctuates: V, κ₃ Ĝ and G^{1} are 0, and so are the terms with these.
        positive = np.where(K > 0.0, K, 1.0)
        g = [power_average(sigma, K, 2, k) for k in (0, 1)]
        g += [power_average(sigma, positive, 2, k) * (K > 0.0) for k in range(2, 5 if deep else 3)]
        fourth = [power_average(sigma, K, 4)]
        if deep:
            fourth += [power_average(sigma, positive, 4, k) * (K > 0.0) for k in (1, 2)]
        c = [fourth[0] - g[0] ** 2]
        kappa3 = None
        if deep:
            c += [fourth[1] - 2 * g[0] * g[1], fourth[2] - 2 * g[1] ** 2 - 2 * g[0] * g[2]]
            kappa3 = power_average(sigma, K, 6) - 3 * fourth[0] * g[0] + 2 * g[0] ** 3
        slope = None if sigma.jumps else slope_average(sigma, K)
        return cls(g, slope, c, kappa3, C_W[1:, None], ratio[:, None])


def _leading_order(
    step: _Step, corrections: tuple[np.ndarray, np.ndarray]
) -> dict[str, np.ndarray]:
    """V (5.109) and G^{1} (5.110), (5.140), with the width ratios of unequal layers."""
    g, C_W, ratio = step.g, step.C_W, step.ratio
    c_b1, c_W1 = (part[1:, None] for part in corrections)
    source, gain = C_W**2 * step.c[0], ratio * (C_W * g[1]) ** 2
    V = _first_order(gain, source)
    # The O(1/n) hyperparameters enter with 1/n_ℓ of their own layer: no width ratio.
    G1 = _first_order(ratio * C_W * g[1], 0.5 * ratio * C_W * g[2] * V[:-1] + c_b1 + c_W1 * g[0])
    return {"V": V, "G1": G1}


def _next_order(
    step: _Step, fields: dict[str, np.ndarray], corrections: tuple[np.ndarray, np.ndarray]
) -> dict[str, np.ndarray]:
    """κ₃ Ĝ, V^{1}, G^{2} (D6.8)-(D6.10): the delta method one order further."""
    g, c, r, C_W = step.g, step.c, step.ratio, step.C_W
    c_W1 = corrections[1][1:, None]
    V, G1 = fields["V"][:-1], fields["G1"][:-1]
    six_point = _first_order(
        r**2 * (C_W * g[1]) ** 3,
        C_W**3 * (step.kappa3 + 3 * r * g[1] * c[1] * V + 3 * r**2 * g[1] ** 2 * g[2] * V**2),
    )
    below = six_point[:-1]
    V1 = _first_order(
        (r * C_W * g[1]) ** 2,
        C_W**2
        * (
            r * (c[1] * G1 + 0.5 * c[2] * V)
            + r**2
            * (
                2 * g[1] * g[2] * G1 * V
                + g[1] * g[2] * below
                + (0.5 * g[2] ** 2 + g[1] * g[3]) * V**2
            )
        )
        + 2 * c_W1 * C_W * (c[0] + r * g[1] ** 2 * V),
    )
    G2 = _first_order(
        r**2 * C_W * g[1],
        r**2
        * C_W
        * (0.5 * g[2] * (V1[:-1] + G1**2) + g[3] * (below + 3 * V * G1) / 6 + g[4] * V**2 / 8)
        + c_W1 * r * (g[1] * G1 + 0.5 * g[2] * V),
    )
    return {"six_point": six_point, "V1": V1, "G2": G2}


def _first_order(gain: np.ndarray, source: np.ndarray) -> np.ndarray:
    """x^(1) = 0, x^(ℓ+1) = gain·x^(ℓ) + source: (layer, sample) from (step, sample)."""
    x = np.zeros((gain.shape[0] + 1, gain.shape[1]))
    for layer in range(gain.shape[0]):
        x[layer + 1] = gain[layer] * x[layer] + source[layer]
    return x


def _running_product(factors: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((1, factors.shape[1])), np.cumprod(factors, axis=0)])
