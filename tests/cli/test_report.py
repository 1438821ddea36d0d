"""`dynagram report`: one offline page, continued where it was stopped, written whole or not."""

import html
import json
import re

import numpy as np
import pytest

from dynagram.report import story
from dynagram.report._blocks import Section, Text, Tile
from dynagram.report.story import _stages

SMALL = """[network]
widths = [4, 16, 16, 1]
activation = "tanh"
C_b = 0.0
C_W = 1.0
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
test_y = "s.npy"
[training]
algorithm = "gd"
eta = 0.2
loss = "mean"
steps = 20
record = [0, 5, 20]
"""


@pytest.fixture
def problem(tmp_path):
    rng = np.random.default_rng(0)
    x, sign = rng.normal(size=(30, 4)), np.tile([[1.0], [-1.0]], (15, 1))
    parts = {"x": x[:20], "y": sign[:20], "t": x[20:], "s": sign[20:]}
    for name, values in parts.items():
        np.save(tmp_path / f"{name}.npy", values)
    path = tmp_path / "run.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def told(monkeypatch):
    """Two quick stages instead of the real ones; which of them ran is listed."""
    ran = []

    def stage(key):
        def tell(subject, _effort, _progress):
            ran.append(key)
            if key == "second" and "stop" in ran:
                ran.remove("stop")
                raise KeyboardInterrupt
            return Section(key, [Text(subject.title)], Tile(key, "1", "good", "words"))

        return _stages.Stage(key, key, f"doing {key}", 1.0, tell)

    monkeypatch.setattr(story, "STAGES", (stage("first"), stage("second")))
    return ran


def test_a_stopped_report_is_continued(run, problem, tmp_path, told):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("old")
    told.append("stop")
    result = run("report", problem, "-o", folder)
    assert result.exit_code == 130
    assert "the same command continues" in result.stderr
    assert (folder / "index.html").read_text() == "old"
    assert [path.name for path in (folder / "stages").iterdir()] == ["first.json"]
    result = run("report", problem, "-o", folder)
    assert result.exit_code == 0, result.output
    assert told == ["first", "second", "second"]
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    assert "<h2" in (folder / "index.html").read_text()


def test_finished_stages_of_another_problem_are_not_taken(run, problem, tmp_path, told):
    folder = tmp_path / "page"
    for text in (SMALL, SMALL.replace("C_W = 1.0", "C_W = 1.5")):
        problem.write_text(text)
        told.append("stop")
        assert run("report", problem, "-o", folder).exit_code == 130
    assert told.count("first") == 2
    stored = json.loads((folder / "stages" / "first.json").read_text())
    (folder / "stages" / "first.json").write_text(json.dumps(stored)[:40])  # half a file
    assert run("report", problem, "-o", folder).exit_code == 0
    assert told.count("first") == 3


def test_a_stage_that_is_refused_says_why(problem, tmp_path):
    from dynagram.errors import InvalidValueError

    def tell(_subject, _effort, _progress):
        raise InvalidValueError("activation", "<b>", "is not known here")

    stages = [_stages.Stage("a", "Title", "doing", 1.0, tell)]
    subject = story.of_config(problem)
    (section,) = _stages.run_stages(stages, subject, story.QUICK, tmp_path / "kept")
    assert section.title == "Title"
    assert section.tile.kind == "warn"
    assert "is not known here" in section.blocks[0].lines[0]


@pytest.mark.slow
def test_the_whole_page(run, problem, tmp_path, monkeypatch):
    folder = tmp_path / "page"
    monkeypatch.chdir(tmp_path)
    result = run("report", problem.name, "-o", folder, "--quick", "--members", 8)
    assert result.exit_code == 0, result.output
    page = (folder / "index.html").read_text()
    assert len(page) < 3_000_000
    for piece in (
        "Your network at birth", "What training will do", "What is learned", "Plateaus",
        "Inside one network", "Advice for this network", "What it rests on",
        "Expected", "Measured", "Does the theory apply here?", "import torch", " ± ",
    ):  # fmt: skip
        assert piece in page, piece
    assert page.count('class="tile ') == 5
    assert "Not told here" not in page
    assert "dynagram report run.toml --quick --members 8" in page
    assert run_what_is_shown(page, tmp_path, monkeypatch) > 5


def run_what_is_shown(page, folder, monkeypatch, **names):
    """Run the code that a page shows for its numbers, after its lines of Python; how many ran."""
    shown = [html.unescape(text) for text in re.findall(r"<code>(.*?)</code>", page, re.S)]
    monkeypatch.chdir(folder)
    for text in shown:
        if text.startswith("[network]"):
            (folder / "problem.toml").write_text(text)
    (start,) = [text for text in shown if "\nsubject = " in text]
    exec(start, names)
    made = re.findall(r'"made">.*?<code>(.*?)</code>', page, re.S)
    calls = dict.fromkeys(html.unescape(text) for text in made)
    for text in calls:
        exec(text, names)
    return len(calls)


@pytest.mark.slow
def test_weights_and_runs_have_pages_too(run, problem, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 4))
    np.savez(tmp_path / "batch.npz", x=x, y=np.sign(x[:, :1]))
    np.savez(tmp_path / "net.npz", W1=rng.normal(size=(16, 4)) / 2, W2=rng.normal(size=(1, 16)) / 4)
    folder = tmp_path / "page"
    options = ("--data", tmp_path / "batch.npz", "--activation", "tanh", "--quick")
    result = run("report", tmp_path / "net.npz", *options, "-o", folder)
    assert result.exit_code == 0, result.output
    page = (folder / "index.html").read_text()
    assert "A checkpoint" in page
    assert "Not told here" not in page
    stored = tmp_path / "run"
    assert run("train", problem, "--members", 8, "--run", stored).exit_code == 0
    result = run("report", stored, "-o", folder, "--quick")
    assert result.exit_code == 0, result.output
    assert "8 trained networks" in (folder / "index.html").read_text()


def test_a_live_model_has_a_page(run, complaint, tmp_path, told, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "mine_of_report.py").write_text(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)\n"
        "    return torch.nn.Sequential(*layers)\n"
        "def both():\n"
        "    x = torch.randn(40, 4)\n"
        "    return make(), (x, x[:, :1].sign())\n"
        "def three():\n"
        "    return 1, 2, 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    x = np.random.default_rng(0).normal(size=(40, 4))
    np.savez(tmp_path / "b.npz", x=x, y=np.sign(x[:, :1]))
    result = run(
        "report", "mine_of_report:make", "--data", tmp_path / "b.npz", "-o", tmp_path / "p"
    )
    assert result.exit_code == 0, result.output
    assert "A checkpoint: tanh, widths 4, 8, 1" in (tmp_path / "p" / "index.html").read_text()
    assert run("report", "mine_of_report:both", "-o", tmp_path / "p").exit_code == 0
    assert "dynagram report mine_of_report:both" in (tmp_path / "p" / "index.html").read_text()
    assert "--data = None" in complaint("report", "mine_of_report:make")
    assert "returned 3 things" in complaint("report", "mine_of_report:three")
    assert told.count("first") == 2


def test_report_refuses(complaint, problem, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--output" in complaint("report", problem, "--output", tmp_path / "file")
    assert "members = 1" in complaint("report", problem, "--members", 1)
    assert "goes with a file of weights" in complaint("report", problem, "--lr", 0.1)
    np.savez(tmp_path / "net.npz", W1=np.ones((2, 2)))
    assert "--data = None" in complaint("report", tmp_path / "net.npz")
    assert "no-such.toml" in complaint("report", tmp_path / "no-such.toml")
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    assert "expected a .toml, the folder of a run" in complaint("report", tmp_path / "x.npy")
    assert "it is not even text" in complaint("train-predict", tmp_path / "x.npy")


def test_small_data_without_a_test_set_are_split(run, tmp_path, monkeypatch):
    """Few samples, and names that are markup: a page all the same, in which they are text."""
    monkeypatch.chdir(tmp_path)
    draw, name = np.random.default_rng(0).normal, "<img src=x onerror=alert(1)>.npz"
    np.savez(name, **{"<script>.weight": draw(size=(3, 2)), "z.weight": draw(size=(1, 3))})
    np.savez("batch.npz", x=draw(size=(6, 2)), y=draw(size=(6, 1)))
    result = run("report", name, "--data", "batch.npz", "--activation", "tanh", "-o", "page")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "judged on 3 others" in page
    assert "<img src=x" not in page
