"""Gram-only training against plain training: same Gram in every step, smaller steps, what it costs.

MLP with two hidden layers of 128 (256 in full), GELU, SGD with momentum 0.85, batches of 64, 20
epochs, float64. Both start from the same weights and see the same batches, so that differences are
paired. Digits by default; with a data folder MNIST, SVHN or CIFAR-10, whichever is found there.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from dynagram._precision import float64
from dynagram.data import Dataset, digits, local_images
from dynagram.errors import InvalidValueError
from dynagram.integrations.optax import gram_only
from dynagram.networks import MLP, Params
from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import Split, accuracy, features, record_epochs, split

NAME = "gram-whitening"
WIDTH, WIDTH_OF_SOURCE, BATCH, MOMENTUM = 128, 256, 64, 0.85
EPOCHS = (0, 1, 2, 5, 10, 20)
RATES, RATES_OF_SOURCE = (0.01, 0.05, 0.1), (0.005, 0.01, 0.05, 0.1)
SEEDS = 5
IMAGES = 3000  # of a local data set, unless the full size is asked for
KINDS = ("plain", "Gram-only")


def _run(settings: Settings) -> Result:
    data = _data(settings)
    width = WIDTH_OF_SOURCE if settings.full else WIDTH
    rates = RATES_OF_SOURCE if settings.full else RATES
    seeds = [1000 * settings.seed + k for k in range(10 if settings.full else SEEDS)]
    network = MLP([data.x.shape[1], width, width, len(data.classes)], "gelu", C_b=0.0, C_W=2.0)
    makers = {
        f"rate {rate:g}, seed {seed}": functools.partial(_trained, network, data, rate, seed)
        for rate in rates
        for seed in seeds
    }
    plan = {"data": data.name, "epochs": EPOCHS}
    table = Table.joined(finish_parts(settings, NAME, makers, plan).values())
    differences = {rate: _paired(table, rate) for rate in rates}
    better, worse = (
        sum(bool(sign * d["accuracy"].value >= 2 * d["accuracy"].standard_error)
            for d in differences.values())
        for sign in (1, -1)
    )  # fmt: skip
    shown = ("rate", "seed", "training", "epoch", "test_accuracy", "test_loss", "train_loss")
    return Result(
        statements=_statements(table, differences),
        tables={"whitening": {name: table[name].tolist() for name in shown}},
        figures=draw_if_possible(lambda: _figures(table, differences, len(seeds), data.name)),
        notes=(
            f"{data.name}, {len(data.labels)} images, two hidden layers of {width}, GELU, momentum "
            f"{MOMENTUM:g}, batches of {BATCH}, {EPOCHS[-1]} epochs; {len(seeds)} seeds from "
            f"{seeds[0]}, paired: same split, start and batches.",
            "The source claims that Gram-only training matches or beats the plain optimiser. Here "
            f"its accuracy is above at {better} and below at {worse} of {len(rates)} rates, by 2 "
            "standard errors or more.",
        ),
    )


@float64
def _trained(network: MLP, data: Dataset, rate: float, seed: int) -> Table:
    """The same network trained plainly and by Gram-only steps, measured on the way."""
    parts = split(data, seed)
    start = network.draw(jax.random.key(seed), np.float64)
    rows = []
    for kind in KINDS:
        recorded, memory = record_epochs(
            network, _optimiser(kind, rate), start, parts, batch=BATCH, epochs=EPOCHS, seed=seed
        )
        checks = {"gram_error": 0.0, "step_ratio": 1.0}
        if kind == "Gram-only":  # the largest of all steps and layers
            checks = {name: float(getattr(memory, name)) for name in checks}
        rows += [
            {"rate": rate, "seed": seed, "training": kind, "epoch": epoch, **checks}
            | _scores(network, params, parts)
            for epoch, params in zip(EPOCHS, recorded, strict=True)
        ]
    return Table.of_rows(rows)


@functools.cache  # one compiled program for all seeds
def _optimiser(kind: str, rate: float) -> optax.GradientTransformation:
    plain = optax.sgd(rate, momentum=MOMENTUM)
    return plain if kind == "plain" else gram_only(plain)


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


def _scores(network: MLP, params: Params, parts: Split) -> dict[str, float]:
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


def _paired(table: Table, rate: float) -> dict[str, Estimate]:
    """Gram-only minus plain at the end, seed by seed; the training loss as a ratio."""
    plain, gram = (
        {
            name: table.each(name, rate=rate, training=kind, epoch=EPOCHS[-1])
            for name in ("test_accuracy", "test_loss", "train_loss")
        }
        for kind in KINDS
    )
    return {
        "plain": Estimate.of_samples(plain["test_accuracy"]),
        "accuracy": Estimate.of_samples(gram["test_accuracy"] - plain["test_accuracy"]),
        "loss": Estimate.of_samples(gram["test_loss"] - plain["test_loss"]),
        "ratio": Estimate.of_samples(gram["train_loss"] / plain["train_loss"]),
    }


def _statements(
    table: Table, differences: dict[float, dict[str, Estimate]]
) -> tuple[Statement, ...]:
    def of_all(name: str) -> str:
        return "; ".join(f"rate {rate:g}: {d[name]:.3f}" for rate, d in differences.items())

    of_last = {"training": "Gram-only", "epoch": EPOCHS[-1]}
    errors, ratios = (table.each(name, **of_last) for name in ("gram_error", "step_ratio"))
    error, ratio = float(errors.max()), float(ratios.max())
    return (
        Statement(
            "Every Gram-only step keeps the Gram of the plain step (1e-10 in float64)",
            error < 1e-10,
            f"largest relative change {error:.1e} in {len(errors)} runs",
        ),
        Statement(
            "A Gram-only step is never longer than the step it replaces",
            ratio <= 1.0 + 1e-12,
            f"largest ratio of any step and layer 1 − {1.0 - ratio:.1e}",
        ),
        Statement(
            "Test accuracy stays within 1.5 points of plain training at every rate",
            all(abs(d["accuracy"].value) < 0.015 for d in differences.values()),
            f"Gram-only − plain: {of_all('accuracy')} (plain {of_all('plain')})",
        ),
        Statement(
            "Gram-only training is slower: its training loss is larger, by 2 standard errors",
            all(
                d["ratio"].value - 1.0 > 2 * d["ratio"].standard_error for d in differences.values()
            ),
            f"ratio of training losses after {EPOCHS[-1]} epochs: {of_all('ratio')}; test loss "
            f"Gram-only − plain: {of_all('loss')}",
        ),
    )


def _figures(
    table: Table, differences: dict[float, dict[str, Estimate]], seeds: int, name: str
) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    rates = list(differences)
    losses = {
        f"{kind}, rate {rate:g}": Line.through(
            {e: table.mean("train_loss", rate=rate, training=kind, epoch=e) for e in EPOCHS}
        )
        for rate in (rates[0], rates[-1])
        for kind in KINDS
    }
    return {
        "whitening_loss": line_chart(
            losses,
            Axis(f"epoch ({name})"),
            Axis("training loss, mean ± 2 s.e.", "log"),
            title=f"{seeds} seeds",
        ),
        "whitening_accuracy": line_chart(
            {"Gram-only − plain": Line.through({r: d["accuracy"] for r, d in differences.items()})},
            Axis("learning rate", "log", ticks=rates),
            Axis("difference of test accuracies, paired, ± 2 s.e.", guides={"no difference": 0.0}),
        ),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="training with every rotation of the weights removed, against plain training",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
