"""A measured network against separate computations of each column, and the words about it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import Architecture, Model
from dynagram.observables import collapse, measure
from dynagram.observables.gram import held_out_linearity, one_hot, stationarity
from dynagram.observables.spectra import weight_spectrum
from dynagram.observables.tangents import ntk_terms
from dynagram.report.prose import describe_measurement

rng = np.random.default_rng(1)


def network(*widths, bias=True, scale=1.4, activation="relu", skip=0.0):
    """A network of Gaussian weights."""
    matrices, biases = [], []
    for n_in, n_out in itertools.pairwise(widths):
        matrices.append(scale * rng.normal(size=(n_out, n_in)) / np.sqrt(n_in))
        biases.append(0.1 * rng.normal(size=n_out) if bias else None)
    return Model.of_matrices(matrices, activation, biases=biases, skip=skip)


def problem(x, y, *test, outputs=3):
    """Reals, or labels of a network with so many outputs."""
    if y.dtype.kind == "i":
        return Data.of_classes(x, y, *test, outputs=outputs)
    return Data(x, y, *test)


LOSSES = {
    "labels": (3, lambda z, y: optax.softmax_cross_entropy_with_integer_labels(z, y).mean()),
    "binary": (1, lambda z, y: optax.sigmoid_binary_cross_entropy(z[:, 0], y).mean()),
    "reals": (2, lambda z, y: jnp.mean((z - y) ** 2)),
}


def targets(kind, samples):
    if kind == "reals":
        return rng.normal(size=(samples, 2))
    return rng.integers(0, 3 if kind == "labels" else 2, samples)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "skip"), [*((kind, 0.0) for kind in LOSSES), ("labels", 0.7)])
def test_every_column_by_other_means(kind, skip, monkeypatch):
    monkeypatch.setattr("dynagram.observables._measure._LARGEST_BATCH", 11)
    outputs, loss = LOSSES[kind]
    net = network(6, 9, 9, outputs, bias=kind != "binary", activation="tanh", skip=skip)
    x, y = rng.normal(size=(30, 6)), targets(kind, 30)
    x_test, y_test = rng.normal(size=(25, 6)), targets(kind, 25)
    data = problem(x, y, x_test, y_test, outputs=outputs)
    found = measure(net, data)
    traces = np.einsum("laaii->l", np.asarray(ntk_terms(net, x)))
    shares = [layer.kernel_share for layer in found.layers]
    np.testing.assert_allclose(shares, traces / traces.sum(), rtol=1e-12)
    value, gradient = jax.value_and_grad(lambda model: loss(model(x), jnp.asarray(y)))(net)
    assert found.loss == pytest.approx(float(value), rel=1e-12)
    as_targets = one_hot(y, 3) if kind == "labels" else y.reshape(30, -1)
    test_targets = one_hot(y_test, 3) if kind == "labels" else y_test.reshape(25, -1)
    z, z_test = (net.preactivations(values) for values in (x, x_test))
    for index, layer in enumerate(found.layers):
        W = net.params[index].W
        expected = stationarity(W, np.asarray(gradient.params[index].W))
        assert layer.alignment.value == pytest.approx(expected.value, rel=1e-9)
        assert layer.alignment.null.deviation == pytest.approx(expected.null.deviation, rel=1e-9)
        last = index == len(found.layers) - 1
        h, h_test = (np.asarray(v[index] if last else np.tanh(v[index])) for v in (z, z_test))
        linear = held_out_linearity(h, as_targets, h_test, test_targets)
        assert layer.linearity.score == pytest.approx(linear.score, abs=1e-8)
        eigenvalues = weight_spectrum(W).eigenvalues
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
    net = network(6, 9, 3)
    data = problem(rng.normal(size=(31, 6)), targets("labels", 31))
    found = measure(net, data)
    assert (found.input_linearity.samples, found.input_linearity.scored) == (16, 15)
    other = measure(net, data, seed=1)
    assert other.input_linearity.score != found.input_linearity.score


def test_shuffled_labels_are_at_the_null_in_every_layer():
    net = network(8, 40, 40, 4)
    scores = []
    for seed in range(12):
        x, y = rng.normal(size=(120, 8)), rng.integers(0, 4, 120)
        found = measure(net, problem(x, y, outputs=4), seed=seed)
        scores.append([layer.linearity.above_null for layer in found.layers])
    scores = np.array(scores)
    assert np.all(np.abs(scores.mean(axis=0)) < 3.5 * scores.std(axis=0) / np.sqrt(12))


def test_dead_units_and_a_loss_of_choice():
    net = network(6, 9, 3)
    net.params[0].W[2] = 0.0
    net.params[0].b[2] = -1.0
    x, y = rng.normal(size=(30, 6)), targets("labels", 30)
    found = measure(net, problem(x, y), loss="mean")
    assert found.layers[0].dead >= 1
    assert found.loss_name == "mean"
    assert found.accuracy is not None
    outputs = net(x)
    squares = (outputs - one_hot(y, 3)) ** 2
    assert found.loss == pytest.approx(float(jnp.mean(squares)), rel=1e-12)
    assert "of 9 in layer 1" in describe_measurement(found)
    total = measure(net, problem(x, y), loss="half-sum")
    assert total.loss == pytest.approx(0.5 * float(jnp.sum(squares)), rel=1e-12)
    assert total.layers[0].alignment.value == pytest.approx(found.layers[0].alignment.value)
    soft = one_hot(y, 3) * 0.8 + 0.2 / 3
    cross = measure(net, Data(x, soft), loss="cross-entropy")
    expected = optax.softmax_cross_entropy(outputs, jnp.asarray(soft)).mean()
    assert cross.loss == pytest.approx(float(expected), rel=1e-12)


def test_float32_weights_are_measured_in_float64():
    net = network(6, 9, 3)
    data = problem(rng.normal(size=(30, 6)), targets("labels", 30))
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), net)
    exact = jax.tree.map(lambda leaf: leaf.astype(np.float32).astype(np.float64), net)
    assert measure(single, data).loss == measure(exact, data).loss


def test_learning_rates_of_a_specification_do_not_enter():
    """Shares are at equal rates, whatever the network says; a bias that cannot move has none."""
    net = network(6, 9, 3)
    data = problem(rng.normal(size=(30, 6)), targets("labels", 30))
    slow = Architecture(net.network.widths, "relu", lambda_b=0.1, lambda_W=0.01)
    shares = [
        [layer.kernel_share for layer in measure(model, data).layers]
        for model in (net, Model(slow, net.params))
    ]
    np.testing.assert_allclose(*shares, rtol=1e-14)


def test_the_record_shows_itself():
    found = measure(network(6, 9, 3), problem(rng.normal(size=(30, 6)), targets("labels", 30)))
    assert repr(found).startswith("Measurement(2 layers on 30 samples, cross-entropy")
    assert "9×6" in found._repr_html_()
    assert found.table().row_count == 3
    assert [layer["shape"] for layer in found.to_dict()["layers"]] == [(9, 6), (3, 9)]


def test_the_words_know_untrained_from_trained():
    """A network whose first layer copies the class into its features and one that cannot."""
    y = np.arange(240) % 4
    x = 0.5 * rng.normal(size=(240, 6)) + 2.0 * np.eye(6)[y]
    data = problem(x, y, outputs=4)
    untrained = describe_measurement(measure(network(6, 64, 64, 4), data))
    assert "cannot be told from random weights" in untrained
    mixed = problem(x, rng.permutation(y), outputs=4)
    assert "nothing to do with them" in describe_measurement(measure(network(6, 64, 64, 4), mixed))
    spiked = network(6, 64, 64, 4)
    direction = np.outer(*(v / np.linalg.norm(v) for v in rng.normal(size=(2, 64))))
    spiked.params[1].W[:] += 8.0 * direction
    text = describe_measurement(measure(spiked, data))
    assert "stand above a random bulk: 1 in layer 2" in text
    assert "times the squared norm" in text


def test_refusals():
    net = network(4, 5, 2)
    x, y = np.ones((6, 4)), np.zeros(6, dtype=int)
    with pytest.raises(InvalidValueError, match="shape of x"):
        measure(net, problem(np.ones((6, 3)), y, outputs=2))
    with pytest.raises(InvalidValueError, match="shape of y"):
        measure(net, Data(x, np.ones((6, 3))))
    with pytest.raises(InvalidValueError, match="jumps"):
        measure(network(4, 5, 2, activation="step"), problem(x, y, outputs=2))
    with pytest.raises(InvalidValueError, match='write "half-sum".*"mean"'):
        measure(net, problem(x, y, outputs=2), loss="mse")
    with pytest.raises(InvalidValueError, match="probabilities"):
        measure(net, Data(x, np.ones((6, 2))), loss="cross-entropy")
    net.params[0].W[:] *= 1e200
    net.params[1].W[:] *= 1e200
    with pytest.raises(NonFiniteError, match="overflows"):
        measure(net, problem(rng.normal(size=(6, 4)), np.arange(6) % 2, outputs=2))


def test_collapse_is_that_of_the_features(monkeypatch):
    """Streamed in small batches, against the features in memory."""
    monkeypatch.setattr("dynagram.observables._measure._LARGEST_BATCH", 13)
    net = network(6, 9, 8, 3, activation="relu")
    x, y = rng.normal(size=(40, 6)), np.arange(40) % 3
    found = measure(net, problem(x, y)).collapse
    z = [np.asarray(values) for values in net.preactivations(x)]
    for index, layer in enumerate(found):
        h = np.maximum(z[index], 0)
        W = np.asarray(net.params[-1].W) if index == 1 else np.zeros((3, h.shape[1]))
        W = W + (index == 0)  # any classifier: NC1 and NC2 do not depend on it
        expected = collapse(h, y, W + 0.1 * np.eye(*W.shape), None) if index == 0 else None
        if index == 1:
            expected = collapse(h, y, W, np.asarray(net.params[-1].b))
            assert layer.duality == pytest.approx(expected.duality)
            assert layer.disagreement == pytest.approx(expected.disagreement)
        for name in ("within", "norms", "angles"):
            assert getattr(layer, name) == pytest.approx(getattr(expected, name))


def test_collapse_needs_classes_with_samples():
    net = network(6, 9, 3)
    x = rng.normal(size=(20, 6))
    assert measure(net, problem(x, rng.normal(size=(20, 3)))).collapse == ()
    lonely = measure(net, problem(x, np.array([2] + [0, 1] * 9 + [0])))
    assert lonely.collapse == ()
    assert any("fewer than two samples of class 2" in note for note in lonely.notes)
