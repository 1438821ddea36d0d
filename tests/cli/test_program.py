"""The program as a whole: help, errors, cold start."""

import resource
import subprocess
import sys

import pytest


def test_help_and_version(run, complaint):
    commands = ("critical", "advise", "predict", "simulate", "compare", "demo")
    for arguments in ([], ["--help"], ["predict", "--help"], *([name, "-h"] for name in commands)):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "Usage" in result.stdout
    assert run("--version").stdout.startswith("dynagram 0.")
    assert "No such command" in complaint("train")


def test_a_failure_of_ours_is_not_swallowed(run, monkeypatch):
    def broken(_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("dynagram.cli._critical_answer.critical_points", broken)
    assert isinstance(run("critical", "relu").exception, ZeroDivisionError)


def test_cold_start():
    """`import dynagram` in 1.5 s, `dynagram critical gelu` in 3 s, in a fresh process.

    Counted in CPU seconds: the clock would also measure what else the machine is doing.
    """
    programs = {
        "import dynagram": 1.5,
        "from dynagram.cli import app; app(['critical', 'gelu'])": 3.0,
    }
    for program, limit in programs.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < limit


def test_the_program_reports_errors_in_one_line():
    program = "from dynagram.cli import main; import sys; sys.argv = ['dynagram', 'critical', 'x']"
    result = subprocess.run(
        [sys.executable, "-c", program + "; main()"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: activation = 'x': unknown activation")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["demo"], ["critical", "relu", "--plot", "a.svg"]])
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


def test_importing_changes_no_jax_setting():
    program = (
        "import jax; before = dict(jax.config.values); import dynagram, dynagram.cli; "
        "import dynagram.theory.criticality, dynagram.networks; "
        "changed = {k for k in before if before[k] != jax.config.values[k]}; "
        "assert not changed, changed"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
