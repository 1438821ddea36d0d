"""Transport operators of the field dynamics without their matrices: time, memory, scaling.

𝓜_1^αβ applied to one vector for every pair of M = 64 samples in a network of L = 6 layers of
N = 1024 units (float64): M² N² L multiply-adds up to a constant, no N × N matrix per pair (they
would take 34 GB). Each case runs in a process of its own, so that its peak memory is known; the
scaling is read off halved M, N and L. The same sum over β by the collective operator costs M N² L.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
WHOLE = (64, 1024, 6)
CASES = {
    "whole": WHOLE,
    "half the samples": (32, 1024, 6),
    "half the width": (64, 512, 6),
    "four layers instead of six": (64, 1024, 4),
}


def measure(M: int, N: int, L: int) -> dict:
    """Seconds for all pairs and for the collective sum, peak memory of the process in GB."""
    import numpy as np

    from dynagram.observables.fields import (
        CollectiveTransport,
        fields,
        fixed_readout,
        transport_operator,
    )

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((N, N)) * math.sqrt(2 / N) for _ in range(L)]
    found = fields(fixed_readout(weights), rng.standard_normal((M, N)))
    alpha, beta = (i.ravel() for i in np.indices((M, M)))
    pairs, whole = transport_operator(found, 1, alpha, beta), CollectiveTransport(found, 1)
    source, r = found.u[1], rng.standard_normal(M)
    times, sums = [], []
    for _ in range(3):
        start = time.perf_counter()
        applied = pairs.apply(source[beta])
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
        total = whole.apply_fields(r[:, None] * source)
        sums.append(time.perf_counter() - start)
    expected = np.einsum("abi,b->ai", applied.reshape(M, M, N), r)
    error = float(np.max(np.abs(total - expected)) / np.max(np.abs(expected)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    # Two products with a weight matrix on each of L - 2 layers, two flop each.
    gflop = 4e-9 * M * M * N * N * (L - 2)
    return {"M": M, "N": N, "L": L, "seconds": min(times), "collective_seconds": min(sums),
            "peak_GB": peak, "gflop": gflop, "difference": error}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", help="M,N,L of one case, measured in this process")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(*map(int, options.case.split(",")))))
        return
    report = {}
    for name, sizes in CASES.items():
        command = [sys.executable, __file__, "--case", ",".join(map(str, sizes))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        row = report[name] = json.loads(done.stdout)
        print(f"{name}: M = {row['M']}, N = {row['N']}, L = {row['L']}: {row['seconds']:.2f} s "
              f"({row['gflop'] / row['seconds']:.0f} Gflop/s), peak {row['peak_GB']:.2f} GB; "
              f"summed over β {row['collective_seconds']:.3f} s, the same to "
              f"{row['difference']:.0e}", flush=True)  # fmt: skip
    whole = report["whole"]
    for name, row in list(report.items())[1:]:
        expected = whole["gflop"] / row["gflop"]
        print(f"{name}: {whole['seconds'] / row['seconds']:.1f} times faster, "
              f"M² N² (L - 2) says {expected:.1f}")  # fmt: skip
    verdict = whole["seconds"] < 10 and whole["peak_GB"] < 2
    print(f"within 10 s and 2 GB: {'yes' if verdict else 'NO'}")
    path = HERE / "results" / "fields.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    print(f"written to {path.name} in benchmarks/results")


if __name__ == "__main__":
    main()
