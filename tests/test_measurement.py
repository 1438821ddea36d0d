"""A measured network against separate computations of each column, and the words about it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks._weights import chain
from dynagram.observables._measure import measure_network
from dynagram.observables.gram._linearity import held_out_linearity, one_hot
from dynagram.observables.gram._virtual_covariance import stationarity
from dynagram.observables.spectra._spectra import weight_spectrum
from dynagram.observables.tangents._ntk import ntk_terms
from dynagram.report.prose._measurement import paragraph

rng = np.random.default_rng(1)


def weights(*widths, bias=True, scale=1.4):
    tensors = {}
    for k, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
        tensors[f"W{k}"] = scale * rng.normal(size=(n_out, n_in)) / np.sqrt(n_in)
        if bias:
            tensors[f"b{k}"] = 0.1 * rng.normal(size=n_out)
    return chain(tensors)


LOSSES = {
    "labels": (3, lambda z, y: optax.softmax_cross_entropy_with_integer_labels(z, y).mean()),
    "binary": (1, lambda z, y: optax.sigmoid_binary_cross_entropy(z[:, 0], y).mean()),
    "reals": (2, lambda z, y: jnp.mean((z - y) ** 2)),
}


def targets(kind, samples):
    if kind == "reals":
        return rng.normal(size=(samples, 2))
    return rng.integers(0, 3 if kind == "labels" else 2, samples)


@pytest.mark.parametrize("kind", LOSSES)
def test_every_column_by_other_means(kind, monkeypatch):
    monkeypatch.setattr("dynagram.observables._measure._LARGEST_BATCH", 11)
    outputs, loss = LOSSES[kind]
    net = weights(6, 9, 8, outputs, bias=kind != "binary")
    x, y = rng.normal(size=(30, 6)), targets(kind, 30)
    x_test, y_test = rng.normal(size=(25, 6)), targets(kind, 25)
    found = measure_network(net, "tanh", x, y, test=(x_test, y_test))
    network, params = net.network("tanh"), net.params()
    traces = np.einsum("laaii->l", np.asarray(ntk_terms(network, params, x)))
    shares = [layer.kernel_share for layer in found.layers]
    np.testing.assert_allclose(shares, traces / traces.sum(), rtol=1e-12)
    value, gradient = jax.value_and_grad(lambda p: loss(network.apply(p, x), jnp.asarray(y)))(
        params
    )
    assert found.loss == pytest.approx(float(value), rel=1e-12)
    as_targets = one_hot(y, 3) if kind == "labels" else y.reshape(30, -1)
    test_targets = one_hot(y_test, 3) if kind == "labels" else y_test.reshape(25, -1)
    z, z_test = (network.preactivations(params, values) for values in (x, x_test))
    for index, layer in enumerate(found.layers):
        expected = stationarity(net.W[index], np.asarray(gradient[index].W))
        assert layer.alignment.value == pytest.approx(expected.value, rel=1e-9)
        assert layer.alignment.null.deviation == pytest.approx(expected.null.deviation, rel=1e-9)
        last = index == len(found.layers) - 1
        h, h_test = (np.asarray(v[index] if last else np.tanh(v[index])) for v in (z, z_test))
        linear = held_out_linearity(h, as_targets, h_test, test_targets)
        assert layer.linearity.score == pytest.approx(linear.score, abs=1e-8)
        eigenvalues = weight_spectrum(net.W[index]).eigenvalues
        np.testing.assert_array_equal(layer.spectrum.eigenvalues, eigenvalues)
        assert layer.norm == pytest.approx(eigenvalues.sum())
        if not last:
            assert layer.imbalance == found.layers[index + 1].norm - layer.norm
    if kind == "labels":
        assert found.accuracy == np.mean(np.argmax(np.asarray(z[-1]), axis=1) == y)
    if kind == "binary":
        assert found.accuracy == np.mean((np.asarray(z[-1])[:, 0] > 0) == y)
    if kind == "reals":
        assert found.accuracy is None


def test_without_a_test_set_one_half_is_scored():
    net = weights(6, 9, 3)
    x, y = rng.normal(size=(31, 6)), targets("labels", 31)
    found = measure_network(net, "relu", x, y)
    assert (found.input_linearity.samples, found.input_linearity.scored) == (16, 15)
    other = measure_network(net, "relu", x, y, seed=1)
    assert other.input_linearity.score != found.input_linearity.score


def test_shuffled_labels_are_at_the_null_in_every_layer():
    net = weights(8, 40, 40, 4)
    scores = []
    for seed in range(12):
        x, y = rng.normal(size=(120, 8)), rng.integers(0, 4, 120)
        found = measure_network(net, "relu", x, y, seed=seed)
        scores.append([layer.linearity.above_null for layer in found.layers])
    scores = np.array(scores)
    assert np.all(np.abs(scores.mean(axis=0)) < 3.5 * scores.std(axis=0) / np.sqrt(12))


def test_dead_units_and_a_loss_of_choice():
    net = weights(6, 9, 3)
    net.W[0][2] = 0.0
    net.b[0][2] = -1.0
    x, y = rng.normal(size=(30, 6)), targets("labels", 30)
    found = measure_network(net, "relu", x, y, loss="mse")
    assert found.layers[0].dead >= 1
    assert found.loss_name == "mse"
    assert found.accuracy is not None
    outputs = net.network("relu").apply(net.params(), x)
    assert found.loss == pytest.approx(float(jnp.mean((outputs - one_hot(y, 3)) ** 2)), rel=1e-12)
    assert "of 9 in layer 1" in paragraph(found)
    soft = one_hot(y, 3) * 0.8 + 0.2 / 3
    cross = measure_network(net, "relu", x, soft, loss="cross-entropy")
    expected = optax.softmax_cross_entropy(outputs, jnp.asarray(soft)).mean()
    assert cross.loss == pytest.approx(float(expected), rel=1e-12)


def test_the_words_know_untrained_from_trained():
    """A network whose first layer copies the class into its features and one that cannot."""
    y = np.arange(240) % 4
    x = 0.5 * rng.normal(size=(240, 6)) + 2.0 * np.eye(6)[y]
    untrained = paragraph(measure_network(weights(6, 64, 64, 4), "relu", x, y))
    assert "cannot be told from random weights" in untrained
    shuffled = paragraph(measure_network(weights(6, 64, 64, 4), "relu", x, rng.permutation(y)))
    assert "nothing to do with them" in shuffled
    spiked = weights(6, 64, 64, 4)
    spiked.W[1][:] += 8.0 * np.outer(*(v / np.linalg.norm(v) for v in rng.normal(size=(2, 64))))
    text = paragraph(measure_network(spiked, "relu", x, y))
    assert "stand above a random bulk: 1 in layer 2" in text
    assert "times the squared norm" in text


def test_refusals():
    net = weights(4, 5, 2)
    x, y = np.ones((6, 4)), np.zeros(6, dtype=int)
    with pytest.raises(InvalidValueError, match="rows of x and y"):
        measure_network(net, "relu", x, y[:5])
    with pytest.raises(InvalidValueError, match="for labels 0 to 1"):
        measure_network(net, "relu", x, y + 2)
    with pytest.raises(InvalidValueError, match="shape of x"):
        measure_network(net, "relu", np.ones((6, 3)), y)
    with pytest.raises(InvalidValueError, match="shape of y"):
        measure_network(net, "relu", x, np.ones((6, 3)))
    with pytest.raises(InvalidValueError, match="jumps"):
        measure_network(net, "step", x, y)
    net.W[0][:] *= 1e200
    net.W[1][:] *= 1e200
    with pytest.raises(NonFiniteError, match="overflows"):
        measure_network(net, "relu", rng.normal(size=(6, 4)), np.arange(6) % 2)
