"""`dynagram bayes`: the numbers of the library, its keys, one-line errors."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.networks import MLP
from dynagram.theory.bayes import (
    log_bayes_factor,
    log_evidence,
    log_predictive_density,
    representation_shift,
)
from dynagram.training import Posterior

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y, T, TY = np.array([[0.9], [-0.6]]), np.array([[1.5, 1.0, 1.4]]), np.array([[0.4]])
TEXT = """[network]
widths = [3, 50, 1]
activation = "{activation}"
C_b = 0.1
C_W = 1.6
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
test_y = "ty.npy"
{how}
"""


@pytest.fixture
def config(tmp_path):
    for name, array in {"x": X, "y": Y, "t": T, "ty": TY}.items():
        np.save(tmp_path / f"{name}.npy", array)

    def write(activation, how="[posterior]\nnoise = 0.2"):
        path = tmp_path / f"{activation}.toml"
        path.write_text(TEXT.format(activation=activation, how=how))
        return path

    return write


def network(activation):
    return MLP([3, 50, 1], activation, C_b=0.1, C_W=1.6)


DATA, NOISE = Data(X, Y, T, TY), Posterior(0.2)


@pytest.mark.slow
def test_json_holds_what_the_library_says(answer, run, config):
    files = [config("tanh"), config("relu")]
    found = answer("bayes", *files, "--json")
    assert found["order"] == "1/n"
    assert found["noise"] == 0.2
    for row, name in zip(found["networks"], ("tanh", "relu"), strict=True):
        evidence = log_evidence(network(name), DATA, NOISE)
        assert row["log_evidence"] == pytest.approx(evidence.value)
        assert row["log_evidence_infinite"] == pytest.approx(evidence.infinite)
        score = log_predictive_density(network(name), DATA, NOISE)
        assert row["log_predictive_density"] == pytest.approx(score)
        shift = representation_shift(network(name), DATA, NOISE).activation_shift
        own = np.diagonal(shift, axis1=1, axis2=2)[:, :2]
        largest = np.max(np.abs(own), axis=1)
        np.testing.assert_allclose(np.abs(row["representation_shift"]), largest)
    factor = log_bayes_factor(network("tanh"), network("relu"), DATA, NOISE)
    one, two = (row["log_bayes_factor"] for row in found["networks"])
    assert one - two == pytest.approx(factor)
    assert sum(row["probability"] for row in found["networks"]) == pytest.approx(1.0)
    printed = run("bayes", *files).stdout
    assert "2 samples with noise variance 0.2, order 1/n" in printed
    assert "tanh.toml: MLP" in printed


def test_infinite_width(answer, config):
    (row,) = answer("bayes", config("step"), "--order", "infinite", "--json")["networks"]
    assert row["representation_shift"] is None
    assert row["probability"] == 1.0


def test_refusals_take_one_line(complaint, config):
    trained = config("sin", '[training]\nalgorithm = "flow"')
    assert "not [training]" in complaint("bayes", trained)
    other = config("gelu", "[posterior]\nnoise = 0.3")
    assert "noise of the first file" in complaint("bayes", config("tanh"), other)
    assert "infinite, 1/n" in complaint("bayes", config("tanh"), "--order", "2")
