"""Every script in examples/ runs, and every command and session shown in the documents is true."""

import contextlib
import doctest
import functools
import io
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynagram.cli import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def execute(command):
    """What `dynagram …`, `python examples/…` or `python -c …` prints on stdout."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "dynagram":
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout
    assert program == "python"
    if arguments[0] != "-c":
        return printed_by(arguments[0])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(arguments[1], {})
    return printed.getvalue()


@functools.cache
def printed_by(script):
    """What a script prints; two documents may show the same."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return printed.getvalue()


def sessions():
    """The console blocks of the documents as lists of (command, printed text)."""
    for path in DOCUMENTS:
        blocks = re.findall(r"^```console\n(.*?)^```", path.read_text(), re.M | re.S)
        for number, block in enumerate(blocks, start=1):
            pieces = [p.partition("\n") for p in re.split(r"^\$ ", block, flags=re.M)[1:]]
            yield pytest.param(
                [(command, printed) for command, _, printed in pieces],
                id=f"{path.stem}-{number}",
            )


def lines(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def examples_not_shown():
    """The scripts that no document runs: the sessions check what the others print."""
    shown = {command for session in sessions() for command, _ in session.values[0]}
    scripts = (f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.py")))
    return [script for script in scripts if f"python {script}" not in shown]


@pytest.mark.parametrize("script", examples_not_shown())
def test_example(script):
    assert printed_by(script).strip()


@pytest.mark.parametrize("session", list(sessions()))
def test_console_session(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, printed in session:
        assert lines(execute(command)) == lines(printed)


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS[1:] if ">>>" in p.read_text()], ids=lambda path: path.stem
)
def test_python_session(path):
    """The README's are collected by pytest itself."""
    result = doctest.testfile(
        str(path), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.attempted > 0
    assert result.failed == 0
