"""Runs that are killed: real processes, real signals, and results that are the same to the bit.

Signals arrive at chosen moments of a run, not at chosen times: a busy machine changes nothing.
"""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from dynagram.cli import app
from dynagram.ensembles import open_run
from dynagram.ensembles._jobs import pack
from dynagram.ensembles.engine import resume_job, run_job
from dynagram.ensembles.initial import TensorJob
from dynagram.networks import MLP
from dynagram.results import load

NETWORK = MLP((3, 10, 8, 2), "tanh", C_b=0.1, C_W=1.2)
X = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]])
OPTIONS = ["--widths", "3,10,8,2", "--activation", "tanh", "--cb", "0.1", "--cw", "1.2"]
CHUNK, MEMBERS = 64, 64 * 120 + 10
PATIENCE = 900.0  # seconds, on a machine that is busy with other things: only to end at all
FILES = (20, 60)  # a run has its first whole chunk after 15 files, six more for every other


def results(path):
    """The results of a run, file by file."""
    below = sorted(p for part in ("arrays", "chunks") for p in (path / part).rglob("*"))
    return {str(p.relative_to(path)): p.read_bytes() for p in below if p.is_file()}


def same(found, expected):
    assert found.members == expected.members
    mine, theirs = pack(found.moments), pack(expected.moments)
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(mine[name], array)


def chunks(path):
    return len(list((path / "chunks").glob("*.json")))


# Where tests run in the background of a shell, SIGINT is ignored, and children inherit that.
PROGRAM = """import signal; signal.signal(signal.SIGINT, signal.default_int_handler)
from dynagram.cli import main; main()"""

# Stops before the file with this number is given its name in the run, and says so.
HELD_PROGRAM = """import itertools, os, time
folder, number = os.environ["RUN"], int(os.environ["HOLD_AT"])
count, replace = itertools.count(1), os.replace
def hold(part, path):
    if str(path).startswith(folder + os.sep) and next(count) == number:
        print("held", flush=True)
        while True:
            time.sleep(1)
    replace(part, path)
os.replace = hold
"""


def dynagram(*arguments, program=PROGRAM, **options):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options)


def held(run, number, *arguments, **options):
    """A process that writes to `run` and stands still before its file with this number."""
    variables = os.environ | {"RUN": str(run), "HOLD_AT": str(number)}
    process = dynagram(*arguments, program=HELD_PROGRAM + PROGRAM, env=variables, **options)
    assert process.stdout.readline() == "held\n", process.communicate()
    return process


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """The many processes started here share what they compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """An uninterrupted run of the command in this process."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    job = TensorJob(NETWORK, X, ("K", "V"), seed=7, chunk_members=CHUNK)
    return folder, run_job(job, members=MEMBERS, folder=folder)


@pytest.mark.slow
def test_killed_three_times_at_random_and_resumed(tmp_path, unbroken):
    expected, outcome = unbroken
    np.save(tmp_path / "x.npy", X)
    run, random = tmp_path / "run", np.random.default_rng()  # any moment will do
    begin = ["simulate", "-i", tmp_path / "x.npy", *OPTIONS, "--tensors", "K,V", "--seed", 7]
    begin += ["--members", MEMBERS, "--chunk", CHUNK, "--run", run]
    for arguments in (begin, ["simulate", "--resume", run], ["simulate", "--resume", run]):
        process = held(run, random.integers(*FILES), *arguments)
        if arguments is begin:  # while it runs, nobody else may
            second = dynagram("simulate", "--resume", run)
            _, complaint = second.communicate(timeout=PATIENCE)
            assert second.returncode == 2
            assert f"error: {run} is in use by process {process.pid}" in complaint
            assert complaint.count("\n") == 1
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close(), process.stderr.close()
    assert 3 <= chunks(run) < chunks(expected)
    same(resume_job(run), outcome)
    assert results(run) == results(expected)
    assert json.loads((run / "status.json").read_text())["state"] == "complete"


PROBLEM = """[network]
widths = [2, 8, 1]
activation = "tanh"
C_b = 0.1
C_W = 1.2
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "t.npy"
[training]
algorithm = "gd"
eta = 0.1
steps = 40
record = [0, 10]
"""


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_training_killed_and_resumed(tmp_path, pairs):
    """kill -9 while a chunk of trained networks is half written: the same files at the end."""
    draw = np.random.default_rng(5).normal
    for name, shape in {"x": (4, 2), "y": (4, 1), "t": (3, 2)}.items():
        np.save(tmp_path / f"{name}.npy", draw(size=shape))
    (tmp_path / "problem.toml").write_text(PROBLEM)
    options = ["train", tmp_path / "problem.toml", "--members", 160, "--chunk", 16]
    options += ["--pairs"] if pairs else []
    expected, run = tmp_path / "expected", tmp_path / "run"
    shown = CliRunner().invoke(app, [*map(str, options), "--run", str(expected), "--json"])
    assert shown.exit_code == 0, shown.output
    for number, arguments in enumerate(([*options, "--run", run], ["train", "--resume", run])):
        process = held(run, 40 + 7 * number, *arguments)
        process.kill()
        process.communicate(timeout=PATIENCE)
    assert 1 <= chunks(run) < chunks(expected) == 10
    again = CliRunner().invoke(app, ["train", "--resume", str(run), "--json"])
    assert again.exit_code == 0, again.output
    assert again.stdout == shown.stdout
    assert results(run) == results(expected)


@pytest.mark.slow
def test_processes_of_which_one_is_killed(unbroken, tmp_path):
    """The pool breaks; what was on its way is computed again."""
    import multiprocessing

    expected, outcome = unbroken
    killed = []

    def kill(progress):
        if not killed and progress.done > 10 * CHUNK:
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    job = TensorJob(NETWORK, X, ("K", "V"), seed=7, chunk_members=CHUNK)
    folder = tmp_path / "run"
    found = run_job(job, members=MEMBERS, folder=folder, executor="process:2", progress=kill)
    assert killed
    same(found, outcome)
    assert results(folder) == results(expected)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_dask_worker_killed(unbroken, tmp_path):
    """The scheduler gives its work to others; a cluster that runs is joined by its address."""
    from distributed import LocalCluster

    expected, outcome = unbroken
    killed = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:

        def kill(progress):
            if not killed and progress.done > 10 * CHUNK:
                killed.append(cluster.workers[0].pid)
                os.kill(killed[0], signal.SIGKILL)

        job = TensorJob(NETWORK, X, ("K", "V"), seed=7, chunk_members=CHUNK)
        folder, address = tmp_path / "run", cluster.scheduler_address
        found = run_job(job, members=MEMBERS, folder=folder, executor=address, progress=kill)
    assert killed
    same(found, outcome)
    assert results(folder) == results(expected)


@pytest.mark.slow
def test_an_interrupt_leaves_a_run_that_goes_on(unbroken, tmp_path):
    """Ctrl-C reaches the whole process group, with a Dask cluster of its own in it."""
    expected, outcome = unbroken
    np.save(tmp_path / "x.npy", X)
    run = tmp_path / "run"
    arguments = ["simulate", "-i", tmp_path / "x.npy", *OPTIONS, "--tensors", "K,V", "--seed", 7]
    arguments += ["--members", MEMBERS, "--chunk", CHUNK, "--run", run, "--executor", "dask:1"]
    process = held(run, FILES[1], *arguments, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert f"`dynagram simulate --resume {run}` continues this run" in stderr
    assert "Traceback" not in stderr
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"
    same(resume_job(run), outcome)
    assert results(run) == results(expected)


# --- the command ------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["simulate", *map(str, arguments)])


@pytest.fixture
def inputs(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return ["-i", tmp_path / "x.npy", *OPTIONS, "--tensors", "V", "--chunk", 128]


def test_command_stops_at_a_precision_and_prints_a_stored_run_again(tmp_path, inputs):
    run, options = tmp_path / "run", ["--until-error", 0.1, "--json"]
    first = command(*inputs, *options, "--run", run)
    assert first.exit_code == 0, first.output
    assert first.stderr == ""
    found = json.loads(first.stdout)
    assert found["members"] % 128 == 0
    assert found["worst"]["tensor"] == "V"
    assert found["worst"]["error"] <= 0.1
    assert json.loads(command(*inputs, *options).stdout) == found
    assert json.loads(command("--resume", run, "--json").stdout) == found
    damaged = run / "arrays" / "metric" / "sums_2" / "c" / "1" / "0" / "0" / "0" / "0"
    damaged.write_bytes(b"noise")
    again = command("--resume", run, "--json", "-o", tmp_path / "out.npz")
    assert json.loads(again.stdout) == found
    assert "computed again, because damaged: chunks 1\n" in again.stderr
    stored = load(tmp_path / "out.npz")
    assert stored["V"].shape == (3, 2, 2, 2, 2)
    np.testing.assert_array_equal(stored["V"], open_run(run)["V"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume", "nowhere"], "run = 'nowhere': holds no run"),
        (
            ["--resume", "nowhere", "--members", 100],
            "only --executor, --time-limit, ",
        ),
        (
            ["--resume", "nowhere", "--lambda-b", "2"],
            "only --executor, --time-limit, ",
        ),
        ([], "--inputs = None: needed, unless --resume is given"),
        (["--members", 100, "--executor", "cluster"], "executor = 'cluster': expected process:N"),
        (["--members", 100, "--chunk", 0], "chunk_members = 0"),
        (["--members", 100, "--run", "no/such/run"], "its parent folder does not exist"),
        (["--until-error", 3], "until_error = 3.0"),
    ],
)
def test_command_refuses(inputs, arguments, words):
    given = [] if not arguments or "--resume" in arguments else inputs
    result = command(*given, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
