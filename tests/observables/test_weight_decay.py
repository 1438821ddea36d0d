"""R̂ (10.42) by its forward equation (10.43) against automatic differentiation and a real step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import MLP, Layer
from dynagram.observables.tangents import weight_decay_drift
from dynagram.theory.bayes import prior_decay

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
A_B, A_W = (0.3, 0.7, 0.2, 0.9), (0.5, 0.1, 0.8, 0.4)


@pytest.mark.parametrize(("activation", "skip"), [("gelu", 0.0), ("relu", 0.0), ("tanh", 0.6)])
def test_against_automatic_differentiation(activation, skip):
    network = MLP(
        [3, 5, 5, 5, 2], activation, 0.3, 1.4, (0.3, 0.5, 0.2, 0.4), (0.7, 0.6, 0.9, 0.8),
        skip=skip,
    )  # fmt: skip
    with jax.enable_x64():
        model = network.init(seed=1, dtype="float64")
        found = weight_decay_drift(model, X, a_b=A_B, a_W=A_W)
        way = tuple(
            Layer(
                A_B[i] * network.lambda_b[i] * layer.b,
                A_W[i] * network.lambda_W[i] / network.widths[i] * layer.W,
            )
            for i, layer in enumerate(model.params)
        )
        _, expected = jax.jvp(lambda p: network.preactivations(p, X), (model.params,), (way,))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_a_step_of_decay_moves_the_outputs_by_it():
    """θ → θ − 2η λ a θ, the regulariser of the prior: Δz = −2η R̂ + O(η²)."""
    network = MLP([3, 6, 1], "tanh", 0.3, 1.4, 0.5, 0.8)
    a_b, a_W = prior_decay(network)
    with jax.enable_x64():
        model = network.init(seed=1, dtype="float64")
        drift = weight_decay_drift(model, X, a_b=a_b, a_W=a_W)[-1]
        moved = []
        for eta in (1e-4, -1e-4):
            params = tuple(
                Layer(
                    layer.b * (1 - 2 * eta * network.lambda_b[i] * a_b[i]),
                    layer.W * (1 - 2 * eta * network.lambda_W[i] / network.widths[i] * a_W[i]),
                )
                for i, layer in enumerate(model.params)
            )
            moved.append(network.apply(params, jnp.asarray(X)))
    np.testing.assert_allclose((moved[0] - moved[1]) / 2e-4, -2 * drift, rtol=1e-6)
