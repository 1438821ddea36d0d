"""Signal energy and its rate against autodiff; scales and bottleneck of known networks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.errors import DynagramError
from dynagram.networks import MLP, Layer, Model
from dynagram.observables import bottleneck_layers, small_signal


def problem(name="tanh", outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 5))
    y = np.sin(x @ rng.normal(size=(5, outputs)))
    sizes = [5, 7, 6, outputs]
    layers = [
        Layer(0.3 * rng.normal(size=b), 0.4 * rng.normal(size=(b, a)))
        for a, b in itertools.pairwise(sizes)
    ]
    return x, y, layers, activation(name)


def model_of(layers, sigma):
    biases = [layer.b for layer in layers]
    return Model.of_matrices([layer.W for layer in layers], sigma, biases=biases)


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu"])
def test_signal_gradients_and_rate_are_those_of_autodiff(name):
    x, y, layers, sigma = problem(name)
    found = small_signal(model_of(layers, sigma), x, y)
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    g = x @ solution / np.sqrt(np.mean(np.sum((x @ solution) ** 2, axis=1)))

    def output(weights):
        h = x
        for index, (w, layer) in enumerate(zip(weights, layers, strict=True)):
            z = h @ w.T + layer.b[None, :]
            h = sigma(z) if index < 2 else z
        return h

    def gamma(weights):
        return jnp.mean(jnp.sum(output(weights) * g, axis=1))

    def loss(weights):
        return 0.5 * jnp.mean(jnp.sum((output(weights) - y) ** 2, axis=1))

    weights = [jnp.asarray(layer.W) for layer in layers]
    value, G = jax.value_and_grad(gamma)(weights)
    descent = jax.grad(loss)(weights)
    assert found.gamma == pytest.approx(float(value), rel=1e-12)
    for ours, theirs in zip(found.gradients, G, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-10, atol=1e-14)
    rate = -sum(float(jnp.sum(a * b)) for a, b in zip(G, descent, strict=True))
    assert found.rate == pytest.approx(rate, rel=1e-10)
    assert found.gradient_energy == pytest.approx(sum(float(jnp.sum(a * a)) for a in G), rel=1e-12)

    def own(weights):
        return 0.5 * jnp.mean(jnp.sum(output(weights) ** 2, axis=1))

    self_part = sum(float(jnp.sum(a * b)) for a, b in zip(G, jax.grad(own)(weights), strict=True))
    assert found.self_interaction == pytest.approx(self_part, rel=1e-10)


def test_path_gains_multiply_to_the_linear_map():
    x, y, layers, sigma = problem(outputs=1)
    found = small_signal(Model.of_matrices([layer.W for layer in layers], sigma), x, y)
    direction = np.linalg.lstsq(x, y, rcond=None)[0][:, 0]
    direction /= np.linalg.norm(direction)
    P = layers[2].W @ layers[1].W @ layers[0].W
    assert np.prod(found.path_gains) == pytest.approx(abs(float((P @ direction)[0])), rel=1e-10)
    assert found.operator_norms[1] == pytest.approx(np.linalg.svd(layers[1].W, compute_uv=False)[0])


def test_a_linear_network_has_no_nonlinearity():
    x, y, layers, _ = problem()
    found = small_signal(model_of(layers, "linear"), x, y)
    assert max(found.nonlinearity) < 1e-12
    assert found.gains == (1.0, 1.0)


def test_bottleneck_layers_lie_below_the_widest_gap():
    assert bottleneck_layers([0.2, 1.4, 1.3]) == (1,)
    assert bottleneck_layers([1.0, 1.2, 1.3]) == (1, 2, 3)
    assert bottleneck_layers([0.0, 0.5, 0.0]) == (1, 3)


def test_bad_requests_are_refused():
    x, y, layers, sigma = problem()
    model = model_of(layers, sigma)
    with pytest.raises(DynagramError, match="shape of x"):
        small_signal(model, x[:, :3], y)
    with pytest.raises(DynagramError, match="shape of y"):
        small_signal(model, x, y[:, :1])
    with pytest.raises(DynagramError, match="uncorrelated"):
        small_signal(model, x, 0 * y)
    with pytest.raises(DynagramError, match="the theory of plateaus: for networks without skips"):
        small_signal(MLP([5, 6, 6, 2], sigma, 0.0, 1.0, skip=0.5).init(seed=0), x, y)
    with pytest.raises(DynagramError, match="at least 2 layers"):
        small_signal(MLP([5, 2], sigma, 0.0, 1.0).init(seed=0), x, y)
