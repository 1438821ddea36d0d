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
from dynagram.errors import NonFiniteError
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
    # In a pipe every finished part is told.
    assert result.stderr.splitlines() == ["toy: 1 of 2 parts", words, "interrupted"]
    assert invoke("toy", *options).exit_code == (0 if options else 1)


def test_without_a_name_the_experiments_are_listed():
    result = invoke("--json")
    listed = json.loads(result.stdout)
    assert list(listed) == command.experiment_names()
    assert all(entry["summary"] for entry in listed.values())


def test_an_unknown_name_and_a_missing_folder_are_refused():
    result = invoke("nosuch")
    assert result.exit_code == 2
    assert "`dynagram reproduce` lists all" in result.stderr
    assert "did you mean saddle-fig" in invoke("sadle-fig2").stderr
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


# --- all of them -------------------------------------------------------------------------------


@pytest.fixture
def three(monkeypatch):
    """Three experiments; what was run is written down."""
    ran = []

    def run(name, passed):
        def body(settings):
            ran.append(name)
            finish_parts(settings, name, {"only": lambda: {"x": 1}})
            return Result((Statement(f"{name} holds", passed, "1 = 1 | 2*3"),), notes=("seen",))

        return Experiment(name, f"about {name}", "nowhere", body)

    known = {name: run(name, name != "b") for name in ("a", "b", "c")}
    monkeypatch.setattr(command, "experiment_names", lambda: list(known))
    monkeypatch.setattr(command, "find_experiment", known.__getitem__)
    return ran


def test_all_are_run_once_and_written_down(three, tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "runs"
    options = ["--all", "--output", str(folder), "--page", str(page)]
    first = invoke(*options)
    assert first.exit_code == 1  # b fails
    assert three == ["a", "b", "c"]
    assert "2 of 3: b\nb: 1 of 1 parts" in first.stderr
    text = page.read_text()
    assert "3 of 3 experiments were run; 2 of 3 claims hold." in text
    assert "- **fails**: b holds: 1 = 1 \\| 2\\*3" in text
    assert invoke(*options).exit_code == 1
    assert three == ["a", "b", "c"]  # nothing is run again
    assert invoke(*options, "--seed", "1").exit_code == 1
    assert three == ["a", "b", "c"] * 2


def test_a_limit_of_time_leaves_the_rest_for_later(three, tmp_path):
    page = tmp_path / "page.md"
    options = ["--all", "--output", str(tmp_path / "runs"), "--page", str(page)]
    result = invoke(*options, "--minutes", "0", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"experiments": {}, "not_run": ["a", "b", "c"]}
    assert "the same command runs the 3 that are left" in result.stderr
    assert "| a | not run yet | |" in page.read_text()
    assert invoke(*options).exit_code == 1
    assert three == ["a", "b", "c"]


def test_some_of_them_alone(three, tmp_path):
    page = tmp_path / "page.md"
    options = ["--all", "--output", str(tmp_path / "runs"), "--page", str(page)]
    assert invoke(*options, "--only", "a,c").exit_code == 0
    assert three == ["a", "c"]
    assert "2 of 3 experiments were run" in page.read_text()
    assert "--only = 'nosuch': unknown" in invoke(*options, "--only", "a,nosuch").stderr


def test_one_that_cannot_be_run_does_not_stop_the_others(three, monkeypatch, tmp_path):
    def broken(_):
        raise NonFiniteError("the step is too large")

    names = command.experiment_names()
    good = {name: command.find_experiment(name) for name in names}
    good["b"] = Experiment("b", "about b", "nowhere", broken)
    monkeypatch.setattr(command, "find_experiment", good.__getitem__)
    page = tmp_path / "page.md"
    result = invoke("--all", "--output", str(tmp_path / "runs"), "--page", str(page))
    assert result.exit_code == 1
    assert three == ["a", "c"]
    assert "b could not be run: the step is too large" in result.stderr
    assert "| b | not run yet | |" in page.read_text()


def test_all_needs_a_folder_and_no_name(three):
    assert "--all needs a folder" in invoke("--all").stderr
    assert "none is named with --all" in invoke("a", "--all").stderr
    assert three == []
