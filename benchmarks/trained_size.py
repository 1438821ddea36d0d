"""Time and memory of an order-1/n prediction of trained outputs against the number of samples.

`python benchmarks/trained_size.py [--samples 16,32] [--depth 4] [--output FILE]`: as many training
as test inputs, at the default accuracy, of a squared error. `--classes 2` or `--classes 3` takes
images of as many digits and a cross-entropy: mean, covariance, loss curves and NTK at six moments
of 100 steps. No peer offers the order 1/n of trained networks. `--contraction 64,128` times the
four-sample averages alone, almost all of the arithmetic, beside one large matrix product.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import jax
import numpy as np

from dynagram import Data, predict_outputs
from dynagram.activations import activation
from dynagram.data import digits
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._four_point import FourPoint, sum_over_nodes
from dynagram.gaussian._nodes import sobol_nodes
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


def matrix_rate(size: int = 8192) -> float:
    """Operations per second of one product of float64 matrices."""
    with jax.enable_x64(True):
        a = jax.random.normal(jax.random.key(0), (size, size))
        product = jax.jit(lambda a: a.T @ a)
        product(a).block_until_ready()
        start = time.perf_counter()
        jax.block_until_ready([product(a) for _ in range(3)])
    return 3 * 2 * size**3 / (time.perf_counter() - start)


def contraction(samples: int, count: int = 2**14) -> float:
    """Operations per second of all four-sample averages that training needs."""
    x = np.random.default_rng(0).standard_normal((samples, 8))
    four = FourPoint(TwoPoint(activation("tanh"), x @ x.T / 8 + 0.1), on_device=True)
    products = [((0, 0), (0, 0)), ((1, 1), (1, 1)), ((0, 0), (1, 1)), ((2, 0), (1, 1)),
                ((3, 1), (1, 1)), ((2, 2), (1, 1))]  # fmt: skip
    families = {orders: four.family(*orders) for key in products for orders in key}
    sizes = [families[left].value.size * families[right].value.size for left, right in products]

    def seconds(count: int) -> float:
        nodes = sobol_nodes(four.averages.K, count, 0)
        start = time.perf_counter()
        for sums in sum_over_nodes(four.averages.sigma, four.averages.K, families, products, nodes):
            jax.block_until_ready(list(sums.products.values()))
        return time.perf_counter() - start

    with jax.enable_x64(True):
        seconds(2**11)
        return 2.0 * 8 * count * sum(sizes) / seconds(count)


def print_contraction(numbers: list[int]) -> None:
    """The share of a matrix product's speed that four-sample averages reach."""
    best = matrix_rate(8192 if jax.default_backend() != "cpu" else 2048)
    print(f"a product of float64 matrices: {best / 1e12:.3g} Tflop/s")
    for samples in numbers:
        rate = contraction(samples, 2**14 if jax.default_backend() != "cpu" else 2**12)
        print(
            f"four-sample averages of {samples} samples: {rate / 1e12:.3g} Tflop/s, "
            f"{100 * rate / best:.0f} % of it",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", default="16", help="numbers separated by commas")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--classes", type=int, default=0, choices=(0, 2, 3), help="0: a function")
    parser.add_argument("--output", type=Path, help="a JSON file for all numbers")
    parser.add_argument("--contraction", help="numbers of samples: the averages alone")
    options = parser.parse_args()
    if options.contraction:
        print_contraction([int(samples) for samples in options.contraction.split(",")])
        return
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
