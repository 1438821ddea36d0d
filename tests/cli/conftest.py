"""Running commands in the tests of this folder."""

import json

import pytest
from typer.testing import CliRunner

from dynagram.cli import app


def _run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])


def _refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture
def run():
    """Call the program with these arguments."""
    return _run


@pytest.fixture
def answer():
    """The JSON on stdout of a call that succeeds."""

    def call(*arguments):
        result = _run(*arguments)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout, parse_constant=_refuse)

    return call


@pytest.fixture
def complaint():
    """The one line of a refused call."""

    def call(*arguments):
        result = _run(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr
        return result.stderr

    return call
