"""Depth against width on digits: the depth with the best trained test error, and r*·n (A.73).

Critical networks with the rates and half the step limit of `dynagram advise`, full-batch gradient
descent on the squared error, the same number of steps for all. Every depth is an ensemble; depths
whose test error is within two standard errors of the best count as equally good.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynagram.data import digits
from dynagram.ensembles.train import Training, train_ensemble
from dynagram.experiments import Experiment, Result, Settings, Statement
from dynagram.networks import MLP
from dynagram.report.files import write_atomically
from dynagram.theory.advice import advise
from dynagram.theory.information import optimal_aspect_ratio

TESTS = 700
DEPTHS = (2, 3, 4, 6, 9, 13, 18, 25)


@dataclass(frozen=True)
class Plan:
    """What is trained: widths by activation, members per depth, steps, training samples."""

    widths: dict[str, tuple[int, ...]]
    members: int
    steps: int
    train: int


QUICK = Plan({"tanh": (16, 32, 64), "relu": (16, 64)}, members=6, steps=2500, train=200)
FULL = Plan(dict.fromkeys(("tanh", "relu"), (16, 32, 64, 128)), members=12, steps=2500, train=200)


@dataclass(frozen=True)
class Point:
    """One ensemble: fraction of wrong test digits and mean squared test error, with errors."""

    activation: str
    width: int
    depth: int
    wrong: float
    wrong_error: float
    squared: float
    squared_error: float


def _run(settings: Settings) -> Result:
    plan = FULL if settings.full else QUICK
    done = _Kept(settings, plan)
    for name, widths in plan.widths.items():
        for width in widths:
            for depth in _depths(name, width):
                done.trained(name, width, depth)
    return judged(done.points)


class _Kept:
    """The ensembles trained so far, kept in the folder so that a killed run goes on."""

    def __init__(self, settings: Settings, plan: Plan):
        self.plan, self.seed, self.points = plan, settings.seed, list[Point]()
        folder, size = settings.folder, "full" if settings.full else "quick"
        self.path = None if folder is None else folder / f"depth_digits_{size}_{self.seed}.json"
        self.known: dict[str, list[Any]] = {}
        if self.path is not None and self.path.is_file():
            self.known = json.loads(self.path.read_text())

    def trained(self, name: str, width: int, depth: int) -> None:
        key = f"{name} {width} {depth}"
        if key not in self.known:
            point = _trained(self.plan, self.seed, name, width, depth)
            self.known[key] = list(vars(point).values())
            if self.path is not None:
                write_atomically(self.path, json.dumps(self.known).encode())
        self.points.append(Point(*self.known[key]))


def judged(points: list[Point]) -> Result:
    """Statements, notes, table and figure from the trained ensembles."""
    statements, notes = [], []
    for name in dict.fromkeys(point.activation for point in points):
        r_star = optimal_aspect_ratio(name, 10).r_star
        rows = [Row.of(points, name, width, "wrong") for width in _widths(points, name)]
        squared = [Row.of(points, name, width, "squared") for width in _widths(points, name)]
        within = [row.agrees(r_star) for row in rows]
        measured = "; ".join(row.words(r_star) for row in rows)
        statements.append(
            Statement(
                f"{name}: at every width a depth within a factor 2 of r*·n is as good as the best",
                all(within),
                measured,
            )
        )
        if name == "tanh":
            best = [row.best for row in rows]
            statements.append(
                Statement(
                    "tanh: wider networks are best deeper",
                    best == sorted(best) and best[-1] > best[0],
                    ", ".join(f"width {row.width}: depth {row.best}" for row in rows),
                )
            )
        agree = sum(row.agrees(r_star) for row in squared)
        notes.append(
            f"{name}, by squared error instead of wrong digits: {agree} of {len(squared)} widths "
            "agree with r*·n in the same sense; " + "; ".join(row.words(r_star) for row in squared)
        )
    notes.append(
        "r* is a statement about the outputs at initialisation and knows neither data nor steps: "
        "agreement within a factor 2 is agreement of scales, not a prediction of the best depth"
    )
    columns = {
        field: [getattr(point, field) for point in points] for field in Point.__dataclass_fields__
    }
    return Result(tuple(statements), {"depth_digits": columns}, _figures(points), tuple(notes))


@dataclass(frozen=True)
class Row:
    """The depths of one width: the best, those as good, and all that were tried."""

    width: int
    best: int
    good: tuple[int, ...]
    value: float
    error: float

    @classmethod
    def of(cls, points: list[Point], name: str, width: int, measure: str) -> Row:
        """Judge the ensembles of one activation and width by `measure`."""
        chosen = [p for p in points if (p.activation, p.width) == (name, width)]
        values = np.array([getattr(p, measure) for p in chosen])
        errors = np.array([getattr(p, f"{measure}_error") for p in chosen])
        at = int(np.argmin(values))
        close = values - values[at] <= 2.0 * np.hypot(errors, errors[at])
        good = tuple(p.depth for p, near in zip(chosen, close, strict=True) if near)
        return cls(width, chosen[at].depth, good, float(values[at]), float(errors[at]))

    def agrees(self, r_star: float) -> bool:
        """Whether an equally good depth lies within a factor 2 of r*·n, which is at least 2."""
        target = max(r_star * self.width, 2.0)
        return any(0.5 <= depth / target <= 2.0 for depth in self.good)

    def words(self, r_star: float) -> str:
        """Width, best depth and its value, the equally good ones, and r*·n."""
        return (
            f"width {self.width}: best depth {self.best} ({self.value:.4f} ± {self.error:.4f}), "
            f"as good {', '.join(map(str, self.good))}, r*·n = {r_star * self.width:.1f}"
        )


def _widths(points: list[Point], name: str) -> list[int]:
    return list(dict.fromkeys(p.width for p in points if p.activation == name))


def _depths(name: str, width: int) -> list[int]:
    """Up to well beyond r*·n."""
    most = max(9.0, 2.5 * optimal_aspect_ratio(name, 10).r_star * width)
    return [depth for depth in DEPTHS if depth <= most]


def _trained(plan: Plan, seed: int, name: str, width: int, depth: int) -> Point:
    data = digits()
    order = np.random.default_rng(seed).permutation(data.labels.size)
    train, test = order[: plan.train], order[plan.train : plan.train + TESTS]
    x = data.x - data.x.mean(axis=0)
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    y = data.one_hot() - 0.1
    advice = advise(name, width, depth, outputs=10, x=x[train])
    training = Training(steps=plan.steps, eta=advice.number("step"), record=2, dtype="float32")
    found = train_ensemble(
        advice.network,
        training,
        x[train],
        y[train],
        members=plan.members,
        seed=seed,
        test_x=x[test],
        observables=_measures(advice.network, y[test], data.labels[test]),
    )
    numbers: dict[str, Any] = {}
    for measure in ("wrong", "squared"):
        values = found[measure][:, -1].astype(np.float64)
        values = values[np.isfinite(values)]
        numbers[measure] = float(values.mean())
        numbers[f"{measure}_error"] = float(values.std(ddof=1)) / math.sqrt(values.size)
    return Point(name, width, depth, **numbers)


def _measures(network: MLP, targets: np.ndarray, labels: np.ndarray):
    def wrong(params, x):
        return jnp.mean(jnp.argmax(network.apply(params, x), axis=1) != jnp.asarray(labels))

    def squared(params, x):
        z = network.apply(params, x)
        return 0.5 * jnp.mean(jnp.sum((z - jnp.asarray(targets, dtype=z.dtype)) ** 2, axis=1))

    return {"wrong": wrong, "squared": squared}


def _figures(points: list[Point]) -> dict[str, Any]:
    from dynagram.report.export import alt
    from dynagram.report.theme import REFERENCE

    charts = []
    for name in dict.fromkeys(point.activation for point in points):
        r_star = optimal_aspect_ratio(name, 10).r_star
        rows = [
            {"L/n": p.depth / p.width, "wrong": p.wrong, "low": p.wrong - p.wrong_error,
             "high": p.wrong + p.wrong_error, "width": str(p.width)}
            for p in points if p.activation == name
        ]  # fmt: skip
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("L/n:Q", scale=alt.Scale(type="log")),
            color=alt.Color("width:N", sort=[str(w) for w in _widths(points, name)]),
        )
        lines = base.mark_line(point=True).encode(y=alt.Y("wrong:Q", title="wrong test digits"))
        bars = base.mark_rule().encode(y="low:Q", y2="high:Q")
        mark = alt.Chart(alt.Data(values=[{"r": r_star}])).mark_rule(color=REFERENCE)
        charts.append((lines + bars + mark.encode(x="r:Q")).properties(title=f"{name}, line at r*"))
    return {"depth_digits": alt.hconcat(*charts).resolve_scale(color="independent")}


EXPERIMENT = Experiment(
    name="depth-digits",
    summary="Best depth of trained networks of several widths on digits, against r*·n.",
    source="The Principles of Deep Learning Theory, arXiv:2106.10165v2, (A.73)",
    run=_run,
)
