"""A table of every speed claim: what was measured last, against whom, and what is aimed at.

Reads benchmarks/results; `make bench` measures again. `--limits` also measures what this machine
can do at all: float64 matrix products and copies of memory.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
PEER = "neural-tangents 0.6.5"


def read(name: str):
    return json.loads((RESULTS / name).read_text())


def kernel_rows():
    aims = {"relu": 3.0, "erf": 3.0, "tanh": 1000.0}
    for row in read("kernels.json"):
        what = f"K and Θ, {row['activation']}, {row['samples']} inputs"
        yield what, row["ours"]["wall_s"], PEER, row.get("ratio"), aims.get(row["activation"])


def architecture_rows():
    for row in read("architectures.json"):
        what = f"K and Θ, {row['case']}, {row['samples']} inputs"
        yield what, row["ours"]["wall_s"], PEER, row.get("ratio"), 2.0


def ntk_rows():
    found = read("ntk.json")
    ours, peer = found["ours"]["wall_s"], found["peer"]["wall_s"]
    yield "NTK of one network, 128 × 128 inputs, 10 outputs", ours, PEER, peer / ours, 2.0
    for row in found["tensors"]:
        what = f"all tensors, {row['samples']} inputs, depth {row['depth']}"
        yield what, row["seconds"], "none", None, None


def ensemble_rows():
    report = read("ensembles.json")
    found = report["training"]
    ours = found["ours"]["wall_s"]
    for peer, row in found.items():
        if isinstance(row, dict) and peer != "ours" and "wall_s" in row:
            yield "a thousand networks trained", ours, peer, row["wall_s"] / ours, 1.0
    for row in report.get("wide", {}).get("rows", ()):
        what = f"{row['members']} networks of width {row['width']} trained, CPU time"
        ours, obvious = row["ours"]["cpu_s"], row["JAX"]["cpu_s"]
        yield what, ours, "JAX, vmap and scan", obvious / ours, 1.0


def other_rows():
    for row in read("runs.json")["kernels"]:
        what = f"{row['members']} networks drawn and measured, {row['how']}"
        yield what, row["wall_s"], "none", None, None
    fields = read("fields.json")["whole"]
    what = f"field transport, {fields['M']} samples, width {fields['N']}, {fields['L']} layers"
    yield what, fields["seconds"], "none", None, None
    for row in read("trained_size.json")["results"]:
        classes = f" of {row['classes']} classes" if "classes" in row else ""
        size = f"{row['train']} + {row['test']} points{classes}"
        what = f"trained at 1/n, {size}, {row['device']}"
        yield what, row["seconds"], "none", None, None


def told(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"


def print_table() -> None:
    print(f"{'what':62} {'time':>8}  {'against':22} {'ratio':>6} {'aim':>5}")
    parts = (kernel_rows, architecture_rows, ntk_rows, ensemble_rows, other_rows)
    for what, seconds, peer, ratio, aim in (row for part in parts for row in part()):
        shown = "" if ratio is None else f"{ratio:.3g}" if ratio < 1000.0 else f"{ratio:.0f}"
        wanted = "" if aim is None or ratio is None else f"{aim:g}"
        missed = " not met" if wanted and ratio < aim else ""
        against = "" if peer == "none" or ratio is None else peer
        print(f"{what:62} {told(seconds):>8}  {against:22} {shown:>6} {wanted:>5}{missed}".rstrip())


def print_limits() -> None:
    a = np.random.default_rng(0).normal(size=(2048, 2048))
    a @ a
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    rate = 3 * 2 * 2048**3 / (time.perf_counter() - start) / 1e9
    source, target = np.zeros(2**25), np.zeros(2**25)
    start = time.perf_counter()
    for _ in range(5):
        np.copyto(target, source)
    copied = 5 * 2 * source.nbytes / (time.perf_counter() - start) / 1e9
    print(
        f"this machine: {rate:.0f} Gflop/s in float64 matrix products, {copied:.0f} GB/s of copies"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", action="store_true", help="measure this machine as well")
    options = parser.parse_args()
    print_table()
    if options.limits:
        print_limits()


if __name__ == "__main__":
    main()
