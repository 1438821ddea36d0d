"""Depth against width on digits: the depth with the best trained test error, and r*·n (A.73).

Critical networks with the rates and half the step limit of `dynagram advise`, full-batch gradient
descent on the squared error, for an activation the same number of steps at all widths and depths.
Every depth is an ensemble; `_depth_digits_verdict` judges them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynagram.data import Data, digits
from dynagram.ensembles import train
from dynagram.errors import NonFiniteError
from dynagram.networks import MLP
from dynagram.theory._advice import advise
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._depth_digits_verdict import OUTPUTS, Point, judged, ratio_of
from dynagram_experiments._kept import Kept

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
QUICK = Plan((16, 32, 64, 128), STEPS, members=6, train=200)
FULL = Plan((16, 32, 64, 128), STEPS, members=12, train=200)


def _run(settings: Settings) -> Result:
    plan = FULL if settings.full else QUICK
    size = "full" if settings.full else "quick"
    kept = Kept(settings.folder, f"depth_digits_{size}_{settings.seed}", asdict(plan))
    points = []
    for name in plan.steps:
        for width in plan.widths:
            for depth in _depths(name, width):
                made = functools.partial(_trained, plan, settings.seed, name, width, depth)
                points.append(Point(**kept.part(f"{name} {width} {depth}", made)))
    return judged(points)


def _depths(name: str, width: int) -> list[int]:
    """Up to well beyond r*·n."""
    most = max(9.0, 2.5 * ratio_of(name) * width)
    return [depth for depth in DEPTHS if depth <= most]


def _trained(plan: Plan, seed: int, name: str, width: int, depth: int) -> dict[str, Any]:
    data = digits()
    order = np.random.default_rng(seed).permutation(data.labels.size)
    chosen, test = order[: plan.train], order[plan.train :]
    x = data.x - data.x.mean(axis=0)
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    y = data.one_hot() - 1.0 / OUTPUTS
    advice = advise(name, width, depth, outputs=OUTPUTS, x=x[chosen])
    how = Training(GradientDescent(advice.number("step")), steps=plan.steps[name], dtype="float32")
    found = train(
        advice.network,
        Data(x[chosen], y[chosen], x[test]),
        how,
        members=plan.members,
        seed=seed,
        observables={"fit": "loss", **_measures(advice.network, y[test], data.labels[test])},
    )
    good = np.isfinite(found["squared"][:, -1])
    if good.sum() < 2:
        raise NonFiniteError(
            f"{name} networks of width {width} and depth {depth} overflow in training: the step "
            f"{advice.number('step'):.3g} is too large for these digits; take another seed"
        )
    numbers: dict[str, float] = {}
    for measure, samples in (("wrong", 1), ("squared", 1), ("fit", plan.train)):
        values = found[measure][good, -1].astype(np.float64) / samples
        numbers[measure] = float(values.mean())
        numbers[f"{measure}_error"] = float(values.std(ddof=1)) / math.sqrt(values.size)
    return asdict(Point(name, width, depth, int(good.sum()), **numbers))


def _measures(network: MLP, targets: np.ndarray, labels: np.ndarray):
    def wrong(params, x):
        return jnp.mean(jnp.argmax(network.apply(params, x), axis=1) != jnp.asarray(labels))

    def squared(params, x):
        z = network.apply(params, x)
        return 0.5 * jnp.mean(jnp.sum((z - jnp.asarray(targets, dtype=z.dtype)) ** 2, axis=1))

    return {"wrong": wrong, "squared": squared}


EXPERIMENT = Experiment(
    name="depth-digits",
    summary="Best depth of trained networks of several widths on digits, against r*·n.",
    source="The Principles of Deep Learning Theory, arXiv:2106.10165v2, (A.73)",
    run=_run,
    continues=True,
)
