"""AGOP against autodiff; the neural feature ansatz and its null for weights that saw no data."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Model
from dynagram.observables.gram._agop import (
    agop,
    backward_covariances,
    feature_ansatz,
    function_agop,
    random_rotation,
)

rng = np.random.default_rng(2)


@pytest.mark.parametrize("sigma", ["tanh", "relu"])
def test_agop_of_every_layer_is_that_of_autodiff(sigma, getkey):
    net = MLP([3, 6, 5, 2], sigma, C_b=0.3, C_W=1.5)
    params = net.draw(getkey())
    x = rng.normal(size=(11, 3))
    signals = [x, *(np.asarray(net.activation(z)) for z in net.preactivations(params, x)[:-1])]
    found = agop(Model(net, params), x)
    for layer, h in enumerate(signals):

        def rest(v, layer=layer):
            for index in range(layer, net.depth):
                z = params[index].W @ v + params[index].b
                v = net.activation(z)
            return z

        np.testing.assert_allclose(found[layer], function_agop(rest, h), rtol=1e-12, atol=1e-14)


def test_batches_do_not_matter(getkey, monkeypatch):
    net = MLP([3, 6, 2], "tanh", C_b=0.3, C_W=1.5)
    params, x = net.draw(getkey()), rng.normal(size=(11, 3))
    whole = backward_covariances(Model(net, params), x)
    monkeypatch.setattr("dynagram.observables.gram._agop._NUMBERS_AT_ONCE", 60)
    for a, b in zip(backward_covariances(Model(net, params), x), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_rotations_are_uniform():
    """First and second moments of one entry, and of a product that plain QR gets wrong."""
    draws = np.array([random_rotation(3, rng) for _ in range(6000)])
    assert np.max(np.abs(draws.mean(axis=0))) < 4 * np.sqrt(1 / 3 / 6000)
    assert np.max(np.abs((draws**2).mean(axis=0) - 1 / 3)) < 4 * np.sqrt(0.09 / 6000)


def test_untrained_weights_are_at_the_null_of_the_ansatz(getkey):
    """Linear networks: S of layer 1 depends on the weights above alone, so it is independent."""
    scores, values = [], []
    net = MLP([20, 24, 18, 6], "linear", C_b=0.0, C_W=1.0)
    for seed in range(25):
        params = net.draw(getkey())
        S = backward_covariances(Model(net, params), rng.normal(size=(1, 20)))
        found = feature_ansatz(np.asarray(params[0].W), S[0], seed=seed).pearson
        scores.append(found.score)
        values.append(found.value)
    assert abs(np.mean(scores)) < 3 * np.std(scores) / np.sqrt(25)
    assert 0.6 < np.std(scores) < 1.6
    assert np.mean(values) > 0.5  # without a null it looks like the ansatz at work


def test_the_ansatz_shows_in_a_trained_layer():
    W = rng.normal(size=(30, 20)) * np.geomspace(3, 0.1, 20)
    aligned = W @ W.T  # AGOP = WᵀWWᵀW
    found = feature_ansatz(W, aligned)
    assert found.cosine.value == pytest.approx(1.0, abs=1e-7)
    assert found.cosine.score > 3


def test_refusals(getkey):
    with pytest.raises(InvalidValueError, match="shape of f\\(x\\)"):
        function_agop(lambda v: jnp.sum(v), np.ones((3, 2)))
    net = MLP([2, 3, 1], "step", C_b=0.0, C_W=1.0)
    with pytest.raises(InvalidValueError, match="jumps"):
        agop(net.init(getkey()), np.ones((2, 2)))
