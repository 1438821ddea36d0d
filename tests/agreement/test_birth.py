"""Squared gradients at birth against drawn networks with automatic differentiation.

Means are compared with Θ + H1/n, whose remainder is of order 1/n², n times variances with A + 2B,
whose remainder is of order 1/n: two widths are extrapolated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Attention, Dense, Gated, Residual, RMSNorm
from dynagram.theory.chain._backward import squared_gradients
from dynagram.theory.chain._gradient_bands import gradient_band

X = np.array([[1.0, 0.6, -0.4, 0.3, -1.0, 0.5]])
SIGNALS = np.array([1.0, -0.5])


def network(n, kind):
    mlp = [RMSNorm(), Dense(2 * n, C_W=2.0, C_b=0.1), Activate("gelu"), Dense(n, C_W=2.0)]
    other = {
        "gated": [RMSNorm(), Gated(2 * n, C_W=1.5), Dense(n)],
        "attention": [RMSNorm(), Attention(n // 4, 4, causal=True, C_q=4.0)],
    }[kind]
    blocks = [Dense(n), Residual(mlp), Residual(other), RMSNorm(), Dense(1)]
    return Chain(blocks, (2, 3))


def measured(net, members, seed):
    """‖∂f/∂θ‖² of every block, a row for every network drawn."""

    def f(params):
        return jnp.asarray(SIGNALS) @ net.rows(params, X)[:, 0]

    def squares(key):
        gradients = jax.grad(f)(net.draw(key, jnp.float64))
        return jnp.array(
            [
                sum((jnp.sum(a**2) for a in jax.tree.leaves(g)), 0.0 * jnp.ones(()))
                for g in gradients
            ]
        )

    @jax.jit
    def run(keys):
        return jax.lax.map(squares, keys, batch_size=50)

    return np.asarray(run(jax.random.split(jax.random.key(seed), members)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gated", "attention"])
def test_squared_gradients_of_drawn_networks(kind):
    widths, members = (64, 128), 12000
    drawn = {n: measured(network(n, kind), members, n) for n in widths}
    for index in (0, 1, 2, 4):
        shares = {}
        for n in widths:
            values = drawn[n][:, index]
            band = gradient_band(
                network(n, kind), X, SIGNALS, index, shifted=True, samples=2**12, accuracy=1e-4
            )
            infinite = sum(squared_gradients(network(n, kind), X, SIGNALS).weights[index].values())
            error = values.std(ddof=1) / members**0.5
            rest = (values.mean() - band.square) / error
            assert error < 0.01 * infinite
            if n == widths[-1]:
                assert abs(rest) < 4, (index, n, rest)
            variance = n * values.var(ddof=1) / infinite**2
            centred = (values - values.mean()) ** 2
            shares[n] = variance, variance * centred.std() / centred.mean() / members**0.5, band
        (one, error_one, _), (two, error_two, band) = (shares[n] for n in widths)
        extrapolated, error = 2 * two - one, np.hypot(2 * error_two, error_one)
        expected = widths[-1] * band.std**2 / infinite**2
        assert error < 0.1 * expected
        assert abs(extrapolated - expected) < 4 * error, (index, extrapolated, expected, error)
