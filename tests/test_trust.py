"""Nothing is imported or called because a file says so."""

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import dynagram
from dynagram import MLP, Data, GradientDescent, Training, open_run, simulate, train
from dynagram import _trust as trust_module
from dynagram.cli import app
from dynagram.config import read_config
from dynagram.ensembles import resume_run
from dynagram.errors import InvalidValueError
from dynagram.networks import Chain
from dynagram.networks._network import network_from_toml
from dynagram.networks.blocks import Activate, Dense
from dynagram.results import load

MODULE = """
import pathlib
import jax.numpy as jnp
import optax
pathlib.Path(__file__).with_name("was imported").touch()
def wave(z):
    return jnp.tanh(z) + 0.1 * z
def rule(eta):
    return optax.sgd(eta)
def size(params, x):
    return jnp.sum(params[0].W ** 2)
"""
X = np.array([[1.0, 0.5], [-0.4, 0.8]])


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module on the path, as one that somebody leaves beside the files he sends."""
    (tmp_path / "strangers_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(trust_module, "_named", set())
    sys.modules.pop("strangers_code", None)
    yield tmp_path
    sys.modules.pop("strangers_code", None)


def forget(folder, monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(trust_module, "_named", set())
    sys.modules.pop("strangers_code", None)
    (folder / "was imported").unlink()


def refused(folder, function):
    with pytest.raises(InvalidValueError) as error:
        function()
    assert "a file names this code, which is not imported on its word" in str(error.value)
    assert "dynagram.trust('strangers_code:" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (folder / "was imported").exists()
    assert "strangers_code" not in sys.modules


def test_an_activation_of_a_stored_run(stranger, monkeypatch):
    network = MLP([2, 4, 1], "strangers_code:wave", 0.0, 1.0)
    run, request = stranger / "run", {"members": 64, "tensors": ("K",)}
    first = simulate(network, X, run=run, **request)
    result = first.save(stranger / "result.npz")
    assert open_run(run).members == 64  # named in this process, by its user
    forget(stranger, monkeypatch)
    for function in (lambda: open_run(run), lambda: resume_run(run), lambda: load(result)):
        refused(stranger, function)
    dynagram.trust("strangers_code:wave")
    np.testing.assert_array_equal(open_run(run)["K"], first["K"])
    np.testing.assert_array_equal(load(result)["K"], first["K"])


@pytest.mark.parametrize("name", ["wave", "rule", "size"])
def test_other_code_of_a_stored_run(stranger, monkeypatch, name):
    """Activations, update rules and observables alike."""
    activation = "strangers_code:wave" if name == "wave" else "tanh"
    rule = "strangers_code:rule" if name == "rule" else "momentum"
    observables = {"size": "strangers_code:size"} if name == "size" else ["loss"]
    how = Training(dynagram.Optax(rule, 0.1), steps=3)
    network = MLP([2, 4, 1], activation, 0.0, 1.0)
    data, run = Data(X, [1.0, 0.0], X), stranger / "run"
    train(network, data, how, members=4, observables=observables, run=run)
    forget(stranger, monkeypatch)
    refused(stranger, lambda: open_run(run))
    dynagram.trust(f"strangers_code:{name}")
    assert open_run(run).members == 4


def test_a_function_that_makes_data(stranger, monkeypatch):
    (stranger / "strangers_code.py").write_text(
        MODULE + "import jax\ndef fresh(key):\n"
        "    return jax.random.normal(key, (3, 2)), jnp.zeros((3, 1))\n"
    )
    how = Training(GradientDescent(0.1), steps=2)
    run = stranger / "run"
    network = MLP([2, 4, 1], "tanh", 0.0, 1.0)
    train(network, "strangers_code:fresh", how, members=4, run=run)
    forget(stranger, monkeypatch)
    refused(stranger, lambda: open_run(run))


CONFIG = """[network]
widths = [2, 4, 1]
activation = "{activation}"
C_b = 0
C_W = 1
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "x.npy"
[training]
algorithm = "{algorithm}"
eta = 0.1
steps = 2
"""


@pytest.mark.parametrize(
    ("activation", "algorithm"), [("strangers_code:wave", "gd"), ("tanh", "strangers_code:rule")]
)
def test_a_toml_file(stranger, activation, algorithm):
    np.save(stranger / "x.npy", X)
    np.save(stranger / "y.npy", np.ones((2, 1)))
    path = stranger / "problem.toml"
    path.write_text(CONFIG.format(activation=activation, algorithm=algorithm))
    refused(stranger, lambda: read_config(path))
    text = path.read_text()
    refused(stranger, lambda: MLP.from_toml(text) and Training.from_toml(text))
    command = ["train", str(path), "--members", "4"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 2
    assert "--trust strangers_code:" in shown.stderr
    assert shown.stderr.count("\n") == 1
    named = next(name for name in (activation, algorithm) if ":" in name)
    shown = CliRunner().invoke(app, [*command, "--trust", named])
    assert shown.exit_code == 0, shown.output


def test_a_chain_of_blocks(stranger):
    """Code may be named anywhere in a table."""
    blocks = [Dense(4, C_W=1.0), Activate("tanh"), Dense(1, C_W=1.0)]
    text = Chain(blocks, (1, 3)).to_toml().replace('"tanh"', '"strangers_code:wave"')
    refused(stranger, lambda: network_from_toml(text))
    dynagram.trust("strangers_code:wave")
    assert network_from_toml(text).activations()[0].name == "strangers_code:wave"


def test_the_function_itself_is_trusted(stranger):
    import strangers_code

    text = CONFIG.format(activation="strangers_code:wave", algorithm="gd")
    with pytest.raises(InvalidValueError):
        MLP.from_toml(text)
    dynagram.trust(strangers_code.wave)
    assert MLP.from_toml(text).activation.name == "strangers_code:wave"
    assert (stranger / "was imported").exists()


def test_the_rules_of_optax_need_no_word(stranger):  # noqa: ARG001 (a clean slate)
    text = '[training]\nalgorithm = "{}"\neta = 0.1\nsteps = 2'
    assert Training.from_toml(text.format("optax:rmsprop")).name == "optax:rmsprop"
    for path in ("optax:jax.numpy.save", "optax.contrib:muon", "optax:_src"):
        with pytest.raises(InvalidValueError, match="a file names this code"):
            Training.from_toml(text.format(path))


@pytest.mark.parametrize("name", ["f", "..a:f", "a:", ":f", "a b:c", "a:f()", "a/b:c", ""])
def test_names_that_mean_nothing(name):
    with pytest.raises(InvalidValueError, match="expected package.module:function"):
        dynagram.trust(name)


@pytest.mark.parametrize(
    "text", ["1/0", "raise SystemExit(3)", "def", "import no_such_module_anywhere"]
)
def test_a_module_that_fails_is_one_line(stranger, text):
    (stranger / "strangers_code.py").write_text(text)
    with pytest.raises(InvalidValueError, match="cannot be imported: ") as error:
        MLP([2, 4, 1], "strangers_code:wave", 0.0, 1.0)
    assert "\n" not in str(error.value)


def test_workers_trust_what_their_user_trusts(stranger):
    """The word is given once, where the run is started."""
    import os

    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(stranger), before])
    try:
        network = MLP([2, 4, 1], "strangers_code:wave", 0.0, 1.0)
        found = simulate(network, X, ("K",), members=64, executor="process:1")
    finally:
        os.environ["PYTHONPATH"] = before
    assert found.members == 64
