"""The watcher: looks on chosen steps, measures, tells the sinks; what fails stops no training."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from dynagram._threads import one_thread
from dynagram.errors import DynagramError, InvalidValueError
from dynagram.watch._band import Alert, Band
from dynagram.watch._context import Context, Memory
from dynagram.watch._look import Look
from dynagram.watch._measure import Guard, make_record, one_line
from dynagram.watch._record import Key, Record

LOG = logging.getLogger("dynagram.watch")
_MOST_FAILURES = 1000  # lines about them that are kept


@runtime_checkable
class Sink(Protocol):
    """Where records go.

    **Arguments:** none; `begin`, `write` and `close` are what a sink has.
    """

    def begin(self, layers: Sequence[str], quantities: Sequence[str]) -> None:
        """Called once, before the first record."""
        ...

    def write(self, record: Record) -> None:
        """Take a record."""
        ...

    def close(self) -> None:
        """No record comes any more."""
        ...


class Watcher:
    """Records what a model does while it trains; made by `watch`.

    `last` is the last `Record`, `alerts` all alerts so far, `failures` what went wrong inside the
    watcher, a line each. `close` ends it; used with `with`, it ends with the block.

    **Arguments:**

    - `layers`: names of the layers.
    - `every`: steps between records.
    - `quantities`: their names.
    - `sinks`: where records go.
    - `on_alert`: called with every `Alert`.
    - `birth`: bands of the beginning, by (quantity, layer).
    - `step`: of the model as it is.
    """

    def __init__(
        self,
        layers: Sequence[str],
        *,
        every: int,
        quantities: Sequence[str],
        sinks: Sequence[Sink],
        on_alert: Callable[[Alert], object] | None = None,
        birth: Mapping[Key, Band] | None = None,
        step: int = 0,
    ):
        self.every = every
        self.step = step
        self.last: Record | None = None
        self.alerts: list[Alert] = []
        self.failures: list[str] = []
        self._failed: set[str] = set()
        self.layers = tuple(layers)
        self.birth: dict[Key, Band] = dict(birth or {})
        self.quantities = tuple(quantities)
        self._sinks = list(sinks)
        self._on_alert = on_alert
        self._guard = Guard()
        self.memory = Memory()
        self._records = 0
        self._recorded: int | None = None  # the step of the last record
        self._began = time.perf_counter()
        self._closers: list[Callable[[], object]] = []
        self._see: Callable[[Any], object] | None = None
        for sink in sinks:
            self._begin(sink)

    def _begin(self, sink: Sink) -> None:
        """Before training begins the user can mend it: locks and files are let go."""
        name = type(sink).__name__
        try:
            sink.begin(self.layers, self.quantities)
        except DynagramError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise InvalidValueError("sinks", name, f"cannot begin: {one_line(error)}") from error

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        seen = "nothing yet" if self.last is None else f"last at step {self.last.step}"
        return f"Watcher({len(self.layers)} layers, every {self.every}, {seen})"

    def is_due(self, step: int) -> bool:
        """Whether a step is recorded."""
        return step % self.every == 0

    def record(self, look: Callable[[], Look], step: int) -> Record | None:
        """Look, measure, and tell the sinks; None, and a line in `failures`, where that fails."""
        start = time.perf_counter()
        try:
            seen = look()
            since = step - (step if self._recorded is None else self._recorded)
            self._remember(seen, step, since)
            context = Context(seen, self.memory, since)
            turn = None if self._records == 0 else self._records - 1
            with one_thread():
                record = make_record(
                    context, self._guard, self.quantities, step, self._began, turn, self.birth
                )
        except Exception as error:
            self.fail(one_line(error), step)
            return None
        self._records += 1
        self._recorded = step
        record = dataclasses.replace(record, cost=time.perf_counter() - start)
        self._publish(record)
        return record

    def _remember(self, look: Look, step: int, since: int) -> None:
        self.memory.advance(look, since)
        if look.loss is not None:
            self.memory.steps.append(step)
            self.memory.losses.append(look.loss)
        for index, layer in enumerate(look.layers):
            if layer.moved_square is not None:
                before = self.memory.updates.get(index, 0.0)
                self.memory.updates[index] = max(layer.moved_square, before / 2)

    def _publish(self, record: Record) -> None:
        self.last = record
        for failure in record.failures:
            self.fail(failure)
        for sink in self._sinks:
            try:
                sink.write(record)
            except Exception as error:
                self.fail(f"{type(sink).__name__}: {one_line(error)}")
        for alert in record.alerts:
            self.alerts.append(alert)
            LOG.log(logging.WARNING if alert.level == "warning" else logging.INFO, alert.sentence)
            if self._on_alert is not None:
                try:
                    self._on_alert(alert)
                except Exception as error:
                    self.fail(f"on_alert: {one_line(error)}")

    def continued(self, record: Record) -> None:
        """Go on after a record that was made by an earlier process."""
        self.last, self._recorded, self._records = record, record.step, 1
        self._guard.told(record.values, record.bands)

    def fail(self, line: str, step: int | None = None) -> None:
        """Keep a line about something that went wrong, with its step, and log it the first time."""
        if line in self._failed or len(self._failed) >= _MOST_FAILURES:
            return
        self._failed.add(line)
        self.failures.append(line if step is None else f"step {step}: {line}")
        LOG.warning("not recorded: %s", self.failures[-1])

    def __call__(self, params: Any) -> None:
        """In JAX: a step is done, and these are the parameters."""
        if self._see is None:
            allowed = "a PyTorch model is watched by the steps of its optimizer: leave the call out"
            raise InvalidValueError("params", type(params).__name__, allowed)
        self._see(params)

    def takes_params(self, see: Callable[[Any], object]) -> None:
        """Let `see` have what the watcher is called with."""
        self._see = see

    def on_close(self, closer: Callable[[], object]) -> None:
        """Call `closer` when the watch ends."""
        self._closers.append(closer)

    def close(self) -> None:
        """End the watch: hooks are removed, sinks closed."""
        for closer in (*self._closers, *(sink.close for sink in self._sinks)):
            try:
                closer()
            except Exception as error:
                self.fail(one_line(error))
        self._closers, self._sinks = [], []
