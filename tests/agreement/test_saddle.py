"""SGD on all weights against SGD on the block coordinates: equal on every batch."""

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.theory.saddle import BlockNetwork
from dynagram_experiments.saddle._sgd import (
    coordinate_loss,
    crossing,
    descend,
    stacked,
    widened,
)

INPUTS = 4


def test_sgd_on_block_coordinates_is_sgd_on_the_network():
    """Finite batches, two blocks, input components the teacher does not use."""
    blocks = BlockNetwork("tanh", depth=4, betas=(1.0, 0.4), block_size=3)
    state = blocks.aligned(0.5)
    model = blocks.embedded(state, INPUTS)
    network, params = model.network, model.params
    eta = 0.3
    options = {"seeds": [0, 1], "batch": 32, "inputs": INPUTS, "between": 10, "records": 4}

    start = stacked([widened(state, INPUTS)])
    rates = jax.tree.map(lambda part: jnp.full_like(part, eta / blocks.block_size), start)
    loss = coordinate_loss(blocks.activation, blocks.betas, blocks.block_size)
    small = descend(loss, lambda x: x.A1, start, rates, **options)

    def full_loss(theta, x):
        y = blocks.activation(x[:, :2]) @ jnp.asarray(blocks.betas)
        return 0.5 * jnp.mean((network.apply(theta, x)[:, 0] - y) ** 2)

    speeds = [eta * rate / n for rate, n in zip(network.lambda_W, network.widths, strict=False)]
    full_rates = tuple(
        layer._replace(b=0 * layer.b[None], W=jnp.full_like(layer.W, speed)[None])
        for layer, speed in zip(params, speeds, strict=True)
    )
    full = descend(full_loss, lambda theta: theta[0].W, stacked([params]), full_rates, **options)
    rows = full.values[..., :: blocks.block_size, :]  # the first neuron of each block
    assert np.max(np.abs(rows[-1] - rows[0])) > 1e-2
    # Targets of the coordinates are formed from float32 amplitudes: equal to that rounding.
    np.testing.assert_allclose(rows, small.values, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(full.values[..., 0, :], full.values[..., 1, :])


def test_crossing_interpolates():
    times = np.array([0.0, 1.0, 2.0])
    values = np.array([[0.0, 0.0], [1.0, 0.1], [3.0, 0.2]])
    np.testing.assert_allclose(crossing(times, values, 2.0), [1.5, np.nan])
