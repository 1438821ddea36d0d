"""Label noise: the training set becomes linear whatever its labels, the test set does not.

Digits, MLP with four hidden layers of 128, ReLU, Adam 1e-3, batches of 64. A label is replaced by a
random one with probability 0.25, 0.75 or 0.9. Linearity of the last hidden layer: in sample on the
noisy training labels, and on clean test labels with the read-out fitted on the noisy ones.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax

from dynagram.data import digits
from dynagram.networks import MLP
from dynagram.observables.gram._linearity import held_out_linearity, one_hot, target_linearity
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._gram_figures import curves, if_possible
from dynagram_experiments._minibatch import (
    Mean,
    Trainer,
    accuracy,
    features,
    mean_of,
    split,
    table_of,
)

WIDTH, WIDTH_OF_SOURCE, HIDDEN, BATCH = 128, 256, 4, 64
NOISE = (0.25, 0.75, 0.9)
EPOCHS = (0, 3, 10, 30, 100)
SEEDS = 4


def _run(settings: Settings) -> Result:
    width = WIDTH_OF_SOURCE if settings.full else WIDTH
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    network = MLP([64, *[width] * HIDDEN, 10], "relu", C_b=0.0, C_W=2.0)
    trainer = Trainer(network, optax.adam(1e-3), BATCH)
    data = digits()
    rows: list[dict[str, Any]] = []
    for noise in NOISE:
        for seed in seeds:
            parts = split(data, seed)
            rng = np.random.default_rng(seed + 7)
            replaced = rng.random(len(parts.labels)) < noise
            labels = np.where(replaced, rng.integers(0, 10, len(parts.labels)), parts.labels)
            start = network.draw(jax.random.key(seed), np.float32)
            kept, _ = trainer.run(start, parts.x, labels, EPOCHS, seed)
            for epoch, params in zip(EPOCHS, kept, strict=True):
                about = {"noise": noise, "seed": seed, "epoch": epoch}
                rows.append(about | _measured(network, params, parts, labels))
    return Result(
        statements=_statements(rows),
        tables={"random_labels": table_of(rows)},
        figures=if_possible(lambda: _figures(rows)),
        notes=(
            f"{len(seeds)} seeds from {seeds[0]}, width {width}. Test accuracy at the end: "
            + ", ".join(f"{n:g}: {_mean(rows, n, EPOCHS[-1], 'accuracy')}" for n in NOISE)
            + ".",
            "With a read-out fitted anew on half of the clean test labels, start → end: "
            + ", ".join(
                f"{n:g}: {_mean(rows, n, 0, 'refitted')} → {_mean(rows, n, EPOCHS[-1], 'refitted')}"
                for n in NOISE
            )
            + ".",
        ),
    )


def _measured(network: MLP, params: Any, parts: Any, labels: np.ndarray) -> dict[str, float]:
    y, y_test = one_hot(labels, 10), one_hot(parts.labels_test, 10)
    h, h_test = (features(network, params, x) for x in (parts.x, parts.x_test))
    fitted = target_linearity(h[-2], y)
    half = len(y_test) // 2
    again = held_out_linearity(h_test[-2][:half], y_test[:half], h_test[-2][half:], y_test[half:])
    return {
        "train": fitted.score,
        "train_null": fitted.null.mean,
        "test": held_out_linearity(h[-2], y, h_test[-2], y_test).score,
        "refitted": again.score,
        "accuracy": accuracy(h_test[-1], parts.labels_test),
    }


def _each(rows: list[dict[str, Any]], noise: float, epoch: int, quantity: str) -> np.ndarray:
    return np.array(
        [row[quantity] for row in rows if row["noise"] == noise and row["epoch"] == epoch]
    )


def _mean(rows: list[dict[str, Any]], noise: float, epoch: int, quantity: str) -> Mean:
    return mean_of(_each(rows, noise, epoch, quantity))


def _statements(rows: list[dict[str, Any]]) -> tuple[Statement, ...]:
    end = EPOCHS[-1]

    def path(noise: float, quantity: str) -> str:
        return " → ".join(str(_mean(rows, noise, epoch, quantity)) for epoch in EPOCHS)

    gains = {n: mean_of(_each(rows, n, end, "train") - _each(rows, n, 0, "train")) for n in NOISE}
    falls = {n: mean_of(_each(rows, n, end, "test") - _each(rows, n, 0, "test")) for n in NOISE}
    curve = np.array([_each(rows, 0.25, epoch, "test") for epoch in EPOCHS])
    peak = 1 + int(np.argmax(curve[1:-1].mean(axis=1)))
    up, down = mean_of(curve[peak] - curve[0]), mean_of(curve[peak] - curve[-1])
    start, null = _each(rows, 0.9, 0, "train"), _each(rows, 0.9, 0, "train_null")
    above = mean_of(start - null)
    return (
        Statement(
            "The training set becomes more linear in its labels at every noise: gain above 0.2",
            all(gain.value > 0.2 for gain in gains.values()),
            "; ".join(f"{n:g}: {gain}" for n, gain in gains.items()),
        ),
        Statement(
            "On clean test labels linearity ends below its start at 75 % and 90 % noise, by 3 s.e.",
            all(falls[n].value < -3 * falls[n].error for n in (0.75, 0.9)),
            f"75 %: {path(0.75, 'test')}, change {falls[0.75]}; 90 %: {path(0.9, 'test')}, change "
            f"{falls[0.9]}",
        ),
        Statement(
            "At 25 % it first rises and then falls back: its maximum exceeds both ends, by 2 s.e.",
            up.value > 2 * up.error and down.value > 2 * down.error,
            f"25 %: {path(0.25, 'test')}; maximum at epoch {EPOCHS[peak]}, above the ends by {up} "
            f"and {down}",
        ),
        Statement(
            "At 90 % the untrained training score is within 0.02 of its null: few labels are true",
            abs(above.value) < 0.02,
            f"{mean_of(start)}, null {mean_of(null)}, difference {above}",
        ),
    )


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def chart(quantity: str, title: str) -> Any:
        lines = {
            f"{100 * n:.0f} % random labels": {
                float(epoch): _mean(rows, n, epoch, quantity) for epoch in EPOCHS
            }
            for n in NOISE
        }
        return curves(
            lines, x_title="epoch", y_title=title, ticks=(0, 20, 40, 60, 80, 100), width=380
        )

    return {
        "random_labels_train": chart("train", "linearity of h4 on noisy training labels, ± 2 s.e."),
        "random_labels_test": chart("test", "linearity of h4 on clean test labels, ± 2 s.e."),
    }


EXPERIMENT = Experiment(
    name="gram-random-labels",
    summary="target linearity of the training and the test set under label noise",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
