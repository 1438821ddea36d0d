"""Most probable parameters against closed forms, likelihoods, and the prior as a weight decay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import DynagramError
from dynagram.networks import MLP, Model
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import log_likelihood, most_probable, prior_decay
from dynagram.training import Posterior

DATA = Data([[1.0, -0.4], [-0.3, 1.2], [0.8, 0.9]], [0.9, -0.6, 0.2], test_x=[[0.5, 0.8]])


def test_a_linear_model_has_the_posterior_mean():
    """One layer: the posterior of θ is Gaussian, its maximum its mean, K = C_b + C_W x·x/n_0."""
    network = MLP([2, 1], "linear", C_b=0.3, C_W=1.4)
    found = most_probable(network.init(seed=0), DATA, noise=0.2)
    expected = predict_outputs(network, DATA, Posterior(noise=0.2), order="infinite")
    np.testing.assert_allclose(np.asarray(found.model(DATA.test_x)), expected.mean, rtol=1e-6)
    # log p(y|θ*) + log p(θ*) = log evidence − log p(θ*|y), all Gaussian.
    x = np.concatenate([np.ones((3, 1)), DATA.x], axis=1)
    prior = np.diag([1 / 0.3, 2 / 1.4, 2 / 1.4])
    precision = prior + x.T @ x / 0.2
    peak = 0.5 * np.linalg.slogdet(precision / (2 * np.pi))[1]
    assert abs(found.log_density - (expected.about["log_evidence"] + peak)) < 1e-8


def test_without_a_prior_the_targets_are_met():
    network = MLP([2, 12, 1], "tanh", C_b=0.3, C_W=1.4)
    found = most_probable(network.init(seed=0), DATA, noise=0.2, prior=False)
    np.testing.assert_allclose(np.asarray(found.model(DATA.x)), DATA.y, atol=1e-4)
    assert abs(found.log_density - log_likelihood(found.model, DATA, noise=0.2)) < 1e-8


def test_softmax_by_newtons_method():
    """Logistic regression with a Gaussian prior is convex: one maximum, found independently."""
    data = Data.of_classes([[1.0, -0.4], [-0.3, 1.2], [0.8, 0.9], [0.1, 0.2]], [0, 1, 1, 0])
    network = MLP([2, 2], "linear", C_b=0.0, C_W=4.0)
    found = most_probable(network.init(seed=0), data, likelihood="softmax")
    with jax.enable_x64():
        x, y = jnp.asarray(data.x), jnp.asarray(data.y)

        def loss(w):
            W = w.reshape(2, 2)
            return -jnp.sum(y * jax.nn.log_softmax(x @ W.T, axis=1)) + jnp.sum(w**2) / (2 * 2.0)

        w = jnp.zeros(4)
        for _ in range(20):
            w = w - jnp.linalg.solve(jax.hessian(loss)(w), jax.grad(loss)(w))
    np.testing.assert_allclose(np.asarray(found.model.params[0].W).ravel(), w, atol=1e-6)
    assert np.all(np.asarray(found.model.params[0].b) == 0.0)  # C_b = 0


def test_the_prior_is_a_weight_decay():
    """∇(−log p) = 2 a θ with a of `prior_decay`: the slope at the maximum of the posterior."""
    network = MLP([2, 5, 1], "tanh", C_b=0.3, C_W=1.4)
    best = most_probable(network.init(seed=2), DATA, noise=0.5).model
    a_b, a_W = prior_decay(network)
    with jax.enable_x64():

        def loss(params):
            return jnp.sum((network.apply(params, jnp.asarray(DATA.x)) - DATA.y) ** 2) / (2 * 0.5)

        slope = jax.grad(loss)(jax.tree.map(jnp.asarray, best.params))
    for i, (layer, gradient) in enumerate(zip(best.params, slope, strict=True)):
        np.testing.assert_allclose(gradient.b, -2 * a_b[i] * layer.b, atol=2e-5)
        np.testing.assert_allclose(gradient.W, -2 * a_W[i] * layer.W, atol=2e-5)


def test_refusals():
    model = MLP([2, 1], "linear", C_b=0.3, C_W=1.4).init(seed=0)
    with pytest.raises(DynagramError, match="gaussian, softmax"):
        log_likelihood(model, DATA, likelihood="probit")
    with pytest.raises(DynagramError, match="noise"):
        log_likelihood(model, DATA, noise=0.0)
    with pytest.raises(DynagramError, match="drawn from an MLP"):
        most_probable(Model.of_matrices([np.ones((1, 2))], "linear"), DATA)
    hard = Data.of_classes([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(DynagramError, match="cannot move|no maximum|slope"):
        most_probable(
            MLP([2, 2], "linear", C_b=0.3, C_W=1.4).init(seed=0), hard,
            likelihood="softmax", prior=False, max_steps=5,
        )  # fmt: skip
