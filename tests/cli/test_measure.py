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
    assert "mean" in turned["loss"]


def test_skips_are_part_of_the_network(answer, files):
    net = {f"W{k}": rng.normal(size=(12, 12)) / 4 for k in range(3)} | {"W3": np.ones((3, 12)) / 4}
    np.savez(files / "blocks.npz", **net)
    common = [
        "measure", files / "blocks.npz", "--data", files / "batch.npz", "--activation", "tanh",
        "--json",
    ]  # fmt: skip
    plain, skips = answer(*common, "--skip", "0"), answer(*common, "--skip", "1,-0.5")
    assert plain["layers"][0] != skips["layers"][0]
    assert plain["layers"][0]["spectrum"] == skips["layers"][0]["spectrum"]
    assert answer(*common, "--skip", "0,0") == plain


def test_a_label_beyond_the_outputs_is_refused(complaint, files):
    x = rng.normal(size=(9, 12))
    np.savez(files / "labels.npz", x=x, y=np.arange(9) % 4)
    line = complaint(
        "measure", files / "net.npz", "--data", files / "labels.npz", "--activation", "relu"
    )
    assert "labels = [3]: 3 outputs: for labels 0 to 2" in line


BROKEN = {
    "empty": lambda _: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "without its end": lambda whole: whole[:-30],
    "overwritten": lambda whole: whole[:60] + b"\0" * 200 + whole[260:],
    "text": lambda _: b"no archive",
    "another zip": lambda _: b"PK\x03\x04" + b"x" * 100,
    "an array": lambda _: b"\x93NUMPY\x01\x00",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("command", ["measure", "forecast", "weights", "compare", "plateaus"])
def test_broken_files_are_refused_in_one_line(command, kind, complaint, files):
    """The same reader everywhere: `complaint` checks for one line, exit code 2, no traceback."""
    path = files / "broken.npz"
    path.write_bytes(BROKEN[kind]((files / "batch.npz").read_bytes()))
    own = ("--activation", "relu")
    arguments = {
        "measure": ("measure", files / "net.npz", "--data", path, *own),
        "forecast": ("forecast", files / "net.npz", "--data", path, *own, "--lr", "0.1"),
        "weights": ("measure", path, "--data", files / "batch.npz", *own),
        "compare": ("compare", path, path),
        "plateaus": ("plateaus", path),
    }
    assert "broken.npz" in complaint(*arguments[command])


def test_refusals(complaint, files):
    data, relu = ("--data", files / "batch.npz"), ("--activation", "relu")
    assert "no such file" in complaint("measure", files / "x.npz", *data, *relu)
    assert "no such file" in complaint(
        "measure", files / "net.npz", "--data", files / "x.npz", *relu
    )
    assert "no array x" in complaint(
        "measure", files / "net.npz", "--data", files / "net.npz", *relu
    )
    assert "loss = 'hinge'" in complaint(
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
    assert 'write "half-sum"' in complaint(
        "measure", files / "net.npz", *data, *relu, "--loss", "mse"
    )
    assert "one per block: 0 expected" in complaint(
        "measure", files / "net.npz", *data, *relu, "--skip", "0.5,0.5"
    )
    np.savez(files / "conv.npz", w=np.ones((4, 3, 3, 3)))
    assert "convolution" in complaint("measure", files / "conv.npz", *data, *relu)
