"""Between and beyond training points: robustness and interpolation at infinite width (§10.3).

Robustness is what a network trained on one input says about a near one, Θ_−+/Θ_++ − 1 (10.57),
and its variance (10.63). Between two training inputs a trained mean departs from the straight
line by a term in δδΘ_[0]/Θ_00, the curvature of the kernel: the network's inductive bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.networks import MLP, check_inputs
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._infinite import from_problem
from dynagram.theory.training._problem import Problem


@dataclass(frozen=True)
class Robustness:
    """Trained on one input, asked at another: m_− = (1 + `response`) y_+, `variance` per output.

    `response` is 0 where the network says the same at both inputs and −1 where it has forgotten.
    """

    response: float
    variance: float


def robustness(network: MLP, trained: object, asked: object) -> Robustness:
    """How a network trained on the single input `trained` answers at `asked` (10.57), (10.63).

    >>> net = MLP([2, 50, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> found = robustness(net, [1.0, 0.0], [0.9, 0.1])
    >>> round(found.response, 4), round(found.variance, 4)
    (-0.0018, 0.0028)
    """
    x = np.stack([_point(network, trained, "trained"), _point(network, asked, "asked")])
    found = frozen_kernels(network, x, layers="last")
    Theta, K = found.Theta[-1], found.K[-1]
    ratio = float(Theta[1, 0] / Theta[0, 0])
    line = np.array([-ratio, 1.0])
    return Robustness(ratio - 1.0, float(line @ K @ line))


@dataclass(frozen=True, eq=False)
class Polation:
    """Trained on two inputs, asked on the line through them: s = 0 at the first, 1 at the second.

    `straight` is s y_1 + (1 − s) y_0, what a linear network says (10.104). `curvature` is
    δδΘ_[0]/Θ_00: for near inputs of equal norm the mean is straight − s(1 − s)·curvature·(y_0 +
    y_1), the corrected form of (10.117).
    """

    s: Float[np.ndarray, " s"]
    mean: Float[np.ndarray, "s outputs"]
    std: Float[np.ndarray, " s"]
    straight: Float[np.ndarray, "s outputs"]
    curvature: float


def interpolate(
    network: MLP,
    x: object,
    y: object,
    s: Float[np.ndarray, " s"],
) -> Polation:
    """Mean and spread at x_0 + s (x_1 − x_0) after training on the two rows of `x` (§10.3.2).

    0 < s < 1 interpolates, other values extrapolate. Exact at infinite width.

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> x, y = np.array([[1.0, -0.2], [1.0, 0.2]]), np.array([[1.0], [0.5]])
    >>> found = interpolate(net, x, y, np.array([0.0, 0.5, 1.0]))
    >>> found.mean.ravel().round(4), found.straight.ravel(), round(found.curvature, 5)
    (array([1.    , 0.7543, 0.5   ]), array([1.  , 0.75, 0.5 ]), -0.01158)
    """
    inputs = check_inputs(x, network.widths[0])
    points = inputs[0] + s[:, None] * (inputs[1] - inputs[0])
    problem = Problem.checked(network, inputs[:2], y, points)
    found = from_problem(problem, Algorithm("flow")).at()
    near = frozen_kernels(network, np.stack([*inputs[:2], inputs[:2].mean(axis=0)]), layers="last")
    Theta = near.Theta[-1]
    mean = 0.25 * (Theta[0, 0] + Theta[1, 1] + 2.0 * Theta[0, 1])
    targets = problem.train_y
    return Polation(
        s,
        found.mean,
        found.std,
        s[:, None] * targets[1] + (1.0 - s)[:, None] * targets[0],
        float(mean / Theta[2, 2] - 1.0),
    )


def _point(network: MLP, x: object, name: str) -> Float[np.ndarray, " n_0"]:
    return check_inputs(np.atleast_2d(np.asarray(x)), network.widths[0], name)[0]
