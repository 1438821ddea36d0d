"""`dynagram fields`: tables over checkpoints, JSON, and one-line refusals."""

import numpy as np
import pytest

from dynagram.networks import Model
from dynagram.observables.fields import unit_sharing


@pytest.fixture
def files(tmp_path):
    """Two checkpoints of a network with three outputs, and a batch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6))
    np.savez(tmp_path / "batch.npz", x=x, y=np.argmax(x[:, :3], axis=1))
    for name, size in (("start", 1.0), ("end", 2.0)):
        weights = {"a": size * rng.normal(size=(20, 6)), "b": rng.normal(size=(3, 20))}
        np.savez(tmp_path / f"{name}.npz", **weights)
    return tmp_path


def common(files):
    return ["--data", files / "batch.npz", "--activation", "relu"]


def test_checkpoints_are_compared(run, files):
    result = run("fields", files / "start.npz", files / "end.npz", *common(files))
    assert result.exit_code == 0, result.output
    assert "start.npz" in result.stdout
    assert "Who shares most with whom at end.npz" in result.stdout
    assert "From the first checkpoint to the last the gap changes by" in result.stdout


def test_json_has_what_the_library_computes(answer, files):
    found = answer("fields", files / "start.npz", *common(files), "--json")
    (checkpoint,) = found["checkpoints"]
    with np.load(files / "start.npz") as arrays, np.load(files / "batch.npz") as batch:
        model = Model.of_matrices([arrays["a"], arrays["b"]], "relu")
        expected = unit_sharing(model, batch["x"], batch["y"])
    np.testing.assert_allclose(checkpoint["layers"][0]["shared"], expected.shared[0], rtol=1e-6)
    assert checkpoint["classes"] == [0, 1, 2]


def test_real_targets_and_other_depths_are_refused(complaint, files):
    rng = np.random.default_rng(1)
    np.savez(files / "real.npz", x=rng.normal(size=(40, 6)), y=rng.normal(size=(40, 3)))
    words = complaint(
        "fields", files / "start.npz", "--data", files / "real.npz", "--activation", "relu"
    )
    assert "y of --data" in words
    deep = {"a": np.ones((5, 6)), "b": np.ones((4, 5)), "c": np.ones((3, 4))}
    np.savez(files / "deep.npz", **deep)
    words = complaint("fields", files / "start.npz", files / "deep.npz", *common(files))
    assert "hidden layers of deep.npz = 2: expected 1 hidden layers" in words


def test_layers_of_equal_widths_are_told_to_be_plain(run, complaint, files):
    rng = np.random.default_rng(2)
    sizes = {"a": (8, 6), "b": (8, 8), "c": (3, 8)}
    np.savez(files / "square.npz", **{name: rng.normal(size=s) for name, s in sizes.items()})
    assert "0 for plain" in complaint("fields", files / "square.npz", *common(files))
    result = run("fields", files / "square.npz", *common(files), "--skip", 0)
    assert result.exit_code == 0, result.output
    assert "skip" in complaint("fields", files / "square.npz", *common(files), "--skip", 0.5)
