"""The linear model: the kernel's outputs, plain descent in parameter space, layers that add up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.networks import MLP, Layer, Model
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, GradientFlow, Training
from oracles.linear_model import linear_model

NET = MLP([3, 9, 8, 2], "gelu", C_b=0.1, C_W=1.3, lambda_b=0.4, lambda_W=1.1)
PARAMS = NET.draw(jax.random.key(3))
MODEL = Model(NET, PARAMS)
RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 3))
X[3] = X[0]  # a repeated input, whose targets differ
Y, T = RNG.normal(size=(4, 2)), RNG.normal(size=(5, 3))
DATA = Data(X, Y, T)
DESCENT = GradientDescent(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [Training(DESCENT), Training(DESCENT, steps=7), Training(GradientFlow(), time=0.8)],
    ids=["end", "steps", "flow"],
)
def test_outputs_are_those_of_the_kernel(how):
    linear = linear_model(MODEL, DATA, how)
    expected = predict_outputs(MODEL, DATA, how, order="infinite").mean
    np.testing.assert_allclose(linear.outputs(T), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_displacement_is_that_of_descent():
    """Seven steps on z(θ) + J·(θ' − θ), written out in parameter space."""
    eta, steps = 0.05, 7

    def output(moved):
        z, change = jax.jvp(lambda p: NET.apply(p, jnp.asarray(X)), (PARAMS,), (moved,))
        return z + change

    moved = jax.tree.map(jnp.zeros_like, PARAMS)
    for _ in range(steps):
        way = jax.grad(lambda m: 0.5 * jnp.sum((output(m) - Y) ** 2))(moved)
        moved = tuple(
            Layer(m.b - eta * b * d.b, m.W - eta * W / n * d.W)
            for m, d, b, W, n in zip(
                moved, way, NET.lambda_b, NET.lambda_W, NET.widths[:-1], strict=True
            )
        )
    model = linear_model(MODEL, DATA, Training(GradientDescent(eta), steps=steps))
    for found, expected in zip(model.displacement, moved, strict=True):
        np.testing.assert_allclose(found.b, expected.b, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.W, expected.W, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_layers():
    model = linear_model(MODEL, DATA, Training(DESCENT))
    total = model.outputs(T) - np.asarray(NET.apply(PARAMS, T))
    np.testing.assert_allclose(model.changes(T).sum(axis=0), total, rtol=1e-10, atol=1e-12)
    last, start = model.displacement[-1], PARAMS[-1]
    expected = np.sqrt(np.sum(last.b**2) + np.sum(last.W**2))
    expected /= np.sqrt(np.sum(start.b**2) + np.sum(start.W**2))
    assert model.distances()[-1] == pytest.approx(expected, rel=1e-12)
