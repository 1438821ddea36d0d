"""Time and memory of an order-1/n prediction of trained outputs against the number of samples.

`python benchmarks/trained_size.py [--samples 16,32] [--depth 4] [--output FILE]`: as many training
as test inputs, at the default accuracy, of a squared error. `--classes 2` or `--classes 3` takes
images of as many digits and a cross-entropy: mean, covariance, loss curves and NTK at six moments
of 100 steps. No peer offers the order 1/n of trained networks.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import jax
import numpy as np

from dynagram import Data, predict_outputs
from dynagram.data import digits
from dynagram.networks import MLP
from dynagram.training import GradientDescent, GradientFlow, Training

MOMENTS = (2, 5, 10, 20, 50, 100)
DIGITS = {2: (3, 8), 3: (3, 5, 8)}


def problem(samples, depth, classes):
    """Network, data and training: of a squared error, or of a cross-entropy of classes."""
    hidden = [256] * (depth - 1)
    if classes:
        data = digits().split(samples, samples, classes=DIGITS[classes], seed=0)
        descent = GradientDescent(2.0)
        how = Training(descent, loss="cross-entropy", steps=MOMENTS[-1], record=MOMENTS)
        rates = {"C_b": 0.05, "C_W": 1.2, "lambda_b": 0.2, "lambda_W": 1.0}
        return MLP([data.x.shape[1], *hidden, classes], "tanh", **rates), data, how
    x = np.random.default_rng(0).standard_normal((2 * samples, 8))
    train, test = x[:samples], x[samples:]
    data = Data(train, np.sin(train[:, :1]), test)
    return MLP([8, *hidden, 1], "tanh", C_b=0.0, C_W=1.0), data, Training(GradientFlow())


def measured(samples, depth, classes):
    """One prediction, its cost, and the size of the correction with its numerical error."""
    network, data, how = problem(samples, depth, classes)
    wall, cpu = time.perf_counter(), time.process_time()
    found = predict_outputs(network, data, how)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size, error = (
        float(np.sqrt(np.mean(v**2))) for v in (found.mean_correction, found.width * found.error)
    )
    device = jax.devices()[0]
    on_device = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {
        "train": samples, "test": samples, "depth": depth, "classes": classes,
        "device": device.device_kind,
        "seconds": round(wall, 1), "cpu_seconds": round(cpu, 1),
        "host_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 1),
        "device_gb": round(on_device / 1024**3, 1),
        "mean_correction_rms": size, "numerical_error_rms": error,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", default="16", help="numbers separated by commas")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--classes", type=int, default=0, choices=(0, 2, 3), help="0: a function")
    parser.add_argument("--output", type=Path, help="a JSON file for all numbers")
    options = parser.parse_args()
    results = []
    for samples in options.samples.split(","):
        r = measured(int(samples), options.depth, options.classes)
        results.append(r)
        kind = f"{r['classes']} classes" if r["classes"] else "squared error"
        print(
            f"{r['train']} + {r['test']} samples, depth {r['depth']}, {kind}, {r['device']}: "
            f"{r['seconds']:.0f} s ({r['cpu_seconds']:.0f} s of CPU), {r['host_gb']:.1f} GB, "
            f"{r['device_gb']:.1f} GB of the accelerator"
        )
        print(
            f"mean correction {r['mean_correction_rms']:.3f} ± {r['numerical_error_rms']:.3f} "
            "(numerical), rms over test points",
            flush=True,
        )
        if options.output:
            options.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
