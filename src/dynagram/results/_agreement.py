"""What a comparison finds: entry by entry, row by row, and all rows together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import erfc, erfcinv

from dynagram.errors import InvalidValueError
from dynagram.results._table import Grid, short

if TYPE_CHECKING:
    from rich.table import Table
else:
    Table = object  # imported when a table is shown


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found, entry by entry (`z`, `exact`) and in summary.

    `exact` marks the entries without an error bar, which must agree to 1e-9 relative: z is 0
    where they do and ±∞ where they do not. `fraction_within_3` and `chi2_per_entry` are those of
    the other entries, 1 and 0 where there are none.
    """

    name: str
    z: Float[np.ndarray, "*shape"]
    exact: Bool[np.ndarray, "*shape"]
    worst_index: tuple[int, ...]
    worst_z: float
    fraction_within_3: float
    chi2_per_entry: float
    exact_mismatches: int

    @property
    def max_abs_z(self) -> float:
        """The largest |z|; ∞ when an entry without error bar disagrees."""
        return abs(self.worst_z)

    def ok(self, limit: float = 4.0) -> bool:
        """Whether every |z| is at most `limit` and every entry without error bar agrees."""
        return self.max_abs_z <= limit

    def plot(self) -> Any:
        """How far apart the entries are, in errors, beside what chance gives."""
        from dynagram.report._comparison_chart import scores_chart

        return scores_chart({self.name or "entries": self.z[~self.exact]})

    def __repr__(self) -> str:
        return f"Comparison({self})"

    def _repr_html_(self) -> str:
        rows = (
            ("entries with an error bar", str(int(np.sum(~self.exact)))),
            ("worst z", f"{self.worst_z:+.2f} at {self.worst_index}"),
            ("within 3 errors", f"{100.0 * self.fraction_within_3:.4g} %"),
            ("χ² per entry", f"{self.chi2_per_entry:.3g}"),
        )
        return Grid(("", ""), rows).html(self.name)

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        place = f" at {self.worst_index}" if self.worst_index else ""
        exact = int(np.sum(self.exact))
        text = (
            f"{label}{self.z.size - exact} entries, worst z = {self.worst_z:+.2f}{place}, "
            f"{100.0 * self.fraction_within_3:.4g} % within 3σ, "
            f"χ²/entry = {self.chi2_per_entry:.2f}"
        )
        if exact == 0:
            return text
        agree = exact - self.exact_mismatches
        return f"{text}; {agree} of {exact} entries without error bar agree"


def family_limit(limit: float, entries: int) -> float:
    """The |z| that the largest of `entries` exceeds as rarely as a single one exceeds `limit`.

    Among thousands of entries some are beyond 4 standard errors by chance. The bound of Bonferroni
    holds for correlated entries too.

    >>> round(family_limit(4.0, 1), 6), round(family_limit(4.0, 8192), 2)
    (4.0, 5.77)
    """
    chance = float(erfc(limit / math.sqrt(2.0))) / max(entries, 1)
    return math.sqrt(2.0) * float(erfcinv(chance)) if chance > 0.0 else limit


@dataclass(frozen=True, eq=False)
class Row:
    """One tensor or moment: what was compared, on which layers, and how it came out.

    `relative_difference` is the root mean square of the differences over that of the values.
    `beyond` is z without what the next order in 1/n is expected to change, entry by entry.
    """

    label: str
    layers: tuple[int, ...]
    result: Comparison
    relative_difference: float
    beyond: Float[np.ndarray, "*shape"]

    def verdict(self, limit: float = 4.0) -> str:
        """ "agree", "next order" where only that sets the two apart, or "differ".

        `limit` is that of a single entry, raised with the number of entries (`family_limit`).
        """
        allowed = family_limit(limit, int(np.sum(~self.result.exact)))
        if self.result.ok(allowed):
            return "agree"
        return "next order" if float(np.max(np.abs(self.beyond))) <= allowed else "differ"


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """What `compare` found between two records, row by row, and what each order leaves out."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def ok(self, limit: float = 4.0) -> bool:
        """Whether the two agree, up to chance and to what the next order is expected to change.

        `limit` is the |z| allowed to a single entry; with many entries more is (`family_limit`).
        """
        return all(row.verdict(limit) != "differ" for row in self.rows)

    def __getitem__(self, label: str) -> Comparison:
        """The comparison of one letter, "mean" or "covariance"."""
        for row in self.rows:
            if row.label == label or row.label.split(" ")[0] == label:
                return row.result
        have = ", ".join(row.label for row in self.rows)
        raise InvalidValueError("label", label, f"compared: {have}")

    def summary(self, limit: float = 4.0) -> Grid:
        """The rows of the table."""
        headings = ("tensor", "entries", "worst z", "worst at", "≤ 3σ", "χ²/entry", "differ by", "")
        return Grid(headings, tuple(_cells(row, limit) for row in self.rows), self.notes)

    def table(self) -> Table:
        """A rich table."""
        return self.summary().rich()

    def to_dict(self, limit: float = 4.0) -> dict[str, Any]:
        """Numbers and words in the types of JSON and NumPy."""
        return {
            "agree": self.ok(limit),
            "limit": limit,
            "tensors": {row.label: _row_dict(row, limit) for row in self.rows},
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        return self.summary().html()

    def plot(self) -> Any:
        """How far apart the entries of every row are, in errors, beside what chance gives."""
        from dynagram.report._comparison_chart import scores_chart

        return scores_chart({row.label: row.result.z[~row.result.exact] for row in self.rows})

    def __repr__(self) -> str:
        worst = max((row.result.max_abs_z for row in self.rows), default=0.0)
        labels = ", ".join(row.label for row in self.rows)
        return f"Agreement({labels}; worst |z| = {worst:.2f})"


def _cells(row: Row, limit: float) -> tuple[str, ...]:
    result = row.result
    noisy, exact = int(np.sum(~result.exact)), int(np.sum(result.exact))
    place = ",".join(map(str, result.worst_index))
    if row.layers:
        index, *samples = result.worst_index
        place = f"{row.layers[index]}:{','.join(map(str, samples))}"
    return (
        row.label,
        f"{noisy} + {exact}" if exact else str(noisy),
        "exact" if math.isinf(result.worst_z) else f"{result.worst_z:+.2f}",
        place,
        f"{100 * result.fraction_within_3:.0f} %",
        short(result.chi2_per_entry, 3),
        _percent(row.relative_difference),
        row.verdict(limit),
    )


def _percent(fraction: float) -> str:
    """Two digits, without an exponent where it is large.

    >>> _percent(0.00123), _percent(0.5), _percent(2.5)
    ('0.12 %', '50 %', '250 %')
    """
    return f"{100 * fraction:.2g} %" if fraction < 0.995 else f"{100 * fraction:.0f} %"


def _row_dict(row: Row, limit: float) -> dict[str, Any]:
    result = row.result
    index = result.worst_index
    return {
        "layers": list(row.layers),
        "entries": int(np.sum(~result.exact)),
        "exact_entries": int(np.sum(result.exact)),
        "exact_mismatches": result.exact_mismatches,
        "worst_z": result.worst_z,
        "worst_layer": row.layers[index[0]] if row.layers else None,
        "worst_samples": list(index[1:] if row.layers else index),
        "fraction_within_3": result.fraction_within_3,
        "chi2_per_entry": result.chi2_per_entry,
        "relative_difference": row.relative_difference,
        "agree": row.verdict(limit) != "differ",
        "verdict": row.verdict(limit),
        "limit": family_limit(limit, int(np.sum(~result.exact))),
    }
