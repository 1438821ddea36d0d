"""Depth against width on digits: the depth with the best trained test error, and r*·n (A.73).

Critical networks with the rates and half the step limit of the theory, full-batch gradient
descent on the squared error, for an activation the same number of steps at all widths and depths.
Every depth is an ensemble; `statements` judges them.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dynagram.data import Data, digits
from dynagram.ensembles import train
from dynagram.errors import NonFiniteError
from dynagram.results import Estimate
from dynagram.theory import critical_setup
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._parts import finish_parts, part_folder, unstack_records
from dynagram_experiments.digits.depth.statements import OUTPUTS, Point, judged, ratio_of

NAME = "depth-digits"
DEPTHS = (2, 3, 4, 6, 9, 13, 18, 25)


@dataclass(frozen=True)
class Plan:
    """What is trained: widths, steps by activation, members per depth, training samples."""

    widths: tuple[int, ...]
    steps: dict[str, int]
    members: int
    train: int


# ReLU networks start from larger outputs and learn more slowly.
STEPS = {"tanh": 3000, "relu": 4000}
QUICK = Plan((16, 32, 64), STEPS, members=6, train=200)
FULL = Plan((16, 32, 64, 128), STEPS, members=12, train=200)


def _run(settings: Settings) -> Result:
    plan = FULL if settings.full else QUICK
    makers = {
        f"{name} {width} {depth}": functools.partial(_trained, settings, plan, name, width, depth)
        for name in plan.steps
        for width in plan.widths
        for depth in _depths(name, width)
    }
    parts = finish_parts(settings, NAME, makers, asdict(plan))
    result = judged([unstack_records(Point, part)[0] for part in parts.values()])
    steps = ", ".join(f"{number} steps for {name}" for name, number in plan.steps.items())
    size = f"{plan.members} networks per width and depth, {plan.train} training digits, {steps}."
    return replace(result, notes=(size, *result.notes))


def _depths(name: str, width: int) -> list[int]:
    """Up to well beyond r*·n."""
    most = max(9.0, 2.5 * ratio_of(name) * width)
    return [depth for depth in DEPTHS if depth <= most]


def _trained(settings: Settings, plan: Plan, name: str, width: int, depth: int) -> dict[str, Any]:
    """One ensemble, as a part that holds one `Point`."""
    images = digits()
    order = np.random.default_rng(settings.seed).permutation(images.labels.size)
    chosen, others = order[: plan.train], order[plan.train :]
    x = images.x - images.x.mean(axis=0)
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    y = images.one_hot() - 1.0 / OUTPUTS
    advice = critical_setup(name, width, depth, outputs=OUTPUTS, x=x[chosen])
    step = advice.number("step")
    outputs = train(
        advice.network,
        Data(x[chosen], y[chosen], test_x=x[others]),
        Training(GradientDescent(step), steps=plan.steps[name], record=2, dtype="float32"),
        members=plan.members,
        seed=settings.seed,
        observables=("loss", "outputs"),
        run=part_folder(settings, NAME, f"{name} {width} {depth}"),
    )
    good = np.ones(plan.members, bool)
    good[[failure.member for failure in outputs.failures]] = False
    if good.sum() < 2:
        raise NonFiniteError(
            f"{name} networks of width {width} and depth {depth} overflow in training: the step "
            f"{step:.3g} is too large for these digits; take another seed"
        )
    z = outputs.recorded["outputs"][good, -1].astype(np.float64)
    measures = {
        "wrong": np.mean(np.argmax(z, axis=2) != images.labels[others], axis=1),
        "squared": 0.5 * np.mean(np.sum((z - y[others]) ** 2, axis=2), axis=1),
        "fit": outputs.recorded["loss"][good, -1] / plan.train,
    }
    numbers: dict[str, Any] = {
        "activation": name, "width": width, "depth": depth, "members": int(good.sum()),
    }  # fmt: skip
    for measure, values in measures.items():
        mean = Estimate.of_samples(values)
        numbers |= {measure: mean.value, f"{measure}_error": mean.standard_error}
    return {key: [value] for key, value in numbers.items()}


EXPERIMENT = Experiment(
    name=NAME,
    summary="Best depth of trained networks of several widths on digits, against r*·n.",
    source="The Principles of Deep Learning Theory, arXiv:2106.10165v2, (A.73)",
    run=_run,
)
