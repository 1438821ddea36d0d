"""Commands at the borders of numbers, files and terminals: an answer, or one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

from dynagram.cli._output import console

EVIL = "\x1b[2J\x1b]0;title\x07"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Files of networks and data, as they should be and as they should not."""
    folder = tmp_path_factory.mktemp("desk")
    draw = np.random.default_rng(0).normal
    x, W = draw(size=(12, 2)), {"W1": draw(size=(3, 2)), "W2": draw(size=(1, 3))}
    np.save(folder / "x.npy", x)
    np.save(folder / "far.npy", np.full((1, 2), 1e19))
    np.savez(folder / "net.npz", **W)
    np.savez(folder / "steep.npz", **{**W, "W1": 1e200 * W["W1"]})
    batches = {
        "batch": {"x": x, "y": draw(size=(12, 1))},
        "signs": {"x": x, "y": np.arange(12) % 2},
        "huge": {"x": 1e200 * x, "y": draw(size=(12, 1))},
        "one": {"x": x[:1], "y": np.ones((1, 1))},
        "alike": {"x": np.full((12, 2), -9.0), "y": draw(size=(12, 1))},
    }
    for name, arrays in batches.items():
        np.savez(folder / f"{name}.npz", **arrays)
    gpt = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9}
    (folder / "gpt.json").write_text(json.dumps(gpt))
    (folder / "heads.json").write_text(json.dumps(gpt | {"n_head": 3}))
    (folder / "twice.json").write_text(json.dumps(gpt)[:-1] + ', "n_embd": 16}')
    deep = np.array("[" * 100_000)
    np.savez(folder / "deep.npz", kind=np.array("tensors"), about=deep)
    (folder / "run.toml").write_text(
        '[network]\nwidths = [2, 3, 1]\nactivation = "tanh"\nC_b = 0\nC_W = 1\n'
        '[data]\ntrain_x = [[1, 2]]\ntrain_y = [[1]]\ntest_x = [[1, 1]]\n'
        '[training]\nalgorithm = "flow"\ntime = 1e300\n'
    )  # fmt: skip
    curve = "\n".join(f"{n},{1 / (1 + n // 9)},{n}" for n in range(40))
    (folder / "curve.csv").write_text(f"step,{EVIL}loss,b\n{curve}")
    (folder / "shifted.csv").write_text(f"step,train loss,val loss,epoch\n{curve}")
    (folder / "twice.csv").write_text(f"loss,loss,b\n{curve}")
    np.save(folder / "one.npy", np.array(1.0))
    (folder / "sparse.csv").write_text("")
    (folder / "huge.csv").write_text("1e308\n5e307\n1e300\n")
    return folder


@pytest.fixture(autouse=True)
def at_the_desk(desk, monkeypatch):
    monkeypatch.chdir(desk)


NETWORK = "--widths 2,3,3,1 --activation tanh"
WEIGHTS = "--data batch.npz --activation relu"
ESCAPE = "escape --activation tanh --width 8"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"predict -i far.npy {NETWORK}", "is too large for averages of 'tanh'"),
        (f"predict -i x.npy {NETWORK} --skip 1e200", "criticality needs γ² < 1"),
        ("critical gelu --cb 1e30 --cw 1", "a variance of 1e+30 is too large"),
        ("critical --arch gpt2 --tokens 1000000000", "would need 60 GiB"),
        ("critical --arch convnet --tokens 1000000000", "would need 179 GiB"),
        ("critical --arch heads.json", "number of heads = 3: must divide the width 8"),
        ("critical --arch twice.json", "'n_embd': this key stands there twice"),
        ("check gpt.json --tokens 100000000", "samples × positions"),
        ("check gpt.json --scheme sp", "--scheme = 'sp': only with package.module:function"),
        ("advise --activation step --width 9 --depth 3", "σ jumps"),
        (f"measure steep.npz {WEIGHTS}", "squares of signals or gradients overflow"),
        ("measure net.npz --data huge.npz --activation relu", "squares of signals"),
        ("measure net.npz --data one.npz --activation relu", "samples = 1: at least two"),
        (f"forecast steep.npz {WEIGHTS} --lr 0.1", "squares of the outputs leave"),
        ("forecast net.npz --data huge.npz --activation tanh --lr 0.1", "squares of the inputs"),
        ("fields steep.npz --data signs.npz --activation relu", "tangent kernels overflow"),
        (f"{ESCAPE} --depth 3 --scale 1e-300", "scales from 1e-300 to the threshold 0.3"),
        (f"{ESCAPE} --depth 3 --scale 0.1 --threshold 1e300", "to the threshold 1e+300"),
        (f"{ESCAPE} --depth 90 --scale 1e-9", "the escape time of 90 layers"),
        (f"{ESCAPE} --depth 101 --scale 0.29", "depth = 101: at most 100"),
        (f"{ESCAPE} --depth 1000000000 --scale 0.1", "depth = 1000000000: at most 100000"),
        ("escape --activation tanh --depth 3 --scale 0.1 --width " + "9" * 400, "width = 99"),
        ("advise --activation tanh --depth 3 --width " + "9" * 400, "at most 2**31"),
        ("advise --activation tanh --width 9 --depth 3 --data one.npy", "shape of --data = ()"),
        ("advise --arch gpt2 --loss mine", "--loss = 'mine': is for MLPs"),
        ("advise --arch gpt2 --data nowhere", "--data = 'nowhere': is for MLPs"),
        ("compare deep.npz deep.npz", "not a result saved by dynagram"),
        ("train-predict run.toml", "time = 1e+300: at most 1e+60"),
        ("train-predict run.toml --run folder", "say how many with --simulate"),
        ("plateaus huge.csv", "loss = 1e+308: beyond 1e+150"),
        ("plateaus shifted.csv", "3 columns of numbers need as many names"),
        ("plateaus twice.csv --column loss", "several columns have this name"),
        ("plateaus .", "is a folder"),
        ("plateaus /dev/null", "is no regular file"),
        ("report net.npz --data one.npz --activation tanh", "at least two, or x_test"),
    ],
)
def test_what_leads_nowhere_is_one_line(complaint, words, said):
    assert said in complaint(*words.split())


def test_a_text_too_large_for_memory_is_not_read_first(complaint, monkeypatch):
    """The bytes alone would fit: numbers as Python reads them take forty times as much."""
    os.truncate("sparse.csv", 2**33)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read before it was asked for"))
    assert "would need 320 GiB" in complaint("plateaus", "sparse.csv")


def test_arrays_of_another_byte_order_are_arrays(desk, monkeypatch, answer):
    pytest.importorskip("torch")
    (desk / "bordering.py").write_text(
        "import torch\n\ndef net():\n    return torch.nn.Linear(2, 1)\n"
    )
    monkeypatch.syspath_prepend(str(desk))
    for kind in (">f8", np.longdouble):
        np.save("other.npy", np.array([[1.0, 0.5], [-0.3, 0.8]], kind))
        assert answer("check", "bordering:net", "--data", "other.npy", "--json")


def test_one_output_stands_for_two_classes(answer):
    words = "fields net.npz --data signs.npz --activation relu --json"
    assert answer(*words.split())["checkpoints"]


def test_a_kernel_without_gradients_has_no_shares(run):
    result = run(*["measure", "net.npz", "--data", "alike.npz", "--activation", "relu"])
    assert result.exit_code == 0, result.output
    assert "nan" not in result.stdout


def test_names_in_files_do_not_speak_to_the_terminal(complaint, capsys):
    said = complaint("plateaus", "curve.csv", "--column", "none")
    assert "\\x1b[2J" in said
    assert not set("\x1b\x07\x9b") & set(said)
    console().print(Text(f"layer {EVIL}"), "\x9b31m", markup=False)
    printed = capsys.readouterr().out
    assert "\\x1b[2J" in printed
    assert not set("\x1b\x07\x9b") & set(printed)


def program(arguments, **options):
    """The console script as a process of its own, through this Python."""
    text = f"import sys; sys.argv = {['dynagram', *arguments]!r}; from dynagram.cli import main"
    return subprocess.Popen(
        [sys.executable, "-c", text + "; main()"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_whoever_stops_reading_is_no_failed_check():
    """As with `dynagram … | head`: exit code 1 would say that a check said no."""
    process = program(["critical", "tanh"])
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_greek_letters_gets_what_it_can_show(encoding):
    env = os.environ | {"PYTHONIOENCODING": encoding}
    process = program(["critical", "tanh"], env=env, encoding=encoding)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "C_W" in output


def test_a_cache_that_is_no_folder_is_named(desk):
    process = program(["cite", "train"], env=os.environ | {"DYNAGRAM_CACHE": str(desk / "x.npy")})
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.startswith("error: DYNAGRAM_CACHE = ")
    assert errors.count("\n") == 1
