"""Squared gradients of networks set up on data grow by the predicted factor χ per layer.

Widths of 400, 10 layers, 24 networks: the growth over eight layers, as a logarithm, with the
standard error of the networks; its own correction of order 1/n is added to the tolerance as the
difference to width 200, extrapolated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.advice import initialise, operating_point
from dynagram.networks import MLP

DEPTH, SAMPLES = 10, 200


def growth(name, width, members, seed):
    """log of mean squared backward signal of layer 1 over that of layer 9, network by network."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SAMPLES, 60))
    network = MLP([60, *[width] * (DEPTH - 1), 1], name, C_b=0.0, C_W=1.0)
    values = []
    for member in range(members):
        model = initialise(network, x, seed=seed + member)
        shifts = [jnp.zeros((SAMPLES, width)) for _ in range(DEPTH - 1)]

        def total(shifts, model=model):
            signal = jnp.asarray(x)
            for layer, shift in zip(model.params[:-1], shifts, strict=True):
                signal = network.activation(signal @ layer.W.T + layer.b[None, :] + shift)
            return jnp.sum(signal @ model.params[-1].W.T)

        slopes = jax.grad(total)(shifts)
        values.append(jnp.log(jnp.mean(slopes[0] ** 2) / jnp.mean(slopes[-1] ** 2)))
    return np.array(values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_gradients_grow_as_predicted(name):
    wide, narrow = growth(name, 400, 24, 1), growth(name, 200, 24, 101)
    extrapolated = 2 * wide.mean() - narrow.mean()
    error = np.sqrt((4 * wide.var(ddof=1) + narrow.var(ddof=1)) / 24)
    predicted = (DEPTH - 2) * np.log(operating_point(name, DEPTH).amplification)
    assert abs(extrapolated - predicted) < 4 * error
    # A doubled or a missing layer would be seen.
    assert error < np.log(operating_point(name, DEPTH).amplification) / 4
