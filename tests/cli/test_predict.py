"""`dynagram predict`: arrays by letter, and one line for whatever is wrong."""

import numpy as np
import pytest

from dynagram.networks import MLP
from dynagram.results import load
from dynagram.theory._predict import TENSORS
from dynagram.theory._predict import predict as library_predict


@pytest.fixture
def inputs(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([[1.0, 0.5, -0.3], [1.0, 0.5, -0.3], [0.0, 0.0, 0.0]]))
    return path


def predict(inputs, *more, widths="3,20,30,2", activation="tanh"):
    return ["predict", "--inputs", inputs, "--widths", widths, "--activation", activation, *more]


def test_predict_writes_arrays_by_letter(run, inputs, tmp_path):
    out = tmp_path / "out.npz"
    result = run(*predict(inputs, "--cb", 0.1, "--cw", "1.5,1.2,1.0", "-o", out))
    assert result.exit_code == 0, result.output
    with np.load(out, allow_pickle=False) as stored:
        letters = {"K", "V", "G1", "V_error", "G1_error", "layers_K", "layers_V", "layers_G1"}
        assert set(stored) == letters | {"x", "kind", "about"}
    found, x = load(out), np.load(inputs)
    assert found.layers["V"] == (1, 2, 3)
    assert np.array_equal(found.x, x)
    assert found.order == "1/n"
    assert found["K"].shape == found["G1"].shape == (3, 3, 3)
    assert found["V"].shape == found.errors["V"].shape == (3, 3, 3, 3, 3)
    np.testing.assert_allclose(found["K"][0], 0.1 + 1.5 / 3 * x @ x.T, rtol=1e-13)
    assert found.network == MLP([3, 20, 30, 2], "tanh", 0.1, [1.5, 1.2, 1.0])
    assert found.about == {"accuracy": 1e-4, "nodes_seed": 0}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.npz", "x.npy"]


def test_predict_stores_every_tensor_in_the_order_of_the_library(run, tmp_path):
    """F[a, b, c, d] is F_abcd; distinct inputs and rates show whatever is swapped."""
    path, out = tmp_path / "x.npy", tmp_path / "out.npz"
    x = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]])
    np.save(path, x)
    rates = ["--lambda-b", "0.5", "--lambda-w", "1,2,1.5"]
    result = run(*predict(path, *rates, "--tensors", ",".join(TENSORS), "-o", out))
    assert result.exit_code == 0, result.output
    network = MLP.critical([3, 20, 30, 2], "tanh", lambda_b=0.5, lambda_W=[1.0, 2.0, 1.5])
    expected = library_predict(network, x, TENSORS)
    stored = load(out)
    assert stored.network == network
    for name in TENSORS:
        assert np.array_equal(stored[name], expected[name])
        assert (name in stored.errors) == (name not in ("K", "Theta"))
    # ⟨σ_aσ'_b σ_cσ'_d⟩ of layer 2 keeps its value when a, b change places with c, d only.
    F = stored["F"][1]
    np.testing.assert_allclose(F, F.transpose(2, 3, 0, 1), rtol=1e-10)
    assert np.max(np.abs(F - F.transpose(1, 0, 2, 3))) > 0.1 * np.max(np.abs(F))


@pytest.mark.parametrize("tensors", ["P", "K,Q", "R", "S,V", "T", "U"])
def test_predict_refuses_curvature_of_kinks(complaint, inputs, tensors):
    line = complaint(*predict(inputs, "--tensors", tensors, activation="relu"))
    assert "relu has a kink: σ'' is a delta" in line


def test_predict_keeps_ntk_tensors_of_kinks(run, inputs):
    result = run(*predict(inputs, "--tensors", "Theta,H1,A,B,D,F", activation="relu"))
    assert result.exit_code == 0, result.output


def test_predict_defaults_to_criticality_and_prints_the_verdict(run, inputs):
    result = run(*predict(inputs, activation="relu"))
    assert result.exit_code == 0, result.output
    assert "C_W=2.0" in result.stdout
    assert any(word in result.stdout for word in ("trust", "careful", "do not use"))


def test_predict_json_and_plot(answer, inputs, tmp_path):
    path = tmp_path / "flow.svg"
    data = answer(*predict(inputs, "--tensors", "K,G1", "--json", "--plot", path))
    diagonals = data["diagonals"]
    assert {name: entry["order"] for name, entry in diagonals.items()} == {"K": "∞", "G1": "1/n"}
    assert diagonals["K"]["layers"] == [1, 2, 3]
    assert np.shape(diagonals["K"]["value"]) == (3, 3)
    assert diagonals["K"]["error"] is None
    assert np.shape(diagonals["G1"]["error"]) == (3, 3)
    assert (data["order"], data["samples"], data["accuracy"]) == ("1/n", 3, 1e-4)
    assert data["regime"]["verdict"] in ("trust", "careful", "do not use")
    assert path.read_text().startswith("<svg")


RESIDUAL = "3,20,20,20,2"


def test_predict_residual_networks(run, answer, inputs, tmp_path):
    """--skip gives the library's numbers, names its vertex, and defaults to criticality."""
    out, x = tmp_path / "out.npz", np.load(inputs)
    letters = ("K", "Theta", "V", "G1")
    options = ["--skip", "0.5,-0.6", "--tensors", ",".join(letters), "-o", out]
    result = run(*predict(inputs, *options, widths=RESIDUAL, activation="relu"))
    assert result.exit_code == 0, result.output
    assert "Vertex V: corrected" in result.stdout
    network = MLP.critical([3, 20, 20, 20, 2], "relu", skip=[0.5, -0.6])
    expected = library_predict(network, x, letters)
    stored = load(out)
    assert stored.network == network
    assert stored.about["vertex"] == "corrected"
    for name in letters:
        assert np.array_equal(stored[name], expected[name])
    data = answer(
        *predict(inputs, "--skip", "0.5", "--vertex", "published", "--cw", 1.5, "--json",
                 widths=RESIDUAL, activation="relu")
    )  # fmt: skip
    assert data["vertex"] == "published"
    assert list(data["diagonals"]) == ["K", "V"]
    network = MLP([3, 20, 20, 20, 2], "relu", 0.0, 1.5, skip=0.5)
    printed = library_predict(network, x, ("V",), vertex="published")["V"]
    assert data["diagonals"]["V"]["value"][3][0] == pytest.approx(printed[3, 0, 0, 0, 0], rel=1e-12)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--skip", "0.5", "--tensors", "K,H1"], "not yet computed for networks with skips"),
        (["--skip", "0.5", "--vertex", "exact"], "expected corrected or published"),
        (["--skip", "0.5", "--vertex", "published", "--tensors", "G1"], "the book has no G1"),
        (["--skip", "0.5,0.5,0.5"], "2 expected, 3 given"),
        (["--skip", "half"], "a number, or one per block separated"),
        (["--skip", "1"], "criticality needs γ² < 1, else K grows in every block: give C_b and"),
        (["--vertex", "published"], "only networks with skips"),
    ],
)
def test_predict_refuses_residual_requests(complaint, inputs, more, words):
    assert words in complaint(*predict(inputs, *more, widths=RESIDUAL, activation="relu"))


def test_predict_same_seed_same_bytes(run, inputs, tmp_path):
    one, two = tmp_path / "1.npz", tmp_path / "2.npz"
    for path in (one, two):
        assert run(*predict(inputs, "--seed", 3, "-o", path)).exit_code == 0
    with np.load(one) as first, np.load(two) as second:
        for name in first:
            assert np.array_equal(first[name], second[name])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"more": ["--cw", "-1", "--cb", "0"]}, "C_W = -1.0"),
        ({"more": ["--cb", "-0.5", "--cw", "1"]}, "C_b = -0.5"),
        ({"more": ["--cb", "0,0", "--cw", "1"]}, "3 expected, 2 given"),
        ({"more": ["--cb", "0;0", "--cw", "1"]}, "--cb = '0;0'"),
        ({"more": ["--cb", "nan", "--cw", "1"]}, "must be finite"),
        ({"more": ["--lambda-b", "-1"]}, "lambda_b = -1.0"),
        ({"more": ["--lambda-w", "1,2"]}, "3 expected, 2 given"),
        ({"more": ["--lambda-w", "fast"]}, "--lambda-w = 'fast'"),
        ({"more": ["--tensors", "K,Z"]}, "expected some of K"),
        ({"more": ["--tensors", ""]}, "expected some of K"),
        ({"more": ["-o", "out.txt"]}, "must end in .npz"),
        ({"more": ["-o", "no/such/folder/out.npz"]}, "its folder does not exist"),
        ({"more": ["--accuracy", "0"]}, "accuracy"),
        ({"more": ["--plot", "a.gif"]}, "must end in .svg, .png or .html"),
        ({"widths": "3,0,2"}, "a width must be an integer ≥ 1"),
        ({"widths": "3,-4,2"}, "a width must be an integer ≥ 1"),
        ({"widths": "3,2.5,2"}, "--widths = '3,2.5,2'"),
        ({"widths": "3"}, "at least input and output"),
        ({"widths": "4,20,2"}, "the first width must be 3"),
        ({"activation": "tahn"}, "did you mean tanh"),
        ({"activation": "sigmoid"}, "no critical initialisation"),
        (
            {"activation": "relu", "widths": ",".join(["3"] * 600), "more": ["--cb=1", "--cw=9"]},
            "layer",
        ),
    ],
)
def test_predict_refuses(complaint, inputs, more, words):
    options = dict(more)
    arguments = predict(inputs, *options.pop("more", []), **options)
    assert words in complaint(*arguments)


def test_predict_refuses_bad_files(complaint, tmp_path):
    cases = {
        "nan": (np.array([[1.0, np.nan, 0.0]]), "x[0, 1] = nan"),
        "infinite": (np.array([[np.inf, 0.0, 0.0]]), "x[0, 0] = inf"),
        "vector": (np.ones(3), "shape of x = (3,)"),
        "empty": (np.zeros((0, 3)), "at least one sample"),
        "text": (np.array([["a", "b", "c"]]), "expected real numbers"),
        "objects": (np.array([[1, None, 2]], dtype=object), "array of numbers"),
    }
    for name, (array, words) in cases.items():
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        assert words in complaint(*predict(tmp_path / f"{name}.npy"))
    assert "no such file" in complaint(*predict(tmp_path / "missing.npy"))
    assert "is a folder" in complaint(*predict(tmp_path))
    (tmp_path / "noise.npy").write_bytes(b"not an array")
    assert "no numbers in this file" in complaint(*predict(tmp_path / "noise.npy"))
    (tmp_path / "nothing.npy").write_bytes(b"")
    assert "the file is empty" in complaint(*predict(tmp_path / "nothing.npy"))
    np.savez(tmp_path / "many.npz", a=np.ones((1, 3)))
    assert "not an archive" in complaint(*predict(tmp_path / "many.npz"))
