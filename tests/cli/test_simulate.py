"""`dynagram simulate` and `dynagram compare`: predictions beside measurements, through files."""

import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app
from dynagram.results import LETTERS as REGISTRY
from dynagram.results import load

NETWORK = ["--widths", "3,160,150,2", "--activation", "tanh", "--cb", "0.1", "--cw", "1.2"]
RATES = ["--lambda-b", "0.5", "--lambda-w", "1,2,1.5"]
SMALL = ["--widths", "3,10,2", "--activation", "tanh"]
LETTERS = [name for name in REGISTRY if name not in ("six_point", "odd")]
ALL = ",".join(LETTERS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """x.npy, prediction.npz, simulation.npz and other.npz, a second ensemble."""
    folder = tmp_path_factory.mktemp("files")
    np.save(folder / "x.npy", np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]]))
    common = ["--inputs", folder / "x.npy", *NETWORK, *RATES]
    calls = {
        "prediction.npz": ["predict", *common, "--tensors", ALL],
        "simulation.npz": ["simulate", *common, "--tensors", ALL, "--members", 1200],
        "other.npz": ["simulate", *common, "--tensors", "K,V,B", "--members", 500, "--seed", 1],
    }
    for name, arguments in calls.items():
        words = [str(word) for word in [*arguments, "-o", folder / name]]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    return folder


def altered(path, target, **changes):
    with np.load(path) as stored:
        arrays = {**stored, **changes}
    np.savez(target, **{name: value for name, value in arrays.items() if value is not None})
    return target


# --- simulate --------------------------------------------------------------------------------


def test_simulate_writes_estimates_and_standard_errors(files):
    stored, predicted = load(files / "simulation.npz"), load(files / "prediction.npz")
    assert (stored.order, stored.members, stored.seed) == ("measured", 1200, 0)
    assert list(stored) == LETTERS
    for name in LETTERS:
        everywhere = name in ("K", "G1", "V")
        assert stored.layers[name] == ((1, 2, 3) if everywhere else (3,))
        axes = len(REGISTRY[name].axes)
        assert stored[name].shape == (3 if everywhere else 1, *[2] * axes)
        assert stored.errors[name].shape == stored[name].shape
        assert np.all(stored.errors[name][-1] > 0)
    # Layer 1 is the same in every draw.
    assert not np.any(stored.error("K")[0])
    n = np.array([0.0, 160.0, 150.0])[:, None, None]
    for name, shift, width in (("K", "G1", n), ("Theta", "H1", 150.0)):
        difference = width * (stored[name] - predicted[name][-len(stored[name]) :])
        np.testing.assert_allclose(stored[shift], difference, rtol=1e-9, atol=1e-9)


def test_predictions_and_simulations_print_the_same_columns(run, files):
    arguments = ["--inputs", files / "x.npy", *SMALL, "--tensors", "K,V,Theta"]
    tables = [run(*words, *arguments).stdout for words in (["predict"], ["simulate"])]
    headings = [text.splitlines()[1].split() for text in tables]
    assert headings[0] == headings[1] == ["layer", "fan-in", "n", "K", "Theta", "V/n"]
    assert "±: numerical error" in tables[0]
    assert "±: standard error" in tables[1]
    first, second = (text.splitlines()[3].split() for text in tables)
    assert float(first[2]) == pytest.approx(float(second[2]), abs=6 * float(second[4]))


def test_simulate_prints_json_and_nothing_else(answer, files):
    arguments = ["simulate", "--inputs", files / "x.npy", *SMALL, "--tensors", "V,Theta"]
    data = answer(*arguments, "--members", 200, "--json")
    assert (data["members"], data["seed"], data["samples"]) == (200, 0, 2)
    assert data["diagonals"]["V"]["layers"] == [1, 2]
    assert data["diagonals"]["Theta"]["layers"] == [2]
    assert np.shape(data["diagonals"]["Theta"]["error"]) == (1, 2)
    assert (data["order"], data["sampler"], data["complete"]) == ("measured", "weights", True)


def test_simulate_same_seed_same_numbers(run, files, tmp_path):
    for name, seed in (("1.npz", 5), ("2.npz", 5), ("3.npz", 6)):
        arguments = ["--inputs", files / "x.npy", *SMALL, "--members", 100, "--seed", seed]
        assert run("simulate", *arguments, "--tensors", "V,B", "-o", tmp_path / name).exit_code == 0
    found = []
    for number in (1, 2, 3):
        with np.load(tmp_path / f"{number}.npz") as stored:
            found.append(np.concatenate([stored["V"].ravel(), stored["B"].ravel()]))
    assert np.array_equal(found[0], found[1])
    assert not np.any(found[0][16:] == found[2][16:])  # layer 1 of V is 0 in both


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--members", "3"], "members = 3"),
        (["--tensors", "K,Z"], "tensors = 'K,Z'"),
        (["--tensors", "B", "--sampler", "metric"], 'B need "weights"'),
        (["--skip", "0.5"], "a block joins two hidden layers"),
        (["--tensors", ""], "expected some of K"),
        (["--tensors", "B", "--widths", "3,20,1"], "two distinct outputs"),
        (["--tensors", "R", "--activation", "relu"], "relu"),
        (["--widths", "4,20,2"], "the first width must be 3"),
        (["--lambda-b", "-1"], "lambda_b = -1.0"),
        (["-o", "out.txt"], "must end in .npz"),
        (["-o", "no/such/folder/out.npz"], "its folder does not exist"),
    ],
)
def test_simulate_refuses(complaint, files, more, words):
    assert words in complaint("simulate", "--inputs", files / "x.npy", *SMALL, *more)


def test_simulate_interrupted_leaves_the_old_file(run, files, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "out.npz").write_text("old")
    monkeypatch.setattr("dynagram.ensembles.initial._job.TensorJob.run_chunk", interrupted)
    arguments = ["--inputs", files / "x.npy", *SMALL, "--tensors", "V,B"]
    result = run("simulate", *arguments, "-o", tmp_path / "out.npz")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert (tmp_path / "out.npz").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_simulate_shows_no_bar_in_a_pipe(run, files):
    arguments = ["--inputs", files / "x.npy", *SMALL, "--members", 100]
    assert run("simulate", *arguments).stderr == ""


# --- compare ---------------------------------------------------------------------------------


def test_prediction_agrees_with_simulation(answer, files):
    data = answer("compare", files / "prediction.npz", files / "simulation.npz", "--json")
    assert data["agree"] is True
    assert list(data["tensors"]) == [
        {"K": "K + G1/n", "Theta": "Theta + H1/n"}.get(name, name) for name in LETTERS
    ]
    assert data["tensors"]["V"]["layers"] == [1, 2, 3]
    assert data["tensors"]["B"]["layers"] == [3]
    assert data["tensors"]["V"]["entries"] == 32
    assert data["tensors"]["V"]["exact_entries"] == 16
    notes = " ".join(data["notes"])
    assert "1200 networks" in notes
    assert "order 1/n" in notes
    assert "expected residual" in notes


def test_comparison_is_a_table_for_people(run, files):
    result = run("compare", files / "prediction.npz", files / "simulation.npz")
    assert result.exit_code == 0
    assert "Theta + H1/n" in result.stdout
    assert "a residual of the next order is expected" in result.stdout
    assert "all within 4 standard errors" in result.stdout


def test_two_simulations_agree(answer, files):
    data = answer("compare", files / "simulation.npz", files / "other.npz", "--json")
    assert list(data["tensors"]) == ["K", "V", "B"]
    assert data["notes"] == []


def test_without_the_correction_the_order_is_infinity(answer, files, tmp_path):
    changed = altered(
        files / "prediction.npz", tmp_path / "p.npz", G1=None, H1=None, V=None, B=None
    )
    data = answer("compare", changed, files / "other.npz", "--json")
    assert list(data["tensors"]) == ["K"]
    assert any("order ∞; predict G1" in note for note in data["notes"])


@pytest.mark.parametrize("name", ["K", "V", "Theta", "A", "B", "D", "F", "P", "Q", "R", "T", "U"])
def test_an_altered_tensor_is_found(run, files, tmp_path, name):
    with np.load(files / "prediction.npz") as stored:
        wrong = {name: 4.0 * stored[name]}
    changed = altered(files / "prediction.npz", tmp_path / "p.npz", **wrong)
    result = run("compare", changed, files / "simulation.npz")
    assert result.exit_code == 1
    assert result.stderr == ""
    assert "not all within 4" in result.stdout
    # Entries without error bar must agree whatever the limit; K has some, in layer 1.
    wide = run("compare", changed, files / "simulation.npz", "--limit", "1e9")
    assert wide.exit_code == (1 if name == "K" else 0)


def test_a_swap_of_sample_indices_is_found(run, files, tmp_path):
    with np.load(files / "prediction.npz") as stored:
        for name in ("B", "R", "S", "U"):
            wrong = {name: stored[name].swapaxes(2, 3)}
            changed = altered(files / "prediction.npz", tmp_path / "p.npz", **wrong)
            assert run("compare", changed, files / "simulation.npz").exit_code == 1, name


def test_compare_refuses_what_cannot_be_compared(complaint, files, tmp_path):
    good = files / "prediction.npz"
    with np.load(good) as stored:
        about, x = str(stored["about"]), stored["x"]
        V = stored["V"].copy()
    cases = {
        "C_W 1.2 and 1.3": {"about": np.array(about.replace("C_W = 1.2", "C_W = 1.3"))},
        "two different networks": {"about": np.array(about.replace("tanh", "sin"))},
        "the inputs of the two differ": {"x": x + np.array([[0.0], [1e-9]])},
        "shape of x": {"x": x[:1]},
        "shape of V": {"V": V[:2]},
        "layers_V": {"layers_V": np.array([1, 2, 9])},
        "not a result saved by dynagram": {"kind": None},
        "holds 'guess', expected tensors or outputs": {"kind": np.array("guess")},
        "every entry must be finite": {"V": np.where(V > 0, np.nan, V)},
    }
    for words, changes in cases.items():
        bad = altered(good, tmp_path / "bad.npz", **changes)
        expected = "shape of K" if words == "shape of x" else words
        assert expected in complaint("compare", good, bad), words
    assert "no such file" in complaint("compare", good, tmp_path / "missing.npz")
    assert "--limit" in complaint("compare", good, good, "--limit", "-1")
    assert "not an archive of arrays" in complaint("compare", good, files / "x.npy")
    (tmp_path / "noise.npz").write_bytes(b"noise")
    assert "not an archive of arrays" in complaint("compare", good, tmp_path / "noise.npz")
    shutil.copy(files / "x.npy", tmp_path / "x.npz")
    assert "not an archive of arrays" in complaint("compare", tmp_path / "x.npz", good)
    np.savez(tmp_path / "pickled.npz", K=np.array([None]))
    assert "not an archive of arrays" in complaint("compare", good, tmp_path / "pickled.npz")
    few = altered(good, tmp_path / "few.npz", **{n: None for n in LETTERS if n != "A"})
    assert "no tensor of the same layer" in complaint("compare", few, files / "other.npz")
