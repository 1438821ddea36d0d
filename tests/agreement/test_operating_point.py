"""Squared gradients of networks set up on data grow by the predicted factor χ per layer.

Ten layers of widths 150 and 300, extrapolated in 1/n, on 3 000 inputs of as many components, so
many that every unit has nearly the variance K over them; the growth over eight layers, as a
logarithm, with the standard error of 12 networks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.advice import initialise, operating_point
from dynagram.networks import MLP

DEPTH, SAMPLES, MEMBERS = 10, 3000, 12


def growth(name, width, seed):
    """log of mean squared backward signal of layer 1 over that of layer 9, network by network."""
    x = np.random.default_rng(seed).normal(size=(SAMPLES, width))
    network = MLP([width, *[width] * (DEPTH - 1), 1], name, C_b=0.0, C_W=1.0)

    @jax.jit
    def measured(params):
        def total(shifts):
            signal = jnp.asarray(x)
            for layer, shift in zip(params[:-1], shifts, strict=True):
                signal = network.activation(signal @ layer.W.T + layer.b[None, :] + shift)
            return jnp.sum(signal @ params[-1].W.T)

        slopes = jax.grad(total)([jnp.zeros((SAMPLES, width)) for _ in range(DEPTH - 1)])
        return jnp.log(jnp.mean(slopes[0] ** 2) / jnp.mean(slopes[-1] ** 2))

    members = range(seed, seed + MEMBERS)
    return np.array([measured(initialise(network, x, seed=member).params) for member in members])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
def test_gradients_grow_as_predicted(name):
    wide, narrow = growth(name, 300, 1), growth(name, 150, 101)
    extrapolated = 2 * wide.mean() - narrow.mean()
    error = np.sqrt((4 * wide.var(ddof=1) + narrow.var(ddof=1)) / MEMBERS)
    predicted = (DEPTH - 2) * np.log(operating_point(name, DEPTH).amplification)
    assert abs(extrapolated - predicted) < 4 * error
    # A doubled or a missing layer would be seen.
    assert error < np.log(operating_point(name, DEPTH).amplification) / 4
