"""The records of a watch in a folder: crash-safe, appended to, and gone on with.

RUN/watch.json      layers and quantities, in the order of the columns
RUN/records.bin     a frame for every record (see `_frames`)
RUN/events.jsonl    bands when they change or end, alerts, failures: a JSON object a line
RUN/start.npz       the tangent kernel at the beginning
RUN/lock            held by the process that writes
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from dynagram.ensembles.store._durable import Lock, RunError
from dynagram.ensembles.store._paths import inside
from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError
from dynagram.results._files import plain, read_archive, replace_file, write_archive
from dynagram.watch._arguments import check_path
from dynagram.watch._band import Band
from dynagram.watch._frames import Encoder
from dynagram.watch._history import (
    EVENTS,
    HEADER,
    RECORDS,
    History,
    columns_of,
    read_events,
    read_header,
    read_history,
)
from dynagram.watch._measure import one_line
from dynagram.watch._record import Key, Record

if TYPE_CHECKING:
    from dynagram.watch._watcher import Watcher
else:
    Watcher = object

_START = "start.npz"
_READER = "dynagram.watch.read_watch"
_SYNC_SECONDS = 2.0
_MOVED = 0.1  # of its width: from where on a band is written again


class RunFolder:
    """A sink that keeps the records of a watch in a folder, and goes on where it stopped.

    A process that is killed loses no record that it finished; a loss of power at most those of
    the last two seconds.

    **Arguments:**

    - `folder`: new, empty, or one that holds a watch of the same layers.
    - `step`: from where training goes on; what was recorded after it is dropped.
    """

    def __init__(self, folder: str | Path, step: int | None = None):
        check_path("run", folder)
        self.folder = Path(folder)
        self._step = step
        self._history: History | None = None
        self._lock: Lock | None = None
        self._records: IO[bytes] | None = None
        self._events: IO[bytes] | None = None
        self._bands: dict[Key, Band] = {}
        self._synced = time.monotonic()
        self._watcher: Watcher | None = None
        self._kernel_kept = False

    def begin(self, layers: Sequence[str], quantities: Sequence[str]) -> None:
        """Make the folder, or continue the watch in it."""
        try:
            if not self.folder.parent.is_dir():
                raise InvalidValueError("run", str(self.folder), "its parent folder does not exist")
            self.folder.mkdir(exist_ok=True)
            is_old = inside(self.folder, HEADER).is_file()
            if not is_old and any(self.folder.iterdir()):
                raise InvalidValueError("run", str(self.folder), "is not an empty folder")
            self._lock = Lock(inside(self.folder, "lock"), _READER).__enter__()
            self._open(list(layers), list(quantities), is_old)
        except FileExistsError as error:
            raise InvalidValueError("run", str(self.folder), "is a file, no folder") from error
        except OSError as error:
            what = f"cannot be written: {error.strerror or error}"
            raise InvalidValueError("run", str(self.folder), what) from error

    def _open(self, layers: list[str], quantities: list[str], is_old: bool) -> None:
        header = {"format": 1, "layers": layers, "quantities": quantities}
        end = 0
        if is_old:
            old = read_header(self.folder)
            if (old["layers"], old["quantities"]) != (layers, quantities):
                what = "holds a watch of other layers or quantities: take a new folder"
                raise InvalidValueError("run", str(self.folder), what)
            self._history = read_history(self.folder, until=self._step)
            end = self._history.end
        else:
            replace_file(inside(self.folder, HEADER), json.dumps(header, indent=1).encode())
        self._columns = columns_of(layers, quantities)
        self._encoder = Encoder(len(self._columns))
        records = inside(self.folder, RECORDS)
        mode = "r+b" if records.exists() else "w+b"
        self._records = open(records, mode, buffering=0)  # noqa: SIM115 - until `close`
        self._records.truncate(end)  # half a frame, or what came after the step to go on from
        self._records.seek(end)
        if is_old:
            self._trim_events()
        events = inside(self.folder, EVENTS)
        self._events = open(events, "ab", buffering=0)  # noqa: SIM115

    def _trim_events(self) -> None:
        """Drop half a line at the end, and what was said after the last record."""
        assert self._history is not None
        last = int(self._history.steps[-1]) if len(self._history.steps) else -1
        steps = [(event.get("step"), event) for event in read_events(self.folder)]
        lines = [event for step, event in steps if isinstance(step, int) and step <= last]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        replace_file(inside(self.folder, EVENTS), text.encode())

    def restore(self, watcher: Watcher) -> None:
        """Give a watcher the memory of the records that are there."""
        self._watcher = watcher
        history = self._history
        if history is None or not len(history.steps):
            return
        memory = watcher.memory
        self._bands = history.bands
        drawn = {key: band for key, band in self._bands.items() if band.alarm and key[1]}
        watcher.birth = drawn | watcher.birth
        watcher.step = int(history.steps[-1]) if self._step is None else self._step
        losses = history.values["loss"] if "loss" in history.values else np.zeros(0)
        known = np.isfinite(losses)
        memory.losses = [float(value) for value in losses[known]]
        memory.steps = [int(step) for step in history.steps[: len(losses)][known]]
        if "imbalance" in history.values:
            first = history.values["imbalance"][0]
            memory.imbalances = {i: float(v) for i, v in enumerate(first) if np.isfinite(v)}
            memory.wander = dict.fromkeys(memory.imbalances, np.inf)  # not known any more
        if "kernel_drift" in history.values and np.any(history.values["kernel_drift"] >= 0):
            memory.kernel, self._kernel_kept = self._start(watcher), True
        watcher.continued(history.last())

    def _start(self, watcher: Watcher) -> np.ndarray:
        """The kernel at the beginning; where it is lost, one that none can be compared with."""
        try:
            kernel = read_archive(inside(self.folder, _START))[1]["kernel"]
            if kernel.dtype.kind != "f":
                raise InvalidTypeError("kernel", str(kernel.dtype), "expected real numbers")
        except (DynagramError, KeyError) as error:
            watcher.fail(f"kernel_drift: the kernel at the beginning is lost: {one_line(error)}")
            return np.zeros((0, 0))
        return kernel

    def write(self, record: Record) -> None:
        """Append a record; its bands, alerts and failures come first."""
        if self._records is None or self._events is None:
            raise RunError(f"{self.folder} is closed")
        if not self._kernel_kept and self._watcher is not None:
            kernel = self._watcher.memory.kernel
            if kernel is not None:
                write_archive(inside(self.folder, _START), "watch start", {"kernel": kernel}, {})
            self._kernel_kept = True
        lines = [json.dumps(event, ensure_ascii=False) + "\n" for event in self._news(record)]
        if lines:
            self._events.write("".join(lines).encode())
        values = np.full(len(self._columns), np.nan)
        for column, key in enumerate(self._columns):
            value = record.values.get(key)
            if value is not None:
                values[column] = value if np.isfinite(value) else np.inf
        frame = self._encoder.frame(record.step, record.seconds, record.cost, values)
        self._records.write(frame)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._records.fileno())
            self._synced = time.monotonic()

    def _news(self, record: Record) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        ended = (self._bands.keys() & record.values.keys()) - record.bands.keys()
        for key in sorted(ended):
            del self._bands[key]
            about = {"event": "band", "step": record.step, "quantity": key[0], "layer": key[1]}
            events.append(about | {"end": True})
        for key, band in record.bands.items():
            old = self._bands.get(key)
            if old is None or _has_moved(old, band):
                self._bands[key] = band
                about = {"event": "band", "step": record.step, "quantity": key[0], "layer": key[1]}
                events.append(about | band.to_dict())
        events += [{"event": "alert"} | alert.to_dict() for alert in record.alerts]
        events += [{"event": "failure", "step": record.step, "line": f} for f in record.failures]
        return [plain(event) for event in events]

    def close(self) -> None:
        """Bring everything to the disk and let others write."""
        if self._records is not None:
            os.fsync(self._records.fileno())
            self._records.close()
        if self._events is not None:
            self._events.close()
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
        self._records = self._events = self._lock = None


def _has_moved(old: Band, new: Band) -> bool:
    width = max(abs(old.high - old.low), 1e-300)
    moved = max(abs(old.low - new.low), abs(old.high - new.high))
    return old.origin != new.origin or moved > _MOVED * width
