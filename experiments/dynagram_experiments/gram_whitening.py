"""Gram-only training against plain training: same Gram in every step, smaller steps, what it costs.

MLP with two hidden layers of 128 (256 in full), GELU, SGD with momentum 0.85, batches of 64, 20
epochs, float64. Both start from the same weights and see the same batches, so that differences are
paired. Digits by default; with a data folder MNIST, SVHN or CIFAR-10, whichever is found there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from dynagram._precision import float64
from dynagram.data import Dataset, digits, local_images
from dynagram.errors import InvalidValueError
from dynagram.integrations.optax import gram_only
from dynagram.networks import MLP
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

WIDTH, WIDTH_OF_SOURCE, BATCH, MOMENTUM = 128, 256, 64, 0.85
EPOCHS = (0, 1, 2, 5, 10, 20)
RATES, RATES_OF_SOURCE = (0.01, 0.05, 0.1), (0.005, 0.01, 0.05, 0.1)
SEEDS = 5
IMAGES = 3000  # of a local data set, unless the full size is asked for


@float64
def _run(settings: Settings) -> Result:
    data = _data(settings)
    width = WIDTH_OF_SOURCE if settings.full else WIDTH
    rates = RATES_OF_SOURCE if settings.full else RATES
    seeds = [1000 * settings.seed + k for k in range(10 if settings.full else SEEDS)]
    network = MLP([data.x.shape[1], width, width, len(data.classes)], "gelu", C_b=0.0, C_W=2.0)
    rows, checks = [], []
    for rate in rates:
        plain = optax.sgd(rate, momentum=MOMENTUM)
        trainers = {
            "plain": Trainer(network, plain, BATCH),
            "Gram-only": Trainer(network, gram_only(plain), BATCH),
        }
        for seed in seeds:
            parts = split(data, seed)
            start = network.draw(jax.random.key(seed), np.float64)
            for name, trainer in trainers.items():
                kept, state = trainer.run(start, parts.x, parts.labels, EPOCHS, seed)
                if name == "Gram-only":
                    checks.append((float(state.gram_error), float(state.step_ratio)))
                for epoch, params in zip(EPOCHS, kept, strict=True):
                    rows.append(
                        {"rate": rate, "seed": seed, "training": name, "epoch": epoch}
                        | _scores(network, params, parts)
                    )
    table = table_of(rows)
    differences = {rate: _paired(rows, rate) for rate in rates}
    scores = [found["accuracy"].sigmas for found in differences.values()]
    better, worse = sum(s >= 2 for s in scores), sum(s <= -2 for s in scores)
    return Result(
        statements=_statements(differences, np.array(checks)),
        tables={"whitening": table},
        figures=if_possible(lambda: _figures(rows, differences, seeds, data.name)),
        notes=(
            f"{data.name}, {len(data.labels)} images, {len(seeds)} seeds from {seeds[0]}, paired: "
            "same split, start and batches.",
            "The source claims that Gram-only training matches or beats the plain optimiser. Here "
            f"its accuracy is above at {better} and below at {worse} of {len(rates)} rates, by 2 "
            "standard errors or more.",
        ),
    )


def _data(settings: Settings) -> Dataset:
    if settings.data is None:
        return digits()
    folder = Path(settings.data)
    for name in ("mnist", "svhn", "cifar10"):
        try:
            found = local_images(name, folder)
        except InvalidValueError:
            continue
        return found if settings.full else found.subset(limit=IMAGES, seed=settings.seed)
    raise InvalidValueError("--data", str(folder), "holds no files of MNIST, SVHN or CIFAR-10")


def _scores(network: MLP, params: Any, parts: Any) -> dict[str, float]:
    train, test = (features(network, params, x)[-1] for x in (parts.x, parts.x_test))
    return {
        "test_accuracy": accuracy(test, parts.labels_test),
        "test_loss": _cross_entropy(test, parts.labels_test),
        "train_loss": _cross_entropy(train, parts.labels),
    }


def _cross_entropy(outputs: np.ndarray, labels: np.ndarray) -> float:
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -float(np.mean(logs[np.arange(len(labels)), labels]))


def _paired(rows: list[dict[str, Any]], rate: float) -> dict[str, Mean]:
    """Gram-only minus plain at the end, seed by seed; the training loss as a ratio."""
    last = {
        (row["training"], row["seed"]): row
        for row in rows
        if row["rate"] == rate and row["epoch"] == EPOCHS[-1]
    }
    seeds = sorted({seed for _, seed in last})
    pairs = [(last["Gram-only", seed], last["plain", seed]) for seed in seeds]
    return {
        "plain": mean_of([b["test_accuracy"] for _, b in pairs]),
        "accuracy": mean_of([a["test_accuracy"] - b["test_accuracy"] for a, b in pairs]),
        "loss": mean_of([a["test_loss"] - b["test_loss"] for a, b in pairs]),
        "ratio": mean_of([a["train_loss"] / b["train_loss"] for a, b in pairs]),
    }


def _statements(
    differences: dict[float, dict[str, Mean]], checks: np.ndarray
) -> tuple[Statement, ...]:
    def of_all(name: str) -> str:
        parts = [f"rate {rate:g}: {found[name]}" for rate, found in differences.items()]
        return "; ".join(parts)

    error, ratio = checks.max(axis=0)
    return (
        Statement(
            "Every Gram-only step keeps the Gram of the plain step (1e-10 in float64)",
            bool(error < 1e-10),
            f"largest relative change {error:.1e} in {len(checks)} runs",
        ),
        Statement(
            "A Gram-only step is never longer than the step it replaces",
            bool(ratio <= 1.0 + 1e-12),
            f"largest ratio of any step and layer 1 − {1.0 - ratio:.1e}",
        ),
        Statement(
            "Test accuracy stays within 1.5 points of plain training at every rate",
            all(abs(found["accuracy"].value) < 0.015 for found in differences.values()),
            f"Gram-only − plain: {of_all('accuracy')} (plain {of_all('plain')})",
        ),
        Statement(
            "Gram-only training is slower: its training loss is larger, by 2 standard errors",
            all(f["ratio"].value - 1.0 > 2 * f["ratio"].error for f in differences.values()),
            f"ratio of training losses after {EPOCHS[-1]} epochs: {of_all('ratio')}; test loss "
            f"Gram-only − plain: {of_all('loss')}",
        ),
    )


def _figures(
    rows: list[dict[str, Any]],
    differences: dict[float, dict[str, Mean]],
    seeds: list[int],
    name: str,
) -> dict[str, Any]:
    def along(rate: float, training: str) -> dict[int, Mean]:
        return {
            epoch: mean_of(
                [
                    row["train_loss"]
                    for row in rows
                    if (row["rate"], row["training"], row["epoch"]) == (rate, training, epoch)
                ]
            )
            for epoch in EPOCHS
        }

    kinds = ("plain", "Gram-only")
    rates = list(differences)
    lines = {f"{kind}, rate {r:g}": along(r, kind) for r in (rates[0], rates[-1]) for kind in kinds}
    return {
        "whitening_loss": curves(
            lines,
            x_title=f"epoch ({name})",
            y_title="training loss, mean ± 2 s.e.",
            log_y=True,
            ticks=(0, 5, 10, 15, 20),
            title=f"{len(seeds)} seeds",
        ),
        "whitening_accuracy": curves(
            {"Gram-only − plain": {r: found["accuracy"] for r, found in differences.items()}},
            x_title="learning rate",
            y_title="difference of test accuracies, paired, ± 2 s.e.",
            log_x=True,
            ticks=rates,
            nulls={"no difference": 0.0},
        ),
    }


EXPERIMENT = Experiment(
    name="gram-whitening",
    summary="training with every rotation of the weights removed, against plain training",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
