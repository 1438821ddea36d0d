"""The imbalance identities against automatic differentiation and against real steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.observables import (
    homogeneity_deficit,
    imbalance,
    imbalance_drift,
    imbalance_matrix,
    imbalance_matrix_drift,
    imbalance_step,
)
from dynagram.observables._imbalance import half_squared_error


def logistic(output, target):
    return jnp.sum(jax.nn.softplus(-target * output))


LOSSES = {"squared": half_squared_error, "logistic": logistic}


def case(sigma, lambda_b, key=0):
    """Unequal widths and rates, biases away from zero, two outputs, ten samples."""
    network = MLP([3, 5, 4, 2], sigma, 0.3, 1.7, lambda_b, lambda_W=[1.5, 2.0, 0.7])
    keys = jax.random.split(jax.random.key(key), 3)
    params = network.draw(keys[0])
    x = jax.random.normal(keys[1], (10, 3))
    y = jnp.sign(jax.random.normal(keys[2], (10, 2)))
    return network, params, x, y


def flow(network, params, x, y, loss, weights=None):
    """dθ/dt = −ρ ∂/∂θ of the mean (or weighted) loss, by automatic differentiation."""

    def total(theta):
        losses = jax.vmap(loss)(network.apply(theta, x), y)
        return jnp.mean(losses) if weights is None else jnp.sum(weights * losses)

    gradient = jax.grad(total)(params)
    rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
    return tuple(
        Layer(-rate_b * g.b, -rate_W / n * g.W)
        for g, (rate_b, rate_W, n) in zip(gradient, rates, strict=True)
    )


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)  # entries are of order 1


@pytest.mark.parametrize(
    ("sigma", "loss", "lambda_b"),
    [(sigma, "squared", 0.4) for sigma in ("tanh", "gelu", "sigmoid", "relu")]
    + [("tanh", "logistic", 0.4), ("gelu", "logistic", 0.0)],
)
def test_drifts_are_the_derivatives_along_the_flow(sigma, loss, lambda_b):
    network, params, x, y = case(sigma, lambda_b)
    w = jnp.linspace(0.1, 2.0, 10) if loss == "squared" else None  # a rule with weights, or a mean

    @jax.jit
    def both(params):
        ways = flow(network, params, x, y, LOSSES[loss], w)
        pairs = []
        forms = ((imbalance, imbalance_drift), (imbalance_matrix, imbalance_matrix_drift))
        for value, drift in forms:
            of_params = lambda theta, f=value: f(Model(network, theta))  # noqa: E731
            _, expected = jax.jvp(of_params, (params,), (ways,))
            found = drift(Model(network, params), x, y, loss=LOSSES[loss], weights=w)
            pairs.append((found, expected))
        return pairs, imbalance(Model(network, params)), imbalance_matrix(Model(network, params))

    (neurons, matrices), value, matrix = both(params)
    close(*neurons)
    close(*matrices)
    close(neurons[0], [jnp.diagonal(m) for m in matrices[0]])
    close(value, [jnp.diagonal(m) for m in matrix])


def test_class_a_is_conserved():
    for sigma in ("leaky_relu(0.1)", "linear"):
        network, params, x, y = case(sigma, 0.4)
        scalar = jax.jit(lambda p, n=network, x=x, y=y: imbalance_drift(Model(n, p), x, y))(params)
        assert max(float(jnp.max(jnp.abs(part))) for part in scalar) < 1e-14
    matrices = jax.jit(lambda p: imbalance_matrix_drift(Model(network, p), x, y))(params)
    assert max(float(jnp.max(jnp.abs(part))) for part in matrices) < 1e-14  # linear: all of it


@pytest.mark.parametrize("sigma", ["tanh", "relu"])
def test_a_step_is_flow_plus_discretisation_plus_decay(sigma):
    network, params, x, y = case(sigma, 0.4)
    eta, decay = 0.3, 0.05
    ways = jax.jit(lambda p: flow(network, p, x, y, half_squared_error))(params)
    moved = jax.tree.map(lambda p, v: p + eta * (v - decay * p), params, ways)
    step = jax.jit(
        lambda eta, decay: imbalance_step(Model(network, params), x, y, eta=eta, weight_decay=decay)
    )
    value = jax.jit(lambda p: imbalance(Model(network, p)))
    terms = step(eta, decay)
    before, after = value(params), value(moved)
    close([sum(parts) for parts in zip(*terms, strict=True)], [
        b - a for a, b in zip(before, after, strict=True)
    ])  # fmt: skip
    # The terms themselves: flow ∝ η, decay = −2ηλΔ, and the rest is of second order.
    half = step(eta / 2, decay)
    close([4 * part for part in half.discretisation], terms.discretisation)
    close([2 * part for part in half.flow], terms.flow)
    close([-2 * eta * decay * part for part in before], terms.weight_decay)
    # Without decay the quadratic term is η²(ρ‖G_{ℓ+1}‖² − ρ‖G_ℓ‖²) over the rates.
    close(step(eta, 0.0).discretisation, [eta**2 * part for part in value(ways)])


def test_uniform_rates_give_the_norms_themselves():
    widths = [3, 5, 4, 1]
    network = MLP(widths, "tanh", 0.0, 1.0, lambda_b=0.0, lambda_W=widths[:-1])
    params = network.draw(jax.random.key(1))
    for index, neurons in enumerate(imbalance(Model(network, params))):
        expected = jnp.sum(params[index + 1].W ** 2) - jnp.sum(params[index].W ** 2)
        np.testing.assert_allclose(jnp.sum(neurons), expected, rtol=1e-13)


def test_homogeneity_deficit():
    z = np.linspace(-2, 2, 9)
    found = homogeneity_deficit(activation("tanh"), z)
    np.testing.assert_allclose(found, z / np.cosh(z) ** 2 - np.tanh(z), rtol=1e-13, atol=1e-15)
    # (q−1) a_q z^q at small z
    np.testing.assert_allclose(
        homogeneity_deficit(activation("tanh"), 1e-3), -2 / 3 * 1e-9, rtol=1e-5
    )


def test_refusals():
    network, params, x, y = case("tanh", 0.4)
    with pytest.raises(InvalidValueError, match="one row per sample"):
        imbalance_drift(Model(network, params), x, y[:4])
    frozen = MLP([3, 5, 4, 2], "tanh", 0.3, 1.7, lambda_W=[0.0, 1.0, 1.0])
    residual = MLP([3, 5, 5, 2], "tanh", 0.3, 1.7, skip=0.5).init(seed=0)
    with pytest.raises(InvalidValueError, match="the law of the imbalance: for networks without"):
        imbalance_drift(residual, x, y)
    with pytest.raises(InvalidValueError, match="does not learn"):
        imbalance(Model(frozen, params))
