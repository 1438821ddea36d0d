"""The NTK of one network: layer terms, forward equation and Jacobian sum agree; loss change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.observables.tangents import (
    function_ntk,
    gradients,
    ntk,
    ntk_of_layers,
    ntk_terms,
    signals,
)
from dynagram.observables.tangents._signals import check_differentiable

RATES = {"lambda_b": [0.5, 1.2, 0.3, 0.8], "lambda_W": [1.3, 0.6, 0.9, 1.1]}


def network(sigma, widths=(4, 7, 5, 9, 3), skip=0.0):
    rates = {name: values[: len(widths) - 1] for name, values in RATES.items()}
    return MLP(widths, sigma, C_b=0.3, C_W=1.6, skip=skip, **rates)


def drawn(net, getkey, samples):
    return net.draw(getkey()), jax.random.normal(getkey(), (samples, net.widths[0]))


def rate_tensor(net):
    """λ as a pytree like the parameters: λ_b, and λ_W over the fan-in (8.6)."""
    rates = zip(net.lambda_b, net.lambda_W, net.widths[:-1], strict=True)
    return tuple(Layer(lambda_b, lambda_W / n) for lambda_b, lambda_W, n in rates)


def from_jacobian(function, params, rates):
    """Σ_μ λ_μ dz/dθ_μ dz/dθ_μ, leaf by leaf, from the whole Jacobian (8.7)."""
    jacobian = jax.tree.leaves(jax.jit(jax.jacrev(function))(params))
    total = 0.0
    for J, rate in zip(jacobian, jax.tree.leaves(rates), strict=True):
        flat = np.asarray(J).reshape(*J.shape[:2], -1)
        total = total + np.einsum("aik,bjk,k->abij", flat, flat, np.full(flat.shape[-1], rate))
    return total


def assert_close(found, expected, tolerance=1e-12):
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


BLOCKS = (4, 6, 6, 6, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "skip"),
    [*((sigma, 0.0) for sigma in ("tanh", "relu", "gelu", "sin")), ("tanh", [0.5, -1.3])],
)
def test_three_ways_to_the_ntk(sigma, skip, getkey):
    net = network(sigma) if skip == 0.0 else network(sigma, BLOCKS, skip)
    params, x = drawn(net, getkey, 3)
    expected = from_jacobian(lambda p: net.apply(p, x), params, rate_tensor(net))
    assert_close(ntk(Model(net, params), x), expected)
    assert_close(ntk_terms(Model(net, params), x).sum(axis=0), expected)
    assert_close(ntk_of_layers(Model(net, params), x)[-1], expected)
    of_function = jax.jit(lambda p: function_ntk(net.apply, p, x, rate_tensor(net)))
    assert_close(of_function(params), expected)


def test_a_term_is_the_ntk_of_its_layer_alone(getkey):
    net = network("tanh", (4, 7, 5, 3))
    params, x = drawn(net, getkey, 3)
    terms = ntk_terms(Model(net, params), x)
    for layer in range(3):
        only = [float(index == layer) for index in range(3)]
        rates = {k: np.multiply(only, v[:3]) for k, v in RATES.items()}
        alone = MLP(net.widths, "tanh", C_b=0.3, C_W=1.6, **rates)
        assert_close(terms[layer], ntk(Model(alone, params), x))


def test_the_forward_equation_gives_the_ntk_of_every_layer(getkey):
    net = network("gelu", (4, 7, 5, 3))
    params, x = drawn(net, getkey, 2)
    for layer, kernel in enumerate(ntk_of_layers(Model(net, params), x), start=1):
        cut = network("gelu", net.widths[: layer + 1])
        assert_close(kernel, ntk(Model(cut, params[:layer]), x))


@pytest.mark.parametrize("samples", [37, 64])
def test_strips_of_a_large_ntk(samples, getkey):
    """Large enough that only half of each product is computed, in strips of unequal height."""
    net = network("relu", (6, 11, 8, 7))
    params, x = drawn(net, getkey, samples)
    found = ntk(Model(net, params), x)
    assert_close(found, ntk_terms(Model(net, params), x).sum(axis=0))
    assert_close(found, found.transpose(1, 0, 3, 2), 1e-15)


def test_ntk_is_a_gram_matrix(getkey):
    net = network("tanh")
    params, x = drawn(net, getkey, 4)
    matrix = np.asarray(ntk(Model(net, params), x)).transpose(0, 2, 1, 3).reshape(12, 12)
    eigenvalues = np.linalg.eigvalsh(matrix)
    assert eigenvalues.min() > -1e-13 * eigenvalues.max()


def test_first_layer_is_deterministic(getkey):
    net = MLP([3, 5], "tanh", C_b=0.1, C_W=1.0, lambda_b=0.7, lambda_W=1.4)
    params, x = drawn(net, getkey, 4)
    expected = 0.7 + 1.4 * np.asarray(x @ x.T) / 3
    assert_close(ntk(Model(net, params), x), expected[:, :, None, None] * np.eye(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_of_the_parameters_is_kept(dtype, getkey):
    net = network("tanh", (4, 5, 2))
    params = net.draw(getkey(), dtype=dtype)
    x = np.asarray(jax.random.normal(getkey(), (3, 4)))
    model = Model(net, params)
    for found in (ntk(model, x), ntk_terms(model, x), *ntk_of_layers(model, x)):
        assert found.dtype == dtype
    assert function_ntk(net.apply, params, jnp.asarray(x), rate_tensor(net)).dtype == dtype


@pytest.mark.parametrize("x64", [False, True])
def test_weights_of_64_bits_are_computed_in_64_bits(x64):
    """As loaded from a file: NumPy arrays, wherever JAX's own default stands."""
    model = network("tanh", (4, 5, 2)).init(seed=0).in_float64()
    with jax.enable_x64(x64):
        assert ntk(model, np.eye(4)).dtype == np.float64
        assert signals(model, np.eye(4)).J[0].dtype == np.float64
        assert model(np.eye(4)).dtype == np.float64


@pytest.mark.parametrize("skip", [0.0, 0.8])
def test_backward_signals_are_jacobians(skip, getkey):
    net = network("tanh", (4, 6, 6, 3), skip)
    params, x = drawn(net, getkey, 2)
    found = gradients(Model(net, params), x)
    # z^(3) moves with b^(ℓ) of one sample exactly as with z^(ℓ) (8.17).
    for layer in range(3):

        def output(shift, layer=layer):
            moved = params[layer]._replace(b=params[layer].b + shift)
            return net.apply((*params[:layer], moved, *params[layer + 1 :]), x)

        jacobian = jax.jit(jax.jacrev(output))(jnp.zeros(net.widths[layer + 1]))
        assert_close(found.J[layer], jacobian)


def test_loss_change_of_one_step(getkey):
    """ΔL = −η Σ ε ε H + O(η²) (8.13): the rest is quadratic in η."""
    net = network("tanh", (4, 16, 16, 3))
    params, x = drawn(net, getkey, 3)
    target = jax.random.normal(getkey(), (3, 3))

    def loss(p):
        return 0.5 * jnp.sum((net.apply(p, x) - target) ** 2)

    error = net.apply(params, x) - target
    slope = -jnp.einsum("ai,bj,abij->", error, error, ntk(Model(net, params), x))
    step = jax.tree.map(jnp.multiply, rate_tensor(net), jax.grad(loss)(params))
    rests = []
    for eta in (1e-3, 5e-4):
        moved = jax.tree.map(lambda p, s, eta=eta: p - eta * s, params, step)
        rests.append(float(loss(moved) - loss(params) - eta * slope))
    assert abs(rests[0]) < 0.05 * abs(1e-3 * slope)
    assert rests[0] / rests[1] == pytest.approx(4.0, rel=0.05)


def coupled(params, x):
    """Not an MLP, and its samples depend on each other."""
    centred = x - x.mean(axis=0, keepdims=True)
    hidden = jnp.tanh(centred @ params["in"]) * params["gain"]
    return jnp.stack([hidden.sum(axis=1), jnp.prod(hidden, axis=1)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("rates", [0.7, {"in": 0.3, "gain": 2.0}])
def test_any_function(rates, getkey):
    params = {"in": jax.random.normal(getkey(), (3, 4)), "gain": jnp.array(1.3)}
    x = jax.random.normal(getkey(), (5, 3))
    by_leaf = rates if isinstance(rates, dict) else dict.fromkeys(params, rates)
    expected = from_jacobian(lambda p: coupled(p, x), params, by_leaf)
    assert_close(function_ntk(coupled, params, x, rates), expected)


def test_rates_of_single_parameters(getkey):
    weights, x = jax.random.normal(getkey(), (3,)), jax.random.normal(getkey(), (4, 3))
    rates = jnp.array([0.5, 0.0, 2.0])
    found = function_ntk(lambda w, x: (x @ w)[:, None], weights, x, rates)
    assert_close(found[..., 0, 0], (x * rates[None, :]) @ x.T)


def test_bad_requests_are_refused(getkey):
    net = network("tanh", (3, 4, 2))
    params, x = drawn(net, getkey, 2)
    with pytest.raises(InvalidValueError, match=r"shape of f\(params, x\)"):
        function_ntk(lambda p, x: net.apply(p, x)[:, 0], params, x)
    with pytest.raises(InvalidValueError, match="structure of rates"):
        function_ntk(net.apply, params, x, (1.0, 2.0))
    with pytest.raises(InvalidValueError, match="shape of rates"):
        function_ntk(lambda w, x: x @ w, jnp.ones((3, 2)), x, jnp.ones(2))
    with pytest.raises(InvalidValueError, match="shape of x"):
        ntk(Model(net, params), x[:, :2])
    with pytest.raises(InvalidValueError, match="number of layers"):
        ntk(Model(net, params[:1]), x)


def test_a_specification_is_no_model():
    with pytest.raises(InvalidTypeError, match="model = 'MLP': expected a Model"):
        ntk(network("tanh"), np.eye(4))


def test_where_derivatives_exist():
    relu, relu2 = (MLP([2, 3, 1], name, C_b=0.0, C_W=2.0) for name in ("relu", "relu2"))
    step = MLP([2, 3, 1], lambda z: jnp.where(z > 0, 1.0, 0.0 * z), C_b=0.0, C_W=2.0)
    check_differentiable(relu, 1, "this")
    check_differentiable(relu2, 2, "this")
    with pytest.raises(InvalidValueError, match="this does not exist: σ' jumps at z = 0"):
        check_differentiable(relu, 2, "this")
    with pytest.raises(InvalidValueError, match="σ'' jumps"):
        check_differentiable(relu2, 3, "this")
    with pytest.raises(InvalidValueError, match="the NTK does not exist: σ jumps"):
        ntk(step.init(seed=0), np.ones((1, 2)))
