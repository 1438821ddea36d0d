"""Where on its activation a deep network should work: the operating point of given depth.

Let every layer's preactivations have mean μ and variance K over the data, unit by unit, with the
means taken out by the biases. The next layer's weights then have to carry Var σ(z) to K, so
C_W = K/Var σ, and squared gradients, like squared distances of nearby inputs, are multiplied by

    χ(K, μ) = C_W ⟨σ'(z)²⟩ = K ⟨σ'²⟩ / (⟨σ²⟩ − ⟨σ⟩²),    z ~ N(μ, K),

per layer. By the Gaussian Poincaré inequality χ ≥ 1, with equality for a linear σ alone: a
centred network always amplifies, by as much as it is nonlinear. Over L layers it may do so by e^c
in all (docs/derivations/advice.md); the most nonlinear point that keeps to this budget is the
operating point.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._quadrature import REACH, feature_scale, panel_rule
from dynagram.networks import ActivationLike, checked_activation, checked_number

BUDGET = 4.0  # c: measured in benchmarks/advice.py; 2 to 6 do nearly as well
_SMALLEST, _LARGEST, _FARTHEST = 1e-4, 3.0, 6.0  # of K for odd activations, of μ for the others


@dataclass(frozen=True)
class OperatingPoint:
    """Mean and variance of the preactivations of every layer, and what they make of gradients.

    `mean` μ and `variance` K of a unit over the data; `C_W` with which weights of variance
    C_W/fan-in keep K; `amplification` χ of squared gradients per layer; `sigma_mean` ⟨σ⟩.
    """

    mean: float
    variance: float
    C_W: float
    amplification: float
    sigma_mean: float


def operating_point(
    activation: ActivationLike, depth: int, *, budget: float = BUDGET
) -> OperatingPoint:
    """The most nonlinear point at which `depth` layers amplify gradients by at most e^budget.

    Odd activations (up to a constant) stay at μ = 0 and shrink K from 3; the others keep K = 1
    and move μ up from 0 to where they are straighter. Cost: milliseconds.

    **Arguments:**

    - `activation`: a registered name or a function.
    - `depth`: L, the number of weight matrices.
    - `budget`: c, the logarithm of the amplification of squared gradients over all layers.

    **Returns:** `OperatingPoint`. Raises `InvalidValueError` where no point of the activation is
    straight enough, as for an even one.

    >>> point = operating_point("relu", 24)
    >>> round(point.mean, 3), round(24 * math.log(point.amplification), 9)
    (0.728, 4.0)
    >>> point = operating_point("tanh", 4)      # shallow: tanh may be as curved as it is at K = 3
    >>> point.mean, point.variance, round(point.amplification, 4)
    (0.0, 3.0, 1.4862)
    """
    sigma = checked_activation(activation)
    if sigma.jumps:
        allowed = "σ jumps: its slopes, which an initialisation keeps near 1, do not exist"
        raise InvalidValueError("activation", sigma.name, allowed)
    if not isinstance(depth, int | np.integer) or depth < 2:
        raise InvalidValueError("depth", depth, "expected an integer ≥ 2")
    budget = checked_number("budget", budget, "must be > 0", positive=True)
    allowed = budget / depth

    def excess(mean: float, variance: float) -> float:
        return math.log(point_of(sigma, mean, variance).amplification) - allowed

    if _odd_about_zero(sigma):
        if excess(0.0, _LARGEST) <= 0.0:
            return point_of(sigma, 0.0, _LARGEST)
        if excess(0.0, _SMALLEST) > 0.0:
            raise _too_curved(sigma, depth)
        log_K: Any = brentq(
            lambda s: excess(0.0, math.exp(s)), math.log(_SMALLEST), math.log(_LARGEST)
        )
        return point_of(sigma, 0.0, math.exp(log_K))
    if excess(0.0, 1.0) <= 0.0:
        return point_of(sigma, 0.0, 1.0)
    # The first μ that keeps to the budget: σ may become curved again farther out.
    means = np.linspace(0.0, _FARTHEST, 121)
    for below, above in itertools.pairwise(means):
        if excess(above, 1.0) <= 0.0:
            mean: Any = brentq(lambda m: excess(m, 1.0), below, above)
            return point_of(sigma, mean, 1.0)
    raise _too_curved(sigma, depth)


def point_of(sigma: Activation, mean: float, variance: float) -> OperatingPoint:
    """What an activation does to preactivations of this mean and variance.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `mean`, `variance`: μ and K > 0.

    **Returns:** `OperatingPoint`.
    """
    t, w = _nodes(sigma, mean, variance)
    z = mean + math.sqrt(variance) * t
    value, slope = sigma.values(z), sigma.values(z, 1)
    average = float(np.sum(w * value))
    spread = float(np.sum(w * (value - average) ** 2))
    if not spread > 0.0:
        raise InvalidValueError("activation", sigma.name, "is constant where the signal is")
    C_W = variance / spread
    return OperatingPoint(mean, variance, C_W, C_W * float(np.sum(w * slope**2)), average)


def _nodes(
    sigma: Activation, mean: float, variance: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Nodes and weights for averages over a standard normal t of functions of σ(μ + √K t)."""
    root = math.sqrt(variance)
    edges = np.array([(kink.location - mean) / root for kink in sigma.kinks] or [-mean / root])
    return panel_rule(edges, feature_scale(sigma) / root, REACH)


def _odd_about_zero(sigma: Activation) -> bool:
    """Whether σ(z) − σ(0) is odd: tanh, sin, erf, and also the sigmoid."""
    if sigma.parity == "odd":
        return True
    z = np.linspace(0.05, 4.0, 40)
    middle = sigma.values(np.zeros(1))[0]
    up, down = sigma.values(z) - middle, sigma.values(-z) - middle
    return bool(np.allclose(up, -down, rtol=1e-9, atol=1e-12))


def _too_curved(sigma: Activation, depth: int) -> InvalidValueError:
    allowed = f"no part of it is straight enough for {depth} layers: take fewer, or skips"
    return InvalidValueError("activation", sigma.name, allowed)
