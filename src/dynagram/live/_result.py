"""`Check`: what a model shows before training beside what it should, and what is wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram.live._bands import MONTE_CARLO, Band
from dynagram.live._causes import Cause
from dynagram.results._table import Grid, short

if TYPE_CHECKING:
    from dynagram.live._scaling import ScalingTable
else:
    ScalingTable = object

_HEADINGS = {
    "mean square": "mean square", "token similarity": "similarity",
    "squared gradient": "gradient²", "Jacobian": "Jacobian", "share of the NTK": "NTK share",
    "weights": "variance of weights", "biases": "variance of biases",
}  # fmt: skip


@dataclass(frozen=True)
class LayerReading:
    """One number of a layer beside its band.

    **Arguments:**

    - `layer`: the name of the layer in the model.
    - `quantity`: "mean square", "token similarity", "squared gradient", "Jacobian", "share of the
        NTK" or "weights".
    - `measured`: the number.
    - `expected`, `low`, `high`: its expected value and its 95 % band; None where there is none.
    - `z`: how many standard deviations it is off.
    - `source`: of the band: "theory", "Monte Carlo" or "declared".
    """

    layer: str
    quantity: str
    measured: float
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    z: float | None = None
    source: str | None = None

    @classmethod
    def of(cls, layer: str, quantity: str, measured: float, band: Band | None) -> LayerReading:
        """A number beside a band."""
        if band is None:
            return cls(layer, quantity, measured)
        return cls(
            layer, quantity, measured, band.expected, band.low, band.high, band.z(measured),
            band.source,
        )  # fmt: skip

    @property
    def is_inside(self) -> bool | None:
        """Whether it is in its 95 % band; None where there is none."""
        return (
            None
            if self.low is None or self.high is None
            else self.low <= self.measured <= (self.high)
        )


@dataclass(frozen=True, repr=False)
class Check:
    """A model before training, layer by layer, and what is wrong with it; made by `check`.

    **Arguments:**

    - `readings`: every number beside its band.
    - `causes`: what is wrong, empty where nothing is.
    - `threshold`: |z| beyond which one reading makes the model wrong: all readings together call a
        healthy model wrong once in ten thousand.
    - `network`: the model in our terms, "" where it is measured only.
    - `measured_only`: parameters of what no theory of ours covers.
    - `notes`: what else is worth knowing.
    - `scaling`: exponents in width or depth beside those of the declared scheme, where asked for.
    """

    readings: tuple[LayerReading, ...]
    causes: tuple[Cause, ...]
    threshold: float
    network: str
    measured_only: tuple[str, ...]
    notes: tuple[str, ...] = ()
    scaling: ScalingTable | None = None

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong."""
        return not self.causes

    @property
    def outside(self) -> tuple[LayerReading, ...]:
        """Readings beyond the threshold."""
        return tuple(r for r in self.readings if r.z is not None and abs(r.z) > self.threshold)

    @property
    def checked(self) -> tuple[LayerReading, ...]:
        """Readings that have a band."""
        return tuple(r for r in self.readings if r.z is not None)

    @property
    def share_outside(self) -> float:
        """Which part of the checks is outside its 95 % band; about 0.05 of a healthy model."""
        return float(np.mean([not r.is_inside for r in self.checked])) if self.checked else 0.0

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers in order."""
        return tuple(dict.fromkeys(r.layer for r in self.readings))

    def verdict_of(self, layer: str) -> str:
        """Whether a layer is inside its bands, and if not, by how much and in what."""
        checks = [r for r in self.checked if r.layer == layer]
        if not checks:
            return "measured only"
        worst = max(checks, key=lambda r: abs(r.z or 0.0))
        assert worst.z is not None
        if abs(worst.z) <= self.threshold:
            return "inside"
        size = "∞" if np.isinf(worst.z) else f"{abs(worst.z):.0f}"
        return f"{_HEADINGS[worst.quantity]} {'+' if worst.z > 0 else '−'}{size} σ"

    @property
    def words(self) -> str:
        """What was found, as a paragraph."""
        count, sources = len(self.checked), {r.source for r in self.checked}
        by = "theory at order 1/n" if "theory" in sources else "networks drawn anew"
        if "theory" in sources and MONTE_CARLO in sources:
            by += " and by networks drawn anew"
        start = f"{count} numbers of {len(self.layers)} layers are held against bands by {by}; " \
                f"{100 * self.share_outside:.0f} % are outside their 95 % band."  # fmt: skip
        if self.is_fine:
            return f"{start} Nothing is wrong."
        return f"{start} Wrong: {'; '.join(c.message for c in self.causes)}."

    @property
    def fix(self) -> str:
        """Python code that mends what is wrong, as far as it is known."""
        return "\n".join(cause.fix for cause in self.causes if cause.fix)

    def summary(self) -> Grid:
        """A row for every layer: measured values with their bands, and a verdict."""
        quantities = [q for q in _HEADINGS if any(r.quantity == q for r in self.readings)]
        by_key = {(r.layer, r.quantity): r for r in self.readings}
        rows = []
        for layer in self.layers:
            cells = [_cell(by_key.get((layer, quantity))) for quantity in quantities]
            rows.append((layer, *cells, self.verdict_of(layer)))
        headings = ("layer", *(_HEADINGS[q] for q in quantities), "verdict")
        notes = (
            "In brackets the 95 % band between draws; * of drawn networks.", self.words,
        )  # fmt: skip
        return Grid(headings, tuple(rows), notes, keys=1)

    def table(self) -> Any:
        """A rich table of the layers."""
        return self.summary().rich()

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "is_fine": self.is_fine,
            "network": self.network,
            "threshold": self.threshold,
            "share_outside": self.share_outside,
            "readings": [vars(reading).copy() for reading in self.readings],
            "layers": {layer: self.verdict_of(layer) for layer in self.layers},
            "causes": [vars(cause).copy() for cause in self.causes],
            "measured_only": list(self.measured_only),
            "notes": list(self.notes),
            "words": self.words,
            "fix": self.fix,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
        }

    def __repr__(self) -> str:
        words = "nothing wrong" if self.is_fine else ", ".join(c.name for c in self.causes)
        return f"Check({len(self.layers)} layers, {len(self.checked)} checks; {words})"

    def _repr_html_(self) -> str:
        grid = self.summary()
        return replace(grid, notes=(*grid.notes, *self.notes)).html(repr(self))


def _cell(reading: LayerReading | None) -> str:
    if reading is None or not np.isfinite(reading.measured):
        return "–"
    if reading.low is None or reading.high is None:
        return short(reading.measured, 3)
    star = "*" if reading.source == MONTE_CARLO else ""
    digits = _digits(reading.low, reading.high)
    ends = f"{short(reading.low, digits)}…{short(reading.high, digits)}"
    return f"{short(reading.measured, digits + 1)} ({ends}){star}"


def _digits(low: float, high: float) -> int:
    """Two, or as many as tell the ends of a narrow band apart.

    >>> _digits(0.5, 0.9), _digits(1.664e-5, 1.671e-5)
    (2, 4)
    """
    size, width = max(abs(low), abs(high)), high - low
    if not 0.0 < width < size:
        return 2
    return min(max(2, 1 + math.ceil(math.log10(size / width))), 6)
