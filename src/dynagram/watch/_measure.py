"""From a look to a record: every quantity of the registry, its band, the bands that were left."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from dynagram.watch._band import WORDS, Alert, Band, Level
from dynagram.watch._context import Context
from dynagram.watch._record import Key, Record
from dynagram.watch._registry import QUANTITIES, TURNS, Quantity

_MOST_FAILURES = 20


def one_line(error: BaseException) -> str:
    """An exception in one line.

    >>> one_line(ValueError("a\\nb"))
    'ValueError: a b'
    """
    try:
        words = " ".join(str(error).split())[:300]
    except Exception:  # of a class that is not ours
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def measure_quantities(
    context: Context, names: Sequence[str], turn: int | None
) -> tuple[dict[Key, float], dict[Key, Band], list[str]]:
    """Values, bands and failures; of dear quantities those whose turn it is, for None all of them.

    A quantity that fails is left out with a line that says why; the others go on.
    """
    values: dict[Key, float] = {}
    bands: dict[Key, Band] = {}
    failures: dict[str, None] = {}
    layers = context.look.layers
    for name in names:
        quantity = QUANTITIES[name]
        places = _places(quantity, len(layers), turn)
        for place in places:
            key = (name, "" if place is None else layers[place].name)
            try:
                reading = quantity.function(context, *(() if place is None else (place,)))
            except Exception as error:  # whatever it is, training goes on
                failures.setdefault(f"{name}: {one_line(error)}")
                continue
            if reading is None:
                continue
            values[key] = float(reading[0])
            if reading[1] is not None:
                bands[key] = reading[1]
    return values, bands, list(failures)[:_MOST_FAILURES]


def _places(quantity: Quantity, layers: int, turn: int | None) -> Sequence[int | None]:
    """The layers that a quantity is taken of now, [None] for the whole network."""
    everywhere: Sequence[int | None] = range(layers) if quantity.of_layer else [None]
    if quantity.turn == 0 or turn is None:
        return everywhere
    if turn % TURNS + 1 != quantity.turn:
        return []
    return everywhere if not quantity.of_layer else [turn // TURNS % layers]


class Guard:
    """Raises an alert when a number leaves its band, and again only after it was back inside.

    Where an alert is raised beyond a wider range, inside is the narrow one: a number that wavers
    about the end of the wide one is told once.
    """

    def __init__(self) -> None:
        self._outside: set[Key] = set()
        self._diverged = False

    def told(self, values: Mapping[Key, float], bands: Mapping[Key, Band]) -> None:
        """Numbers that were outside when an earlier process said so: they are not told again."""
        for key, band in bands.items():
            if band.origin != "null" and band.alarms(values.get(key, band.low)):
                self._outside.add(key)

    def alerts(
        self, step: int, values: Mapping[Key, float], bands: Mapping[Key, Band]
    ) -> tuple[Alert, ...]:
        """The alerts of one record; numbers that are none any more make one together."""
        raised = []
        broken = [key for key, value in values.items() if not math.isfinite(value)]
        if broken and not self._diverged:
            raised.append(_divergence(step, broken, values))
        self._diverged = bool(broken)
        for key, value in values.items():
            band = bands.get(key)
            if band is None or band.origin == "null" or not math.isfinite(value):
                continue
            if band.holds(value):
                self._outside.discard(key)
            elif key not in self._outside and band.alarms(value):
                self._outside.add(key)
                raised.append(_alert(step, key, value, band))
        return tuple(raised)


_AS_DRAWN = " than expected: see how the model is initialised"
_SINCE_DRAWN = " than when the model was drawn, which training may want"


def _divergence(step: int, broken: Sequence[Key], values: Mapping[Key, float]) -> Alert:
    """One sentence for all numbers that are not finite, about weights if they are among them."""
    first = next((key for key in broken if key[0] == "weight_norm"), broken[0])
    more = f", with {len(broken) - 1} more numbers" if len(broken) > 1 else ""
    words = f"{_named(first)} is {values[first]}{more}: the run has diverged, lower its rate"
    return Alert(step, "warning", *first, f"step {step}: {words}")


def _named(key: Key) -> str:
    plain = QUANTITIES[key[0]].plain
    return f"{plain} of {key[1]}" if key[1] else plain


def _alert(step: int, key: Key, value: float, band: Band) -> Alert:
    quantity, is_above = QUANTITIES[key[0]], value > band.high
    side, end = ("above", band.high) if is_above else ("below", band.low)
    words = f"{_named(key)} is {value:.4g}, {side} {end:.4g}"
    if band.expected is not None:
        words += f" ({band.expected:.4g} {WORDS[band.origin]})"
    meaning = quantity.above if is_above else quantity.below
    # Bands of the beginning say how a network is drawn: it may leave them by learning.
    level: Level = "note" if band.alarm is not None and step > 0 else "warning"
    if band.alarm is not None and band.origin != "retrained":
        meaning += _SINCE_DRAWN if step > 0 else _AS_DRAWN
    return Alert(step, level, *key, f"step {step}: {words}: {meaning}")


def make_record(
    context: Context,
    guard: Guard,
    names: Sequence[str],
    step: int,
    began: float,
    turn: int | None,
    birth: Mapping[Key, Band],
) -> Record:
    """A record of one look. `birth` has bands of the beginning for what has none of its own."""
    start = time.perf_counter()
    values, bands, failures = measure_quantities(context, names, turn)
    bands = {key: band for key, band in birth.items() if key in values} | bands
    alerts = guard.alerts(step, values, bands)
    alerts += tuple(Alert(step, "note", "escape", "", words) for words in context.memory.notes)
    context.memory.notes.clear()
    now = time.perf_counter()
    return Record(step, now - began, now - start, values, bands, alerts, tuple(failures))
