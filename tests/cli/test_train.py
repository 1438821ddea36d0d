"""`dynagram train`: the numbers of the library, runs that go on, one-line errors."""

import json
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app
from dynagram.data import Data
from dynagram.ensembles import open_run, train
from dynagram.ensembles.trained import _job
from dynagram.networks import MLP
from dynagram.results import load
from dynagram.training import GradientDescent, Training

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
T = np.array([[1.5, 1.0, 1.4]])
TEXT = """[network]
widths = [3, 16, 2]
activation = "tanh"
C_b = 0.1
C_W = 1.2
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
[training]
eta = 0.3
loss = "mean"
steps = 20
record = [5]
"""
NETWORK = MLP([3, 16, 2], "tanh", C_b=0.1, C_W=1.2)
HOW = Training(GradientDescent(0.3), loss="mean", steps=20, record=[5])


@pytest.fixture
def config(tmp_path):
    for name, array in {"x": X, "y": Y, "t": T}.items():
        np.save(tmp_path / f"{name}.npy", array)
    path = tmp_path / "run.toml"
    path.write_text(TEXT)
    return path


def test_numbers_of_the_library(answer, run, config, tmp_path):
    out = tmp_path / "out.npz"
    found = answer("train", config, "--members", 40, "--seed", 3, "--json", "-o", out)
    expected = train(NETWORK, Data(X, Y, T), HOW, members=40, seed=3)
    np.testing.assert_allclose(found["mean"], expected.means, rtol=1e-12)
    np.testing.assert_allclose(found["std"], expected.stds, rtol=1e-12)
    np.testing.assert_allclose(found["loss"]["value"], expected.estimates["loss"].value)
    assert found["times"] == list(expected.times)
    assert found["complete"]
    np.testing.assert_array_equal(load(out).means, expected.means)
    printed = run("train", config, "--members", 40).stdout
    assert "mean, measured" in printed
    assert "± error" in printed
    assert "loss: " in printed


def test_pairs(answer, config):
    found = answer("train", config, "--members", 64, "--pairs", "--json")
    expected = train(NETWORK, Data(X, Y, T), HOW, members=64, pairs=True)
    np.testing.assert_allclose(found["mean"], expected.means, rtol=1e-12)
    assert found["pairs"] == 32


@pytest.mark.parametrize("again", ["resume", "same"])
def test_an_interrupted_run_goes_on(config, tmp_path, monkeypatch, again):
    """Ctrl-C leaves a run and the command that continues it; so does the first command again."""
    folder = tmp_path / "run"
    whole = ["train", str(config), "--members", "40", "--chunk", "8", "--json"]
    begin = [*whole, "--run", str(folder)]
    run_chunk = _job.TrainingJob.run_chunk

    def stopped(self, first, size):
        if first >= 16:
            raise KeyboardInterrupt
        return run_chunk(self, first, size)

    with monkeypatch.context() as patch:
        patch.setattr(_job.TrainingJob, "run_chunk", stopped)
        result = CliRunner().invoke(app, begin)
    assert result.exit_code == 130
    assert result.stdout == ""
    words = f"`dynagram train --resume {folder}` continues this run"
    assert words in result.stderr
    assert open_run(folder).members == 16
    command = shlex.split(words.split("`")[1])[1:] if again == "resume" else begin
    command = [*command, *(["--json"] if again == "resume" else [])]
    continued = CliRunner().invoke(app, command)
    assert continued.exit_code == 0, continued.stderr
    assert json.loads(continued.stdout) == json.loads(CliRunner().invoke(app, whole).stdout)


def test_refusals_take_one_line(complaint, config, tmp_path):
    assert "no such file" in complaint("train", tmp_path / "none.toml", "--members", 8)
    assert "CONFIG = None: needed" in complaint("train", "--members", 8)
    assert "expected the number of networks" in complaint("train", config)
    assert "holds no run" in complaint("train", "--resume", tmp_path / "none")
    options = ("--resume", tmp_path / "none", "--members", 8)
    assert "only --executor, --time-limit, --trust, -o and --json" in complaint("train", *options)
    assert "must end in .npz" in complaint("train", config, "--members", 8, "-o", "out.txt")
    assert "an even number" in complaint("train", config, "--members", 65, "--pairs")
    config.write_text(TEXT.replace('"mean"', '"mse"'))
    assert 'write "half-sum"' in complaint("train", config, "--members", 8)
