"""K and Θ of convolutions, norms and skips against neural-tangents, in one run; prints the ratios.

Both sides compute all pairs of inputs in float64 on the CPU, each case in a process of its own.
Memory is what is taken beyond importing, compilation included.
With `--golden` the peer's values on three inputs are written to tests/golden/.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
from peer import HERE, ask, measure, peer_python
from peer_architectures import C_B, C_W

CONV = ["conv", 3, "same"]
PRE = ["residual", [["norm"], CONV, ["relu"], CONV]]
STREAM = ["residual", [["relu"], CONV, ["relu"], CONV]]
# name: inputs, layers, samples
CASES = {
    "flatten relu": ((16, 16, 3), [CONV, ["relu"]] * 4 + [["flatten"]], 64),
    "flatten erf": ((16, 16, 3), [CONV, ["erf"]] * 4 + [["flatten"]], 64),
    "flatten tanh": ((8, 8, 3), [CONV, ["tanh", 25]] * 3 + [["flatten"]], 16),
    "pool, flatten": (
        (16, 16, 3), [CONV, ["relu"], ["pool", 2], CONV, ["relu"], ["pool", 2], ["flatten"]], 12),
    "global average": ((8, 8, 3), [CONV, ["relu"]] * 3 + [["average"], ["dense"]], 24),
    "residual": ((8, 8, 3), [CONV, STREAM, STREAM, ["relu"], ["average"], ["dense"]], 16),
    "norms": ((16, 16, 3), [CONV, PRE, PRE, ["norm"], ["flatten"]], 48),
    "larger average": ((16, 16, 3), [CONV, ["relu"]] * 2 + [["average"], ["dense"]], 24),
    "more inputs": ((28, 28, 1), [CONV, ["relu"]] * 3 + [["flatten"]], 100),
}  # fmt: skip
GOLDEN = {
    "dense": ((5,), [["dense"], ["relu"], ["dense"], ["erf"], ["dense"]]),
    "flatten": ((5, 4, 2), [["conv", 3, "same"], ["relu"], ["conv", 2, "valid"], ["gelu"],
                            ["flatten"]]),
    "circular": ((4, 4, 2), [["conv", 3, "circular"], ["sin"], ["average"], ["dense"]]),
    "pool": ((4, 4, 2), [CONV, ["relu"], ["pool", 2], CONV, ["erf"], ["flatten"]]),
    "norm": ((4, 4, 2), [CONV, ["norm"], ["relu"], CONV, ["norm"], ["average"], ["dense"]]),
    "residual": ((4, 4, 2), [CONV, STREAM, PRE, ["relu"], ["flatten"]]),
    "attention": ((5, 2), [["dense"], ["uniform-attention"], ["relu"], ["average"], ["dense"]]),
}  # fmt: skip


def chain(inputs: tuple, layers: list):
    """The layers as a `Chain`."""
    from dynagram.networks import Chain

    return Chain(_blocks(layers), inputs)


def _blocks(layers: list) -> list:
    from dynagram.networks import blocks as b

    hyper = {"C_W": C_W, "C_b": C_B, "lambda_W": C_W, "lambda_b": C_B}
    uniform = {"C_q": 0.0, "C_k": 0.0, "lambda_q": 0.0, "lambda_k": 0.0}
    others = {"C_v": C_W, "C_O": C_W, "lambda_v": C_W, "lambda_O": C_W}
    simple = {
        "dense": b.Dense(16, **hyper),
        "flatten": b.Flatten(1, **hyper),
        "average": b.AveragePool(),
        "norm": b.LayerNorm(1e-12),
        "uniform-attention": b.Attention(4, 4, width=16, **uniform, **others),
    }
    made = []
    for kind, *options in layers:
        if kind == "conv":
            size, padding = options
            padding = {"same": "zero"}.get(padding, padding)
            made.append(b.Conv(16, size=size, padding=padding, **hyper))
        elif kind == "residual":
            made.append(b.Residual(_blocks(options[0])))
        elif kind == "pool":
            made.append(b.AveragePool(options[0]))
        else:
            made.append(simple[kind] if kind in simple else b.Activate(kind))
    return made


def ours(name: str, repeats: int) -> dict:
    """Our times and values; runs in a process of its own so that its peak memory is its own."""
    from dynagram.theory._kernels import frozen_kernels

    inputs, layers, samples = CASES[name]
    network = chain(inputs, layers)
    x = np.random.default_rng(0).standard_normal((samples, network.input_size))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result, times = measure(lambda: frozen_kernels(network, x), repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    values = {"K": result.K[0, 0, 1], "Theta": result.Theta[0, 0, 1]}
    return times | values | {"base_MB": base, "peak_MB": peak}


def _memory(answer: dict) -> int:
    """Megabytes taken beyond what importing takes."""
    return answer["peak_MB"] - answer["base_MB"]


def write_golden(python: str) -> None:
    """The peer's K and Θ of small networks, beside the same networks in our words."""
    about = (
        "neural-tangents 0.6.5 on jax 0.4.25, float64: x = default_rng(0).standard_normal((3, n)), "
        f"C_W = lambda_W = {C_W}, C_b = lambda_b = {C_B}. Written by benchmarks/architectures.py."
    )
    table: dict = {"about": about}
    for name, (inputs, layers) in GOLDEN.items():
        request = {"inputs": inputs, "layers": layers, "samples": 3, "repeats": 1, "all": True}
        answer = ask(python, request, worker="peer_architectures.py")
        if "error" in answer:
            raise SystemExit(f"{name}: {answer['error']}")
        values = {key: [[float(f"{v:.12g}") for v in row] for row in answer[key]]
                  for key in ("K", "Theta")}  # fmt: skip
        table[name] = {"network": chain(inputs, layers).to_toml()} | values
        print(f"{name}: {values['Theta'][0]}")
    path = HERE.parent / "tests" / "golden" / "neural_tangents_architectures.json"
    path.write_text(json.dumps(table, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="Python of an environment with neural-tangents 0.6.5")
    parser.add_argument("--ours", metavar="CASE", help="one case")
    parser.add_argument("--golden", action="store_true", help="write the peer's values for a test")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(ours(options.ours, options.repeats)))
        return
    python = peer_python(options.peer)
    if options.golden:
        write_golden(python)
        return
    report = []
    print(f"{'case':<16}{'ours':>9}{'peer':>9}{'ratio':>7}{'cpu ratio':>10}{'first ratio':>12}"
          f"{'MB':>6}{'peer MB':>8}  relative difference of K_01, Θ_01")  # fmt: skip
    for name, (inputs, layers, samples) in CASES.items():
        command = [sys.executable, __file__, "--ours", name, "--repeats", str(options.repeats)]
        mine = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
        request = {"inputs": inputs, "layers": layers, "samples": samples,
                   "repeats": options.repeats}  # fmt: skip
        theirs = ask(python, request, worker="peer_architectures.py")
        row = {"case": name, "inputs": inputs, "samples": samples, "ours": mine, "peer": theirs}
        line = f"{name:<16}{mine['wall_s']:>8.3f}s"
        if "error" in theirs:
            line += f"  peer: {theirs['error'][:60]}"
        else:
            row["ratio"] = theirs["wall_s"] / mine["wall_s"]
            row["cpu_ratio"] = theirs["cpu_s"] / mine["cpu_s"]
            row["first_ratio"] = theirs["first_s"] / mine["first_s"]
            difference = max(abs(mine[k] / theirs[k] - 1.0) for k in ("K", "Theta"))
            line += f"{theirs['wall_s']:>8.3f}s{row['ratio']:>7.1f}{row['cpu_ratio']:>10.1f}"
            line += f"{row['first_ratio']:>12.1f}{_memory(mine):>6}{_memory(theirs):>8}"
            line += f"  {difference:.1e}"
        print(line, flush=True)
        report.append(row)
    path = HERE / "results" / "architectures.json"
    path.write_text(json.dumps(report, indent=1))
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
