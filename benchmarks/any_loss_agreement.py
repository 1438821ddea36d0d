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
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, Optax, Training

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


if __name__ == "__main__":
    import sys
    folder = Path(sys.argv[2]); folder.mkdir(parents=True, exist_ok=True)
    for name, case in cases().items():
        t=time.time(); write_problem(name, case, folder); print(name, f"{time.time()-t:.1f} s")
