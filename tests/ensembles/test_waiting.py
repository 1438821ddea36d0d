"""Workers that stop, hang or kill themselves: nobody waits for them without an end.

Real processes and real signals. Times are shortened where only the order of events matters; what
is asserted is that a run ends, who is blamed, and that its bits are the same.
"""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dynagram.ensembles._jobs import FailedMember, pack
from dynagram.ensembles.engine import _dask as dask_module
from dynagram.ensembles.engine import _heartbeats as heartbeats
from dynagram.ensembles.engine import _interrupts as interrupts_module
from dynagram.ensembles.engine import resume_job, run_job
from dynagram.ensembles.engine._executors import Workers, open_workers
from dynagram.ensembles.engine._schedule import Schedule
from dynagram.ensembles.store import RunError
from dynagram.errors import InvalidValueError
from oracles.walks import DRIFT, MEMBERS, Walks, files

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
JOB = Walks(DRIFT)
PATIENCE = 600.0  # seconds, on a machine that is busy with other things


@pytest.fixture
def unbroken(tmp_path):
    folder = tmp_path / "unbroken"
    return folder, run_job(JOB, members=MEMBERS, folder=folder)


def same(found, expected):
    assert found.members == expected.members
    mine, theirs = pack(found.moments), pack(expected.moments)
    for name, array in theirs.items():
        np.testing.assert_array_equal(mine[name], array)


# --- signs of life ----------------------------------------------------------------------------


class Counters:
    """Heartbeats without processes: what a parent sees of three workers."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(heartbeats.time, "monotonic", lambda: self.now)
        self.beats = heartbeats.Heartbeats(multiprocessing.get_context("spawn"), 3)

    def after(self, seconds, *alive):
        self.now += seconds
        for worker in alive:
            self.beats.counters[worker] += 1
        return self.beats.silent(["a", "b", "c"])


def test_a_silent_worker_is_found(monkeypatch):
    workers = Counters(monkeypatch)
    workers.after(1.0, 0, 1, 2)
    for _ in range(int(heartbeats.SILENCE)):
        assert workers.after(1.0, 0, 2) == []
    assert workers.after(1.5, 0, 2) == ["b"]


def test_a_new_worker_may_take_longer(monkeypatch):
    workers = Counters(monkeypatch)
    for _ in range(170):
        assert workers.after(1.0, 0, 1) == []
    for _ in range(12):
        late = workers.after(1.0, 0, 1)
    assert late == ["c"]


def test_a_run_that_was_stopped_itself_blames_nobody(monkeypatch):
    workers = Counters(monkeypatch)
    workers.after(1.0, 0, 1, 2)
    assert workers.after(3600.0) == []  # the laptop was closed
    assert workers.after(1.0, 0, 1, 2) == []


@POSIX
@pytest.mark.slow
def test_a_stopped_process_is_ended_and_its_work_done_again(tmp_path, monkeypatch, unbroken):
    """SIGSTOP: the process lives and does nothing. Without heartbeats this would never end."""
    monkeypatch.setattr(heartbeats, "SILENCE", 15.0)
    stopped = []

    def stop(progress):
        if not stopped and progress.done >= 20:
            stopped.append(multiprocessing.active_children()[0].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    job, folder = Walks(DRIFT, pause=0.2), tmp_path / "run"
    found = run_job(job, members=MEMBERS, folder=folder, executor="process:2", progress=stop)
    assert stopped
    same(found, unbroken[1])
    assert found.failed == ()
    assert results(folder) == results(unbroken[0])
    assert multiprocessing.active_children() == []


def results(folder):
    """The arrays of a run; records name the specification, which differs in `pause`."""
    return {name: data for name, data in files(folder).items() if name.startswith("arrays")}


@pytest.mark.slow
def test_a_member_that_never_ends_is_found_by_the_time_limit(unbroken):
    job = Walks(DRIFT, slow=33)
    found = run_job(job, members=MEMBERS, executor="process:2", time_limit=5, retries=0)
    assert found.failed == (FailedMember(33, 1, "its worker process died, or took over 5 s"),)
    others = np.delete(np.arange(MEMBERS), 33)
    expected = unbroken[1].arrays["walk"]
    np.testing.assert_array_equal(found.arrays["walk"][others], expected[others])


@POSIX
@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_result(unbroken):
    """The pool waits for the rest of it and would wait for ever; so would Ctrl-C for the pool."""
    job = Walks(DRIFT, torn=33)
    found = run_job(job, members=MEMBERS, executor="process:2", retries=0)
    assert found.failed == (FailedMember(33, 1, "its worker process died"),)
    others = np.delete(np.arange(MEMBERS), 33)
    expected = unbroken[1].arrays["walk"]
    np.testing.assert_array_equal(found.arrays["walk"][others], expected[others])
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("executor", "limit", "words"),
    [
        (None, 3, "time_limit = 3: needs workers that can be ended"),
        ("process:2", 0, "time_limit = 0: expected seconds > 0"),
        ("process:2", float("nan"), "time_limit = nan: expected seconds > 0"),
    ],
)
def test_time_limits_that_mean_nothing(executor, limit, words):
    with pytest.raises(InvalidValueError) as error:
        run_job(JOB, members=MEMBERS, executor=executor, time_limit=limit)
    assert words in str(error.value)


def test_who_kills_is_not_tried_at_every_size():
    """Every death costs the start of a process: 3 at first, then one for every halving."""

    class Deadly(Workers):
        deaths = 0

        def submit(self, job, first, size):
            future = Future()
            if first <= 37 < first + size:
                self.deaths += 1
                future.set_exception(BrokenExecutor("died"))
            else:
                future.set_result(pack(job.run_chunk(first, size)))
            return future

        def renew(self):
            pass

    workers = Deadly()
    schedule = Schedule(Walks(DRIFT, chunk_members=64), lambda _: (0, 64), retries=2, failures=9)
    with schedule.running(workers):
        schedule.plan([0])
        done = schedule.result(0, lambda *_: None)
    assert [failure.member for failure in done.failed] == [37]
    assert workers.deaths == 3 + 5 + 3  # of 64; of 32, 16, 8, 4, 2; of the member alone


# --- signals ----------------------------------------------------------------------------------

# A run of walks that says when it has begun, in a process of its own.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have them ignored
for name in ("SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
sys.path.insert(0, {tests!r})
from oracles.walks import DRIFT, Walks
from dynagram.ensembles.engine import run_job
import dynagram.ensembles.engine._interrupts as interrupts
interrupts.GRACE = {grace}
seen = []
def tell(progress):
    if not seen:
        print("begun", flush=True)
    seen.append(progress)
if __name__ == "__main__":
    try:
        run_job(Walks(DRIFT, pause={pause}), members=2000, folder=sys.argv[1],
                executor={executor!r}, progress=tell)
    except KeyboardInterrupt as error:
        sys.exit(128 + int(error.args[0]))
"""


def begun(tmp_path, *, executor=None, pause=0.05, grace=10.0):
    tests = str(Path(__file__).parents[1])
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(tests=tests, pause=pause, executor=executor, grace=grace))
    command = [sys.executable, str(script), str(tmp_path / "run")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def status(tmp_path):
    return json.loads((tmp_path / "run" / "status.json").read_text())


@POSIX
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_signals_leave_an_interrupted_run(tmp_path, name):
    number = getattr(signal, name)
    process = begun(tmp_path)
    process.send_signal(number)
    _, complaint = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaint) == (128 + number, "")
    assert status(tmp_path)["state"] == "interrupted"


@POSIX
@pytest.mark.slow
def test_ctrl_c_ends_processes_at_once(tmp_path):
    """Chunks that would take an hour are not waited for; nor is a process that is stopped."""
    process = begun(tmp_path, executor="process:2", pause=0.05)
    process.kill()
    process.communicate()
    script = tmp_path / "script.py"
    script.write_text(script.read_text().replace("pause=0.05", "pause=3600.0"))
    (tmp_path / "other").mkdir()
    command = [sys.executable, str(script), str(tmp_path / "other" / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while len(workers := children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(workers) >= 2
    time.sleep(3.0)  # most of them are importing now, or computing already
    os.kill(workers[-1], signal.SIGSTOP)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE)  # which is less than the hour
    assert (process.returncode, complaint) == (130, "")
    assert not [worker for worker in workers if alive(worker)]


def children(pid):
    """Worker processes of a process: all below it but the tracker of resources."""
    import psutil

    below = psutil.Process(pid).children(recursive=True)
    return [p.pid for p in below if "resource_tracker" not in " ".join(p.cmdline())]


def alive(pid):
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@POSIX
def test_a_signal_that_python_does_not_hear_of_is_heard(tmp_path):
    """A compiled program does not let Python handle signals: here it is a hash of many rounds."""
    script = tmp_path / "deaf.py"
    script.write_text(
        "import hashlib, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "import dynagram.ensembles.engine._interrupts as interrupts\n"
        "interrupts.GRACE = 0.5\n"
        "def last():\n"
        "    print('at last', flush=True)\n"
        "with interrupts.interrupts(last):\n"
        "    print('begun', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, said) == (128 + signal.SIGTERM, "at last\n")


def test_handlers_of_others_are_left_alone():
    def mine(*_):
        pass

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with interrupts_module.interrupts():
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    with interrupts_module.interrupts():
        pass
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


# --- Dask -------------------------------------------------------------------------------------


class FakeClient:
    """What `DaskWorkers` sees of a client."""

    def __init__(self, answers):
        self.status, self.answers, self.scheduler = "running", answers, self

    def identity(self):
        pass

    def sync(self, _, callback_timeout):
        assert callback_timeout > 0
        answer = self.answers()
        if isinstance(answer, Exception):
            raise answer
        return answer


def watching(monkeypatch, answers):
    """Dask workers on a clock of ours: a function that lets time pass and looks."""
    workers = object.__new__(dask_module.DaskWorkers)
    clock = {"now": 0.0}
    monkeypatch.setattr(dask_module.time, "monotonic", lambda: clock["now"])
    workers._client, workers._address = FakeClient(answers), "tcp://there:8786"
    workers._asked = workers._answered = workers._served = workers._manned = 0.0
    workers._wanted, workers._wait = 0, dask_module._MISSING

    def after(seconds):
        for _ in range(int(seconds)):
            clock["now"] += 1.0
            workers.check()

    return workers, after


def test_a_scheduler_that_does_not_answer_any_more(monkeypatch):
    answers = {"now": {"workers": {"a": {}}}}
    _, after = watching(monkeypatch, lambda: answers["now"])
    after(500)
    answers["now"] = TimeoutError()
    after(30)
    answers["now"] = {"workers": {"a": {}}}  # it was busy
    after(100)
    answers["now"] = OSError("gone")
    with pytest.raises(RunError, match="at tcp://there:8786 has not answered for 60 s: see to it"):
        after(100)


def test_local_workers_that_are_missing_are_replaced(monkeypatch):
    """Dask does not start one again that died while it was being started."""
    answers = {"workers": {"a": {}, "b": {}}}
    workers, after = watching(monkeypatch, lambda: answers)
    scaled = []

    class Cluster:
        worker_spec: ClassVar = {0: {}, 1: {}}

        def scale(self, count):
            scaled.append(count)

    workers._wanted, workers._cluster = 2, Cluster()
    after(100)
    del answers["workers"]["a"]
    after(25)
    assert scaled == []  # it is on its way
    after(25)
    assert scaled == [3]  # the two that Dask knows, and one
    answers["workers"]["c"] = {}
    after(100)
    assert scaled == [3]


def test_workers_that_are_slow_to_start_are_not_drowned_in_others(monkeypatch):
    """On a busy machine two local workers became ten, each slower to start than the last."""
    workers, after = watching(monkeypatch, lambda: {"workers": {"a": {}}})

    class Cluster:
        worker_spec: ClassVar = {0: {}, 1: {}}

        def scale(self, count):
            self.worker_spec |= {number: {} for number in range(count)}

    workers._wanted, workers._cluster = 2, Cluster()
    after(600)
    assert len(Cluster.worker_spec) == 6  # after 30, 60, 120 and 240 s


def test_a_cluster_without_workers(monkeypatch):
    _, after = watching(monkeypatch, lambda: {"workers": {}})
    after(500)  # those of a queue come late
    with pytest.raises(RunError, match="has had no worker for 600 s"):
        after(200)


def test_a_client_that_gave_up(monkeypatch):
    workers, after = watching(monkeypatch, lambda: {"workers": {}})
    workers._client.status = "closed"
    with pytest.raises(RunError, match="could not be reached again"):
        after(1)


def scheduler_process():
    """A Dask scheduler and a worker, in processes of their own: (address, scheduler, worker)."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    command += ["--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = ""
    for line in scheduler.stderr:
        if "Scheduler at:" in line:
            address = line.split()[-1]
            break
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    tests = str(Path(__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    worker = subprocess.Popen(
        [*command, "--no-dashboard"], stderr=subprocess.DEVNULL, env=variables
    )
    return address, scheduler, worker


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
def test_a_dead_scheduler_ends_the_run_in_one_line(tmp_path, monkeypatch, unbroken, number):
    monkeypatch.setattr(dask_module, "SILENCE", 15.0)
    monkeypatch.setattr(dask_module, "_ASK_EVERY", 3.0)
    address, scheduler, worker = scheduler_process()
    hit = []

    def strike(progress):
        if not hit and progress.done >= 20:
            hit.append(time.monotonic())
            scheduler.send_signal(getattr(signal, number))

    try:
        job, folder = Walks(DRIFT, pause=0.3), tmp_path / "run"
        with pytest.raises(RunError) as error:
            run_job(job, members=MEMBERS, folder=folder, executor=address, progress=strike)
    finally:
        scheduler.kill(), worker.kill()
        scheduler.communicate(), worker.wait()
    assert hit
    assert "\n" not in str(error.value)
    assert "then resume" in str(error.value)
    assert status(tmp_path)["state"] == "stopped"
    same(resume_job(folder, job_class=Walks), unbroken[1])
    assert results(folder) == results(unbroken[0])


@pytest.mark.slow
def test_a_member_that_kills_its_dask_worker_is_blamed_alone(tmp_path, unbroken):
    """Chunks that were on their way with it are neither blamed nor cut, so their bits stay."""
    job, folder = Walks(DRIFT, deadly=33), tmp_path / "run"
    found = run_job(job, members=MEMBERS, folder=folder, executor="dask:2", retries=1)
    assert found.failed == (FailedMember(33, 1, "its worker process died"),)

    def others(results):  # but the chunk of member 33
        return {name: data for name, data in results.items() if not re.search(r"/c/1(/|$)", name)}

    assert others(results(folder)) == others(results(unbroken[0]))


def test_open_workers_of_a_text():
    workers = open_workers("process:3", 7.0)
    try:
        assert (workers.window, workers.limit) == (6, 7.0)
    finally:
        workers.stop(abandon=True)
