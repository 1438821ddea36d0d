"""Trained ensembles against the order-1/n theory: mean shifts and covariances of many cases.

For every case networks of several widths are trained to zero error, n × (measured − infinite
width) is extrapolated to n → ∞ by a quadratic in 1/n, and set against the prediction. `--members`
is per width. All cases, 120 000 to a million members each, take half an hour of an H200; a quick
look at one case on a CPU is  python benchmarks/trained_agreement.py --cases 0 --members 8000
--widths 16,24,32,48.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

from dynagram.data import Data
from dynagram.ensembles import train
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, GradientFlow, Training, TwoStep

HERE = Path(__file__).parent
PER_LAYER = {
    "C_b": (0.10, 0.20, 0.15, 0.05),
    "C_W": (1.1, 1.3, 0.9, 1.2),
    "lambda_b": (0.3, 0.5, 0.2, 0.4),
    "lambda_W": (0.7, 0.6, 0.9, 0.8),
}
TRAIN = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1]])
TARGETS = np.array([[0.9, -0.45, 0.3], [-0.6, 0.7, -0.2], [0.4, 0.5, -0.6]])
TESTS = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
# activation, depth, training samples, outputs, algorithm, η λ_max, widths, hidden widths over n
CASES = [
    ("tanh", 2, 2, 2, "gd", 0.9, (32, 64, 128, 256, 512), (1,)),
    ("tanh", 2, 2, 2, "gd", 0.2, (32, 64, 128, 256, 512), (1,)),
    ("tanh", 2, 2, 2, "flow", None, (32, 64, 128, 256, 512), (1,)),
    ("tanh", 2, 2, 2, "two-step", None, (64, 128, 256, 512, 1024), (1,)),
    ("gelu", 2, 2, 2, "gd", 0.9, (64, 128, 256, 512, 1024), (1,)),
    ("gelu", 2, 1, 1, "flow", None, (24, 32, 48, 64, 96, 128), (1,)),
    ("tanh", 2, 3, 2, "gd", 0.9, (64, 128, 256, 512), (1,)),
    ("tanh", 3, 2, 2, "gd", 0.9, (32, 64, 128, 256), (1, 1)),
    ("tanh", 3, 2, 2, "flow", None, (32, 64, 128, 256), (1, 1)),
    ("gelu", 3, 1, 1, "gd", 0.9, (48, 64, 96, 128, 192), (1, 1)),
    ("tanh", 3, 3, 3, "gd", 0.9, (32, 64, 128, 256), (1, 1)),
    ("tanh", 3, 2, 2, "gd", 0.9, (32, 64, 128, 256), (2, 1)),
    ("tanh", 3, 2, 2, "gd", 0.9, (64, 128, 256, 512), (0.5, 1)),
    ("tanh", 4, 2, 2, "gd", 0.9, (32, 64, 128, 256), (1, 1, 1)),
    ("gelu", 4, 1, 1, "flow", None, (32, 64, 128, 256), (1, 1, 1)),
    ("gelu", 3, 2, 2, "flow", None, (32, 64, 128, 256), (1, 1)),
]  # fmt: skip


def setting(case, n):
    """The network of width n and its data."""
    activation, depth, samples, outputs, algorithm, step, _, shape = case
    per_layer = {name: values[:depth] for name, values in PER_LAYER.items()}
    hidden = [round(factor * n) for factor in shape]
    network = MLP([3, *hidden, outputs], activation, **per_layer)
    x, y = TRAIN[:samples], TARGETS[:samples, :outputs]
    eta = None
    if algorithm == "gd":
        eta = step / np.linalg.eigvalsh(frozen_kernels(network, x).Theta[-1])[-1]
    return network, x, y, {"algorithm": algorithm, "eta": eta}


def upper(covariance):
    """Entries on and above the diagonal of (test, outputs)²."""
    size = covariance.shape[0] * covariance.shape[1]
    return covariance.reshape(size, size)[np.triu_indices(size)]


def extrapolated(widths, values, errors, degree=2):
    """Intercept and its error of a weighted polynomial in 1/n, entry by entry."""
    powers = np.stack([np.array(widths, float) ** -p for p in range(degree + 1)], axis=1)
    found = []
    for v, e in zip(np.transpose(values), np.transpose(errors), strict=True):
        design = powers / e[:, None]
        inverse = np.linalg.inv(design.T @ design)
        found.append(((inverse @ design.T @ (v / e))[0], np.sqrt(inverse[0, 0])))
    return np.transpose(found)


def run(case, members, seed):
    """Predicted and measured coefficients of 1/n of one case."""
    widths = case[6]
    network, x, y, how = setting(case, widths[-1])
    algorithms = {"flow": GradientFlow, "two-step": TwoStep}
    name, eta = how["algorithm"], how["eta"]
    algorithm = GradientDescent(eta) if name == "gd" else algorithms[name]()
    theory = predict_outputs(network, Data(x, y, TESTS), Training(algorithm), accuracy=1e-5)
    rows = []
    for n in widths:
        network, x, y, _ = setting(case, n)
        found = train(
            network, Data(x, y, TESTS), Training(algorithm), members=members, seed=seed,
            tolerance=1e-7, pairs=True, kernels=20,
        )  # fmt: skip
        shift, error = found.mean - theory.mean_infinite, found.error
        last = network.widths[-2]
        spread = found.covariance - theory.covariance_infinite
        rows.append(
            {
                "n": last,
                "mean": (last * shift).ravel(),
                "mean_error": (last * error).ravel(),
                "covariance": last * upper(spread),
                "covariance_error": last * upper(found.covariance_error),
                "unfinished": found.about.get("unfinished", 0),
                "largest_error": found.about["largest_error"],
            }
        )
    sizes = [row["n"] for row in rows]
    result = {"case": [*case[:6], list(case[7])], "members": members, "widths": sizes}
    predicted = {
        "mean": theory.mean_correction.ravel(),
        "covariance": upper(theory.covariance_correction),
    }
    for name, expected in predicted.items():
        values = [row[name] for row in rows]
        errors = [row[f"{name}_error"] for row in rows]
        limit, error = extrapolated(sizes, values, errors)
        z = (limit - expected) / error
        scale = np.max(np.abs(expected))
        result[name] = {
            "predicted": expected, "extrapolated": limit, "error": error, "z": z,
            "rms_z": float(np.sqrt(np.mean(z**2))), "worst_z": float(np.max(np.abs(z))),
            "deviation_of_scale": float(np.max(np.abs(limit - expected)) / scale),
            "error_of_scale": float(np.max(error) / scale),
            "by_width": values, "errors_by_width": errors,
        }  # fmt: skip
    result["unfinished"] = int(sum(row["unfinished"] for row in rows))
    result["largest_error"] = max(row["largest_error"] for row in rows)
    return result


def misfits(widths, values, errors, expected):
    """χ² per degree of freedom of what is left after the order 1/n, if that falls like a power.

    "n^-2": a/n² + b/n³ for every entry, as it should; "n^-1": c/n, a wrong coefficient.
    """
    n, left = np.array(widths, float), np.array(values) - expected
    laws = {"n^-2": [1 / n, 1 / n**2], "n^-1": [np.ones_like(n)]}
    found = {}
    for name, powers in laws.items():
        square = 0.0
        for entry, error in zip(left.T, np.transpose(errors), strict=True):
            design, aim = np.stack(powers, axis=1) / error[:, None], entry / error
            square += np.sum((design @ np.linalg.lstsq(design, aim, rcond=None)[0] - aim) ** 2)
        found[name] = float(square / (left.shape[1] * (n.size - len(powers))))
    return found


def print_row(result):
    """One line for the mean and one for the covariance of a case."""
    activation, depth, samples, outputs, algorithm, step, shape = result["case"]
    name = f"{activation} L={depth} train={samples} outputs={outputs} {algorithm}"
    name += f" {step}" if step else ""
    name += f" {shape}" if len(set(shape)) > 1 else ""
    for part in ("mean", "covariance"):
        r = result[part]
        laws = misfits(result["widths"], r["by_width"], r["errors_by_width"], r["predicted"])
        print(
            f"{name:44}{part:11}{r['rms_z']:6.2f}{r['worst_z']:9.2f}"
            f"{100 * r['error_of_scale']:11.1f} %{100 * r['deviation_of_scale']:13.1f} %"
            f"{laws['n^-2']:14.2f}{laws['n^-1']:8.1f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=400_000)
    parser.add_argument("--cases", default="", help="numbers separated by commas; default all")
    parser.add_argument("--widths", default="", help="instead of the cases' own, for a CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--read", type=Path, help="print the table of a recorded run")
    parser.add_argument("--output", type=Path, help="a JSON file for all numbers")
    options = parser.parse_args()
    head = f"{'case':44}part        rms z  worst z  error/scale deviation/scale"
    print(f"{head}  χ²: rest ~ n^-2    n^-1")
    if options.read:
        for result in json.loads(options.read.read_text())["results"]:
            print_row(result)
        return
    chosen = [int(c) for c in options.cases.split(",") if c] or range(len(CASES))
    print(f"{jax.devices()[0].device_kind}, {options.members} networks per width")
    results = []
    for number in chosen:
        case, start = CASES[number], time.perf_counter()
        if options.widths:
            widths = tuple(int(n) for n in options.widths.split(","))
            case = (*case[:6], widths, case[7])
        result = run(case, options.members, options.seed)
        result["seconds"] = time.perf_counter() - start
        results.append(result)
        print_row(result)
        if options.output:
            plain = lambda v: v.tolist() if hasattr(v, "tolist") else str(v)  # noqa: E731
            options.output.write_text(json.dumps(results, default=plain, indent=1))


if __name__ == "__main__":
    main()
