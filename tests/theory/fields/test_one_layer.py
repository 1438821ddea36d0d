"""One hidden layer without weights against gradient descent with them."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Model
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.theory.fields import descend, simulate_one_layer

RNG = np.random.default_rng(9)
X, UNSEEN, Y = RNG.standard_normal((20, 6)), RNG.standard_normal((20, 6)), RNG.random(20)
WEIGHTS = [RNG.standard_normal((30, 6)) * np.sqrt(1 / 3)]
SIGNS = np.where(np.arange(30) % 2, -1.0, 1.0)


@pytest.mark.parametrize(
    ("activation", "options", "eta"),
    [("relu", {}, 5.0), ("relu", {"readout": SIGNS, "biases": [RNG.standard_normal(30)]}, 8.0),
     ("tanh", {"readout": 2 * SIGNS}, 1.0)],
)  # fmt: skip
def test_it_equals_gradient_descent(activation, options, eta):
    model = fixed_readout(WEIGHTS, activation, **options)
    start, other = fields(model, X), fields(model, UNSEEN)
    found = simulate_one_layer(start, Y, eta=eta, steps=300, unseen=other)
    run = descend(model, X, Y, eta=eta, steps=300)
    np.testing.assert_allclose(found.losses, run.losses, rtol=1e-10, atol=1e-15)
    np.testing.assert_array_equal(found.flips, run.flips[:, 0])
    assert found.flips.sum() > 100
    end, unseen = (fields(run.model, x) for x in (X, UNSEEN))
    for fields_alone, weights in ((found.v, end.v[0]), (found.unseen_v, unseen.v[0])):
        assert np.abs(fields_alone - weights).max() < 1e-12 * np.abs(weights).max()
    np.testing.assert_allclose(found.outputs[-1], end.output, atol=1e-12)
    np.testing.assert_allclose(found.unseen_outputs[-1], unseen.output, atol=1e-12)
    np.testing.assert_allclose(found.unseen_outputs[0], other.output, rtol=1e-13)


def test_without_unseen_inputs_or_steps():
    start = fields(fixed_readout(WEIGHTS), X)
    found = simulate_one_layer(start, Y, eta=1.0, steps=0)
    assert found.unseen_outputs.shape == (1, 0)
    np.testing.assert_allclose(found.outputs, start.output[None, :], rtol=1e-13)
    np.testing.assert_array_equal(found.v, start.v[0])


def test_learning_rates():
    net = MLP([6, 30, 1], "relu", C_b=0.2, C_W=2.0, lambda_b=[0.4, 0.0], lambda_W=[2.0, 0.0])
    params = fixed_readout(WEIGHTS, biases=[RNG.standard_normal(30)]).params
    found = simulate_one_layer(fields(Model(net, params), X), Y, eta=0.05, steps=20)
    run = descend(Model(net, params), X, Y, eta=0.05, steps=20)
    np.testing.assert_allclose(found.losses, run.losses, rtol=1e-11)


def test_bad_requests_are_refused():
    start = fields(fixed_readout(WEIGHTS), X)
    with pytest.raises(InvalidValueError, match="hidden layers = 2: one needed"):
        simulate_one_layer(fields(fixed_readout([*WEIGHTS, np.eye(30)]), X), Y, eta=1.0, steps=1)
    with pytest.raises(InvalidValueError, match="steps = -2"):
        simulate_one_layer(start, Y, eta=1.0, steps=-2)
    with pytest.raises(NonFiniteError, match="eta = 1e\\+200 is too large"):
        simulate_one_layer(start, Y, eta=1e200, steps=20)
    with pytest.warns(UserWarning, match="a mean of activations"):
        simulate_one_layer(start, Y - 1.0, eta=1.0, steps=1)
    net = MLP([6, 30, 1], "relu", C_b=0.0, C_W=2.0)
    trained = fields(Model(net, fixed_readout(WEIGHTS).params), X)
    with pytest.raises(InvalidValueError, match="needs a fixed readout"):
        simulate_one_layer(trained, Y, eta=1.0, steps=1)
