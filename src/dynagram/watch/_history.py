"""The records of a watch, read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from dynagram._memory import require_memory
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._paths import inside, read_file
from dynagram.errors import InvalidValueError
from dynagram.watch._band import WORDS, Alert, Band
from dynagram.watch._frames import Decoder
from dynagram.watch._record import Key, Record
from dynagram.watch._registry import QUANTITIES
from dynagram.watch._table import layer_grid, run_grid

if TYPE_CHECKING:
    import xarray
    from rich.table import Table
else:
    Table = object  # imported when a table is shown

HEADER, RECORDS, EVENTS = "watch.json", "records.bin", "events.jsonl"
_LARGEST_FILE = 2**32
_LARGEST_EVENTS = 2**28
_MOST_COLUMNS = 10**6


@dataclass(frozen=True, eq=False)
class History:
    """A watch so far.

    **Arguments:**

    - `layers`: their names.
    - `steps`, `seconds`, `costs`: of the records: when, and how long each took.
    - `values`: by quantity, (record,) or (record, layer); NaN where it was not recorded, infinity
        where it was no number.
    - `ranges`: by (quantity, layer), the bands of everything that has one, each with the step from
        which on it was; None from where on there was none any more.
    - `alerts`: all of them, in order.
    - `failures`: what could not be measured, a line each.
    - `end`: bytes of the file of records that are good.
    - `lost`: bytes behind them that are damaged, and cannot be read.
    """

    layers: tuple[str, ...]
    steps: Int[np.ndarray, " record"]
    seconds: Float[np.ndarray, " record"]
    costs: Float[np.ndarray, " record"]
    values: dict[str, np.ndarray]
    ranges: dict[Key, tuple[tuple[int, Band | None], ...]]
    alerts: tuple[Alert, ...]
    failures: tuple[str, ...]
    end: int
    lost: int = 0

    @property
    def bands(self) -> dict[Key, Band]:
        """The band of everything that has one now."""
        last = {key: changes[-1][1] for key, changes in self.ranges.items()}
        return {key: band for key, band in last.items() if band is not None}

    def last(self) -> Record:
        """The last record, with the newest of the numbers that come by turns."""
        newest: dict[Key, float] = {}
        for name, table in self.values.items():
            columns = table[:, None] if table.ndim == 1 else table
            names = ("",) if table.ndim == 1 else self.layers
            for layer, column in zip(names, columns.T, strict=True):
                known = np.flatnonzero(~np.isnan(column))
                if known.size and (QUANTITIES[name].turn or known[-1] == len(column) - 1):
                    newest[(name, layer)] = float(column[known[-1]])
        step = int(self.steps[-1]) if len(self.steps) else 0
        seconds = float(self.seconds[-1]) if len(self.seconds) else 0.0
        return Record(step, seconds, values=newest, bands=self.bands)

    def to_xarray(self) -> xarray.Dataset:
        """A data set with the coordinates step and layer."""
        try:
            import xarray
        except ModuleNotFoundError as error:
            from dynagram.errors import MissingExtraError

            raise MissingExtraError("xarray", "runs") from error
        variables = {
            name: (("step", "layer")[: table.ndim], table) for name, table in self.values.items()
        }
        return xarray.Dataset(variables, coords={"step": self.steps, "layer": list(self.layers)})

    def table(self) -> Table:
        """A rich table of the newest numbers of every layer."""
        return layer_grid(self.last(), self.layers).rich()

    def plot(self, quantity: str = "loss") -> Any:
        """One quantity over the steps, with its ranges and alerts (extra `report`)."""
        from dynagram.report._watch_charts import history_chart

        return history_chart(self, quantity)

    def _repr_html_(self) -> str:
        record = self.last()
        return run_grid(record).html(repr(self)) + layer_grid(record, self.layers).html()

    def __repr__(self) -> str:
        return f"History({len(self.steps)} records of {len(self.layers)} layers)"


def read_watch(run: str | Path) -> History:
    """The records that a watch has written so far; the watch may go on meanwhile.

    **Arguments:**

    - `run`: the folder given to `watch`.

    **Returns:** `History`.

    >>> import tempfile
    >>> from dynagram.watch import RunFolder
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sink = RunFolder(f"{place}/run")
    ...     sink.begin(["0", "2"], ["loss", "dead"])
    ...     sink.write(Record(0, 0.0, values={("loss", ""): 2.0, ("dead", "2"): 0.25}))
    ...     sink.close()
    ...     history = read_watch(f"{place}/run")
    >>> history.values["loss"].tolist(), history.values["dead"].tolist()
    ([2.0], [[nan, 0.25]])
    """
    return read_history(Path(run))


def read_history(folder: Path, until: int | None = None) -> History:
    """The same, of records up to the step `until`."""
    header = read_header(folder)
    layers, quantities = header["layers"], header["quantities"]
    columns = columns_of(layers, quantities)
    try:
        path = inside(folder, RECORDS)
        size = path.stat().st_size if path.exists() else 0
        require_memory(str(path), size, 40.0 * size, "it is too large to be read here")
        data = read_file(path, _LARGEST_FILE) if size else b""
    except OSError as error:
        raise RunError(f"{folder}/{RECORDS} cannot be read: {error.strerror or error}") from error
    rows, end, lost, decoder = [], 0, 0, Decoder(len(columns))
    for place, row in decoder.rows(data):
        if until is not None and row[0] > until:
            break
        rows.append(row)
        end = place
    else:
        lost = len(data) - end if decoder.is_damaged(data[end:]) else 0
    table = np.array([row[3] for row in rows]).reshape(len(rows), len(columns))
    values, first = {}, 0
    for name in quantities:
        width = len(layers) if QUANTITIES[name].of_layer else 1
        part = table[:, first : first + width]
        values[name] = part if QUANTITIES[name].of_layer else part[:, 0]
        first += width
    ranges, alerts, failures = _told(read_events(folder), until)
    return History(
        tuple(layers),
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.float64),
        np.array([row[2] for row in rows], dtype=np.float64),
        values, ranges, alerts, failures, end, lost,
    )  # fmt: skip


def columns_of(layers: Sequence[str], quantities: Sequence[str]) -> list[Key]:
    """(quantity, layer) of every column, in order.

    >>> columns_of(["a", "b"], ["loss", "dead"])
    [('loss', ''), ('dead', 'a'), ('dead', 'b')]
    """
    return [
        (name, layer)
        for name in quantities
        for layer in (layers if QUANTITIES[name].of_layer else [""])
    ]


def read_header(folder: Path) -> dict[str, Any]:
    """Layers and quantities of a watch, checked."""
    if not (folder / HEADER).exists():
        what = "holds no watch (no watch.json)" if folder.is_dir() else "there is no such folder"
        raise InvalidValueError("run", str(folder), what)
    try:
        header = json.loads(read_file(inside(folder, HEADER)))
        layers, quantities = header["layers"], header["quantities"]
        strings = all(isinstance(name, str) for name in [*layers, *quantities])
        is_known = header["format"] == 1 and strings and set(quantities) <= set(QUANTITIES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidValueError("run", str(folder), "its watch.json cannot be read") from error
    if not is_known or len(layers) * len(quantities) > _MOST_COLUMNS:
        raise InvalidValueError("run", str(folder), "its watch.json is not one of this version")
    return {"layers": list(layers), "quantities": list(quantities)}


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the events."""
    try:
        text = read_file(inside(folder, EVENTS), _LARGEST_EVENTS).decode("utf-8", "replace")
    except OSError:
        return []
    events = []
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _told(
    events: list[dict[str, Any]], until: int | None
) -> tuple[
    dict[Key, tuple[tuple[int, Band | None], ...]], tuple[Alert, ...], tuple[str, ...]
]:  # fmt: skip
    ranges: dict[Key, list[tuple[int, Band | None]]] = {}
    alerts: list[Alert] = []
    failures: dict[str, None] = {}
    for event in events:
        kind = event.pop("event", None)
        try:
            if until is not None and event["step"] > until:
                continue
            if kind == "band":
                key = (str(event["quantity"]), str(event["layer"]))
                change = _step_of(event), None if event.get("end") is True else _band_of(event)
                ranges.setdefault(key, []).append(change)
            elif kind == "alert":
                alerts.append(_alert_of(event))
            elif kind == "failure":
                failures.setdefault(str(event["line"]))
        except (ArithmeticError, LookupError, TypeError, ValueError):  # not ours
            continue
    kept = {key: tuple(changes) for key, changes in ranges.items()}
    return kept, tuple(alerts), tuple(failures)


def _step_of(event: dict[str, Any]) -> int:
    return int(np.int64(event["step"]))


def _band_of(event: dict[str, Any]) -> Band:
    low, high = (
        float(open_end if event[name] is None else event[name])
        for name, open_end in (("low", -np.inf), ("high", np.inf))
    )
    expected, alarm, origin = event["expected"], event["alarm"], event["origin"]
    if origin not in WORDS:
        raise ValueError(origin)
    return Band(
        None if expected is None else float(expected), low, high, origin,
        None if alarm is None else (float(alarm[0]), float(alarm[1])),
    )  # fmt: skip


def _alert_of(event: dict[str, Any]) -> Alert:
    names = (str(event[name]) for name in ("quantity", "layer", "sentence"))
    return Alert(_step_of(event), "warning" if event["level"] == "warning" else "note", *names)
