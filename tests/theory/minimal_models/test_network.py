"""A network as a quadratic model with wiring, and its first step of training on average."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Model
from dynagram.observables.tangents import ntk
from dynagram.results._comparison import compare
from dynagram.results._estimate import Moments
from dynagram.theory.minimal_models import (
    QuadraticModel,
    descend,
    first_step,
    nearly_kernel_prediction,
    network_model,
    network_prediction,
)

X = np.array([[1.0, 0.5, -0.7], [0.2, -0.9, 1.1], [0.4, 0.3, 0.8]])
NETWORK = MLP([3, 5, 2], "gelu", [0.2, 0.1], [1.3, 1.5], [0.7, 0.4], [0.9, 1.1])
Y = np.array([[0.5, -0.3], [0.2, 0.9]])


def rates(network, params):
    """√λ of every parameter, in the flat order of ravel_pytree."""
    scaled = [
        (jnp.full_like(layer.b, lambda_b), jnp.full_like(layer.W, lambda_W / layer.W.shape[1]))
        for layer, lambda_b, lambda_W in zip(
            params, network.lambda_b, network.lambda_W, strict=True
        )
    ]
    return np.sqrt(np.asarray(ravel_pytree(scaled)[0]))


def test_wiring_of_a_network_expanded_by_hand():
    """Jacobian and Hessian by autodiff give the same kernels; then real descent on them."""
    params = NETWORK.draw(jax.random.key(1))
    flat, unflatten = ravel_pytree(params)

    def function(theta):
        return NETWORK.apply(unflatten(theta), X).reshape(-1)

    root = rates(NETWORK, params)
    J = np.asarray(jax.jit(jax.jacobian(function))(flat)) * root
    H = np.asarray(jax.jit(jax.hessian(function))(flat)) * root[:, None] * root[None, :]
    model = network_model(Model(NETWORK, params), X)
    by_hand = QuadraticModel(J, 0.5 * (H + np.swapaxes(H, 1, 2)), 1.0)
    np.testing.assert_allclose(model.kernel, by_hand.kernel, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.meta_kernel, by_hand.meta_kernel, rtol=1e-10, atol=1e-12)

    missing = (Y - model.outputs[:2]).reshape(-1, 1)
    eta = 0.7 / np.linalg.eigvalsh(model.kernel[:4, :4])[-1]
    errors = []
    for epsilon in (0.04, 0.02):
        result = nearly_kernel_prediction(
            model.kernel, epsilon * model.meta_kernel, missing, solution="gd", eta=eta
        )
        weak = QuadraticModel(by_hand.features, by_hand.meta_features, epsilon)
        errors.append(np.max(np.abs(weak.outputs(descend(weak, missing, eta=eta).W) - result)[4:]))
    assert errors[0] / errors[1] == pytest.approx(4.0, abs=0.3)

    full = network_prediction(Model(NETWORK, params), Data(X[:2], Y, X[2:]), eta=eta)
    expected = nearly_kernel_prediction(
        model.kernel, model.meta_kernel, missing, solution="gd", eta=eta
    )
    np.testing.assert_allclose(full.outputs - full.initial, expected.reshape(3, 2), rtol=1e-9)
    np.testing.assert_allclose(full.outputs[:2], Y, rtol=1e-9)
    identity = np.einsum("ab,ij->aibj", np.eye(2), np.eye(2))
    np.testing.assert_allclose(full.response[:2], identity, atol=1e-9)
    moved = Y + np.array([[0.0, 1e-4], [0.0, 0.0]])
    other = network_prediction(Model(NETWORK, params), Data(X[:2], moved, X[2:]), eta=eta)
    slope = (other.outputs - full.outputs)[2] / 1e-4
    np.testing.assert_allclose(slope, full.response[2, :, 0, 1], rtol=1e-3)
    assert full.wiring[2, 0, 0, 1] == full.response[2, 0, 0, 1] != 0.0
    assert full.wiring[2, 1, 0, 1] == 0.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gelu", (-1.0191, -0.2295, -1.1993)), ("tanh", (0.1093, 0.0574, 0.1458))],
)
def test_mean_ntk_change_of_the_reference(name, expected):
    network = MLP([3, 8, 2], name, [0.2, 0.1], [1.3, 1.5], [0.7, 0.4], [0.9, 1.1])
    found = first_step(network, Data(X[:2], np.zeros((2, 2))), eta=0.1)
    change = found.ntk_change[[0, 0, 1], [0, 1, 1]] / 0.1
    np.testing.assert_allclose(change, expected, atol=6e-5)


@functools.partial(jax.jit, static_argnums=(0, 3))
def measured_step(network, x, y, eta, keys):
    """dH of output 0 (order η), the bend of z, and dz of the first hidden neuron, per network."""

    def member(key):
        params = network.draw(key)

        def outputs(p):
            return network.apply(p, x)

        z, pull = jax.vjp(outputs, params)
        gradient = pull(z.at[y.shape[0] :].set(0.0).at[: y.shape[0]].add(-y))[0]
        direction = tuple(
            type(layer)(-eta * rate_b * layer.b, -eta * rate_W / layer.W.shape[1] * layer.W)
            for layer, rate_b, rate_W in zip(
                gradient, network.lambda_b, network.lambda_W, strict=True
            )
        )

        def along(f):
            return lambda p: jax.jvp(f, (p,), (direction,))[1]

        dH = along(lambda p: ntk(Model(network, p), x)[:, :, 0, 0])(params)
        bend = 0.5 * along(along(outputs))(params)
        feature = along(lambda p: network.preactivations(p, x)[-2][:, 0])(params)
        square = feature[:, None] * feature[None, :]
        return jnp.concatenate([dH.ravel(), bend.ravel(), feature, square.ravel()])

    return jax.lax.map(member, keys, batch_size=1000)


def test_first_step_of_real_networks():
    """One hidden layer: the means are exact at any width; the second moment has a 1/n error."""
    network, eta, members = MLP([3, 40, 2], *_hyper()), 0.1, 8000
    targets = jnp.asarray(3 * Y)
    rows = measured_step(network, X, targets, eta, jax.random.split(jax.random.key(2), members))
    estimate = Moments.from_samples(np.asarray(rows), order=1).mean()
    theory = first_step(network, Data(X[:2], 3 * Y, X[2:]), eta=eta)
    parts = (theory.ntk_change, theory.output_bend, theory.feature_mean, theory.feature_square)
    prediction = np.concatenate([part.ravel() for part in parts])
    slack = np.zeros(27)
    slack[18:] = 0.06 * np.max(theory.feature_square)  # next order: about 2/n of the square
    result = compare(prediction, estimate, prediction_error=slack / 4)
    assert result.ok(), result
    sizes = [np.max(np.abs(part)) for part in parts]
    errors = [np.max(e) for e in np.split(estimate.standard_error, [9, 15, 18])]
    assert all(size > 8 * error for size, error in zip(sizes, errors, strict=True))
    assert 0.0 < theory.relative_ntk_change < 0.2
    assert 0.0 < theory.relative_feature_change < 0.2


def _hyper():
    return "gelu", [0.2, 0.1], [1.3, 1.5], [0.7, 0.4], [0.9, 1.1]


def test_nothing_moves_at_infinite_width_and_kinks_are_refused():
    sizes = [
        first_step(MLP([3, n, 2], *_hyper()), Data(X[:2], Y), eta=0.1).relative_ntk_change
        for n in (100, 200)
    ]
    assert sizes[0] / sizes[1] == pytest.approx(2.0, rel=1e-9)
    with pytest.raises(InvalidValueError, match="kink"):
        first_step(MLP([3, 9, 2], "relu", 0.0, 2.0), Data(X[:2], Y), eta=0.1)
    with pytest.raises(InvalidValueError, match="eta = 0.0"):
        first_step(NETWORK, Data(X[:2], Y), eta=0.0)
