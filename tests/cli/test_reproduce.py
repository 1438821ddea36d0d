"""`dynagram reproduce`: prints what held, writes tables and figures, exit code 1 on a failure."""

import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dynagram_experiments
from dynagram.cli import _reproduce as command
from dynagram.cli import app
from dynagram_experiments import Experiment, Result, Statement
from dynagram_experiments._parts import finish_parts

KEPT = "finished parts are kept in {folder}: the same command continues from them"
NOTHING = "nothing was kept: with --output DIR a run that was stopped continues"


def fake(passed):
    def run(settings):
        from dynagram.report._export import alt

        rows = alt.Data(values=[{"x": 1, "y": settings.seed}])
        chart = alt.Chart(rows).mark_point().encode(x="x:Q", y="y:Q")
        statements = (
            Statement("two is two", True, "2 = 2"),
            Statement("the law holds", passed, "1.02 ± 0.01"),
        )
        return Result(statements, {"numbers": {"x": [1, 2], "y": [0.5, 0.25]}}, {"plot": chart})

    return Experiment("toy", "a toy", "nowhere", run)


@pytest.fixture
def toy(monkeypatch):
    def install(passed=True):
        monkeypatch.setattr(command, "find_experiment", lambda _: fake(passed))

    return install


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["reproduce", *arguments])


def test_statements_are_printed_with_their_numbers(toy):
    toy()
    result = invoke("toy")
    assert result.exit_code == 0
    assert "the law holds\n       1.02 ± 0.01" in result.stdout
    assert "2 of 2 statements hold" in result.stdout


def test_a_failed_statement_gives_exit_code_one(toy):
    toy(passed=False)
    result = invoke("toy", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["passed"] is False
    assert [s["passed"] for s in answer["statements"]] == [True, False]
    assert answer["tables"]["numbers"] == {"x": [1, 2], "y": [0.5, 0.25]}


def test_tables_and_figures_are_written(toy, tmp_path):
    toy()
    assert invoke("toy", "--output", str(tmp_path / "deep" / "folder")).exit_code == 0
    folder = tmp_path / "deep" / "folder"
    assert sorted(p.name for p in folder.iterdir()) == ["numbers.csv", "plot.png", "plot.svg"]
    assert (folder / "numbers.csv").read_text() == "x,y\n1,0.5\n2,0.25\n"


def stopped(settings):
    """Keeps a part, then Ctrl-C comes; the next time it goes through."""

    def second():
        LOG.append("run")
        if len(LOG) == 1:
            raise KeyboardInterrupt
        return {}

    makers = {"first": lambda: {"runs": len(LOG)}, "second": second}
    parts = finish_parts(settings, "toy", makers)
    runs = int(parts["first"]["runs"])
    return Result((Statement("the first part is kept", runs == 0, str(runs)),))


LOG = []


@pytest.mark.parametrize(("options", "words"), [(["--output", "{folder}"], KEPT), ([], NOTHING)])
def test_an_interrupted_run_says_how_to_go_on(monkeypatch, tmp_path, options, words):
    LOG.clear()
    toy = Experiment("toy", "a toy", "nowhere", stopped)
    monkeypatch.setattr(command, "find_experiment", lambda _: toy)
    options, words = [o.format(folder=tmp_path) for o in options], words.format(folder=tmp_path)
    result = invoke("toy", *options)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr.splitlines() == [words, "interrupted"]
    assert invoke("toy", *options).exit_code == (0 if options else 1)


def test_without_a_name_the_experiments_are_listed():
    result = invoke("--json")
    listed = json.loads(result.stdout)
    assert list(listed) == command.experiment_names()
    assert all(entry["summary"] for entry in listed.values())


def test_an_unknown_name_and_a_missing_folder_are_refused():
    result = invoke("nosuch")
    assert result.exit_code == 2
    assert "expected one of" in result.stderr
    name = command.experiment_names()[0]
    assert invoke(name, "--data", "/no/such/folder").exit_code == 2


def test_every_experiment_is_an_entry_point_under_its_name():
    """Those installed, those declared, and the folders that hold one."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    declared = project["entry-points"][command.GROUP]
    assert command.experiment_names() == sorted(declared)
    root = Path(dynagram_experiments.__path__[0])
    holding = {
        path.parent.relative_to(root).as_posix()
        for path in root.glob("*/*/__init__.py")
        if "EXPERIMENT" in path.read_text()
    }
    named = set()
    for name, target in declared.items():
        module, attribute = target.split(":")
        assert getattr(import_module(module), attribute).name == name
        named.add("/".join(module.split(".")[1:]))
    assert named == holding
