"""Words for people who never heard of the theory, and the code that sets an initialisation."""

from __future__ import annotations

import math

from dynagram.theory.criticality import CriticalPoint

# Where a name means something else in a framework, say so.
FRAMEWORK_NOTES = {
    "gelu": (
        "this is the exact GELU, the default of torch.nn.GELU; the default of jax.nn.gelu is the "
        "tanh approximation: see  dynagram critical gelu_tanh"
    ),
    "gelu_tanh": (
        "this is the tanh approximation of GELU, the default of jax.nn.gelu; torch.nn.GELU uses "
        "the exact form unless approximate='tanh': see  dynagram critical gelu"
    ),
    "selu": (
        "this is not the self-normalising point (C_b, C_W) = (0, 1) of the SELU paper, which keeps "
        "norms but lets distances grow by χ⊥ = 1.07 per layer"
    ),
}


def paragraph(point: CriticalPoint) -> str:
    """What this initialisation does, without a symbol that was not explained.

    >>> from dynagram.theory.criticality import critical_initialisation
    >>> paragraph(critical_initialisation("relu"))[:59]
    'Draw each weight with variance C_W divided by the number of'
    """
    bias = "set the biases to zero" if point.C_b == 0 else "each bias with variance C_b"
    start = (
        "Draw each weight with variance C_W divided by the number of inputs of its layer, and "
        f"{bias}. Then signals on the way forward and gradients on the way back neither explode "
        "nor die out exponentially with depth. "
    )
    return start + _what_happens(point) + _width_advice(point)


def _what_happens(point: CriticalPoint) -> str:
    if point.kind == "scale-invariant":
        return (
            "With this activation the signal keeps the size of the input through all layers. "
            + (
                "Two different inputs slowly become more alike, at a rate of 1/depth. "
                if point.constants.rho
                else "So do the angles between inputs. "
            )
        )
    if point.stability == "unstable":
        return (
            "But this point repels: the smallest deviation, such as a real input, grows with "
            "depth. Use it for shallow networks only, or choose another activation. "
        )
    if point.kind == "half-stable":
        side = "above" if point.stability.endswith("above") else "below"
        assert point.K_star is not None
        scale = (point.K_star - point.C_b) / point.C_W
        return (
            f"The variance of the signal has a resting point at K* = {point.K_star:.4g}, which "
            f"attracts from {side} and repels on the other side, both slowly. Away from it signals "
            "and gradients drift by a modest factor over tens of layers; to start on it, scale "
            f"the inputs so that their mean square is {scale:.3g}. "
        )
    if point.exponents.p_0 is None:
        return "How fast the signal changes with depth could not be read off the activation. "
    rate = "1/√depth" if point.exponents.p_0 == 0.5 else f"1/depth^{point.exponents.p_0:g}"
    rate = "1/depth" if point.exponents.p_0 == 1 else rate
    return (
        f"With this activation the signal still shrinks, but only like {rate}, and different "
        "inputs stay distinguishable. "
    )


def _width_advice(point: CriticalPoint) -> str:
    slope = early_slope(point)
    if slope is None:
        return ""
    return (
        "Two random draws of the same network differ: the relative variance of the signal's size "
        f"grows like {slope:.2g} × depth/width, so keep the depth well below "
        f"{1 / slope:.2g} × the width."
    )


def early_slope(point: CriticalPoint) -> float | None:
    """s in V/(nK²) ≈ s·ℓ/n at practical depths.

    Near a half-stable point that is S, five times the slope that depth only reaches once K has
    settled, after thousands of layers: docs/derivations/depth-laws.md (D9.1), (D9.2).
    """
    if point.kind == "half-stable":
        return point.constants.S
    return point.exponents.vertex_slope


def without_criticality(reason: str) -> str:
    """What to do with an activation that has no critical point."""
    return (
        "No choice of C_b and C_W lets this activation pass signals through many layers: sizes "
        "and differences of signals cannot both be kept, so one of them explodes or dies out "
        f"exponentially with depth ({reason}). Choose an activation that has a critical point "
        "(tanh, gelu, relu), or subtract a constant so that it vanishes at 0 (sigmoid − 1/2, here "
        "'sigmoid(0.5)', is critical at C_W = 16), or keep the network shallow and give --cb and "
        "--cw to see over how many layers differences survive."
    )


def pytorch_lines(C_b: float, C_W: float) -> str:
    """Sets every `torch.nn.Linear` of a model."""
    bias = (
        "torch.nn.init.zeros_(layer.bias)"
        if C_b == 0
        else f"torch.nn.init.normal_(layer.bias, std={math.sqrt(C_b):.12g})"
    )
    return "\n".join(
        [
            "for layer in model.modules():",
            "    if isinstance(layer, torch.nn.Linear):",
            "        torch.nn.init.normal_("
            f"layer.weight, std=({C_W:.12g} / layer.in_features) ** 0.5)",
            f"        {bias}",
        ]
    )


def jax_lines(C_b: float, C_W: float) -> str:
    """Initialisers for any library that takes JAX's, such as flax or haiku."""
    bias = (
        "jax.nn.initializers.zeros"
        if C_b == 0
        else f"jax.nn.initializers.normal({math.sqrt(C_b):.12g})"
    )
    return "\n".join(
        [
            f'kernel_init = jax.nn.initializers.variance_scaling({C_W:.12g}, "fan_in", "normal")',
            f"bias_init = {bias}",
        ]
    )
