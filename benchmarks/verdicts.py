"""Is the verdict on trained predictions right? Random networks, tasks and moments, trained.

For every draw: the verdict of `predict_outputs` on test and on training outputs, and the share s
of the predicted 1/n correction that an ensemble shows, s = δ·(measured − infinite)/|δ|², with its
standard error. s = 1: the order 1/n is all there is; s > ½: it is closer than infinite width.

    python benchmarks/verdicts.py --draws 8 --members 4096
"""

import argparse
import json

import numpy as np

from dynagram import MLP, Data, predict_outputs, train
from dynagram.results import Outputs
from dynagram.training import GradientDescent, Training

INITIALISATIONS = (
    ("tanh", 0.0, 1.0), ("tanh", 0.1, 1.5), ("gelu", 0.17, 1.98), ("sin", 0.0, 1.0),
    ("swish", 0.1, 2.0),
)  # fmt: skip
GROUPS = 16


def draw(number: int) -> tuple[MLP, Data, Training]:
    """A network, a task of one to six samples and a training recorded at three moments."""
    rng = np.random.default_rng((7, number))
    name, C_b, C_W = INITIALISATIONS[rng.integers(len(INITIALISATIONS))]
    hidden, width = int(rng.choice([1, 1, 2, 2, 3, 4])), int(rng.choice([16, 32, 64, 128]))
    samples, outputs = int(rng.choice([1, 2, 4, 6])), int(rng.choice([1, 1, 2]))
    x = rng.normal(size=(samples + 3, 4))
    y = rng.normal(size=(samples, outputs)) * rng.choice([0.5, 1.0, 2.0])
    network = MLP([4, *[width] * hidden, outputs], name, C_b=C_b, C_W=C_W)
    data = Data(x[:samples], y, test_x=x[samples:])
    probe = Training(GradientDescent(1e-3), steps=1)
    regime = predict_outputs(network, data, probe, order="infinite").regime
    assert regime is not None
    eta = 0.5 / regime.numbers["largest_eigenvalue"]
    return network, data, Training(GradientDescent(eta), steps=99, record=[2, 30, 99])


def shares(predicted: Outputs, measured: list[Outputs]) -> dict[str, tuple[float, float]]:
    """s of the mean and of the covariance at the last moment, with standard errors."""
    found = {}
    for name in ("mean", "covariance"):
        infinite = getattr(predicted, f"{name}_infinite")
        change = getattr(predicted, name) - infinite
        each = [np.sum(change * (getattr(part, name) - infinite)) for part in measured]
        values = np.array(each) / np.sum(change**2)
        found[name] = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--members", type=int, default=4096)
    options = parser.parse_args()
    for number in range(options.first, options.first + options.draws):
        network, data, how = draw(number)
        predicted = predict_outputs(network, data, how)
        measured = [
            train(
                network, data, how, members=options.members // GROUPS, seed=group,
                observables=("all_outputs",), keep_members=False,
            )
            for group in range(GROUPS)
        ]  # fmt: skip
        for time in predicted.times:
            for shown in ("test", "train"):
                now = getattr(predicted.at(time), shown)
                if np.max(now.stds_infinite) < 1e-6:
                    continue
                parts = [getattr(part.at(time), shown) for part in measured]
                line = {"draw": number, "network": repr(network), "time": time, "shown": shown}
                line["verdict"] = now.regime.verdict
                print(json.dumps(line | shares(now, parts)), flush=True)


if __name__ == "__main__":
    main()
