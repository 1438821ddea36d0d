"""Plateaus of networks as people train them: drawn, forecast from a part of the data, trained."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.data import Data, digits
from dynagram.networks import Model
from dynagram.theory.saddle import Forecast, classify, forecast
from dynagram.theory.saddle._stages import Stages, find_stages
from dynagram.theory.saddle._tasks import make_task
from dynagram.training import GradientDescent, Optax, Training
from dynagram_experiments._parts import Table
from dynagram_experiments.saddle._plateaus import loss_curves

SAMPLES, SEEN, INPUTS, WIDTH = 1024, 256, 8, 24
DIGITS, DIGITS_SEEN = 1200, 600
# Smallest and largest ε of the layers, by depth: deeper ones last longer.
_SCALES = {2: (0.001, 0.05), 3: (0.02, 0.12), 4: (0.07, 0.25), 5: (0.15, 0.35)}
_EARLY = 0.1  # on a plateau a tenth of the fall takes half of the time to the half


@dataclass(frozen=True)
class Group:
    """Networks of one kind, which train together.

    **Arguments:**

    - `task`: "teacher", nonlinear functions of a few directions; "classes", Gaussian clouds of
        unequal weight; "signs", ±1 for each output; or "digits".
    - `depth`, `outputs`, `loss`, `trains_biases`, `momentum`, `batch`: of network and training.
    - `rate`: of the loss of a sample, ½|f − y|² for a squared error.
    - `mean`: of the targets, for "teacher".
    """

    activation: str
    task: str
    depth: int
    outputs: int
    loss: str = "mean"
    trains_biases: bool = False
    momentum: float = 0.0
    batch: int | None = None
    rate: float = 0.1
    mean: float = 0.0
    scales: tuple[float, float] | None = None

    @property
    def training(self) -> Training:
        """As the forecast is told."""
        eta = self.rate * {"mean": self.outputs / 2, "logistic": self.outputs}.get(self.loss, 1.0)
        algorithm = GradientDescent(eta)
        if self.momentum:
            algorithm = Optax("momentum", eta, momentum=self.momentum)
        return Training(algorithm, loss=self.loss, batch=self.batch)


GROUPS = {
    "tanh": Group("tanh", "teacher", 3, 3),
    "erf, biases": Group("erf", "teacher", 4, 2, trains_biases=True, mean=1.0),
    "sin, biases": Group("sin", "teacher", 3, 4, trains_biases=True, mean=0.5),
    "gelu": Group("gelu", "teacher", 4, 3),
    "swish, biases": Group("swish", "teacher", 3, 2, trains_biases=True),
    "sigmoid": Group("sigmoid", "teacher", 3, 2, mean=1.0, rate=0.2, scales=(0.05, 0.4)),
    "tanh, classes": Group("tanh", "classes", 3, 4, "cross-entropy", True, rate=0.2),
    "tanh, classes, no biases": Group("tanh", "classes", 4, 3, "cross-entropy", rate=0.3),
    "gelu, classes": Group("gelu", "classes", 3, 3, "cross-entropy", True, rate=0.2),
    "softplus, classes": Group(
        "softplus", "classes", 3, 3, "cross-entropy", True, rate=0.1, scales=(0.03, 0.3)
    ),
    "tanh, signs": Group("tanh", "signs", 3, 3, "logistic", True, rate=0.3),
    "tanh, classes, mini-batches": Group(
        "tanh", "classes", 4, 3, "cross-entropy", True, momentum=0.9, batch=64, rate=0.05
    ),
    "tanh, digits": Group("tanh", "digits", 3, 10, "mean", True, rate=0.05),
    "tanh, digits, classes": Group("tanh", "digits", 3, 10, "cross-entropy", True),
}  # fmt: skip
OF_EACH_GROUP, STEPS = 4, 1500
LATER = {2: "second", 3: "third"}
HEALTHY = 4  # networks of ordinary scale per group
BETWEEN, BETWEEN_STEPS = 3, 500


@dataclass(frozen=True, eq=False)
class Member:
    """One network, what it trains on, and which samples the forecaster sees."""

    weights: list[np.ndarray]
    x: np.ndarray
    y: np.ndarray
    seen: np.ndarray = field(repr=False)
    scale: float

    def answer(self, group: Group) -> Forecast:
        """The forecast from what is seen."""
        biases = [np.zeros(len(W)) for W in self.weights] if group.trains_biases else None
        model = Model.of_matrices(self.weights, group.activation, biases=biases)
        return forecast(model, Data(self.x[self.seen], self.y[self.seen]), group.training)


def draw_member(rng: np.random.Generator, group: Group, scale: float | None = None) -> Member:
    """He-normal layers times ε, and data of their own."""
    x, y = _data(rng, group)
    low, high = group.scales or _SCALES[group.depth]
    eps = math.exp(rng.uniform(math.log(low), math.log(high))) if scale is None else scale
    sizes = [x.shape[1], *[WIDTH] * (group.depth - 1), group.outputs]
    weights = [
        eps * rng.normal(size=(b, a)) * math.sqrt(2.0 / a) for a, b in itertools.pairwise(sizes)
    ]
    seen = rng.permutation(len(x))[: DIGITS_SEEN if group.task == "digits" else SEEN]
    return Member(weights, x, y, seen, eps)


def _data(rng: np.random.Generator, group: Group) -> tuple[np.ndarray, np.ndarray]:
    k = group.outputs
    if group.task == "digits":
        some = digits()
        rows = rng.permutation(len(some.x))[:DIGITS]
        x = some.x[rows] - some.x[rows].mean(axis=0)
        return x / np.maximum(x.std(axis=0), 1e-9), np.eye(10)[some.labels[rows]]
    x = rng.normal(size=(SAMPLES, INPUTS)) * rng.uniform(0.7, 1.4, INPUTS)
    directions = np.linalg.qr(rng.normal(size=(INPUTS, k)))[0]
    strengths = np.sort(rng.uniform(0.3, 1.0, k))[::-1]
    if group.task == "teacher":
        turn = np.linalg.qr(rng.normal(size=(k, k)))[0]
        return x, (np.tanh(x @ directions) * strengths) @ turn.T + group.mean
    if group.task == "signs":
        noise = 0.3 * rng.normal(size=(SAMPLES, k))
        return x, np.where(x @ directions + noise > rng.uniform(-0.5, 0.5, k), 1.0, -1.0)
    weights = rng.dirichlet(np.full(k, 5.0))
    labels = rng.choice(k, SAMPLES, p=weights)
    centres = 1.2 * rng.normal(size=(k, INPUTS)) / math.sqrt(INPUTS) * 2.0
    return 0.8 * x + centres[labels], np.eye(k)[labels]


def run_group(seed: int, name: str, count: int = OF_EACH_GROUP, steps: int = STEPS) -> Table:
    """Networks of one group, forecast and trained; those that are refused are trained too."""
    group = GROUPS[name]
    rng = np.random.default_rng([seed, 41, list(GROUPS).index(name)])
    members: list[Member] = []
    answers: list[Forecast] = []
    while sum(answer.plateau for answer in answers) < count and len(answers) < 3 * count:
        member = draw_member(rng, group)
        answer = member.answer(group)
        if answer.plateau and not (answer.escape_step or 0.0) < 0.6 * steps:
            continue  # longer than it may train
        members.append(member)
        answers.append(answer)
    curves = train_members(group, members, steps)
    return Table.of_rows(
        _row(group, name, member, answer, curve)
        for member, answer, curve in zip(members, answers, curves, strict=True)
    )


def run_between(seed: int, name: str, count: int = BETWEEN, steps: int = BETWEEN_STEPS) -> Table:
    """Networks between a plateau and an ordinary scale, forecast or refused, and trained."""
    group = GROUPS[name]
    rng = np.random.default_rng([seed, 47, list(GROUPS).index(name)])
    largest = (group.scales or _SCALES[group.depth])[1]
    scales = np.exp(rng.uniform(math.log(largest), 0.0, count))
    members = [draw_member(rng, group, float(scale)) for scale in scales]
    curves = train_members(group, members, steps)
    return Table.of_rows(
        _row(group, name, member, member.answer(group), curve)
        for member, curve in zip(members, curves, strict=True)
    )


def train_members(group: Group, members: list[Member], steps: int) -> np.ndarray:
    """The losses of all members before every step."""
    depth = len(members[0].weights)
    params = [
        (
            jnp.stack([jnp.float32(m.weights[layer]) for m in members]),
            jnp.zeros((len(members), len(members[0].weights[layer])), jnp.float32),
        )
        for layer in range(depth)
    ]
    x, y = (jnp.stack([jnp.float32(getattr(m, part)) for m in members]) for part in "xy")
    curves = loss_curves(
        params, x, y, group.training.eta, name=group.activation, loss=group.loss, steps=steps,
        momentum=group.momentum, batch=group.batch, trains_biases=group.trains_biases,
    )  # fmt: skip
    return np.asarray(jax.block_until_ready(curves))


def training_stages(group: Group, member: Member) -> tuple[Stages, float]:
    """Plateau and stages of all that a network trains on, and the unit of its loss."""
    task = make_task(group.loss, member.x, member.y)
    is_free = group.trains_biases or classify(group.activation).offset != 0.0
    constant = task.best_constant() if is_free else np.zeros(group.outputs)
    unit = {"mean": 2.0 / group.outputs, "logistic": 1.0 / group.outputs}.get(group.loss, 1.0)
    return find_stages(task, constant, is_free=is_free, count=max(LATER)), unit


def _row(
    group: Group, name: str, member: Member, answer: Forecast, curve: np.ndarray
) -> dict[str, Any]:
    low, high = answer.interval or (math.nan, math.nan)
    stages, unit = training_stages(group, member)
    # Steps until the loss is near that of the plateau, leaves it, and is half-way.
    arrival, early, half = (
        _first(curve, unit * stages.level(part)) for part in (-_EARLY, _EARLY, 0.5)
    )
    flat = math.isfinite(half) and half > arrival
    row = {
        "group": name,
        "scale": member.scale,
        "plateau": answer.plateau,
        "reason": answer.reasons[0],
        "forecast": answer.escape_step or math.nan,
        "low": low,
        "high": high,
        "measured": half,
        "early_share": (early - arrival) / (half - arrival) if flat else math.nan,
        "stages": answer.stages,
        "steps": float(len(curve)),
    }
    later = {entry.stage: entry for entry in answer.later}
    for number, word in LATER.items():
        entry = later.get(number) if number <= len(stages.falls) else None
        low, high = entry.interval if entry else (math.nan, math.nan)
        row |= {
            f"{word}_forecast": entry.step if entry else math.nan,
            f"{word}_low": low,
            f"{word}_high": high,
            f"{word}_measured": _first(curve, unit * stages.level(0.5, number))
            if entry
            else math.nan,
        }
    return row


def _first(curve: np.ndarray, level: float) -> float:
    below = np.flatnonzero(curve <= level)
    return float(below[0]) if below.size else math.inf


def recognise_healthy(seed: int) -> dict[str, Any]:
    """Networks of ordinary scale, with several outputs and all losses: none is on a plateau."""
    rng = np.random.default_rng([seed, 43])
    refused, wrong = 0, list[str]()
    for name, group in GROUPS.items():
        for _ in range(HEALTHY):
            answer = draw_member(rng, group, scale=float(rng.uniform(0.7, 1.3))).answer(group)
            refused += not answer.plateau
            if answer.plateau:
                wrong.append(name)
    return {"refused": refused, "wrong": ", ".join(wrong)}
