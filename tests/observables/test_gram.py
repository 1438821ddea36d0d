"""Feature learning equation, Gram law and virtual covariance, dense and convolutional; nulls."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP
from dynagram.observables._nulls import rotation_overlap, spectrum_of
from dynagram.observables.gram._agop import random_rotation
from dynagram.observables.gram._gram import (
    check_pair,
    check_rows,
    effective_rank,
    feature_learning_residual,
    gram_similarity,
    unfold_features,
    unfold_weights,
    weight_gram,
)
from dynagram.observables.gram._low_rank import LowRankVirtualCovariance
from dynagram.observables.gram._virtual_covariance import (
    GramTracker,
    gram_law,
    stationarity,
    virtual_covariance,
)

rng = np.random.default_rng(7)


def dense_layer(layer, sigma="tanh", widths=(4, 6, 5, 3), samples=9, seed=0):
    """W, ∂𝓛/∂W, H, g of one layer by autodiff: g is the derivative by the layer's own input."""
    net = MLP(widths, sigma, C_b=0.2, C_W=1.5)
    params = net.draw(jax.random.key(seed))
    x = jax.random.normal(jax.random.key(seed + 1), (samples, widths[0]))
    y = jax.random.normal(jax.random.key(seed + 2), (samples, widths[-1]))

    def loss(W, h):
        signal = h
        for index in range(layer, net.depth):
            weights = W if index == layer else params[index].W
            z = signal @ weights.T + params[index].b[None, :]
            signal = net.activation(z)
        return jnp.mean((z - y) ** 2)

    z = net.preactivations(params, x)
    h = x if layer == 0 else net.activation(z[layer - 1])
    W = params[layer].W
    dW, g = jax.grad(loss, argnums=(0, 1))(W, h)
    return tuple(np.asarray(v) for v in (W, dW, h, g))


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("sigma", ["tanh", "relu"])
def test_feature_learning_equation_dense(layer, sigma):
    W, dW, h, g = dense_layer(layer, sigma)
    assert feature_learning_residual(W, dW, h, g) < 1e-13
    assert feature_learning_residual(W, dW, h, 9 * g) > 0.5  # a summed loss against a mean one


def convolution():
    """A strided, padded convolution under a nonlinear loss; gradients by the patches themselves."""
    kernel, stride, padding = (3, 2), (2, 1), (1, 0)
    images, W = rng.normal(size=(5, 2, 7, 6)), rng.normal(size=(4, 2, 3, 2))
    patches = unfold_features(images, kernel, stride=stride, padding=padding)

    def loss_of_patches(p, weights):
        return jnp.sum(jnp.tanh(p @ weights.reshape(4, -1).T) ** 2)

    def convolved(weights):
        return jax.lax.conv_general_dilated(
            jnp.asarray(images), weights, stride, [(p, p) for p in padding]
        )

    def loss(weights):
        return jnp.sum(jnp.tanh(convolved(weights)) ** 2)

    by_position = np.asarray(convolved(jnp.asarray(W))).transpose(0, 2, 3, 1).reshape(-1, 4)
    np.testing.assert_allclose(patches @ W.reshape(4, -1).T, by_position, atol=1e-13)
    dW = np.asarray(jax.grad(loss)(jnp.asarray(W)))
    g = np.asarray(jax.grad(loss_of_patches)(jnp.asarray(patches), jnp.asarray(W)))
    return W, dW, patches, g


def test_feature_learning_equation_and_gram_law_of_a_convolution():
    W, dW, patches, g = convolution()
    flat, gradient = unfold_weights(W), unfold_weights(dW)
    assert feature_learning_residual(flat, gradient, patches, g) < 1e-13
    law = gram_law(flat, gradient, patches, g, 0.02)
    change = weight_gram(W - 0.02 * dW) - weight_gram(W)
    assert np.linalg.norm(law.total - change) < 1e-12 * np.linalg.norm(change)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_gram_law_is_exact_with_its_remainder(layer, weight_decay):
    W, dW, h, g = dense_layer(layer)
    eta = 0.1
    after = W - eta * dW - eta * weight_decay * W
    change = weight_gram(after) - weight_gram(W)
    law = gram_law(W, dW, h, g, eta, weight_decay=weight_decay)
    scale = np.linalg.norm(change)
    assert np.linalg.norm(law.total - change) < 1e-12 * scale
    assert np.linalg.norm(law.remainder) > 1e-6 * scale  # else the test would not see it
    moved = h - eta * g
    np.testing.assert_allclose(law.virtual, moved.T @ moved - h.T @ h, atol=1e-14)
    if weight_decay:
        assert np.linalg.norm(law.decay) > 1e-3 * scale


def test_remainder_is_second_order_in_the_rate():
    W, dW, h, g = dense_layer(1)
    sizes = [np.linalg.norm(gram_law(W, dW, h, g, eta).remainder) for eta in (0.1, 0.05, 0.025)]
    np.testing.assert_allclose([sizes[0] / sizes[1], sizes[1] / sizes[2]], 4.0, rtol=1e-10)


def descend(eta, steps, batches=1):
    """Gradient descent on a two-layer net, its first layer tracked in one or several batches."""
    local = np.random.default_rng(3)
    x, y = local.normal(size=(40, 5)), local.normal(size=(40, 2))
    W, V = local.normal(size=(8, 5)) / 2, local.normal(size=(2, 8)) / 3
    tracker = GramTracker(W)
    for _ in range(steps):
        u = np.tanh(x @ W.T)
        delta = ((u @ V.T - y) @ V) * (1 - u**2) / len(x)
        for rows in np.split(np.arange(len(x)), batches):
            tracker.add(x[rows], delta[rows] @ W)
        tracker.step(eta)
        W = W - eta * delta.T @ x
    return tracker.record(W)


def test_cumulative_virtual_covariance_follows_the_gram_at_order_eta():
    found = [descend(0.1 / 2**k, 50 * 2**k) for k in range(4)]
    ratios = [b.remainder / a.remainder for a, b in itertools.pairwise(found)]
    assert all(0.45 < ratio < 0.55 for ratio in ratios), ratios
    assert found[-1].cosine.value > 0.9999
    assert found[-1].pearson > 0.9999
    assert found[-1].explained > 0.999
    assert found[0].cosine.score > 3


def test_batches_of_one_step_add_up():
    whole, parts = descend(0.1, 20), descend(0.1, 20, batches=8)
    np.testing.assert_allclose(parts.virtual, whole.virtual, rtol=0, atol=1e-13)


def test_rotation_null_is_exact():
    A, B = (m + m.T for m in rng.normal(size=(2, 6, 6)))
    B += 2 * np.eye(6)
    overlaps = [np.sum(A * (Q @ B @ Q.T)) for Q in (random_rotation(6, rng) for _ in range(8000))]
    null = rotation_overlap(spectrum_of(A), spectrum_of(B))
    assert abs(np.mean(overlaps) - null.mean) < 4 * null.deviation / np.sqrt(8000)
    assert abs(np.std(overlaps) / null.deviation - 1) < 4 * 0.9 / np.sqrt(2 * 8000)


def test_independent_gram_matrices_are_at_the_null():
    scores = [
        gram_similarity(*(weight_gram(rng.normal(size=(n, 30))) for n in (20, 45))).score
        for _ in range(100)
    ]
    assert abs(np.mean(scores)) < 4 / np.sqrt(100)
    assert 0.7 < np.std(scores) < 1.3
    A = weight_gram(rng.normal(size=(20, 30)))
    assert gram_similarity(A, A).score > 8
    # The cosine alone looks like agreement: that is what the null is for.
    assert gram_similarity(A, weight_gram(rng.normal(size=(45, 30)))).value > 0.4


@pytest.mark.parametrize(("n_out", "n_in", "samples"), [(40, 30, 200), (25, 60, 5), (60, 20, 50)])
def test_stationarity_of_independent_weights_is_at_its_null(n_out, n_in, samples):
    scores = []
    for _ in range(300):
        W, h = rng.normal(size=(n_out, n_in)), np.maximum(rng.normal(size=(samples, n_in)), 0)
        delta = rng.normal(size=(samples, n_out)) * rng.gamma(1.0, size=n_out)
        scores.append(stationarity(W, delta.T @ h).score)
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(300)
    assert 0.8 < np.std(scores) < 1.2


def test_stationarity_is_one_where_weight_decay_has_come_to_rest():
    """Ridge regression on a two-layer linear network, descended to its stationary point."""
    decay, x = 0.1, rng.normal(size=(60, 6))
    y = x @ rng.normal(size=(6, 3))
    net = MLP([6, 5, 3], "linear", C_b=0, C_W=1)

    def loss(weights):
        return jnp.mean(jnp.sum((x @ weights[0].T @ weights[1].T - y) ** 2, axis=1)) / 2

    start = tuple(layer.W for layer in net.draw(jax.random.key(0)))

    def step(weights, _):
        moved = jax.tree.map(lambda w, d: w - 0.05 * (d + decay * w), weights, grad(weights))
        return moved, None

    grad = jax.grad(loss)
    weights, _ = jax.jit(lambda w: jax.lax.scan(step, w, length=6000))(start)
    for w, d in zip(start, grad(start), strict=True):
        assert stationarity(np.asarray(w), np.asarray(d)).value < 0.9
    for w, d in zip(weights, grad(weights), strict=True):
        mixed = np.asarray(w.T @ d)
        np.testing.assert_allclose(2 * decay * w.T @ w, -(mixed + mixed.T), atol=1e-8)
        assert stationarity(np.asarray(w), np.asarray(d)).value > 1 - 1e-8


def test_effective_rank():
    assert effective_rank(np.zeros(3)) == 0.0
    assert effective_rank(np.ones(7)) == pytest.approx(7)


def test_refusals():
    W = np.ones((2, 3))
    with pytest.raises(InvalidValueError, match="shape of W = \\(3,\\)"):
        weight_gram(np.ones(3))
    # Outside of tests nothing checks the annotated shapes before these do.
    with pytest.raises(InvalidValueError, match="shape of h"):
        check_rows(W, np.ones((4, 2)), np.ones((4, 2)))
    with pytest.raises(InvalidValueError, match="shape of g"):
        check_rows(W, np.ones((4, 3)), np.ones((5, 3)))
    with pytest.raises(InvalidValueError, match="shape of gradient"):
        check_pair(W, np.ones((3, 2)), "gradient")
    with pytest.raises(InvalidValueError, match="larger than the images"):
        unfold_features(np.ones((1, 1, 3, 3)), (4, 4))
    with pytest.raises(InvalidValueError, match="padding"):
        unfold_features(np.ones((1, 1, 3, 3)), (2, 2), padding=(-1, 0))
    with pytest.raises(InvalidValueError, match="no direction"):
        gram_similarity(np.zeros((3, 3)), np.eye(3))
    with pytest.raises(InvalidValueError, match="no direction"):
        stationarity(W, np.zeros((2, 3)))
    tracker = GramTracker(W)
    with pytest.raises(InvalidValueError, match="before the first step"):
        tracker.record(W)
    tracker.add(np.ones((4, 3)), np.ones((4, 3)))
    tracker.step(0.1)
    with pytest.raises(NonFiniteError, match="diverged"):
        tracker.record(W * np.inf)
    assert virtual_covariance(np.ones((1, 2)), np.zeros((1, 2)), 0.5).tolist() == [[0, 0], [0, 0]]


# --- many inputs -------------------------------------------------------------------------------


def test_low_rank_virtual_covariance_is_the_dense_one():
    """Three steps of two batches each, kept exactly; then truncated, within its stated error."""
    n, W0 = 40, rng.normal(size=(6, 40))
    batches = [(rng.normal(size=(4, n)), rng.normal(size=(4, n)), 0.1) for _ in range(6)]
    dense = sum(virtual_covariance(h, g, eta) for h, g, eta in batches)
    exact, short = LowRankVirtualCovariance(n, 40), LowRankVirtualCovariance(n, 10)
    for batch in batches:
        exact.add(*batch)
        short.add(*batch)
    V = exact.eigenvectors
    np.testing.assert_allclose(V * exact.eigenvalues @ V.T, dense, atol=1e-10)
    x = rng.normal(size=(3, n))
    np.testing.assert_allclose(exact.apply(x), x @ dense, atol=1e-10)
    assert exact.error == 0.0
    V = short.eigenvectors
    lost = np.linalg.norm(V * short.eigenvalues @ V.T - dense)
    assert 0 < lost <= short.error
    W = W0 + 0.1 * rng.normal(size=(6, n))
    change = W.T @ W - W0.T @ W0
    true = np.sum(change * dense) / np.linalg.norm(change) / np.linalg.norm(dense)
    assert exact.cosine(W, W0)[0] == pytest.approx(true, rel=1e-9)
    value, bound = short.cosine(W, W0)
    assert abs(value - true) <= bound
    with pytest.raises(InvalidValueError, match="rank"):
        LowRankVirtualCovariance(5, 0)
