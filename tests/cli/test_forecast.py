"""`dynagram forecast` and `dynagram plateaus` from files, with JSON and with complaints."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, list(map(str, arguments)))


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 6))
    sizes = (16, 6), (16, 16), (16, 16), (1, 16)
    weights = {
        f"W{i + 1}": 0.1 * rng.normal(size=s) * np.sqrt(2 / s[1]) for i, s in enumerate(sizes)
    }
    np.savez(tmp_path / "net.npz", **weights)
    np.savez(tmp_path / "batch.npz", x=x, y=np.tanh(x[:, 0]))
    return tmp_path


def test_json_has_the_promised_keys(files):
    result = invoke(
        "forecast", files / "net.npz", "--data", files / "batch.npz",
        "--activation", "tanh", "--lr", 0.05, "--skip", 0, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert {"plateau", "escape_step", "interval", "r", "scales", "counterfactuals"} <= set(answer)
    assert answer["plateau"] is True
    assert answer["r"] == 4
    assert answer["interval"][0] < answer["escape_step"] < answer["interval"][1]
    assert [entry["layer"] for entry in answer["counterfactuals"]] == [1, 2, 3, 4]


def test_the_table_names_layers_and_what_would_help(files):
    result = invoke(
        "forecast", files / "net.npz", "--data", files / "batch.npz",
        "--activation", "tanh", "--lr", 0.05, "--skip", 0,
    )  # fmt: skip
    assert "Escape in" in result.stdout
    assert "W3" in result.stdout
    assert "would change the escape" in " ".join(result.stdout.split())


def test_training_is_told_by_options(files):
    def escape(*options):
        result = invoke(
            "forecast", files / "net.npz", "--data", files / "batch.npz", "--activation", "tanh",
            "--lr", 0.05, "--skip", 0, "--json", *options,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    plain, momentum = escape(), escape("--optimizer", "momentum")
    assert momentum["escape_step"] < 0.2 * plain["escape_step"]
    assert momentum == escape("--momentum", 0.9)
    parts = escape("--batch", 10)
    assert parts["escape_step"] == plain["escape_step"]
    assert parts["interval"][1] > plain["interval"][1]
    adam = escape("--optimizer", "adam")
    assert adam["plateau"] is False
    assert "Adam" in adam["reasons"][0]
    assert {"bounds", "bootstrap_step", "later", "plateau_loss"} <= set(plain)
    for options, words in (
        (("--optimizer", "lion"), "expected gd, momentum or adam"),
        (("--optimizer", "gd", "--momentum", 0.5), "gd has none"),
        (("--loss", "cross-entropy"), "probabilities"),
        (("--lr", -1), "--lr = -1.0: a learning rate > 0 needed"),
    ):
        result = invoke(
            "forecast", files / "net.npz", "--data", files / "batch.npz", "--activation", "tanh",
            "--lr", 0.05, "--skip", 0, *options,
        )  # fmt: skip
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split())


def test_classes_on_a_cross_entropy(files):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 6))
    sizes = (16, 6), (16, 16), (3, 16)
    weights = {f"W{i}": 0.05 * rng.normal(size=s) for i, s in enumerate(sizes, start=1)}
    np.savez(files / "classes.npz", **weights)
    np.savez(files / "labels.npz", x=x, y=np.argmax(x[:, :3], axis=1))
    result = invoke(
        "forecast", files / "classes.npz", "--data", files / "labels.npz", "--activation", "tanh",
        "--lr", 0.1, "--loss", "cross-entropy", "--skip", 0,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "now 1.09" in text
    assert re.search(r"Stage 2: step (\d+) \((\d+) to (\d+)\), loss", text)
    assert "Bounds of Theorem 11" in text


def test_no_plateau_is_said_in_words(files):
    np.savez(files / "noise.npz", x=np.eye(6).repeat(50, 0), y=np.resize([1.0, -1.0], 300))
    result = invoke(
        "forecast", files / "net.npz", "--data", files / "noise.npz",
        "--activation", "tanh", "--lr", 0.05, "--skip", 0,
    )  # fmt: skip
    assert result.exit_code == 0
    assert "Not a small-signal plateau" in result.stdout


def test_files_that_do_not_fit_are_refused_in_one_line(files):
    np.savez(files / "other.npz", x=np.ones((10, 5)), y=np.ones(10))
    complaints = {"other.npz": "W1 takes 6 features", "missing.npz": "no such file"}
    for data, words in complaints.items():
        result = invoke(
            "forecast", files / "net.npz", "--data", files / data,
            "--activation", "tanh", "--lr", 0.05, "--skip", 0,
        )  # fmt: skip
        assert result.exit_code == 2
        assert result.stderr.startswith("error:")
        assert result.stderr.count("\n") == 1
        assert words in result.stderr


def test_plateaus_of_a_text_file_with_a_header(tmp_path):
    steps = np.arange(0, 3000, 10)
    loss = 1 / (1 + np.exp((steps - 1000) / 30))
    lines = ["step,loss", *(f"{s},{v}" for s, v in zip(steps, loss, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    result = invoke("plateaus", tmp_path / "log.csv", "--json")
    first, last = json.loads(result.stdout)["plateaus"]
    assert first["left"]
    assert 850 < first["end"] < 1000
    assert not last["left"]
    np.save(tmp_path / "loss.npy", np.exp(-steps[:30] / 500))
    assert "No plateau" in invoke("plateaus", tmp_path / "loss.npy").stdout
    (tmp_path / "bad.txt").write_text("loss\nabc\n")
    assert invoke("plateaus", tmp_path / "bad.txt").exit_code == 2
