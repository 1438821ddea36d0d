"""Trained networks against order 1/n for cross-entropy, batches and momentum: a table.

    python benchmarks/any_loss_agreement.py problems benchmarks/any_loss_problems
    python benchmarks/any_loss_networks.py benchmarks/any_loss_problems MEASURED --minutes 7
    python benchmarks/any_loss_agreement.py predict PREDICTED
    python benchmarks/any_loss_agreement.py --read MEASURED PREDICTED

`problems` writes what `any_loss_networks.py` trains, on a machine with JAX and nothing else;
`predict` the predictions at order 1/n; `--read` prints, for every width and moment, how far mean
outputs, test loss and NTK are from infinite width and from order 1/n.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from dynagram.data import Data, digits
from dynagram.networks import MLP
from dynagram.results import load
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, Optax, Training

# Of four-sample averages: their errors are not to be larger than those of the networks.
ACCURACY = 2e-3
MOMENTS = (2, 5, 10, 20, 50, 100)
SMALL = Data(
    [[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1], [-0.9, -0.6, 0.2]],
    [[0.5], [-0.4], [0.3], [-0.6]],
    test_x=[[0.8, 0.6, -0.9], [0.2, -1.3, 0.9]],
    test_y=[[0.2], [0.1]],
)
RATES = {"C_b": 0.05, "C_W": 1.2, "lambda_b": 0.2, "lambda_W": 1.0}


def cases():
    """By name: the data, the depth, the training and the widths."""
    two = digits().split(8, 8, classes=(3, 8), seed=0)
    three = digits().split(8, 8, classes=(3, 5, 8), seed=0)
    descent = Training(GradientDescent(2.0), loss="cross-entropy", steps=100, record=MOMENTS)
    small = {"steps": 40, "record": (2, 6, 12, 20, 40)}
    momentum = Optax("momentum", 0.03, momentum=0.8)
    wide, few = (64, 128, 256, 512), (32, 64, 128, 256)
    return {
        "digits-2-depth-3": (two, 3, descent, wide),
        "digits-2-depth-4": (two, 4, descent, wide),
        "digits-3-depth-3": (three, 3, descent, wide),
        "digits-3-depth-4": (three, 4, descent, wide),
        "sgd-depth-3": (SMALL, 3, Training(GradientDescent(0.2), batch=2, **small), few),
        "momentum-depth-3": (SMALL, 3, Training(momentum, **small), few),
        "sgd-momentum-depth-3": (SMALL, 3, Training(momentum, batch=2, **small), few),
    }


def network(data, depth, n):
    return MLP([data.x.shape[1], *[n] * (depth - 1), data.outputs], "tanh", **RATES)


def write_problem(name, case, folder):
    """What networks are trained on, with the kernels and means of infinite width."""
    data, depth, how, widths = case
    net = network(data, depth, widths[0])
    inputs = np.concatenate([data.x, data.test_x])
    frozen = frozen_kernels(net, inputs, layers="last")
    found = predict_outputs(net, data, how, order="infinite")
    options = dict(getattr(how.algorithm, "options", ()))
    about = {
        "depth": depth, **RATES, "eta": how.eta, "momentum": options.get("momentum", 0.0),
        "batch": how.batch or len(data.x), "loss": how.loss, "moments": list(how.recorded),
        "widths": widths,
    }  # fmt: skip
    center = found.samples.means_infinite
    losses = [found.estimates[k].value for k in ("loss", "test_loss")]
    np.savez_compressed(
        folder / f"{name}.npz", x=inputs.astype(np.float32), y=data.y.astype(np.float32),
        test_y=data.test_y.astype(np.float32), K=frozen.K[-1], Theta=frozen.Theta[-1],
        center=center.reshape(len(center), -1), loss_center=np.stack(losses, -1),
        about=json.dumps(about),
    )  # fmt: skip


def predict(name, case, folder):
    """The order 1/n, at the smallest width: where numerical errors are seen best."""
    data, depth, how, widths = case
    start = time.time()
    found = predict_outputs(network(data, depth, widths[0]), data, how, accuracy=ACCURACY)
    found.save(folder / f"{name}.npz")
    print(f"{name}: {found!r}, {time.time() - start:.0f} s", flush=True)


class Measured:
    """What networks of one width did, less infinite width: the two levels added up."""

    def __init__(self, file, n):
        self.file, self.n = file, n
        self.members = [int(file[f"{n}/{level}/members"]) for level in ("trained", "drawn")]

    def __call__(self, name):
        """Value and standard error, moments first."""
        held = [f"{self.n}/{level}/{name}" for level in ("trained", "drawn")]
        errors = [self.file[f"{key}_error"] for key in held]
        return sum(self.file[key] for key in held), np.hypot(*errors)


def rms(values):
    return float(np.sqrt(np.mean(values**2))) if values.size else np.nan


def closer(difference, correction, error):
    """How many times closer order 1/n is where it is seen, and in which part of the entries."""
    seen = np.abs(correction) > 3.0 * error
    left = rms((difference - correction)[seen])
    return rms(difference[seen]) / left if seen.any() else np.nan, float(np.mean(seen))


def table(name, measured, predicted):
    """Root mean square distances, × 1000."""
    found, file = load(predicted / f"{name}.npz"), np.load(measured / f"{name}.npz")
    mean = sum(found.parts_of_mean.values())
    numerical = found.mean_errors * found.width
    curves = [found.estimates[k] for k in ("test_loss", "test_loss_infinite")]
    loss = (curves[0].value - curves[1].value) * found.width
    ntk = found.estimates["ntk_change"]
    print(f"\n{name}, × 1000: distance from ∞, from 1/n, ± standard error; × how many times")
    print("closer where the correction exceeds 3 standard errors, and where that is; verdict.")
    for n in sorted({int(key.split("/")[0]) for key in file.files if "/" in key}):
        seen = Measured(file, n)
        print(f"n = {n}: {seen.members[0]} networks trained, {seen.members[1]} drawn")
        for t, moment in enumerate(found.how.recorded):
            z, z_error = (part[t] for part in seen("z"))
            error = np.hypot(z_error, numerical[t] / n)
            times, part = closer(z, mean[t] / n, error)
            L, L_error = (float(part[t, 1]) for part in seen("loss"))
            L_error = float(np.hypot(L_error, curves[0].standard_error[t] * found.width / n))
            H, H_error = (part[t].transpose(0, 2, 1, 3) for part in seen("ntk"))
            H_error = np.hypot(H_error, ntk.standard_error[t] / n)
            H_left = H - ntk.value[t] / n
            print(
                f"  step {moment:3d}  outputs {1e3 * rms(z):8.3f} "
                f"{1e3 * rms(z - mean[t] / n):8.3f} ± {1e3 * rms(error):5.3f} "
                f"× {times:5.1f} on {part:4.0%}  test loss {1e3 * L:8.3f} "
                f"{1e3 * (L - loss[t] / n):8.3f} ± {1e3 * L_error:5.3f}  "
                f"NTK {1e3 * rms(H):8.3f} {1e3 * rms(H_left):7.3f} ± {1e3 * rms(H_error):5.3f}"
                f"  {verdicts(found, moment, n)}"
            )


def verdicts(found, moment, n):
    """What the regime says of the mean at a moment, at another width."""
    size = found.regime.numbers[f"expansion_at_{moment:g}"] * found.width / n
    return f"{size:.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("problems", "predict", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--read", type=Path, help="the folder of measured networks")
    parser.add_argument("--cases", default="", help="names separated by commas")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    known = cases()
    for name in asked.cases.split(",") if asked.cases else known:
        if asked.what == "problems":
            write_problem(name, known[name], asked.folder)
        elif asked.what == "predict":
            predict(name, known[name], asked.folder)
        else:
            table(name, asked.read, asked.folder)


if __name__ == "__main__":
    main()
