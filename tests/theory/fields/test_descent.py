"""Gradient descent on the weights against a loop written out with automatic differentiation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Layer, Model
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.theory.fields import descend

RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((8, 5)), RNG.random(8)
WEIGHTS = [RNG.standard_normal((12, 5)), RNG.standard_normal((10, 12)) / 2]


def test_descent_is_that_of_automatic_differentiation():
    readout = np.where(np.arange(10) % 2, -1.0, 1.0)
    run = descend(fixed_readout(WEIGHTS, readout=readout), X, Y, eta=0.5, steps=20)

    def forward(weights):
        u = jnp.asarray(X)
        for W in weights:
            u = jnp.maximum(u @ W.T, 0.0)
        return u

    @jax.jit
    def loss(weights):
        return jnp.mean((forward(weights) @ readout / 10 - Y) ** 2)

    weights, losses, signs, flips = [jnp.asarray(W) for W in WEIGHTS], [], [], []
    for _ in range(21):
        first = weights[0] @ X.T
        signs.append((first > 0, weights[1] @ jnp.maximum(first, 0.0) > 0))
        losses.append(float(loss(weights)))
        gradient = jax.grad(loss)(weights)
        weights = [W - 0.5 * g for W, g in zip(weights, gradient, strict=True)]
    np.testing.assert_allclose(run.losses, losses, rtol=1e-10)
    assert run.losses[-1] < 0.1 * run.losses[0]
    for old, new in itertools.pairwise(signs):
        flips.append([int(jnp.sum(a != b)) for a, b in zip(old, new, strict=True)])
    np.testing.assert_array_equal(run.flips, flips)
    assert run.flips.sum() > 10
    np.testing.assert_array_equal(run.model.params[-1].W[0], readout / 10)


def test_learning_rates_of_the_network():
    net = MLP([5, 6, 1], "tanh", C_b=0.1, C_W=1.0, lambda_b=[0.2, 0.7], lambda_W=[3.0, 2.0])
    params = tuple(
        Layer(RNG.standard_normal(n), RNG.standard_normal((n, m))) for m, n in ((5, 6), (6, 1))
    )
    run = descend(Model(net, params), X, Y, eta=0.1, steps=1)
    loss = lambda p: jnp.mean((net.apply(p, X)[:, 0] - Y) ** 2)  # noqa: E731
    gradient = jax.grad(loss)(params)
    for index, n in enumerate((5, 6)):
        expected = params[index].W - 0.1 * net.lambda_W[index] / n * gradient[index].W
        np.testing.assert_allclose(run.model.params[index].W, expected, rtol=1e-12)
        expected = params[index].b - 0.1 * net.lambda_b[index] * gradient[index].b
        np.testing.assert_allclose(run.model.params[index].b, expected, rtol=1e-12)


def test_the_step_size_bound():
    """One linear layer: the loss falls just below M/λ_max(K) and grows just above it."""
    from dynagram.observables.fields._overlaps import collective_kernel

    model = fixed_readout(WEIGHTS[:1], "linear")
    bound = 8 / np.linalg.eigvalsh(collective_kernel(fields(model, X)))[-1]
    below, above = (descend(model, X, Y, eta=f * bound, steps=60) for f in (0.97, 1.03))
    assert below.losses[-1] < below.losses[0]
    assert above.losses[-1] > above.losses[-10] > above.losses[-20]
    with pytest.raises(NonFiniteError, match=r"not finite at step \d+: eta = 1e\+30 is too large"):
        descend(model, X, Y, eta=1e30, steps=150)


def test_targets_out_of_reach_are_announced():
    with pytest.warns(UserWarning, match="cannot be below 0 but targets are"):
        descend(fixed_readout(WEIGHTS), X, Y - 2.0, eta=0.1, steps=1)
    signed = fixed_readout(WEIGHTS, readout=np.where(np.arange(10) % 2, -1.0, 1.0))
    descend(signed, X, Y - 2.0, eta=0.1, steps=1)  # warnings are errors in tests
    descend(fixed_readout(WEIGHTS, "leaky_relu(0.1)"), X, Y - 2.0, eta=0.1, steps=1)


def test_bad_requests_are_refused():
    model = fixed_readout(WEIGHTS)
    with pytest.raises(InvalidValueError, match="shape of y = \\(3,\\): expected \\(8,\\)"):
        descend(model, X, [1.0, 2.0, 3.0], eta=0.1, steps=1)
    with pytest.raises(InvalidTypeError, match="y = 'list'"):
        descend(model, X, ["a"] * 8, eta=0.1, steps=1)
    with pytest.raises(InvalidValueError, match="every target must be finite"):
        descend(model, X, np.full(8, np.nan), eta=0.1, steps=1)
    with pytest.raises(InvalidValueError, match="eta = -1"):
        descend(model, X, Y, eta=-1.0, steps=1)
    with pytest.raises(InvalidValueError, match="steps = -1"):
        descend(model, X, Y, eta=0.1, steps=-1)
