"""What the frozen NTK of a network makes of its training, against the training itself.

A wrong control variate would leave measured means right and only make them noisy, so that it needs
a test of its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles.trained._pairs import _descent, _frozen_changes, _gradient, pair_data
from dynagram.networks import MLP

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
TEST = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
ETA = 0.3


@pytest.mark.parametrize("steps", [1, 4, None])
def test_first_order_in_the_fluctuation_of_the_ntk(steps):
    """What is left of ρ is of second order, 1/√n of it."""
    network = MLP([3, 2000, 2], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    how = Training(GradientDescent(ETA), steps=steps)
    training = InfiniteTraining.of(network, Data(X, Y, TEST), how)
    limit = training.at(how.end)
    data = pair_data(np.concatenate([X, TEST]), training, limit, ETA, -1.0)
    change, left = [], []
    for seed in range(4):
        params = network.draw(jax.random.key(seed), dtype=jnp.float64)
        end, _ = _descent(network, params, data, steps or 400, _gradient)
        z = network.apply(params, data.inputs)
        rho = np.asarray(end - limit.mean[2:] - data.bracket @ z)
        first, _ = _frozen_changes(network, params, data, z)
        change.append(rho)
        left.append(rho - np.asarray(first))
    assert np.linalg.norm(left) < 0.15 * np.linalg.norm(change)
