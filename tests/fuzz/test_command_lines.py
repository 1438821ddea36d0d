"""Any words after `dynagram`: an answer, or one line that says what is wrong with them."""

import contextlib
import os
import re
import signal
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dynagram.cli import app

SIGMA = "relu|tanh|linear|gelu"
NETWORK = f"--inputs x.npy --widths 2,3,1|2,4,4,1 --activation {SIGMA}"
VARIANCES = "[--cb 0|0.1] [--cw 1|2] [--skip 0] [--seed 0|3]"
# Valid words of every command: | separates values, brackets enclose what may be left out.
COMMANDS = {
    "critical": f"{SIGMA} [--cb 0|0.3] [--cw 1|2] [--depth 3|20] [--width 50]",
    "advise": f"--activation {SIGMA} --width 50|200 --depth 3|8 [--outputs 1|3] [--data x.npy] "
    "[--loss mean|cross-entropy] [--optimizer sgd|adam|momentum] [--batch 1|16] [--why] "
    "[--residual]",
    "predict": f"{NETWORK} {VARIANCES} [--tensors K|K,V|K,Theta] [--output out.npz]",
    "simulate": f"{NETWORK} {VARIANCES} [--tensors K|V] [--members 64|100] [--output out.npz] "
    "[--sampler auto|metric] [--time-limit 5]",
    "compare": "one.npz two.npz [--limit 1|4]",
    "train": "problem.toml --members 4|6 [--seed 0|2] [--chunk 2] [--output out.npz] "
    "[--trust math:sin]",
    "train-predict": "problem.toml [--order infinite] [--seed 1]",
    "measure": f"net.npz --data batch.npz --activation {SIGMA} [--loss mean] [--seed 1] "
    "[--layers W1,W2]",
    "forecast": "net.npz --data batch.npz --activation tanh --lr 0.1 [--momentum 0.9] "
    "[--fraction 0.5] [--optimizer momentum|adam] [--batch 2] [--loss half-sum]",
    "escape": "--activation tanh|relu --depth 3 --width 16 --scale 0.1 [--bottleneck 2] "
    "[--threshold 0.3] [--beta 1] [--clock matrix] [--lr 0.1]",
    "plateaus": "loss.csv [--fall 0.1] [--contrast 2]",
    "reproduce": "[--seed 1]",
}
NASTY = [
    *("", " ", "nan", "inf", "-inf", "-1", "0", "1e308", "1e400", "-0.0", "3.5", "4294967296"),
    *("1000000000", "9" * 5000, "None", "true", "[]", "{}", "1,2,3", "1,,2", ",", "é", "\x00"),
    *("..math:sin", "math:sin", "math:pi", "no.such:thing", ":", "a:b:c", "tanh(", "step"),
    *("leaky_relu(1e308)", "leaky_relu(-1e308)", "elu(1e300)", "erf(1e200)", "monomial(1e99)"),
    *("K,K", "six_point", "odd", "Theta,U", "process:0", "tcp://", "--json", "/dev/null"),
    *("/dev/zero", "~", ".", "../x", "x.npy", "net.npz", "folder", "out.npz"),
]


@st.composite
def command_lines(draw):
    """Most are valid; of the others one or two words are wrong, missing, or too many."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    words = []
    for part in re.findall(r"\[.*?\]|\S+", COMMANDS[name]):
        if part.startswith("[") and draw(st.integers(0, 3)) > 0:
            continue
        words += [draw(st.sampled_from(word.split("|"))) for word in part.strip("[]").split()]
    words += ["--json"] if draw(st.booleans()) else []
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 0, 1, 1, 2)))):
        place = draw(st.integers(0, max(len(words) - 1, 0)))
        kind = draw(st.sampled_from(("replace", "replace", "replace", "drop", "put")))
        nasty = draw(st.one_of(st.sampled_from(NASTY), st.text(max_size=6)))
        if kind == "put" or not words:
            words.insert(place, nasty)
        elif kind == "drop":
            del words[place]
        else:
            words[place] = nasty
    return [name, *words]


PROBLEM = """[network]
widths = [2, 4, 1]
activation = "tanh"
C_b = 0.1
C_W = 1.0
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
[training]
algorithm = "gd"
eta = 0.1
steps = 5
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A working folder with a file of every kind."""
    draw = np.random.default_rng(1).normal
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array([[1.0, 0.5], [-0.3, 0.8]]))
    np.save("y.npy", np.array([[1.0], [-1.0]]))
    np.save("t.npy", np.array([[0.5, 0.5]]))
    np.savez("net.npz", W1=draw(size=(3, 2)), b1=draw(size=3), W2=draw(size=(1, 3)))
    np.savez("batch.npz", x=draw(size=(12, 2)), y=draw(size=(12, 1)))
    (tmp_path / "loss.csv").write_text("\n".join(f"{n},{1.0 / (1 + n // 10)}" for n in range(60)))
    (tmp_path / "problem.toml").write_text(PROBLEM)
    (tmp_path / "folder").mkdir()
    common = ["--inputs", "x.npy", "--widths", "2,3,1", "--activation", "tanh"]
    for words in (
        ["predict", *common, "--tensors", "K", "-o", "one.npz"],
        ["simulate", *common, "--tensors", "K", "--members", "64", "-o", "two.npz"],
    ):
        assert CliRunner().invoke(app, words).exit_code == 0
    return tmp_path


@contextlib.contextmanager
def not_for_ever(seconds=300):
    """A hang is an error; on systems without alarms it is a hang."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def wake(*_):
        raise AssertionError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(words):
    with not_for_ever():
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"dynagram {words!r}") from result.exception
    assert result.exit_code in (0, 1, 2), (words, result.exit_code)
    if result.exit_code == 2:
        assert result.stderr.startswith("error: "), (words, result.stderr)
        assert result.stderr.count("\n") == 1, (words, result.stderr)
    assert "Traceback" not in result.output, words
    return result.exit_code


CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

SIZE = int(os.environ.get("DYNAGRAM_FUZZ", "25"))  # per cent of 2 000 command lines
SEED = int(os.environ.get("DYNAGRAM_FUZZ_SEED", "0"))  # of the draws: another one, other cases


def fuzz(examples):
    codes = []

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=CHECKS,
        database=None,
    )
    @given(command_lines())
    def check(words):
        codes.append(run(words))

    check()
    return codes


@pytest.mark.slow
@pytest.mark.usefixtures("desk")
def test_some_command_lines():
    fuzz(40)


@pytest.mark.slow
@pytest.mark.usefixtures("desk")
@pytest.mark.filterwarnings("default")
def test_many_command_lines():
    codes = fuzz(20 * SIZE)
    assert np.mean(np.array(codes) < 2) > 0.5  # most are answered


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    "words",
    [
        ["critical", "leaky_relu(1e308)"],
        ["critical", "..module:f"],
        ["critical", "relu", "--depth", "4294967296"],
        ["advise", "--activation", "relu", "--width", "10", "--depth", "4294967296"],
        ["advise", "--activation", "relu", "--width", "1000000000", "--depth", "1000000000"],
        ["advise", "--activation", "relu", "--width", "9" * 5000, "--depth", "3"],
        ["predict", "-i", "x.npy", "--widths", "2," + "9" * 5000, "--activation", "relu"],
        ["simulate", "-i", "x.npy", "--widths", "2,1000000000,1", "--activation", "relu"],
        ["simulate", "-i", "many.npy", "--widths", "2,3,1", "--activation", "relu"],
        ["plateaus", "names.npy"],
        ["plateaus", "x.npy\x00"],
        ["predict", "-i", "folder", "--widths", "2,3,1", "--activation", "relu"],
        ["simulate", "--resume", "folder"],
        ["train", "/dev/zero"],
    ],
)  # fmt: skip
def test_known_troublemakers(words):
    np.save("names.npy", np.array(["a", "b"]))
    np.save("many.npy", np.ones((5000, 2)))
    assert run(words) == 2
