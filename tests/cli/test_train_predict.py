"""`dynagram train-predict`: the numbers of the library, the keys of its JSON, one-line errors."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram import ensembles
from dynagram.cli import app
from dynagram.data import Data
from dynagram.networks import MLP
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, Posterior, Training

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
T = np.array([[1.5, 1.0, 1.4]])
TEXT = """[network]
widths = [3, 64, 2]
activation = "{activation}"
C_b = 0.1
C_W = 1.2
lambda_b = 0.5
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
[training]
algorithm = "gd"
eta = {eta}
{more}
"""


@pytest.fixture
def config(tmp_path):
    for name, array in {"x": X, "y": Y, "t": T}.items():
        np.save(tmp_path / f"{name}.npy", array)

    def write(activation="tanh", eta=0.4, more=""):
        path = tmp_path / "run.toml"
        path.write_text(TEXT.format(activation=activation, eta=eta, more=more))
        return path

    return write


NETWORK = MLP([3, 64, 2], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)


DATA = Data(X, Y, T)


def check(found, expected):
    for key, values in {
        "mean": expected.means,
        "std": expected.stds,
        "covariance": expected.covariances,
        "mean_infinite": expected.means_infinite,
        "mean_correction": expected.width * (expected.means - expected.means_infinite),
    }.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-10, atol=1e-13)
    moments = len(expected.times)
    assert np.shape(found["covariance_correction"]) == (moments, 1, 2, 1, 2)
    assert found["regime"]["verdict"] == expected.regime.verdict


def test_json_holds_what_the_library_says(answer, config):
    found = answer("train-predict", config(), "--json")
    check(found, predict_outputs(NETWORK, DATA, Training(GradientDescent(0.4))))
    assert found["times"] == [None]  # ∞


def test_a_few_steps(answer, run, config):
    path = config(more="steps = 3\nrecord = [1]")
    found = answer("train-predict", path, "--json")
    how = Training(GradientDescent(0.4), steps=3, record=[1])
    check(found, predict_outputs(NETWORK, DATA, how))
    assert found["times"] == pytest.approx([0.4, 1.2])
    assert "steps = 3" in found["how"]
    printed = run("train-predict", path).stdout
    assert "η = 0.4, 3 steps on 2 samples" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("0.4 ", "1.2 "))]
    assert [row[:3] for row in rows[:4]] == [[t, "0", i] for t in ("0.4", "1.2") for i in "01"]
    assert [row[0] for row in rows[4:]] == ["0.4", "1.2"]  # the losses in time


def test_infinite_width_and_the_test_loss(answer, config, tmp_path):
    """relu is fine at infinite width; targets of the test inputs give a loss."""
    path = config(activation="relu")
    np.save(tmp_path / "ty.npy", [[0.1, 0.2]])
    path.write_text(path.read_text().replace('"t.npy"', '"t.npy"\ntest_y = "ty.npy"'))
    found = answer("train-predict", path, "--order", "infinite", "--json")
    assert found["order"] == "∞"
    assert np.shape(found["kernel_infinite"]) == (1, 1, 1)
    assert "covariance" not in found
    assert list(found["expected_test_loss"]) == ["∞"]
    whole = 2.0 * found["expected_test_loss"]["∞"]["total"]  # the loss is a half-sum
    assert 2.0 * found["test_loss"]["value"][0] == pytest.approx(whole, rel=1e-9)


def test_a_posterior(answer, run, config):
    path = config()
    text = path.read_text()
    path.write_text(text[: text.index("[training]")] + "[posterior]\nnoise = 0.1\n")
    found = answer("train-predict", path, "--json")
    expected = predict_outputs(NETWORK, DATA, Posterior(0.1))
    check(found, expected)
    assert found["log_evidence"] == pytest.approx(expected.about["log_evidence"])
    assert "given 2 samples with noise variance 0.1" in run("train-predict", path).stdout
    simulated = answer("train-predict", path, "--simulate", 2000, "--json")["simulation"]
    assert np.max(np.abs(simulated["mean_z"])) < 4
    assert simulated["effective_size"] > 100


@pytest.mark.slow
def test_learning_curves_of_a_cross_entropy(answer, run, config, tmp_path):
    """Losses and accuracies at every moment, predicted and measured, and a figure of both."""
    path = config(eta=1.0, more='loss = "cross-entropy"\nsteps = 8\nrecord = [2, 4]')
    np.save(tmp_path / "y.npy", [[1.0, 0.0], [0.0, 1.0]])
    np.save(tmp_path / "ty.npy", [[0.9, 0.1]])
    path.write_text(path.read_text().replace('"t.npy"', '"t.npy"\ntest_y = "ty.npy"'))
    found = answer("train-predict", path, "--simulate", 4000, "--json")
    seen = found["simulation"]
    assert np.max(np.abs(seen["mean_z"])) < 4
    for name in ("loss", "test_loss", "accuracy", "test_accuracy"):
        gap = np.subtract(seen[name]["value"], found[name]["value"])
        assert np.all(np.abs(gap) < 4.0 * np.array(seen[name]["error"]) + 2e-3), name
    assert "expected_test_loss" not in found
    figure = tmp_path / "curves.svg"
    printed = run("train-predict", path, "--plot", figure).stdout
    assert "test accuracy" in printed
    assert figure.read_text().startswith("<svg")


@pytest.mark.slow
def test_simulation_stands_beside_the_prediction(answer, run, config):
    found = answer("train-predict", config(), "--simulate", 512, "--json")
    simulation = found["simulation"]
    early = answer("train-predict", config(more="steps = 3"), "--simulate", 256, "--json")
    assert simulation["unfinished"] == 0
    assert early["simulation"]["times"] == pytest.approx([1.2])
    assert np.max(np.abs(early["simulation"]["mean_z"])) < 4
    assert np.max(np.abs(early["simulation"]["covariance_z"])) < 4
    assert simulation["members"] == 512
    assert np.max(np.abs(simulation["mean_z"])) < 4
    assert np.shape(simulation["covariance"]) == (1, 1, 2, 1, 2)
    printed = run("train-predict", config(), "--simulate", 512).stdout
    assert "512 networks" in printed
    assert "spread, 1/n" in printed
    assert "agree" in printed


def test_a_stopped_simulation_leaves_the_prediction(config, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ensembles, "train", stopped)
    result = CliRunner().invoke(app, ["train-predict", str(config()), "--simulate", "64", "--json"])
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    check(found, predict_outputs(NETWORK, DATA, Training(GradientDescent(0.4))))
    assert "simulation" not in found
    assert "nothing was kept" in result.stderr


def test_refusals_take_one_line(complaint, config, tmp_path):
    assert "no such file" in complaint("train-predict", tmp_path / "none.toml")
    assert "2/λ_max" in complaint("train-predict", config(eta=50.0))
    kinked = complaint("train-predict", config(activation="relu"))
    assert "R, S, T, U of the ddNTKs diverge" in kinked
    assert 'order="infinite"' in kinked
    assert "only gradient flow" in complaint("train-predict", config(more="time = 2"))
    assert "infinite, 1/n" in complaint("train-predict", config(), "--order", "2")
    assert "--simulate = 513: an even number" in complaint(
        "train-predict", config(), "--simulate", 513
    )
