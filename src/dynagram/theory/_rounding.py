"""The same kernels and recursions of a steep activation with averages over other nodes.

What differs is rounding, for that of K^(1) is moved by hand: (D7.21) of
docs/derivations/gaussian-averages.md. Where inputs are nearly equal this may be all there is of
their difference a few layers later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._rounding import other_rules, scatter
from dynagram.networks import MLP

_MOVED = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class OtherKernels:
    """K and Θ of all layers with another rule for the averages of `sigma`."""

    sigma: Activation
    K: Float[np.ndarray, "layer a b"]
    Theta: Float[np.ndarray, "layer a b"]


def other_kernels(
    network: MLP, K: Float[np.ndarray, "a b"], Theta: Float[np.ndarray, "a b"]
) -> list[OtherKernels]:
    """From those of the first layer, on distinct samples; none for an activation that is mild."""
    found = []
    for sign, sigma in zip((1.0, -1.0), other_rules(network.activation), strict=False):
        off = 1.0 - np.eye(len(K))
        all_K, all_Theta = [K * (1.0 + sign * _MOVED * off)], [Theta]
        for layer in range(1, network.depth):
            averages, square = TwoPoint(sigma, all_K[-1]), network.skip_of_layers[layer] ** 2
            values, slopes = averages(0, 0), averages(1, 1)
            C_W, lambda_W = network.C_W[layer], network.lambda_W[layer]
            gain = C_W * slopes + square
            all_Theta.append(network.lambda_b[layer] + lambda_W * values + gain * all_Theta[-1])
            all_K.append(network.C_b[layer] + C_W * values + square * all_K[-1])
        found.append(OtherKernels(sigma, np.stack(all_K), np.stack(all_Theta)))
    return found


def kernel_errors(
    K: Float[np.ndarray, "layer a b"],
    Theta: Float[np.ndarray, "layer a b"],
    others: Sequence[OtherKernels],
) -> dict[str, Float[np.ndarray, "layer a b"]]:
    """The rounding of K and Θ by letter; nothing without other rules."""
    if not others:
        return {}
    errors = {}
    for name, value in (("K", K), ("Theta", Theta)):
        finite = np.isfinite(value)  # Θ is not where σ jumps
        made = [np.where(finite, getattr(other, name), 0.0) for other in others]
        modes = scatter(np.where(finite, value, 0.0), made)
        errors[name] = np.sqrt(np.sum(np.square(modes), axis=0))
    return errors
