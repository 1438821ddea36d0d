"""Runs of ensembles: a million initial networks, memory against members, what executors cost.

Every case runs in a process of its own. A million networks of width 30, depth 4 and 3 inputs;
peak memory for 10⁵ and 10⁶ of them, kept on disk or not; seconds per chunk of about one second
of work on one worker, for the executors beside this process itself.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MILLION = 1_000_000
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
CHUNKS = 24


def job(chunk: int = 0):
    from dynagram import MLP
    from dynagram.ensembles.initial import TensorJob

    network = MLP([3, 30, 30, 30, 1], "tanh", C_b=0.0, C_W=1.0)
    x = np.random.default_rng(0).normal(size=(3, 3))
    return TensorJob(network, x, ("V",), seed=0, chunk_members=chunk)


def kernels(members: int, stored: bool) -> dict:
    """Wall time from the first to the last member, compilation included, and peak memory."""
    from dynagram.ensembles.engine import run_job

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = run_job(job(), members=members, folder=f"{folder}/run" if stored else None)
        wall = time.perf_counter() - start
        occupied = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "wall_s": wall,
        "peak_MB": peak,
        "disk_MB": occupied // 2**20,
        "worst_error": found.worst.value,
    }


def chunks(executor: str, members: int) -> dict:
    """Seconds per chunk once all are at work: the first chunks start processes and compile.

    One worker computes on one core. In this process XLA would use them all, whatever its flags
    say, so that it is held to one.
    """
    if executor == "here":
        os.sched_setaffinity(0, {0})
    from dynagram.ensembles.engine import run_job

    moments = []
    run_job(
        job(members),
        members=members * (CHUNKS + 4),
        executor=None if executor == "here" else executor,
        progress=lambda _: moments.append(time.perf_counter()),
    )
    return {"chunk_s": (moments[-1] - moments[3]) / CHUNKS}


def measured(*arguments: object, single: bool = False) -> dict:
    """The answer of a case that runs in another process."""
    environment = dict(os.environ)
    if single:
        environment |= {"XLA_FLAGS": ONE_THREAD, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--case", *map(str, arguments)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=3, help="one case, as JSON")
    options = parser.parse_args()
    if options.case:
        kind, first, second = options.case
        if kind == "kernels":
            print(json.dumps(kernels(int(first), second == "stored")))
        else:
            print(json.dumps(chunks(first, int(second))))
        return
    report: dict = {"kernels": [], "chunks": []}
    for members in (MILLION // 10, MILLION):
        for how in ("here", "stored"):
            row = {"members": members, "how": how} | measured("kernels", members, how)
            report["kernels"].append(row)
            print(
                f"{members:>8} networks, {how:<7} {row['wall_s']:6.1f} s, V to "
                f"{100 * row['worst_error']:.2f} %, peak memory {row['peak_MB']} MB, "
                f"on disk {row['disk_MB']} MB",
                flush=True,
            )
    trial = measured("chunks", "here", 20_000, single=True)["chunk_s"]
    size = int(20_000 / trial)
    alone = measured("chunks", "here", size, single=True)["chunk_s"]
    for executor in ("here", "process:1", "dask:1"):
        cost = measured("chunks", executor, size, single=True)["chunk_s"]
        report["chunks"].append({"executor": executor, "members": size, "chunk_s": cost})
        print(
            f"{executor:<10} {cost:.3f} s per chunk, {100 * (cost / alone - 1):+.1f} %", flush=True
        )
    path = Path(__file__).parent / "results" / "runs.json"
    path.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
