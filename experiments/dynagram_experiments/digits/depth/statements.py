"""What the ensembles of depth-digits say about r*·n: verdicts, costs of following it, a figure.

Depths whose test error is within two standard errors of the best count as equally good. Following
r*·n means to take the depth nearest to it in ratio; its cost is the test error beyond the best
depth's, to be held against that of one depth for all widths, chosen in hindsight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.theory.information import optimal_aspect_ratio
from dynagram_experiments import Result, Statement
from dynagram_experiments._records import draw_if_possible

OUTPUTS = 10
_SHALLOWEST = 2


@dataclass(frozen=True)
class Point:
    """One ensemble: fraction of wrong test digits, squared error per test and training digit.

    `members` counts the networks that were trained without overflow, over which these are averages.
    """

    activation: str
    width: int
    depth: int
    members: int
    wrong: float
    wrong_error: float
    squared: float
    squared_error: float
    fit: float
    fit_error: float


def judged(points: list[Point]) -> Result:
    """Statements, notes, tables and figure from the trained ensembles."""
    statements, notes, costs = [], [], list[dict[str, Any]]()
    for name in dict.fromkeys(point.activation for point in points):
        r_star = ratio_of(name)
        rows = [Row.of(points, name, width, "wrong") for width in _widths(points, name)]
        squared = [Row.of(points, name, width, "squared") for width in _widths(points, name)]
        statements.append(
            Statement(
                f"{name}: at every width a depth within a factor 2 of r*·n is as good as the best",
                all(row.agrees(r_star) for row in rows),
                "; ".join(row.words(r_star) for row in rows),
            )
        )
        if r_star * rows[-1].width > 2 * _SHALLOWEST:
            best = [row.best for row in rows]
            statements.append(
                Statement(
                    f"{name}: wider networks are best deeper",
                    best == sorted(best) and best[-1] > best[0],
                    ", ".join(f"width {row.width}: depth {row.best}" for row in rows),
                )
            )
            notes.append(f"{name}: {_ratio_words(rows, r_star)}")
        else:
            notes.append(
                f"{name}: r*·n is {r_star * rows[-1].width:.1f} at most, so that all it says here "
                f"is that one hidden layer (depth {_SHALLOWEST}) to three are enough"
            )
        for row in rows:
            costs.append({"activation": name, **row.cost(r_star)})
        notes.append(f"{name}: {_cost_words(rows, r_star)}")
        agree = sum(row.agrees(r_star) for row in squared)
        notes.append(
            f"{name}, by squared error instead of wrong digits: {agree} of {len(squared)} widths "
            "agree with r*·n in the same sense; " + "; ".join(row.words(r_star) for row in squared)
        )
    notes.append(
        "r* is a statement about the outputs at initialisation and knows neither data nor steps: "
        "agreement within a factor 2 is agreement of scales, not a prediction of the best depth"
    )
    tables = {
        "depth_digits": {
            field: [getattr(point, field) for point in points]
            for field in Point.__dataclass_fields__
        },
        "depth_digits_advice": {field: [cost[field] for cost in costs] for field in costs[0]},
    }
    return Result(
        tuple(statements), tables, draw_if_possible(lambda: _figures(points)), tuple(notes)
    )


def ratio_of(name: str) -> float:
    """r* of this activation for the ten outputs of digits (A.73)."""
    return optimal_aspect_ratio(name, OUTPUTS).r_star


@dataclass(frozen=True)
class Row:
    """The depths of one width, their values of one measure with errors, and which are good."""

    width: int
    depths: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, points: list[Point], name: str, width: int, measure: str) -> Row:
        """The ensembles of one activation and width, to be judged by `measure`."""
        chosen = [p for p in points if (p.activation, p.width) == (name, width)]
        return cls(
            width,
            tuple(p.depth for p in chosen),
            tuple(getattr(p, measure) for p in chosen),
            tuple(getattr(p, f"{measure}_error") for p in chosen),
        )

    @property
    def best(self) -> int:
        """The depth with the smallest value."""
        return self.depths[self._best]

    @property
    def good(self) -> tuple[int, ...]:
        """The depths within two standard errors of the best."""
        return tuple(
            depth
            for index, depth in enumerate(self.depths)
            if self.values[index] - self.values[self._best] <= 2.0 * self._error(index)
        )

    def agrees(self, r_star: float) -> bool:
        """Whether an equally good depth lies within a factor 2 of r*·n, taken to be at least 2."""
        target = self._target(r_star)
        return any(0.5 <= depth / target <= 2.0 for depth in self.good)

    def beyond_best(self, depth: int) -> float:
        """How much worse this depth is than the best one."""
        return self.values[self.depths.index(depth)] - self.values[self._best]

    def nearest(self, r_star: float) -> int:
        """The depth nearest to r*·n in ratio."""
        target = self._target(r_star)
        return min(self.depths, key=lambda depth: abs(math.log(depth / target)))

    def cost(self, r_star: float) -> dict[str, Any]:
        """What following r*·n costs at this width, with the standard error of the difference."""
        taken = self.nearest(r_star)
        index = self.depths.index(taken)
        return {
            "width": self.width,
            "r_star_n": r_star * self.width,
            "taken": taken,
            "wrong": self.values[index],
            "best": self.best,
            "wrong_at_best": self.values[self._best],
            "cost": self.beyond_best(taken),
            "cost_error": self._error(index),
        }

    def words(self, r_star: float) -> str:
        """Width, best depth and its value, the equally good ones, and r*·n."""
        value, error = self.values[self._best], self.errors[self._best]
        edge = ", the deepest tried" if self.best == max(self.depths) else ""
        return (
            f"width {self.width}: best depth {self.best}{edge} ({value:.4f} ± {error:.4f}), "
            f"as good {', '.join(map(str, self.good))}, r*·n = {r_star * self.width:.1f}"
        )

    @property
    def _best(self) -> int:
        return int(np.argmin(self.values))

    def _error(self, index: int) -> float:
        """Standard error of a depth's distance to the best; none of the best to itself."""
        if index == self._best:
            return 0.0
        return math.hypot(self.errors[index], self.errors[self._best])

    def _target(self, r_star: float) -> float:
        return max(r_star * self.width, float(_SHALLOWEST))


def _cost_words(rows: list[Row], r_star: float) -> str:
    """Following r*·n against one depth for all widths, on average over the widths."""
    costs = [row.cost(r_star) for row in rows]
    followed = float(np.mean([cost["cost"] for cost in costs]))
    error = math.hypot(*(cost["cost_error"] for cost in costs)) / len(costs)
    common = sorted(set.intersection(*(set(row.depths) for row in rows)))
    fixed = {depth: float(np.mean([row.beyond_best(depth) for row in rows])) for depth in common}
    best = min(fixed, key=lambda depth: fixed[depth])
    return (
        f"the depths nearest to r*·n have {followed:.4f} ± {error:.4f} more wrong digits than the "
        f"best ones, averaged over widths; the best single depth for all, {best} in hindsight, "
        f"has {fixed[best]:.4f} more"
        + (f", and depth {common[0]} {fixed[common[0]]:.4f} more" if best > common[0] else "")
    )


def _ratio_words(rows: list[Row], r_star: float) -> str:
    """L/n of the best depth and of the deepest good one, width by width."""
    best, edge = (
        ", ".join(f"{depth / row.width:.2g}" for row, depth in zip(rows, depths, strict=True))
        for depths in ([row.best for row in rows], [max(row.good) for row in rows])
    )
    return (
        f"the best depths are at L/n = {best}, the largest depths as good as the best at L/n = "
        f"{edge}, and r* = {r_star:.2g}"
    )


def _widths(points: list[Point], name: str) -> list[int]:
    return list(dict.fromkeys(p.width for p in points if p.activation == name))


def _figures(points: list[Point]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart, side_by_side

    charts = []
    for name in dict.fromkeys(point.activation for point in points):
        lines = {}
        for width in _widths(points, name):
            row = Row.of(points, name, width, "wrong")
            ratios = [depth / width for depth in row.depths]
            lines[f"width {width}"] = Line(ratios, row.values, row.errors)
        along = Axis("depth over width L/n", "log", guides={"r*": ratio_of(name)})
        up = Axis("wrong test digits, ± 1 s.e.")
        charts.append(line_chart(lines, along, up, title=name, width=340))
    return {"depth_digits": side_by_side(charts)}
