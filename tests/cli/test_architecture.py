"""`dynagram critical --arch` and `advise --arch`: networks of blocks before training."""

import json

import pytest

from dynagram.networks import MLP, Chain, load_architecture
from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm

SMALL = ["--depth", 2, "--width", 64]


@pytest.fixture
def chain(tmp_path):
    branch = [RMSNorm(), Dense(32, C_W=2.0), Activate("relu"), Dense(16)]
    network = Chain([Dense(16), *[Residual(branch)] * 2, RMSNorm(), Dense(1)], 3)
    path = tmp_path / "net.toml"
    path.write_text(network.to_toml())
    return path


def test_critical_of_a_file_as_json(answer, chain):
    found = answer("critical", "--arch", chain, "--json")
    assert set(found) == {"network", "stages", "layers", "law", "scalings", "notes"}
    assert found["network"] == chain.read_text()
    squares = [stage["mean_square"] for stage in found["stages"][:3]]
    assert squares == pytest.approx([squares[0] + i for i in range(3)])  # each block adds 1
    assert all(stage["gradient_std"] > 0 for stage in found["stages"][:3])
    names = [scaling["name"] for scaling in found["scalings"]]
    assert names == ["as given", "plain", "1/√L, depth-muP", "1/√L, GPT-2", "post-norm"]
    growth = {scaling["name"]: scaling["growth"] for scaling in found["scalings"]}
    assert growth["plain"] == pytest.approx(1 + 2 / squares[0])
    assert growth["1/√L, GPT-2"] == pytest.approx(1 + 1 / squares[0])
    assert growth["post-norm"] == pytest.approx(1.0)
    assert found["law"]["chi"] == pytest.approx(1.0)


def test_critical_of_a_name_for_people(run, tmp_path):
    path = tmp_path / "birth.svg"
    result = run("critical", "--arch", "residual", *SMALL, "--bands", "none", "--plot", path)
    assert result.exit_code == 0, result.output
    for words in ("residual (mlp)", "token similarity", "squared gradient", "post-norm", "GPT-2"):
        assert words in result.stdout
    assert path.read_text().startswith("<svg")
    assert "birth.svg" in result.stderr


def test_advise_takes_the_same_file(answer, chain):
    words = ["--arch", chain, "--bands", "none", "--json"]
    found = answer("critical", *words)
    assert found == answer("advise", *words)
    assert all(stage["gradient_std"] is None for stage in found["stages"])


def test_advise_reads_an_mlp(answer, complaint, tmp_path):
    path = tmp_path / "mlp.toml"
    path.write_text(MLP([3, 64, 64, 2], "relu", C_b=0.0, C_W=2.0).to_toml())
    found = answer("advise", "--network", path, "--json")
    asked = ["--activation", "relu", "--width", 64, "--depth", 3, "--outputs", 2, "--json"]
    assert found == answer("advise", *asked)
    assert "an MLP" in complaint("critical", "--arch", path)
    path.write_text(MLP([3, 64, 32, 2], "relu", C_b=0.0, C_W=2.0).to_toml())
    assert "one width" in complaint("advise", "--arch", path)


@pytest.mark.slow
def test_critical_of_transformers(answer):
    given = answer("critical", "--arch", "gpt2", *SMALL, "--tokens", 2, "--bands", "ends", "--json")
    rows = {scaling["name"]: scaling for scaling in given["scalings"]}
    for key in ("mean_squares", "similarities", "gradients"):
        assert rows["as given"][key] == pytest.approx(rows["1/√(2L), GPT-2"][key], rel=1e-9)
    plain = rows["plain"]["mean_squares"]
    last = rows["as given"]["mean_squares"]
    assert last[-1] - last[-2] == pytest.approx((plain[-1] - plain[-2]) / 4, rel=0.1)
    assert all(stage["gradient_std"] > 0 for stage in given["stages"][1:5])
    assert rows["post-norm"]["mean_squares"][-1] == pytest.approx(1.0, rel=1e-2)


def test_names_make_networks():
    for name in ("gpt2", "gpt2-xl", "llama-7b", "vit-b", "pre-norm", "post-norm", "depth-mup"):
        network = load_architecture(name, positions=3, depth=2)
        assert network.positions == 1
        assert sum(isinstance(block, Residual) for block in network.blocks) == 4
    assert load_architecture("convnet", positions=5).inputs == (5, 3)
    assert load_architecture("gpt2", scaled=False) != load_architecture("gpt2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["critical", "--arch", "resnet"], "no such file; or one of gpt2"),
        (["critical", "gelu", "--arch", "gpt2"], "leave this out"),
        (["critical", "--arch", "gpt2", "--cw", "2"], "leave this out"),
        (["critical", "--arch", "gpt2", "--width", "100"], "multiple of 64"),
        (["critical", "--arch", "gpt2", "--tokens", "0"], "tokens"),
        (["critical", "--arch", "residual", "--bands", "some"], "bands"),
        (["critical", "--arch", "convnet", "--depth", "0"], "depth"),
        (["critical", "--arch", "pre-norm", "--tokens", "400"], "at most"),
        (["critical"], "ACTIVATION"),
        (["advise", "--arch", "gpt2", "--activation", "relu"], "has its own"),
        (["advise", "--activation", "relu"], "--width"),
    ],
)
def test_refusals(complaint, arguments, words):
    assert words in complaint(*arguments)


def test_a_file_has_its_own_size(complaint, chain, tmp_path):
    assert "own width and depth" in complaint("critical", "--arch", chain, "--depth", 3)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2", "n_embd": 64}))
    assert "n_layer" in complaint("critical", "--arch", config)
