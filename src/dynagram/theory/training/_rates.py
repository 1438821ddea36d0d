"""Learning rates chosen by what they do: training as inference, a mean NTK free of 1/n.

`bayesian_rates` trains the last layer alone, so that Θ = K and trained outputs are the posterior
(10.46)-(10.49). `retuned_rates` adds to the rates the terms λ^{1}/n that keep the mean NTK of an
input what it is at infinite width, E[H] = Θ + O(1/n²), where (9.3) has H^{1}/n.
"""

from __future__ import annotations

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.theory._predict import predict


def bayesian_rates(network: MLP) -> MLP:
    """The same network with rates at which gradient descent is exact inference (10.46).

    λ_b^(L) = C_b^(L), λ_W^(L) = C_W^(L), and nothing below the last layer learns: Θ^(L) = K^(L).

    **Arguments:**

    - `network`: an `MLP`.

    **Returns:** an `MLP`; trained to the end at infinite width its outputs have the mean and the
    covariance of the posterior without noise.

    >>> bayesian_rates(MLP([2, 8, 1], "relu", C_b=0.1, C_W=2.0))
    MLP((2, 8, 1), 'relu', C_b=0.1, C_W=2.0, lambda_b=[0.0, 0.1], lambda_W=[0.0, 2.0])
    """
    below = [0.0] * (network.depth - 1)
    return MLP(
        network.widths, network.activation, network.C_b, network.C_W,
        [*below, network.C_b[-1]], [*below, network.C_W[-1]], skip=network.skip,
    )  # fmt: skip


def retuned_rates(network: MLP, x: object) -> MLP:
    """Rates λ^(ℓ)(1 + s_ℓ/n_{ℓ−1}) at which the mean NTK of one input is Θ in every layer.

    The recursion of H^{1} (D5.14) is linear: once it is zero in layer ℓ, what layer ℓ+1 adds is
    taken off by λ_b^{1} + λ_W^{1}⟨σσ⟩, both rates scaled alike.

    **Arguments:**

    - `network`: an `MLP` without skips, of which some rate of every layer is > 0.
    - `x`: the input, n_0 numbers. With several inputs two rates per layer cannot cancel all of
        H^{1}.

    **Returns:** an `MLP` with the same widths: the rates depend on them. Cost: `predict` of H1.

    >>> net = MLP([3, 40, 40, 40, 1], "gelu", C_b=0.0, C_W=2.0)
    >>> retuned = retuned_rates(net, [1.0, 1.0, 1.0])
    >>> [round(rate, 4) for rate in retuned.lambda_W]
    [1.0, 1.0, 1.0049, 1.0148]
    """
    require_plain(network, "retuned rates")
    inputs = check_inputs(np.atleast_2d(np.asarray(x, dtype=np.float64)), network.widths[0])
    if inputs.shape[0] != 1:
        raise InvalidValueError("number of inputs", inputs.shape[0], "expected one")
    tensors = predict(network, inputs, ("K", "Theta", "H1"))
    K, Theta, H1 = (tensors[name].reshape(-1) for name in ("K", "Theta", "H1"))
    factors = [1.0]
    for layer in range(1, network.depth):
        n = network.widths[layer]
        mean_square = (K[layer] - network.C_b[layer]) / network.C_W[layer]  # ⟨σσ⟩
        learned = network.lambda_b[layer] + network.lambda_W[layer] * mean_square
        if not learned > 0.0:
            raise InvalidValueError("rates of layer", layer + 1, "some must be > 0 to be retuned")
        # What layer ℓ+1 inherits of H^{1}/n is gone once the layer below is right.
        inherited = (Theta[layer] - learned) / Theta[layer - 1] * H1[layer - 1]
        below = network.widths[layer - 1] if layer > 1 else np.inf
        factors.append(1.0 - (H1[layer] / n - inherited / below) / learned)
    return MLP(
        network.widths, network.activation, network.C_b, network.C_W,
        [rate * factor for rate, factor in zip(network.lambda_b, factors, strict=True)],
        [rate * factor for rate, factor in zip(network.lambda_W, factors, strict=True)],
    )  # fmt: skip
