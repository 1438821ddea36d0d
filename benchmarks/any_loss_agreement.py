"""Trained networks against order 1/n for cross-entropy, batches and momentum: a table.

    python benchmarks/any_loss_agreement.py predict FOLDER      # problems and predictions
    python benchmarks/any_loss_networks.py FOLDER/CASE.npz FOLDER/CASE-measured.npz …
    python benchmarks/any_loss_agreement.py table FOLDER

`predict` writes, for every case, the problem that `any_loss_networks.py` trains and the prediction;
`table` prints, for every width and moment, how far mean outputs and test loss are from infinite
width and from order 1/n.
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

MOMENTS = (5, 10, 20, 50, 100)
SMALL = Data(
    [[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1], [-0.9, -0.6, 0.2]],
    [[0.5], [-0.4], [0.3], [-0.6]],
    test_x=[[0.8, 0.6, -0.9], [0.2, -1.3, 0.9]],
    test_y=[[0.2], [0.1]],
)
RATES = {"C_b": 0.05, "C_W": 1.2, "lambda_b": 0.2, "lambda_W": 1.0}


def cases():
    """By name: the data, the depth and the training."""
    two = digits().split(12, 12, classes=(3, 8), seed=0)
    three = digits().split(12, 12, classes=(3, 5, 8), seed=0)
    descent = Training(GradientDescent(2.0), loss="cross-entropy", steps=100, record=MOMENTS)
    sgd = Training(GradientDescent(0.2), batch=2, steps=20, record=(2, 6, 20))
    momentum = Training(Optax("momentum", 0.03, momentum=0.8), steps=40, record=(4, 12, 40))
    return {
        "digits-2-depth-3": (two, 3, descent),
        "digits-2-depth-4": (two, 4, descent),
        "digits-3-depth-3": (three, 3, descent),
        "digits-3-depth-4": (three, 4, descent),
        "sgd-depth-3": (SMALL, 3, sgd),
        "momentum-depth-3": (SMALL, 3, momentum),
    }


def network(data, depth, n):
    return MLP([data.x.shape[1], *[n] * (depth - 1), data.outputs], "tanh", **RATES)


def write(name, case, folder):
    """The problem and the prediction of a case."""
    data, depth, how = case
    net = network(data, depth, 128)
    start = time.time()
    found = predict_outputs(net, data, how)
    found.save(folder / f"{name}-predicted.npz")
    print(f"{name}: {found!r}, {time.time() - start:.0f} s", flush=True)
    inputs = np.concatenate([data.x, data.test_x])
    Theta = frozen_kernels(net, inputs, layers="last").Theta[-1][:, : len(data.x)]
    options = dict(getattr(how.algorithm, "options", ()))
    about = {
        "depth": depth, **RATES, "eta": how.eta, "momentum": options.get("momentum", 0.0),
        "batch": how.batch or len(data.x), "loss": how.loss, "moments": list(how.recorded),
    }  # fmt: skip
    center = found.samples.means_infinite
    losses = [found.estimates[f"{k}_infinite"].value for k in ("loss", "test_loss")]
    np.savez_compressed(
        folder / f"{name}.npz", x=inputs.astype(np.float32), y=data.y.astype(np.float32),
        test_y=data.test_y.astype(np.float32), Theta=Theta.astype(np.float32),
        center=center.reshape(len(center), -1).astype(np.float32),
        loss_center=np.stack(losses, -1).astype(np.float32), about=json.dumps(about),
    )  # fmt: skip


def rms(values):
    return float(np.sqrt(np.mean(values**2))) if values.size else np.nan


def table(name, folder):
    """Root mean square errors over all samples and outputs, and those of the test loss, × 1000."""
    found, seen = load(folder / f"{name}-predicted.npz"), np.load(folder / f"{name}-measured.npz")
    parts = {k: v.reshape(len(v), -1) for k, v in found.parts_of_mean.items()}
    correction = sum(v for k, v in parts.items() if k != "start")
    losses = [found.estimates[k].value for k in ("test_loss", "test_loss_infinite")]
    shift = (losses[0] - losses[1]) * found.width
    print(f"\n{name}, × 1000. Outputs: rms of (mean − ∞), (mean − 1/n), its noise, how many times")
    print("closer where the correction exceeds 3 standard errors, and where that is; parts/change.")
    for n in sorted({int(k.split("/")[0]) for k in seen.files if "/" in k}):
        d, error = seen[f"{n}/d"], seen[f"{n}/d_error"]
        loss, loss_error = seen[f"{n}/loss_d"][:, 1], seen[f"{n}/loss_d_error"][:, 1]
        for t, moment in enumerate(found.how.recorded):
            left = d[t] - correction[t] / n
            above = np.abs(correction[t] / n) > 3.0 * error[t]
            closer = rms(d[t][above]) / rms(left[above])
            size = found.regime.numbers[f"expansion_at_{moment:g}"] * found.width / n
            print(
                f"n {n:4d} step {moment:4d}: {1e3 * rms(d[t]):8.3f} {1e3 * rms(left):8.3f} "
                f"± {1e3 * rms(error[t]):6.3f}  × {closer:5.1f} on {above.mean():4.0%} {size:6.3f}"
                f"   test loss {1e3 * loss[t]:8.3f} {1e3 * (loss[t] - shift[t] / n):8.3f} "
                f"± {1e3 * loss_error[t]:6.3f}   {int(seen[f'{n}/members'])} networks"
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("predict", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", default="")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    known = cases()
    for name in asked.cases.split(",") if asked.cases else known:
        if asked.what == "predict":
            write(name, known[name], asked.folder)
        else:
            table(name, asked.folder)


if __name__ == "__main__":
    main()
