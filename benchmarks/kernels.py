"""K and Θ at infinite width against neural-tangents, in one run; prints the ratios.

Ten hidden layers and a readout, 64 features, C_b = 0, λ_W = C_W, λ_b = 0 (the peer's convention).
Both sides compute the last layer's K and Θ of all pairs of inputs in float64 on the CPU.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
from peer import HERE, ask, inputs, measure, peer_python

CRITICAL = {"relu": 2.0, "erf": math.pi / 4, "tanh": 1.0, "swish": 1.988004678269492}
CASES = [
    ("relu", 256, None), ("relu", 1024, None), ("erf", 256, None), ("erf", 1024, None),
    ("tanh", 256, 25), ("tanh", 1024, 25), ("swish", 1024, "skip"),
    ("tanh", 4096, "skip"), ("relu", 4096, "skip"),
]  # fmt: skip
HIDDEN = 10


def ours(name: str, samples: int, repeats: int) -> dict:
    """Our times and values; runs in a process of its own so that its peak memory is its own."""
    from dynagram import MLP
    from dynagram.theory._kernels import frozen_kernels

    C_W = CRITICAL[name]
    x = inputs(samples)
    network = MLP([64, *[512] * HIDDEN, 1], name, 0.0, C_W, lambda_b=0.0, lambda_W=C_W)
    result, times = measure(lambda: frozen_kernels(network, x, layers="last"), repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    values = {"K": result.K[0, 0, :2].tolist(), "Theta": result.Theta[0, 0, :2].tolist()}
    return times | values | {"peak_MB": peak, "digits": _digits(network, x, result)}


def _digits(network, x: np.ndarray, result) -> float:
    """Correct digits of Θ_00, against a one-variable recursion on a fine trapezoid rule."""
    sigma, C_W = network.activation, network.C_W[0]
    t = np.arange(-13 * 64, 13 * 64 + 1) / 64
    weights = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi) / 64
    if not sigma.is_smooth:
        return math.nan
    K = theta = C_W * float(x[0] @ x[0]) / 64
    for _ in range(HIDDEN):
        z = math.sqrt(K) * t
        value = float(weights @ sigma.values(z) ** 2)
        slope = float(weights @ sigma.values(z, 1) ** 2)
        K, theta = C_W * value, C_W * value + C_W * slope * theta
    error = abs(result.Theta[0, 0, 0] / theta - 1.0)
    return -math.log10(max(error, 1e-16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="Python of an environment with neural-tangents 0.6.5")
    parser.add_argument("--ours", nargs=2, metavar=("ACTIVATION", "SAMPLES"), help="one case")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(ours(options.ours[0], int(options.ours[1]), options.repeats)))
        return
    python = peer_python(options.peer)
    report = []
    titles = f"{'case':<14}{'ours':>10}{'peer':>10}{'ratio':>9}{'cpu ratio':>11}"
    print(titles + f"{'MB':>7}{'peer MB':>9}{'digits':>8}  relative difference of K_01, Θ_01")
    for name, samples, degree in CASES:
        command = [sys.executable, __file__, "--ours", name, str(samples)]
        command += ["--repeats", str(options.repeats if samples <= 1024 else 1)]
        mine = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
        row = {"activation": name, "samples": samples, "ours": mine}
        line = f"{name} {samples:<{13 - len(name)}}{mine['wall_s']:>9.4f}s"
        if degree != "skip":
            request = {"kind": "kernels", "activation": name, "samples": samples, "outputs": 1,
                       "C_W": CRITICAL[name], "hidden": HIDDEN, "repeats": 3 if degree else 5,
                       "degree": degree}  # fmt: skip
            theirs = row["peer"] = ask(python, request)
            if "error" in theirs:
                line += f"  peer: {theirs['error'][:60]}"
            else:
                row["ratio"] = theirs["wall_s"] / mine["wall_s"]
                row["cpu_ratio"] = theirs["cpu_s"] / mine["cpu_s"]
                difference = max(abs(mine[k][1] / theirs[k][1] - 1.0) for k in ("K", "Theta"))
                line += f"{theirs['wall_s']:>9.4f}s{row['ratio']:>9.1f}{row['cpu_ratio']:>11.1f}"
                line += f"{mine['peak_MB']:>7}{theirs['peak_MB']:>9}{mine['digits']:>8.1f}"
                line += f"  {difference:.1e}"
        else:
            line += f"{'-':>10}{'-':>9}{'-':>11}{mine['peak_MB']:>7}{'-':>9}{mine['digits']:>8.1f}"
        print(line, flush=True)
        report.append(row)
    path = HERE / "results" / "kernels.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
