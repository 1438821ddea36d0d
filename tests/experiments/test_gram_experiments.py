"""The Gram experiments: their ingredients checked, and each run once at a size of seconds.

At that size most statements need not hold; what must hold at any size is asserted. The real sizes
are run by `dynagram reproduce`.
"""

import jax
import numpy as np
import optax
import pytest

from dynagram.data import Data, Dataset
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Settings
from dynagram_experiments.gram import (
    grokking,
    layerwise_linearity,
    random_labels,
    staircase,
    swissroll,
    whitening,
)
from dynagram_experiments.gram._training import Split, record_epochs, record_training
from dynagram_experiments.gram.swissroll import runs as swissroll_runs

# Whole ensembles and trainings: a minute and more together.
pytestmark = pytest.mark.slow


def shrink(monkeypatch, module, **constants):
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)


def check(result):
    """Everything a user is shown is there and finite where it must be."""
    for statement in result.statements:
        assert statement.claim
        assert any(character.isdigit() for character in statement.measured)
        assert "nan" not in statement.measured
    for columns in result.tables.values():
        assert len({len(column) for column in columns.values()}) == 1
    assert result.figures
    for chart in result.figures.values():
        assert chart.to_dict()["$schema"]


def test_swissroll(monkeypatch):
    shrink(monkeypatch, swissroll, SEEDS=3)
    shrink(monkeypatch, swissroll_runs, SAMPLES=80, WIDTH=6, STEPS=20, LONG_RUN=30)
    result = swissroll.EXPERIMENT.run(Settings())
    check(result)
    law = next(s for s in result.statements if "Gram law" in s.claim)
    assert law.passed


def test_swissroll_gradients_are_those_of_autodiff():
    params = swissroll_runs.draw(0)
    x, y = swissroll_runs.roll(0)
    seen = swissroll_runs.Signals.of(params, x, y)

    def loss(params):
        return jax.numpy.mean((swissroll_runs.network().apply(params, x) - y) ** 2)

    gradient = jax.grad(loss)(params)
    for k in range(3):
        np.testing.assert_allclose(seen.delta[k].T @ seen.h[k], gradient[k].W, atol=1e-14)
    np.testing.assert_allclose(seen.outputs, swissroll_runs.network().apply(params, x), atol=1e-14)
    assert (x.min(), x.max(), y.min(), y.max()) == (0.0, 1.0, 0.0, 1.0)


@pytest.fixture
def toy(monkeypatch):
    """A small data set of ten classes in place of the digits."""
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 10
    data = Dataset("toy", rng.normal(size=(10, 64))[labels] + rng.normal(size=(240, 64)), labels)
    for module in (whitening, layerwise_linearity, random_labels):
        monkeypatch.setattr(module, "digits", lambda: data)


@pytest.mark.usefixtures("toy")
def test_whitening(monkeypatch, tmp_path):
    shrink(monkeypatch, whitening, WIDTH=8, RATES=(0.01, 0.05), SEEDS=2, EPOCHS=(0, 1, 2))
    result = whitening.EXPERIMENT.run(Settings())
    check(result)
    assert result.statements[0].passed
    assert result.statements[1].passed
    with pytest.raises(InvalidValueError, match="no files of MNIST, SVHN or CIFAR-10"):
        whitening.EXPERIMENT.run(Settings(data=tmp_path))


@pytest.mark.usefixtures("toy")
def test_layerwise(monkeypatch):
    shrink(monkeypatch, layerwise_linearity, WIDTH=12, SEEDS=2, EPOCHS=(0, 3))
    result = layerwise_linearity.EXPERIMENT.run(Settings())
    check(result)
    nulls = next(s for s in result.statements if "Shuffled labels" in s.claim)
    assert "allowed" in nulls.measured


@pytest.mark.usefixtures("toy")
def test_random_labels(monkeypatch):
    shrink(monkeypatch, random_labels, WIDTH=12, SEEDS=2, EPOCHS=(0, 1, 3))
    check(random_labels.EXPERIMENT.run(Settings()))


def test_grokking(monkeypatch):
    shrink(monkeypatch, grokking, MODULUS=7, WIDTH=10, STEPS=(0, 500, 600), SEEDS=2)
    result = grokking.EXPERIMENT.run(Settings())
    check(result)
    data = grokking.pairs(0)
    assert (len(data.labels), len(data.labels_test)) == (34, 15)
    first, second = np.argmax(data.x[:, :7], axis=1), np.argmax(data.x[:, 7:], axis=1)
    np.testing.assert_array_equal((first + second) % 7, data.labels)


def test_staircase(monkeypatch):
    shrink(monkeypatch, staircase, SAMPLES=60, WIDTHS=(4, 8), CHECKPOINTS=(0, 100), SEEDS=2)
    result = staircase.EXPERIMENT.run(Settings())
    check(result)
    x, y = staircase.staircase(5, 0)
    expected = x[:, 0] * (1 + x[:, 1] * (1 + x[:, 2] * (1 + x[:, 3])))
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-12)


def test_recorded_training_uses_the_learning_rate_tensor():
    """Descent by hand for the bias and weights of a linear network, at the recorded steps."""
    network = MLP([10, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.5, lambda_W=2.0)
    x, y = staircase.staircase(30, 1)
    start = network.draw(jax.random.key(0), np.float64)
    how = Training(GradientDescent(0.1), loss="mean", steps=20, record=(0, 10, 20))
    recorded = record_training(network, start, Data(x, y), how, seed=0)
    W, b = (np.asarray(value) for value in (start[0].W, start[0].b))
    for step in range(21):
        if step % 10 == 0:
            np.testing.assert_allclose(recorded[step // 10][0].W, W, atol=1e-12)
            np.testing.assert_allclose(recorded[step // 10][0].b, b, atol=1e-12)
        residual = 2 * (x @ W.T + b - y) / 30
        W, b = W - 0.1 * 2.0 / 10 * residual.T @ x, b - 0.1 * 0.5 * residual.sum(axis=0)
    wild = Training(GradientDescent(1e6), loss="mean", steps=200)
    with pytest.raises(NonFiniteError, match="diverged"):
        record_training(network, start, Data(x, y), wild, seed=0)


def test_recorded_epochs_are_minibatch_descent_and_notice_divergence():
    """One epoch by hand, and a rate at which nothing is finite any more."""
    network = MLP([3, 2], "linear", C_b=0.0, C_W=1.0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)), rng.integers(0, 2, 10)
    parts = Split(x, y, x, y)
    start = network.draw(jax.random.key(0), np.float64)
    options = {"batch": 4, "epochs": (0, 1), "seed": 5}
    recorded, _ = record_epochs(network, optax.sgd(0.1), start, parts, **options)
    W, b = np.asarray(start[0].W), np.asarray(start[0].b)
    np.testing.assert_array_equal(recorded[0][0].W, W)
    order = np.random.default_rng(5).permutation(10)[:8].reshape(2, 4)
    for rows in order:
        z = x[rows] @ W.T + b
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        residual = (p - np.eye(2)[y[rows]]) / 4
        W, b = W - 0.1 * residual.T @ x[rows], b - 0.1 * residual.sum(axis=0)
    np.testing.assert_allclose(recorded[1][0].W, W, atol=1e-14)
    with pytest.raises(NonFiniteError, match="diverged"):
        record_epochs(network, optax.sgd(float("inf")), start, parts, **options | {"epochs": (5,)})


def test_kernels_compare_with_themselves():
    h = np.random.default_rng(0).normal(size=(20, 5))
    assert staircase.alignment_of_kernels(h, 3 * h + 1) == pytest.approx(1.0)
    assert staircase.alignment_of_kernels(h, h[::-1]) < 0.9
