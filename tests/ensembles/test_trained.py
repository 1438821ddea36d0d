"""Trained ensembles: variance reduction changes the errors, not the numbers; refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynagram.ensembles.trained._measure import measure_trained

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Layer

NET = MLP([2, 12, 1], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
X, Y, T = np.array([[1.0, 0.3]]), np.array([[0.8]]), np.array([[0.4, -0.9]])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [150, 2])
def test_against_plain_averages(steps):
    """A narrow network, trained by a plain loop: all orders in 1/n are in both."""
    eta, members = 0.3, 6000

    def end(key):
        def step(p, _):
            g = jax.grad(lambda q: 0.5 * jnp.sum((NET.apply(q, X) - Y) ** 2))(p)
            rates = zip(NET.lambda_b, NET.lambda_W, NET.widths[:-1], strict=True)
            return tuple(
                Layer(layer.b - eta * b * d.b, layer.W - eta * W / n * d.W)
                for layer, d, (b, W, n) in zip(p, g, rates, strict=True)
            ), None

        return NET.apply(jax.lax.scan(step, NET.draw(key), None, length=steps)[0], T)[0, 0]

    z = np.asarray(jax.jit(jax.vmap(end))(jax.random.split(jax.random.key(9), members)))
    before = steps if steps < 150 else None
    found = measure_trained(NET, X, Y, T, eta=eta, steps=before, members=2048, seed=0)
    error = np.hypot(z.std() / np.sqrt(members), found.mean.standard_error[0, 0])
    assert abs(found.mean.value[0, 0] - z.mean()) < 4 * error
    spread = np.std((z - z.mean()) ** 2) / np.sqrt(members)
    error = np.hypot(spread, found.covariance.standard_error[0, 0, 0, 0])
    assert abs(found.covariance.value[0, 0, 0, 0] - z.var()) < 4 * error
    assert found.unfinished == 0


def test_a_small_ensemble_agrees_with_a_large_one():
    """64 networks are enough, and rows that come one by one are added up as if together."""
    small = measure_trained(NET, X, Y, T, eta=0.3, members=64, seed=1)
    large = measure_trained(NET, X, Y, T, eta=0.3, members=2048, seed=2)
    for name in ("mean", "covariance"):
        one, other = getattr(small, name), getattr(large, name)
        error = np.hypot(one.standard_error, other.standard_error)
        assert np.all(np.abs(one.value - other.value) < 4 * error)
        assert np.all(one.standard_error > other.standard_error)
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(large.joint_error)), large.mean.standard_error.ravel(), rtol=1e-8
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 513}, "an even number"),
        ({"members": 2}, "expected 64"),
        ({"members": 512, "eta": 90.0}, "diverges"),
        ({"members": 512, "time": 1.0}, "only gradient flow"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InvalidValueError, match=message):
        measure_trained(NET, X, Y, T, **({"eta": 0.3, "seed": 0} | options))
