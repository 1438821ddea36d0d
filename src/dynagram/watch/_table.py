"""The newest record of a watch as tables: one of the run, one with a row a layer."""

from __future__ import annotations

from collections.abc import Sequence

from dynagram.results._table import Grid, short
from dynagram.watch._band import Band
from dynagram.watch._plateau_state import STATES
from dynagram.watch._record import Record
from dynagram.watch._registry import QUANTITIES


def run_grid(record: Record) -> Grid:
    """A row for every number of the whole run, with its band."""
    rows = [
        (QUANTITIES[name].plain, _value(name, value, record.bands.get((name, layer))),
         _range(record.bands.get((name, layer))))
        for (name, layer), value in record.values.items()
        if not layer
    ]  # fmt: skip
    return Grid((f"step {record.step}", "value", "expected"), tuple(rows))


def layer_grid(record: Record, layers: Sequence[str]) -> Grid:
    """A row for every layer; ↑ and ↓ mark what is above or below its band.

    >>> key = ("dead", "fc")
    >>> record = Record(0, 0.0, values={key: 0.5}, bands={key: Band(0.0, 0.0, 0.1)})
    >>> layer_grid(record, ["fc"]).rows
    (('fc', '0.5↑'),)
    """
    names = [n for n in QUANTITIES if any(key[0] == n and key[1] for key in record.values)]
    rows = []
    for layer in layers:
        cells = [
            _shown(record.values.get((name, layer)), record.bands.get((name, layer)))
            for name in names
        ]
        rows.append((layer, *cells))
    headings = ("layer", *(name.replace("_", " ") for name in names))
    return Grid(headings, tuple(rows), ("↑ above its band, ↓ below it.",))


def _value(name: str, value: float, band: Band | None) -> str:
    """The state of the loss as a word, a step in whole numbers, all else as it is in layers."""
    if name == "plateau" and value in range(len(STATES)):
        return STATES[int(value)]
    return f"{value:.0f}" if name == "escape" else _shown(value, band)


def _shown(value: float | None, band: Band | None) -> str:
    if value is None:
        return "–"
    mark = "" if band is None or band.holds(value) else "↑" if value > band.high else "↓"
    return short(value, 3) + mark


def _range(band: Band | None) -> str:
    if band is None:
        return ""
    if band.expected is None:
        return f"{short(band.low, 3)} to {short(band.high, 3)}"
    return f"{short(band.expected, 3)} ({short(band.low, 3)} to {short(band.high, 3)})"
