"""`dynagram measure`: tables, JSON, and one-line refusals."""

import numpy as np
import pytest

rng = np.random.default_rng(3)


@pytest.fixture
def files(tmp_path):
    """Weights and a batch on disk."""
    net = {
        "fc1.weight": rng.normal(size=(40, 12)),
        "fc1.bias": np.zeros(40),
        "fc2.weight": rng.normal(size=(3, 40)) / 6,
    }
    np.savez(tmp_path / "net.npz", **net)
    x = rng.normal(size=(90, 3, 4))
    np.savez(tmp_path / "batch.npz", x=x, y=np.argmax(x[:, 0, :3], axis=1))
    return tmp_path


def test_tables_and_paragraph(run, files):
    result = run(
        "measure", files / "net.npz", "--data", files / "batch.npz", "--activation", "relu"
    )
    assert result.exit_code == 0, result.output
    assert "target linearity" in result.stdout
    assert "40×12" in result.stdout
    assert "too small" in result.stdout
    assert "On 90 samples the cross-entropy is" in result.stdout


def test_json(answer, files):
    found = answer(
        "measure", files / "net.npz", "--data", files / "batch.npz", "--activation", "relu",
        "--json",
    )  # fmt: skip
    first, last = found["layers"]
    assert first["name"] == "fc1.weight"
    assert first["shape"] == [40, 12]
    assert first["kernel_share"] + last["kernel_share"] == pytest.approx(1)
    assert set(first["target_linearity"]) == {"score", "null", "rank", "fitted", "scored"}
    assert first["target_linearity"]["null"]["deviation"] > 0
    assert first["spectrum"]["verdict"] == "too small"
    assert last["imbalance_to_next"] is None
    assert found["what_stands_out"].startswith("On 90 samples")
    assert found["notes"] == []


def test_given_order_and_test_set(answer, files):
    np.savez(files / "square.npz", a=rng.normal(size=(12, 12)), c=rng.normal(size=(12, 12)))
    x = rng.normal(size=(50, 12))
    np.savez(
        files / "reals.npz", x=x, y=x**2, x_test=rng.normal(size=(40, 12)),
        y_test=rng.normal(size=(40, 12)),
    )  # fmt: skip
    common = ["--data", files / "reals.npz", "--activation", "tanh", "--json"]
    found = answer("measure", files / "square.npz", *common)
    assert [layer["name"] for layer in found["layers"]] == ["a", "c"]
    assert "square" in found["notes"][0]
    assert found["layers"][0]["target_linearity"]["scored"] == 40
    turned = answer("measure", files / "square.npz", *common, "--layers", "c, a")
    assert [layer["name"] for layer in turned["layers"]] == ["c", "a"]
    assert "mse" in turned["loss"]


def test_refusals(complaint, files):
    data, relu = ("--data", files / "batch.npz"), ("--activation", "relu")
    assert "no such file" in complaint("measure", files / "x.npz", *data, *relu)
    assert "no such file" in complaint(
        "measure", files / "net.npz", "--data", files / "x.npz", *relu
    )
    assert "no array x" in complaint(
        "measure", files / "net.npz", "--data", files / "net.npz", *relu
    )
    assert "--loss = 'hinge'" in complaint(
        "measure", files / "net.npz", *data, *relu, "--loss", "hinge"
    )
    assert "unknown activation" in complaint(
        "measure", files / "net.npz", *data, "--activation", "nope"
    )
    (files / "text.npz").write_text("no archive")
    assert "numpy.savez" in complaint(
        "measure", files / "net.npz", "--data", files / "text.npz", *relu
    )
    np.savez(files / "half.npz", x=np.ones((3, 12)), y=np.zeros(3), x_test=np.ones((3, 12)))
    assert "go together" in complaint(
        "measure", files / "net.npz", "--data", files / "half.npz", *relu
    )
    np.savez(files / "flat.npz", x=np.ones(3), y=np.zeros(3))
    assert "shape of x" in complaint(
        "measure", files / "net.npz", "--data", files / "flat.npz", *relu
    )
    np.savez(files / "conv.npz", w=np.ones((4, 3, 3, 3)))
    assert "convolution" in complaint("measure", files / "conv.npz", *data, *relu)
