"""`--network FILE`: networks of blocks and MLPs from files, and one line for whatever is wrong."""

import json

import numpy as np
import pytest

from dynagram import predict as library_predict
from dynagram.networks import MLP, Chain, load_network
from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
from dynagram.results import load

X = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]])
BRANCH = [RMSNorm(), Dense(16, C_W=2.0), Activate("tanh"), Dense(8)]
CHAIN = Chain([Dense(8), Residual(BRANCH), Dense(1)], 3)
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
PROBLEM = '[data]\ntrain_x = "x.npy"\ntrain_y = "y.npy"\ntest_x = "t.npy"\n'
POSTERIOR = PROBLEM + "[posterior]\nnoise = 0.1\n"


@pytest.fixture
def files(tmp_path):
    for name, array in {"x": X, "y": np.ones((2, 1)), "t": X[:1]}.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "chain.toml").write_text(CHAIN.to_toml())
    (tmp_path / "mlp.toml").write_text(MLP([3, 10, 1], "tanh", C_b=0.1, C_W=1.2).to_toml())
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    np.save(tmp_path / "tokens.npy", np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 4.0]]))
    (tmp_path / "problem.toml").write_text(POSTERIOR)
    return tmp_path


@pytest.mark.parametrize("name", ["chain.toml", "mlp.toml"])
def test_predict_reads_the_network_of_a_file(run, files, name):
    out = files / "out.npz"
    words = ["--network", files / name, "-i", files / "x.npy", "--tensors", "K,V", "-o", out]
    result = run("predict", *words)
    assert result.exit_code == 0, result.output
    network, stored = load_network(files / name), load(out)
    assert stored.network == network
    expected = library_predict(network, X, ("K", "V"))
    for letter in ("K", "V"):
        np.testing.assert_array_equal(stored[letter], expected[letter])


def test_predict_reads_a_config_json_with_as_many_tokens_as_inputs_have(answer, files):
    words = ["--network", files / "config.json", "-i", files / "tokens.npy", "--tensors", "K"]
    found = answer("predict", *words, "--json")
    assert "chain" in found["network"]
    assert load_network(files / "config.json", input_size=3).inputs == (3, 1)


def test_simulate_reads_the_network_of_a_file(run, files):
    out = files / "out.npz"
    words = ["--network", files / "chain.toml", "-i", files / "x.npy", "--tensors", "K"]
    result = run("simulate", *words, "--members", 64, "-o", out)
    assert result.exit_code == 0, result.output
    measured = load(out)
    assert measured.network == CHAIN
    K = library_predict(CHAIN, X, ("K",))["K"][0]
    assert np.all(np.abs(measured["K"][0] - K) < 6 * measured.errors["K"][0] + 0.1)


def test_train_predict_reads_a_chain_inside_and_beside_its_file(answer, files):
    together = files / "together.toml"
    together.write_text(CHAIN.to_toml() + POSTERIOR)
    inside = answer("train-predict", together, "--order", "infinite", "--json")
    words = ["--network", files / "chain.toml", "--order", "infinite", "--json"]
    beside = answer("train-predict", files / "problem.toml", *words)
    assert inside == beside
    assert "chain" in inside["network"]


def test_bayes_compares_a_chain_with_an_mlp(answer, files):
    paths = []
    for name in ("chain", "mlp"):
        paths.append(files / f"{name}-problem.toml")
        paths[-1].write_text((files / f"{name}.toml").read_text() + POSTERIOR)
    rows = answer("bayes", *paths, "--json")["networks"]
    assert [row["representation_shift"] is None for row in rows] == [True, False]
    assert all(np.isfinite(row["log_evidence"]) for row in rows)


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ("", "the file is empty"),
        ("[data]\nx = 1\n", "has no [network] table"),
        ("[network\n", "neither TOML nor JSON"),
        (b"\xff\xfe\x00", "not a text"),
        ('{"model_type": "bert"}', "expected one of gpt2, llama, vit"),
        ("{", "is not JSON"),
        ('[network]\nkind = "gnn"\n', "expected one of mlp, chain"),
        ('[network]\nkind = "chain"\ninputs = 3\nblocks = [{kind = "dense"}]\n', "width"),
        ('[network]\nwidths = [3, 1]\nactivation = "a:b"\nC_b = 0\nC_W = 1\n', "names this code"),
    ],
)
def test_bad_files_are_one_line(complaint, files, contents, words):
    path = files / "bad"
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    line = complaint("predict", "--network", path, "-i", files / "x.npy")
    assert words in line


def test_a_file_and_options_together_are_refused(complaint, files):
    base = ["predict", "-i", files / "x.npy"]
    file = ["--network", files / "chain.toml"]
    for option in (("--widths", "3,1"), ("--skip", "0.5"), ("--lambda-b", "0"), ("--cw", "2")):
        assert option[0] in complaint(*base, *file, *option)
    assert "needed, unless --network" in complaint(*base, "--activation", "tanh")
    assert "no such file" in complaint(*base, "--network", files / "nowhere.toml")
    together = files / "together.toml"
    together.write_text(CHAIN.to_toml() + POSTERIOR)
    assert "[network] already" in complaint("train-predict", together, *file)
    assert "[network]" in complaint("train-predict", files / "problem.toml")
    simulated = ("train-predict", files / "problem.toml", *file, "--order", "infinite")
    assert "expected an MLP" in complaint(*simulated, "--simulate", 1000)
