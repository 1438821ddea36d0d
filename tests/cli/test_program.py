"""The program as a whole: help, errors, cold start."""

import json
import os
import re
import subprocess
import sys

import pytest
import typer

from dynagram.cli import app


def test_help_and_version(run, complaint):
    commands = ("critical", "advise", "predict", "simulate", "compare", "report")
    for arguments in ([], ["--help"], ["predict", "--help"], *([name, "-h"] for name in commands)):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "Usage" in result.stdout
    assert run("--version").stdout.startswith("dynagram 0.")
    assert "No such command" in complaint("teach")


def test_a_failure_of_ours_is_not_swallowed(run, monkeypatch):
    def broken(_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("dynagram.theory._initialisation.critical_points", broken)
    assert isinstance(run("critical", "relu").exception, ZeroDivisionError)


def test_cold_start():
    """The program starts without what it may not need; `test_house` counts the seconds."""
    program = "import json, sys, dynagram.cli; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    modules = json.loads(run.stdout)
    heavy = ("jax", "jaxlib", "scipy", "diffrax", "altair", "zarr", "distributed", "torch")
    assert [name for name in modules if name.partition(".")[0] in heavy] == []


def test_the_program_reports_errors_in_one_line():
    program = "from dynagram.cli import main; import sys; sys.argv = ['dynagram', 'critical', 'x']"
    result = subprocess.run(
        [sys.executable, "-c", program + "; main()"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: activation = 'x': unknown activation")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["report"], ["critical", "relu", "--plot", "a.svg"]])
def test_without_the_extra_the_pip_command_is_given(arguments, tmp_path):
    program = (
        "import sys; sys.modules['altair'] = None; from dynagram.cli import app; "
        f"app({arguments!r})"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "pip install 'dynagram[report]'" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kept", [True, False])
def test_compiled_code_is_kept_only_where_told(tmp_path, kept):
    folder, here = tmp_path / "cache", tmp_path / "here"
    here.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "DYNAGRAM_CACHE"}
    environment |= {"DYNAGRAM_CACHE": str(folder)} if kept else {}
    program = "import sys; sys.argv = ['dynagram', 'critical', 'tanh', '--json']; "
    program += "from dynagram.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, cwd=here, env=environment
    )
    assert folder.exists() == kept
    assert not any(here.iterdir())
    if kept:
        assert any(folder.iterdir())


def test_an_interrupt_in_a_destructor_is_not_lost():
    """Python prints and drops what a destructor raises; a Ctrl-C that came then must still end."""
    script = """
import signal, time
from dynagram.cli import deliver_lost_interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
deliver_lost_interrupts()
class Rude:
    def __del__(self):
        raise KeyboardInterrupt
try:
    Rude()
    time.sleep(20)
    print("lost")
except KeyboardInterrupt:
    print("delivered")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "delivered\n", done.stderr


def test_help_has_no_word_that_the_terminal_takes_for_markup():
    """Rich reads [network] as a style and leaves it out of the text."""
    group = typer.main.get_command(app)
    shown = {}
    for name, command in group.commands.items():
        texts = [command.help, *(getattr(option, "help", None) for option in command.params)]
        shown[name] = [text for text in texts if text and re.search(r"\[[a-z/#@]", text)]
    assert len(shown) > 15
    assert not any(shown.values()), shown
