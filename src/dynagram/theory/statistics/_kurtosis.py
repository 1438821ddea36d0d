"""What weights that are not Gaussian change at order 1/n: uniform, truncated, of any kurtosis.

K depends on the variance of the weights alone, and so do V between different neurons and all that
follows from it. A single neuron sums n weights, whose excess kurtosis κ leaves its fourth cumulant
κ C_W²⟨σ⁴⟩/n: as large as V/n, and it shifts the metric of the next layer as G^{1} does. The book's
remark that other distributions of the same variance agree up to 1/n holds, and no further.
Derivation: docs/derivations/next-order.md (D6.12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian._scalar import moment
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import checked_real, require_plain
from dynagram.theory._kernels import frozen_kernels


@dataclass(frozen=True, eq=False)
class KurtosisShift:
    """What an excess kurtosis adds to the statistics of one input in every layer, over n_{ℓ−1}.

    `four_point` is added to 3V in the fourth cumulant of a single neuron, n_{ℓ−1} E[z⁴]_connected;
    between different neurons V stays. `G1` is added to G^{1}.
    """

    four_point: Float[np.ndarray, " layer"]
    G1: Float[np.ndarray, " layer"]


def kurtosis_shift(network: MLP, x: object, kurtosis: float) -> KurtosisShift:
    """The change of the fourth cumulant and of G^{1} by weights of excess kurtosis κ, one input.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `x`: the input, n_0 numbers.
    - `kurtosis`: κ = E[W⁴]/E[W²]² − 3 of the weights, ≥ −2: −1.2 uniform, −0.634 truncated normal
        as drawn by `init`; biases count as Gaussian.

    **Returns:** `KurtosisShift`, layers ℓ = 1..L; of layer 1 the sum runs over n_0 inputs, which
    must be many. Cost: one-dimensional averages.

    >>> net = MLP([100, 10, 10, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> kurtosis_shift(net, np.ones(100), kurtosis=-1.2).four_point.round(4)
    array([-1.2   , -0.3036, -0.1313])
    """
    require_plain(network, "weights that are not Gaussian")
    inputs = check_inputs(np.atleast_2d(np.asarray(x, dtype=np.float64)), network.widths[0])
    if inputs.shape[0] != 1:
        raise InvalidValueError("number of inputs", inputs.shape[0], "expected one")
    kappa = checked_real("kurtosis", kurtosis)
    if kappa < -2.0:
        raise InvalidValueError("kurtosis", kurtosis, "an excess kurtosis is ≥ −2")
    sigma, K = network.activation, frozen_kernels(network, inputs).K[:, 0, 0]
    fourth = np.concatenate([[np.mean(inputs**4)], moment(sigma, K[:-1], (0, 0, 0, 0))])
    four_point = kappa * np.array(network.C_W) ** 2 * fourth
    # d⟨σ²⟩/dK and ⟨∂⁴σ²⟩, by derivatives of the Gaussian.
    slope = moment(sigma, K[:-1], (0, 0), hermite=2) / (2.0 * K[:-1])
    bend = moment(sigma, K[:-1], (0, 0), hermite=4) / K[:-1] ** 2
    G1 = np.zeros(network.depth)
    for i in range(network.depth - 1):
        ratio = network.widths[i + 1] / network.widths[i]
        G1[i + 1] = ratio * network.C_W[i + 1] * (
            slope[i] * G1[i] + four_point[i] * bend[i] / 24.0
        )  # fmt: skip
    return KurtosisShift(four_point, G1)
