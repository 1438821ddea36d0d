"""Trained networks against order 1/n for cross-entropy, batches and momentum: a table.

    python benchmarks/any_loss_agreement.py problems benchmarks/any_loss_problems
    python benchmarks/any_loss_networks.py benchmarks/any_loss_problems MEASURED --minutes 7
    python benchmarks/any_loss_agreement.py predict PREDICTED
    python benchmarks/any_loss_agreement.py verdicts PREDICTED
    python benchmarks/any_loss_agreement.py table PREDICTED --read MEASURED

`problems` writes what `any_loss_networks.py` trains, on a machine with JAX and nothing else;
`predict` the predictions at order 1/n, `verdicts` what they say of themselves; `--read` prints, for
every width and moment, how far mean outputs, test loss and NTK are from infinite width and from
order 1/n.
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
from dynagram.theory.training._path_regime import (
    _BROKEN,
    _CAREFUL,
    _LOSS_BROKEN,
    _LOSS_CAREFUL,
    LEFT_OUT,
)
from dynagram.training import GradientDescent, Optax, Training

# Of four-sample averages: their errors are not to be larger than those of the networks.
ACCURACY = 2e-3
VERDICTS = ("trust", "careful", "broken")
OUTPUTS, LOSS = (_CAREFUL, _BROKEN), (_LOSS_CAREFUL, _LOSS_BROKEN)
MOMENTS = (2, 5, 10, 20, 50, 100)
SMALL = Data(
    [[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1], [-0.9, -0.6, 0.2]],
    [[0.5], [-0.4], [0.3], [-0.6]],
    test_x=[[0.8, 0.6, -0.9], [0.2, -1.3, 0.9]],
    test_y=[[0.2], [0.1]],
)


def drawn_data():
    """Four training and two test samples of a random task: with it the verdict was not made."""
    rng = np.random.default_rng(77)
    x = rng.standard_normal((6, 3))
    y = 0.5 * np.tanh(x @ rng.standard_normal((3, 1)))
    return Data(x[:4], y[:4], test_x=x[4:], test_y=y[4:])


RATES = {"C_b": 0.05, "C_W": 1.2, "lambda_b": 0.2, "lambda_W": 1.0}


def cases():
    """By name: the data, the depth, the training and the widths."""
    two = digits().split(8, 8, classes=(3, 8), seed=0)
    three = digits().split(8, 8, classes=(3, 5, 8), seed=0)
    descent = Training(GradientDescent(2.0), loss="cross-entropy", steps=100, record=MOMENTS)
    small = {"steps": 40, "record": (2, 6, 12, 20, 40)}
    momentum = Optax("momentum", 0.03, momentum=0.8)
    wide, few = (64, 128, 256, 512), (32, 64, 128, 256)
    # The last two were trained once the verdict was fixed, to judge it.
    faster = Optax("momentum", 0.05, momentum=0.7)
    apart = {"steps": 50, "record": (3, 7, 12, 18, 25, 35, 50)}
    ones = digits().split(4, 4, classes=(1, 7), seed=3)
    slower = Training(
        GradientDescent(1.5), loss="cross-entropy", steps=60, record=(1, 3, 5, 8, 15, 30, 60)
    )
    return {
        "digits-2-depth-3": (two, 3, descent, wide),
        "digits-2-depth-4": (two, 4, descent, wide),
        "digits-3-depth-3": (three, 3, descent, wide),
        "digits-3-depth-4": (three, 4, descent, wide),
        "sgd-depth-3": (SMALL, 3, Training(GradientDescent(0.2), batch=2, **small), few),
        "momentum-depth-3": (SMALL, 3, Training(momentum, **small), few),
        "sgd-momentum-depth-3": (SMALL, 3, Training(momentum, batch=2, **small), few),
        "momentum-depth-2": (drawn_data(), 2, Training(faster, **apart), (24, 48)),
        "digits-1-7-depth-3": (ones, 3, slower, (32, 64)),
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
    """Distances of outputs, test loss and NTK, and a last line that says what holds."""
    found, file = load(predicted / f"{name}.npz"), np.load(measured / f"{name}.npz")
    mean = sum(found.parts_of_mean.values())
    numerical = found.mean_errors * found.width
    curves = [found.estimates[k] for k in ("test_loss", "test_loss_infinite")]
    loss = (curves[0].value - curves[1].value) * found.width
    ntk = found.estimates["ntk_change"]
    print(f"\n{name}, × 1000: from ∞, from 1/n ± error (× times closer where the correction")
    print("exceeds 3 errors); verdicts of outputs and test loss with the numbers behind them")
    ratios = {"trust": [], "careful": [], "broken": []}
    loss_ratios = {verdict: [] for verdict in ratios}
    for n in sorted({int(key.split("/")[0]) for key in file.files if "/" in key}):
        seen = Measured(file, n)
        print(f"n = {n}: {seen.members[0]} networks trained, {seen.members[1]} drawn")
        for t, moment in enumerate(found.how.recorded):
            z, z_error = (part[t] for part in seen("z"))
            error = np.hypot(z_error, numerical[t] / n)
            times, part = closer(z, mean[t] / n, error)
            L, L_error = (part[t, 1:] for part in seen("loss"))
            L_error = np.hypot(L_error, curves[0].standard_error[t] * found.width / n)
            L_times, _ = closer(L, loss[t : t + 1] / n, L_error)
            H, H_error = (part[t].transpose(0, 2, 1, 3) for part in seen("ntk"))
            H_error = np.hypot(H_error, ntk.standard_error[t] / n)
            H_left = H - ntk.value[t] / n
            verdict = verdicts(found, moment, n)
            ratios[verdict[0][0]].append(times)
            loss_ratios[verdict[1][0]].append(L_times)
            print(
                f"{moment:4d}  outputs {line(z, z - mean[t] / n, error)} × {times:5.1f} on "
                f"{part:4.0%}  test loss {1e3 * L[0]:8.3f} {1e3 * (L - loss[t] / n)[0]:8.3f} "
                f"± {1e3 * L_error[0]:5.3f} × {L_times:5.1f}  NTK {line(H, H_left, H_error)}  "
                + " / ".join(f"{word} {size:.3f}, {left:.2f}" for word, size, left in verdict)
            )
    for what, held in (("outputs", ratios), ("test loss", loss_ratios)):
        texts = [f"{word} × {np.nanmin(r):.1f} to {np.nanmax(r):.1f}" for word, r in held.items()
                 if np.any(np.isfinite(r))]  # fmt: skip
        print(f"{what}: " + ", ".join(texts))


def line(value, left, error):
    """Root mean squares × 1000."""
    return f"{1e3 * rms(value):8.3f} {1e3 * rms(left):8.3f} ± {1e3 * rms(error):5.3f}"


def verdicts(found, moment, n):
    """What the regime says of outputs and of the test loss at a moment, at another width.

    All numbers fall like 1/n: the size of the expansion, and what it leaves out, relatively.
    """
    words = []
    for name, limits in (("", OUTPUTS), ("loss_", LOSS)):
        size, left = (
            found.regime.numbers[f"{name}{what}_at_{moment:g}"] * found.width / n
            for what in ("expansion", "left_out")
        )
        level = max(int(np.sum(size > np.array(limits))), int(left > LEFT_OUT))
        words.append((VERDICTS[level], size, left))
    return words


def print_verdicts(name, widths, predicted):
    """What the regime says of outputs and test loss at every width and moment."""
    found = load(predicted / f"{name}.npz")
    for n in widths:
        for moment in found.how.recorded:
            words = (f"{w} {size:.3f}, {left:.2f}" for w, size, left in verdicts(found, moment, n))
            print(f"{name}, n = {n}, step {moment}: " + " / ".join(words))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("problems", "predict", "verdicts", "table"))
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
        elif asked.what == "verdicts":
            print_verdicts(name, known[name][3], asked.folder)
        else:
            table(name, asked.read, asked.folder)


if __name__ == "__main__":
    main()
