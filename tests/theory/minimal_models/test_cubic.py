"""Cubic models: exact where the network is a cubic polynomial, kernels equal to tangent kernels."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.observables.tangents import ddntk, dntk, ntk
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.minimal_models import cubic_model
from dynagram.theory.training._one_network import flattened
from dynagram.training import GradientDescent, Training

X = np.array([[1.0, -0.4], [-0.3, 1.2], [0.5, 0.8]])


def test_three_linear_layers_are_a_cubic_model():
    network = MLP([2, 3, 2, 2], "linear", 0.2, 1.0, (0.3, 0.5, 0.2), (0.7, 0.6, 0.9))
    with jax.enable_x64():
        model = network.init(seed=1, dtype="float64")
        cubic = cubic_model(model, X)
        W = np.random.default_rng(0).standard_normal(network.number_of_parameters)
        flat, restore = ravel_pytree(model.params)
        scale = np.sqrt(np.concatenate([
            np.concatenate([np.full(layer.b.size, network.lambda_b[i]),
                            np.full(layer.W.size, network.lambda_W[i] / network.widths[i])])
            for i, layer in enumerate(model.params)
        ]))  # fmt: skip
        expected = np.asarray(network.apply(restore(flat + scale * W), X)).reshape(-1)
    np.testing.assert_allclose(cubic.outputs(W), expected, rtol=1e-11)
    h = 1e-6
    slope = (cubic.outputs(W + h * W) - cubic.outputs(W - h * W)) / (2 * h)
    np.testing.assert_allclose(cubic.effective_features(W) @ W, slope, rtol=1e-7)


def test_kernels_are_the_tangent_kernels():
    network = MLP([2, 4, 2], "tanh", 0.2, 1.0, (0.3, 0.5), (0.7, 0.6))
    with jax.enable_x64():
        model = network.init(seed=1, dtype="float64")
        cubic = cubic_model(model, X[:2])
        first, second = (flattened(np.asarray(part)) for part in ddntk(model, X[:2]))
        H, dH = (flattened(np.asarray(f(model, X[:2]))) for f in (ntk, dntk))
    np.testing.assert_allclose(cubic.kernel, H, rtol=1e-10)
    np.testing.assert_allclose(cubic.meta_kernel, dH, atol=1e-12)
    np.testing.assert_allclose(cubic.second_meta_kernels[0], first, atol=1e-12)
    np.testing.assert_allclose(cubic.second_meta_kernels[1], second, atol=1e-12)


def test_training_it_is_training_the_network_to_third_order():
    """Five steps: cubic model and network differ by less than quadratic model and network do."""
    network = MLP([2, 6, 1], "tanh", 0.2, 1.0)
    y = np.array([0.3, -0.2])
    model = network.init(seed=3)
    cubic = cubic_model(model, X)
    W = cubic.descend(y, eta=0.1, steps=400)
    np.testing.assert_allclose(cubic.outputs(W)[:2], y, atol=1e-6)
    how = Training(GradientDescent(0.1), steps=400)
    data = Data(X[:2], y, test_x=X[2:])
    theory = predict_outputs(model, data, how)  # first order in dNTK and ddNTKs (∞.154)
    frozen = predict_outputs(model, data, how, order="infinite")
    missed = abs(theory.mean.item() - cubic.outputs(W)[2])
    assert missed < 0.3 * abs(frozen.mean.item() - cubic.outputs(W)[2])


def test_memory_is_checked_first():
    with pytest.raises(InvalidValueError, match="a smaller network"):
        cubic_model(MLP([2, 4000, 1], "tanh", 0.2, 1.0).init(seed=0), X)
