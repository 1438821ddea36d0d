"""One record: the numbers of a step, their bands, and what is to be said about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dynagram.results._files import plain
from dynagram.watch._band import Alert, Band

Key = tuple[str, str]  # quantity and layer, "" for the whole run


@dataclass(frozen=True)
class Record:
    """What was measured at one step.

    **Arguments:**

    - `step`: how many steps were taken.
    - `seconds`: since the watch began.
    - `cost`: seconds that this record took.
    - `values`, `bands`: by (quantity, layer); the layer is "" for the whole run.
    - `alerts`: bands that were left at this step.
    - `failures`: what could not be measured, and why, a line each.
    """

    step: int
    seconds: float
    cost: float = 0.0
    values: dict[Key, float] = field(default_factory=dict)
    bands: dict[Key, Band] = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()
    failures: tuple[str, ...] = ()

    def flat(self) -> dict[str, float]:
        """Names as trackers show them: quantity/layer, with /expected, /low and /high beside.

        >>> key = ("dead", "0")
        >>> Record(1, 0.0, values={key: 0.1}, bands={key: Band(0.0, 0.0, 1.0)}).flat()
        {'dead/0': 0.1, 'dead/0/expected': 0.0, 'dead/0/low': 0.0, 'dead/0/high': 1.0}
        """
        numbers: dict[str, float] = {}
        for (quantity, layer), value in self.values.items():
            name = f"{quantity}/{layer}" if layer else quantity
            numbers[name] = value
            band = self.bands.get((quantity, layer))
            if band is not None:
                if band.expected is not None:
                    numbers[f"{name}/expected"] = band.expected
                numbers |= {f"{name}/low": band.low, f"{name}/high": band.high}
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """For JSON: values by quantity, and by layer where there is one for each."""
        values: dict[str, Any] = {}
        bands: dict[str, Any] = {}
        for table, entries in ((values, self.values), (bands, self.bands)):
            for (quantity, layer), entry in entries.items():
                shown = entry.to_dict() if isinstance(entry, Band) else entry
                if layer:
                    table.setdefault(quantity, {})[layer] = shown
                else:
                    table[quantity] = shown
        return plain(
            {"step": self.step, "seconds": round(self.seconds, 3), "cost": round(self.cost, 5),
             "values": values, "bands": bands, "alerts": [a.to_dict() for a in self.alerts],
             "failures": self.failures}
        )  # fmt: skip
