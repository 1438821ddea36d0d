"""Between and beyond training points: robustness and interpolation at infinite width (§10.3).

Robustness is what a network trained on one input says about a near one, Θ_−+/Θ_++ − 1 (10.57),
and its variance (10.63). Between two training inputs a trained mean departs from the straight
line by a term in δδΘ_[0]/Θ_00, the curvature of the kernel: the network's inductive bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.data._data import check_inputs
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._outputs import infinite_outputs
from dynagram.training import GradientFlow, Training


@dataclass(frozen=True)
class Robustness:
    """Trained on one input, asked at another: m_− = (1 + `response`) y_+, `variance` per output.

    `response` is 0 where the network says the same at both inputs and −1 where it has forgotten.
    """

    response: float
    variance: float


def robustness(network: MLP, trained: object, asked: object) -> Robustness:
    """How a network trained on a single input answers at another one (10.57), (10.63).

    **Arguments:**

    - `network`: an `MLP`, at infinite width.
    - `trained`, `asked`: the two inputs, n_0 numbers each.

    **Returns:** `Robustness`.

    >>> net = MLP([2, 50, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> answer = robustness(net, [1.0, 0.0], [0.9, 0.1])
    >>> round(answer.response, 4), round(answer.variance, 4)
    (-0.0018, 0.0028)
    """
    x = np.stack([_point(network, trained, "trained"), _point(network, asked, "asked")])
    kernels = frozen_kernels(network, x, layers="last")
    Theta, K = kernels.Theta[-1], kernels.K[-1]
    ratio = float(Theta[1, 0] / Theta[0, 0])
    line = np.array([-ratio, 1.0])
    return Robustness(ratio - 1.0, float(line @ K @ line))


@dataclass(frozen=True, eq=False)
class Interpolation:
    """Trained on two inputs, asked on the line through them: s = 0 at the first, 1 at the second.

    `straight` is s y_1 + (1 − s) y_0, what a linear network says (10.104). `curvature` is
    δδΘ_[0]/Θ_00: for near inputs of equal norm the mean is straight − s(1 − s)·curvature·(y_0 +
    y_1), the corrected form of (10.117).
    """

    s: Float[np.ndarray, " s"]
    mean: Float[np.ndarray, "s outputs"]
    std: Float[np.ndarray, "s outputs"]
    straight: Float[np.ndarray, "s outputs"]
    curvature: float


def interpolate(network: MLP, data: Data, s: Float[np.ndarray, " s"]) -> Interpolation:
    """Mean and spread at x_0 + s (x_1 − x_0) after training on two samples (§10.3.2).

    **Arguments:**

    - `network`: an `MLP`, at infinite width, where the result is exact.
    - `data`: two different training inputs and their targets.
    - `s`: places on the line: 0 < s < 1 interpolates, other values extrapolate.

    **Returns:** `Interpolation`.

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> data = Data([[1.0, -0.2], [1.0, 0.2]], [1.0, 0.5])
    >>> line = interpolate(net, data, np.array([0.0, 0.5, 1.0]))
    >>> line.mean.ravel().round(4), line.straight.ravel(), round(line.curvature, 5)
    (array([1.    , 0.7543, 0.5   ]), array([1.  , 0.75, 0.5 ]), -0.01158)
    """
    if data.merged.x.shape[0] != 2 or data.x.shape[0] != 2:
        raise InvalidValueError("shape of x", data.x.shape, "two different samples expected")
    x, y = data.x, data.y
    line = Data(x, y, x[0] + s[:, None] * (x[1] - x[0]))
    outputs = infinite_outputs(network, line, Training(GradientFlow()))
    near = frozen_kernels(network, np.stack([*x, x.mean(axis=0)]), layers="last")
    Theta = near.Theta[-1]
    mean = 0.25 * (Theta[0, 0] + Theta[1, 1] + 2.0 * Theta[0, 1])
    return Interpolation(
        s,
        outputs.mean,
        outputs.std,
        s[:, None] * y[1] + (1.0 - s)[:, None] * y[0],
        float(mean / Theta[2, 2] - 1.0),
    )


def _point(network: MLP, x: object, name: str) -> Float[np.ndarray, " n_0"]:
    return check_inputs(np.atleast_2d(np.asarray(x)), network.widths[0], name)[0]
