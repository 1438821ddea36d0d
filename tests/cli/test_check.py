"""`dynagram check`: a user's own function, a config.json, exit codes, one-line refusals."""

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
MODULE = """
import torch
from torch import nn

def make(gain=2.0, width=64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                          nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=(gain / module.in_features) ** 0.5)
            nn.init.zeros_(module.bias)
    return model

def weak():
    return make(1.0)

def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)

def fails():
    raise RuntimeError("no such data")

def convolutions():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 1))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of a user's in the working folder."""
    (tmp_path / "my_check_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_check_model", None)


@pytest.mark.slow
def test_a_healthy_function_passes_and_a_weak_one_does_not(run, module):
    np.save(module / "x.npy", np.random.default_rng(0).normal(size=(32, 8)))
    good = run("check", "my_check_model:make", "--data", "x.npy", "--expected", "kaiming")
    assert good.exit_code == 0, good.output
    assert "Nothing is wrong" in " ".join(good.stdout.split())
    bad = run("check", "my_check_model:weak", "--expected", "kaiming", "--json")
    assert bad.exit_code == 1, bad.output
    found = json.loads(bad.stdout)
    assert [cause["name"] for cause in found["causes"]] == ["gain missing"]
    assert "torch.nn.init.normal_" in found["fix"]


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_schemes_are_fitted_with_an_optimiser(run):
    options = ("--sizes", "32,64,128", "--json")
    adam = ("--optimizer", "my_check_model:adam")
    good = run("check", "my_check_model:make", "--scheme", "sp", *adam, *options)
    assert good.exit_code == 0, good.output
    steps = {e["layer"]: e["value"] for e in json.loads(good.stdout)["scaling"]["exponents"]}
    assert steps["2"] == pytest.approx(2.0, abs=0.3)
    bad = run("check", "my_check_model:make", "--scheme", "mup", *options)
    assert bad.exit_code == 1, bad.output
    assert {cause["name"] for cause in json.loads(bad.stdout)["causes"]} == {"not mup"}


def test_refusals(complaint, module):
    assert "only with scheme" in complaint(
        "check", "my_check_model:make", "--optimizer", "my_check_model:adam"
    )
    assert "no such file" in complaint("check", "nothing.json")
    assert "cannot be imported" in complaint("check", "my_check_model:nothing")
    assert "fails when called: no such data" in complaint("check", "my_check_model:fails")
    assert "a batch is needed" in complaint("check", "my_check_model:convolutions")
    np.savez(module / "y.npz", y=np.ones(3))
    line = complaint("check", "my_check_model:make", "--data", "y.npz")
    assert "has no array x" in line
    assert "recipes are" in complaint("check", "my_check_model:make", "--expected", "he")


@pytest.mark.slow
def test_a_config_is_drawn_and_checked(answer, module):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 50}
    (module / "config.json").write_text(json.dumps(config))
    found = answer("check", "config.json", "--json")
    assert found["is_fine"]
    assert len(found["layers"]) == 6
