"""`dynagram train-predict`: the numbers of the library, the keys of its JSON, one-line errors."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app
from dynagram.ensembles import _train
from dynagram.networks import MLP
from dynagram.theory.training._finite import predict_trained
from dynagram.theory.training._in_time import predict_in_time

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


def check(found, expected):
    for key in (
        "mean_infinite", "mean_correction", "mean",
        "covariance_infinite", "covariance_correction", "std",
    ):  # fmt: skip
        np.testing.assert_allclose(found[key], getattr(expected, key), rtol=1e-10, atol=1e-14)
    assert np.shape(found["covariance_correction"]) == (1, 2, 1, 2)
    assert found["regime"]["verdict"] == expected.regime.verdict


def test_json_holds_what_the_library_says(answer, config):
    found = answer("train-predict", config(), "--json")
    check(found, predict_trained(NETWORK, X, Y, T, eta=0.4))
    assert found["steps"] is None


def test_a_few_steps(answer, run, config):
    path = config(more="steps = 3")
    found = answer("train-predict", path, "--json")
    check(found, predict_in_time(NETWORK, X, Y, T, eta=0.4, steps=3).test)
    assert found["steps"] == 3
    assert "η = 0.4, 3 steps on 2 samples" in run("train-predict", path).stdout


@pytest.mark.slow
def test_simulation_stands_beside_the_prediction(answer, run, config):
    found = answer("train-predict", config(), "--simulate", 512, "--json")
    simulation = found["simulation"]
    early = answer("train-predict", config(more="steps = 3"), "--simulate", 256, "--json")
    assert early["simulation"]["unfinished"] == 0
    assert np.max(np.abs(early["simulation"]["mean_z"])) < 4
    assert np.max(np.abs(early["simulation"]["covariance_z"])) < 4
    assert simulation["members"] == 512
    assert np.max(np.abs(simulation["mean_z"])) < 4
    assert np.shape(simulation["covariance_standard_error"]) == (1, 2, 1, 2)
    printed = run("train-predict", config(), "--simulate", 512).stdout
    assert "measured" in printed
    assert "std 1/n" in printed


def test_a_stopped_simulation_leaves_the_prediction(config, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_train, "train", stopped)
    result = CliRunner().invoke(app, ["train-predict", str(config()), "--simulate", "64", "--json"])
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    check(found, predict_trained(NETWORK, X, Y, T, eta=0.4))
    assert "simulation" not in found
    assert "not kept" in result.stderr


def test_refusals_take_one_line(complaint, config, tmp_path):
    assert "no such file" in complaint("train-predict", tmp_path / "none.toml")
    assert "2/λ_max" in complaint("train-predict", config(eta=50.0))
    assert "at a kink" in complaint("train-predict", config(activation="relu"))
    assert "gradient descent takes `steps`" in complaint("train-predict", config(more="time = 2"))
    assert "even number" in complaint("train-predict", config(), "--simulate", 513)
