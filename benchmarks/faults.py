"""Faults and what becomes of a run: real signals, forged folders, oversized requests, one table.

Every row says what was done to dynagram, what it did, in how many seconds, and within how many it
must. "the same bits" means that all arrays of the run, continued where it had to
be, equal those of a run that nothing happened to. A file beside every run is looked at in the end:
nothing outside a run's folder may be touched. `--quick` leaves out what takes a minute of waiting.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from dynagram import MLP, simulate  # noqa: E402
from dynagram.data import load_arrays  # noqa: E402
from dynagram.ensembles.engine import read_job, resume_job, run_job  # noqa: E402
from dynagram.errors import DynagramError  # noqa: E402
from oracles.walks import DRIFT, Walks, files  # noqa: E402

MEMBERS = 640
CHUNK = 64


def job(**options):
    return Walks(DRIFT, chunk_members=CHUNK, **options)


def bits(folder, without=""):
    """The arrays of a run, but for the chunk of a member that is missing on purpose."""
    arrays = {name: data for name, data in files(folder).items() if name.startswith("arrays")}
    return {n: d for n, d in arrays.items() if not (without and re.search(without, n))}


class Case:
    """A fresh folder with a run of one's own in it and a file beside it."""

    def __init__(self, folder, expected):
        self.folder, self.expected = folder, expected
        self.thesis = folder / "thesis.tex"
        self.thesis.write_text("years of work")
        self.run = folder / "run"
        self.begun = time.monotonic()  # once a fault is prepared, which is not dynagram's time

    def complete(self):
        run_job(job(), members=MEMBERS, folder=self.run)

    def same(self, without=""):
        equal = bits(self.run, without) == bits(self.expected, without)
        return "the same bits" if equal else "OTHER BITS"

    def resumed(self):
        found = resume_job(self.run, job_class=Walks)
        again = f", {len(found.recomputed)} chunk computed again" if found.recomputed else ""
        return f"{self.same()}{again}"


def refusal(function):
    """The one line with which something is refused."""
    try:
        function()
    except DynagramError as error:
        return f"refused: {error}"
    return "NOT REFUSED"


def once(action, after=CHUNK):
    """A progress callback that acts when a run has begun."""
    done = []

    def act(progress):
        if not done and progress.done >= after:
            done.append(progress.done)
            action()

    return act


# --- faults -----------------------------------------------------------------------------------


def forge(folder, chunk, number, **changes):
    content = json.loads((folder / "chunks" / f"{chunk}.json").read_text())
    del content["sha256"]
    content |= changes
    content["sha256"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "chunks" / f"{number}.json").write_text(json.dumps(content))


def forged_paths(case):
    """a record names ../thesis.tex and is cleared away"""
    case.complete()
    forge(case.run, 3, 77, files={"../thesis.tex": "0", str(case.thesis): "0"})
    return case.resumed()


def stray_record(case):
    """a stray record names the files of another chunk"""
    case.complete()
    forge(case.run, 3, 77)
    return case.resumed()


def forged_chunk(case):
    """a record in use names ../thesis.tex"""
    case.complete()
    forge(case.run, 3, 3, files={"../thesis.tex": "0"})
    return case.resumed()


def linked_folder(case):
    """arrays/walk is a link to another folder"""
    case.complete()
    (case.run / "arrays" / "walk").rename(case.folder / "elsewhere")
    (case.run / "arrays" / "walk").symlink_to(case.folder / "elsewhere")
    before = bits_of(case.folder / "elsewhere")
    (case.run / "chunks" / "4.json").unlink()
    said = refusal(case.resumed)
    return said if bits_of(case.folder / "elsewhere") == before else "WROTE THROUGH THE LINK"


def bits_of(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def read_only(case):
    """the folder cannot be written"""
    case.complete()
    import dynagram.ensembles.store._durable as durable

    def refuse(path, *_):
        raise PermissionError(13, os.strerror(13), str(path))

    durable.open = refuse  # root may write anywhere: the system's answer, by hand
    try:
        return refusal(case.resumed)
    finally:
        del durable.open


def missing_metadata(case):
    """arrays/zarr.json is missing"""
    case.complete()
    (case.run / "arrays" / "zarr.json").unlink()
    said = case.resumed()
    return f"mended, {said}" if (case.run / "arrays" / "zarr.json").is_file() else "NOT MENDED"


def foreign_code(case):
    """spec.toml names module:function"""
    network = MLP([2, 4, 1], "tanh", 0.0, 1.0)
    simulate(network, np.eye(2), ("K",), members=64, run=case.run)
    text = (case.run / "spec.toml").read_text()
    (case.run / "spec.toml").write_text(text.replace('"tanh"', '"antigravity:fly"'))
    from dynagram import open_run

    said = refusal(lambda: open_run(case.run))
    return said if "antigravity" not in sys.modules else "IMPORTED"


def stopped_process(case):
    """SIGSTOP to a worker of process:2"""

    def stop():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGSTOP)

    run_job(
        job(pause=0.2), members=MEMBERS, folder=case.run, executor="process:2", progress=once(stop)
    )
    return case.same()


def killed_process(case):
    """SIGKILL to a worker of process:2"""

    def kill():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    run_job(
        job(pause=0.2), members=MEMBERS, folder=case.run, executor="process:2", progress=once(kill)
    )
    return case.same()


def torn_result(case):
    """a worker of process:2 dies in the middle of a result"""
    found = run_job(
        job(torn=100), members=MEMBERS, folder=case.run, executor="process:2", retries=0
    )
    return f"left out: {found.failed[0]}; the others {case.same(r'/c/1(/|$)')}"


def endless_member(case):
    """a member that never ends, time_limit 3, process:2"""
    found = run_job(
        job(slow=100), members=MEMBERS, folder=case.run, executor="process:2", time_limit=3
    )
    return f"left out: {found.failed[0]}; the others {case.same(r'/c/1(/|$)')}"


def poison_on_processes(case):
    """a member that kills its worker, process:2"""
    found = run_job(job(deadly=100), members=MEMBERS, folder=case.run, executor="process:2")
    return f"left out: {found.failed[0]}; the others {case.same(r'/c/1(/|$)')}"


def poison_on_dask(case):
    """a member that kills its worker, dask:2"""
    found = run_job(job(deadly=100), members=MEMBERS, folder=case.run, executor="dask:2")
    return f"left out: {found.failed[0]}; the others {case.same(r'/c/1(/|$)')}"


def stopped_dask_worker(case):
    """SIGSTOP to a worker of dask:2"""
    import psutil

    def stop():
        below = psutil.Process().children(recursive=True)
        spawned = [p for p in below if "spawn_main" in " ".join(p.cmdline())]
        spawned[-1].send_signal(signal.SIGSTOP)

    run_job(
        job(pause=0.2), members=MEMBERS, folder=case.run, executor="dask:2", progress=once(stop)
    )
    return case.same()


@contextlib.contextmanager
def cluster():
    """A scheduler and a worker in processes of their own."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    scheduler = subprocess.Popen(
        [*command, "--port", "0", "--no-dashboard"], stderr=subprocess.PIPE, text=True
    )
    address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    worker = subprocess.Popen(
        [*command, "--no-dashboard"], stderr=subprocess.DEVNULL, env=variables
    )
    try:
        yield address, scheduler
    finally:
        scheduler.kill(), worker.kill()
        scheduler.communicate(), worker.wait()


def lost_scheduler(case, number):
    with cluster() as (address, scheduler):

        def strike():
            scheduler.send_signal(number)

        said = refusal(
            lambda: run_job(
                job(pause=0.2),
                members=MEMBERS,
                folder=case.run,
                executor=address,
                progress=once(strike),
            )
        )
    return f"{said.replace(address, 'tcp://…')}; resumed: {case.resumed()}"


def dead_scheduler(case):
    """SIGKILL to the Dask scheduler"""
    return lost_scheduler(case, signal.SIGKILL)


def stopped_scheduler(case):
    """SIGSTOP to the Dask scheduler"""
    return lost_scheduler(case, signal.SIGSTOP)


def begun(case, executor=None, pause=0.5):
    """A run in a process of its own whose first chunk is stored."""
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have them
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # ignored, as nohup does
        "sys.path[:0] = sys.argv[2].split(':')\n"
        "from oracles.walks import DRIFT, Walks\n"
        "from dynagram.ensembles.engine import run_job\n"
        "def tell(progress): print('begun', flush=True)\n"
        "if __name__ == '__main__':\n"
        f"    run_job(Walks(DRIFT, chunk_members={CHUNK}, pause={pause}), members={MEMBERS},\n"
        f"            folder=sys.argv[1], executor={executor!r}, progress=tell)\n"
    )
    (case.folder / "program.py").write_text(program)
    command = [sys.executable, str(case.folder / "program.py"), str(case.run), ":".join(sys.path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "begun\n"
    return process


def interrupted(case, number, executor):
    """What becomes of a run that gets a signal once it has begun."""
    process = begun(case, executor)
    struck = time.monotonic()
    os.killpg(process.pid, number)
    process.communicate()
    seconds = time.monotonic() - struck
    state = json.loads((case.run / "status.json").read_text())["state"]
    if state != "interrupted":
        return f"NOT INTERRUPTED but {state}"
    return f'ended after {seconds:.1f} s, status "{state}"; resumed: {case.resumed()}'


def ctrl_c(case):
    """Ctrl-C on process:2"""
    return interrupted(case, signal.SIGINT, "process:2")


def terminated(case):
    """SIGTERM"""
    return interrupted(case, signal.SIGTERM, None)


def hung_up(case):
    """SIGHUP"""
    return interrupted(case, signal.SIGHUP, None)


def killed(case):
    """kill -9 at 24 moments of a run"""
    moments, stored = np.random.default_rng(1).uniform(0.0, 0.5, 24), []
    for moment in moments:
        shutil.rmtree(case.run, ignore_errors=True)
        process = begun(case, pause=0.02)
        time.sleep(moment)
        process.kill()
        process.communicate()
        stored.append(len(list((case.run / "chunks").glob("*.json"))))
        if (said := case.resumed()) != "the same bits":
            return f"{said}, killed {moment:.3f} s after the first chunk"
    return f"24 killed with {min(stored)} to {max(stored)} chunks of 10 stored; the same bits"


def full_disk(case):
    """a disk of 64, 96 or 128 kB for a run of 200"""
    disk, said = case.folder / "disk", ""
    disk.mkdir()
    case.run = disk / "run"
    for size in (64, 96, 128):
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode:
            return "left out: only root may mount a disk"
        try:
            said = refusal(lambda: run_job(job(), members=MEMBERS, folder=case.run))
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            if not said.startswith("refused") or (bits := case.resumed()) != "the same bits":
                return f"NOT SURVIVED: {size} kB, {said}"
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    return f"{said}; three disks, resumed with more room: {bits}"


DAMAGES = {
    "a byte changed": lambda data, half: data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
    "cut in half": lambda data, half: data[:half],
    "cut to a byte": lambda data, _: data[:1],
}


def damaged_files(case):
    """31 damaged files of complete runs, read and resumed"""
    case.complete()
    whole = case.run.rename(case.folder / "whole")
    expected = read_job(whole, job_class=Walks).arrays
    names = sorted(p.relative_to(whole) for p in whole.rglob("*") if p.is_file())
    count = Counter()
    for n, place in enumerate(np.linspace(0, len(names) - 1, 31).astype(int)):
        shutil.rmtree(case.run, ignore_errors=True)
        shutil.copytree(whole, case.run)
        name, (damage, change) = names[place], list(DAMAGES.items())[n % len(DAMAGES)]
        data = (case.run / name).read_bytes()
        (case.run / name).write_bytes(change(data, len(data) // 2))
        try:
            arrays = read_job(case.run, job_class=Walks).arrays
            if any(not np.array_equal(arrays[key], expected[key]) for key in expected):
                return f"OTHER NUMBERS READ: {name} {damage}"
        except DynagramError:
            count["reading refused"] += 1
        if refusal(case.resumed).startswith("refused"):
            count["resuming refused"] += 1
        elif case.same() != "the same bits":
            return f"OTHER BITS: {name} {damage}"
        else:
            count["resumed with the same bits"] += 1
    return ", ".join(f"{number} {word}" for word, number in count.items())


def bomb(case):
    """a .npz of 3 MB that expands to 3.2 GB"""
    path, block = case.folder / "bomb.npz", bytes(2**24)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (400_000_000,)}
        )
        for _ in range(191):
            file.write(block)
    case.begun = time.monotonic()
    return refusal(lambda: load_arrays(path))


def many_inputs(_):
    """simulate: V of 5 000 inputs"""
    network = MLP([3, 10, 1], "tanh", 0.0, 1.0)
    return refusal(lambda: simulate(network, np.ones((5000, 3)), ("V",), members=100))


def huge_network(_):
    """advise --width 1000000000 --depth 1000000000"""
    command = ["advise", "--activation", "relu", "--width", "1000000000", "--depth", "1000000000"]
    program = [sys.executable, "-c", "from dynagram.cli import main; main()", *command]
    shown = subprocess.run(program, capture_output=True, text=True)
    return f"refused: {shown.stderr.strip()}" if shown.returncode == 2 else "NOT REFUSED"


# Fault → the seconds within which a row is over: what docs/machines.md states, the start of all
# processes that are needed on a busy machine, and the run itself, broken and continued.
FAULTS = {
    forged_paths: 10, stray_record: 10, forged_chunk: 10, linked_folder: 10, read_only: 10,
    missing_metadata: 10, foreign_code: 30, bomb: 10, many_inputs: 10, huge_network: 30,
    damaged_files: 120, full_disk: 30, terminated: 60, hung_up: 60, ctrl_c: 60,
    killed_process: 60, torn_result: 180, endless_member: 180,
    poison_on_processes: 180, dead_scheduler: 90,
}  # fmt: skip
PATIENT = {
    killed: 24 * 30, stopped_process: 150, stopped_dask_worker: 180, stopped_scheduler: 150,
    poison_on_dask: 240,
}  # fmt: skip


def shown(row):
    """Two lines of the table."""
    verdict = "ok " if row["good"] else "BAD"
    return (
        f"{verdict} {row['seconds']:6.1f} s of {row['within']:4} | {row['fault']}\n"
        f"      {row['outcome']}"
    )


def done_to(fault, stated, folder, expected):
    """A row of the table."""
    (folder / fault.__name__).mkdir()
    case = Case(folder / fault.__name__, expected)
    outcome = fault(case).replace(str(folder), "…")
    seconds = time.monotonic() - case.begun
    if case.thesis.read_text() != "years of work":
        outcome += "; TOUCHED A FILE OUTSIDE"
    wrong = seconds > stated or re.search(r"\b(NOT|OTHER|WROTE|IMPORTED|TOUCHED)\b", outcome)
    row = {"fault": fault.__doc__, "outcome": outcome, "seconds": round(seconds, 1)}
    return row | {"within": stated, "good": not wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without a minute of waiting")
    parser.add_argument("--only", help="the name of one fault")
    parser.add_argument("--recorded", action="store_true", help="print the last whole run")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.recorded:
        print(*map(shown, json.loads((options.output / "faults.json").read_text())), sep="\n")
        return
    faults = FAULTS if options.quick else FAULTS | PATIENT
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder) / "expected"
        run_job(job(), members=MEMBERS, folder=expected)
        for fault, stated in faults.items():
            if options.only not in (None, fault.__name__):
                continue
            rows.append(done_to(fault, stated, Path(folder), expected))
            print(shown(rows[-1]), flush=True)
            if options.only is None:
                options.output.mkdir(exist_ok=True)
                text = json.dumps(rows, indent=1, ensure_ascii=False)
                (options.output / "faults.json").write_text(text)
    sys.exit(0 if all(row["good"] for row in rows) else 1)


if __name__ == "__main__":
    main()
