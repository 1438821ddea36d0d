"""The page of one training that was watched: the run, its layers, what left its range."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.report._blocks import Block, Code, Figure, Heading, Section, Table, Text, Tile
from dynagram.report._charts import LONGEST_LEGEND
from dynagram.report._page import render
from dynagram.report._watch_charts import history_chart, origins
from dynagram.results._files import write_atomically
from dynagram.results._table import short
from dynagram.watch import QUANTITIES, Alert, History, read_watch
from dynagram.watch._band import WORDS
from dynagram.watch._plateau_state import STATES
from dynagram.watch._table import layer_grid, run_grid

_SHOWN_ALERTS = 200
_FOOTER = (
    "Ranges hold 95 % unless they are bounds. Made by dynagram; this page loads nothing from the "
    "network."
)


def write_watched(run: str | Path, folder: str | Path) -> Path:
    """Write the page about a watched training to `folder/index.html`; it may go on meanwhile.

    **Arguments:**

    - `run`: the folder given to `dynagram.watch`.
    - `folder`: made if it is not there.

    **Returns:** the path of the page.
    """
    history = read_watch(run)
    if not len(history.steps):
        raise InvalidValueError("run", str(run), "holds no record yet")
    name = Path(run).resolve().name
    parts = (_loss, _steps, _layers)
    sections = [*(part(history, str(run)) for part in parts), _alerts(history)]
    lead = (
        f"{len(history.steps)} records of {len(history.layers)} layers, from step "
        f"{history.steps[0]} to {history.steps[-1]}; {_cost(history)}."
    )
    page = render(f"{name}: a training, watched", [*sections, _meanings(history, str(run))],
                  lead=lead, footer=_FOOTER)  # fmt: skip
    Path(folder).mkdir(parents=True, exist_ok=True)
    return write_atomically(Path(folder) / "index.html", page.encode())


def is_watched(folder: Path) -> bool:
    """Whether a folder holds what a watch wrote.

    **Arguments:**

    - `folder`: any path.

    **Returns:** True or False.
    """
    return (folder / "watch.json").is_file()


def _loss(history: History, run: str) -> Section:
    grid = run_grid(history.last())
    rows = [list(row) for row in grid.rows]
    blocks: list[Block] = [Text(_state_words(history)), *_figures(history, ["loss"], run)]
    blocks.append(Table([f"at step {history.steps[-1]}", *grid.headings[1:]], rows))
    return Section("The loss", blocks, _loss_tile(history))


def _steps(history: History, run: str) -> Section:
    blocks = _figures(history, ["rate", "top_eigenvalue", "kernel_drift"], run)
    if not blocks:
        blocks = [Text("Neither rates nor the tangent kernel were recorded.")]
    return Section("Step size and features", blocks, _step_tile(history))


def _layers(history: History, run: str) -> Section:
    grid = layer_grid(history.last(), history.layers)
    blocks: list[Block] = [
        Table(grid.headings, [list(row) for row in grid.rows],
              f"The newest number of every layer, at step {history.steps[-1]}. {grid.notes[0]}",
              f'import dynagram\n\ndynagram.watch.read_watch({run!r}).table()'),
    ]  # fmt: skip
    names = [name for name, quantity in QUANTITIES.items() if quantity.of_layer]
    if len(history.layers) > LONGEST_LEGEND:
        blocks.append(
            Text(
                "Colours run from the first layer (blue) to the last (red); point at a line for "
                "the name of its layer."
            )
        )
    blocks += _figures(history, names, run)
    return Section("Layer by layer", blocks, _layer_tile(history))


def _figures(history: History, names: list[str], run: str) -> list[Block]:
    blocks: list[Block] = []
    for name in names:
        if name not in history.values or not np.any(np.isfinite(history.values[name])):
            continue
        plain = QUANTITIES[name].plain
        caption = f"{plain[0].upper()}{plain[1:]} ({name})."
        if said := origins(history, name):
            held = " and ".join(WORDS[origin] for origin in said)
            caption += f" Shaded: its range, {held}."
        if any(alert.quantity == name for alert in history.alerts):
            caption += " Triangles: it left that range; point at one to read what that means."
        made = f'import dynagram\n\ndynagram.watch.read_watch({run!r}).plot("{name}")'
        blocks.append(Figure(history_chart(history, name), caption, made))
    return blocks


def _alerts(history: History) -> Section:
    warnings = [alert for alert in history.alerts if alert.level == "warning"]
    notes = [alert for alert in history.alerts if alert.level != "warning"]
    ordered = [*warnings, *notes]
    blocks: list[Block] = []
    if not ordered:
        blocks.append(Text("No number left its range."))
    else:
        rows = [[str(a.step), a.level, a.layer or "–", a.quantity, a.sentence] for a in
                ordered[:_SHOWN_ALERTS]]  # fmt: skip
        caption = "Warnings are to be acted on, notes to be known."
        if len(ordered) > _SHOWN_ALERTS:
            caption += f" {len(ordered) - _SHOWN_ALERTS} more are in the run."
        blocks.append(Table(["step", "level", "layer", "quantity", "what happened"], rows, caption))
    if history.failures:
        rows = [[line] for line in history.failures]
        blocks.append(Table(["what could not be measured"], rows))
    if history.lost:
        blocks.append(Text(f"The file of records is damaged: {history.lost} bytes after the last "
                           "step above cannot be read."))  # fmt: skip
    return Section("What left its range", blocks, _alert_tile(warnings, notes))


def _meanings(history: History, run: str) -> Section:
    rows = [
        [name, QUANTITIES[name].plain,
         "; ".join(WORDS[origin] for origin in origins(history, name)) or "–"]
        for name in history.values
    ]  # fmt: skip
    code = f"import dynagram\n\nhistory = dynagram.watch.read_watch({run!r})\nhistory.to_xarray()"
    return Section(
        "What it rests on",
        [
            Table(["name", "what it is", "range"], rows, folded="What the names mean"),
            Heading("The numbers, in Python"),
            Code(code),
            Heading("The page again"),
            Code(f"dynagram report {shlex.quote(run)}"),
        ],
    )


def _state_words(history: History) -> str:
    state = _state(history)
    if state is None:
        return "Whether the loss stands on a plateau is told after ten records."
    words = {
        "falling": "The loss falls.",
        "plateau": "The loss stands on a plateau.",
        "done": "The loss is done: it stands below 5 % of where it began.",
    }[state]
    escape = history.last().values.get(("escape", ""))
    if state == "plateau" and escape is not None:
        band = history.bands.get(("escape", ""))
        when = (
            f"{escape:.0f}" if band is None else f"{escape:.0f} ({band.low:.0f} to {band.high:.0f})"
        )
        words += f" It is expected to have done half of its next fall at step {when}."
    return words


def _state(history: History) -> str | None:
    value = history.last().values.get(("plateau", ""))
    return None if value is None else dict(enumerate(STATES)).get(int(value))


def _loss_tile(history: History) -> Tile:
    table = history.values.get("loss", np.zeros(0))
    known = table[np.isfinite(table)]
    if not known.size:
        return Tile("Loss", "–", "not a number", "the probe gave no finite loss", "bad")
    if not np.isfinite(table[-1]):
        return Tile("Loss", "not a number", "broken", f"it was {short(known[-1], 3)} before", "bad")
    state = _state(history)
    verdict = {None: "too early to say", "falling": "falls", "plateau": "stands still",
               "done": "done"}[state]  # fmt: skip
    kind = "warn" if state == "plateau" or known[-1] > known[0] else "good"
    words = f"on the probe; it began at {short(known[0], 3)}"
    return Tile("Loss", short(known[-1], 3), verdict, words, kind)


def _step_tile(history: History) -> Tile:
    record, key = history.last(), ("top_eigenvalue", "")
    value, band = record.values.get(key), record.bands.get(key)
    if value is None or band is None:
        return Tile("Step size", "–", "not judged", "known of gradient descent with a loss", "warn")
    part = value / band.high
    words = f"top eigenvalue {short(value, 3)}, steps are stable below {short(band.high, 3)}"
    verdict, kind = ("stable", "good") if part <= 1.0 else ("too large", "bad")
    return Tile("Step size", f"{100 * part:.0f} % of its limit", verdict, words, kind)


def _layer_tile(history: History) -> Tile:
    """How many numbers of layers are inside their ranges, nulls left aside: to leave these is
    what training is for."""
    record = history.last()
    judged = [(key, band) for key, band in record.bands.items()
              if key[1] and band.origin != "null" and key in record.values]  # fmt: skip
    if not judged:
        words = "give watch(…, theory=True) or fresh= and layers have ranges"
        return Tile("Layers", str(len(history.layers)), "no ranges", words)
    outside = sum(not band.holds(record.values[key]) for key, band in judged)
    words = f"{len(judged)} numbers of {len(history.layers)} layers have a range"
    return Tile("Layers", f"{outside} of {len(judged)}", "outside now", words,
                "good" if outside <= 0.1 * len(judged) else "warn")  # fmt: skip


def _alert_tile(warnings: list[Alert], notes: list[Alert]) -> Tile:
    if warnings:
        first = min(warnings, key=lambda alert: alert.step)
        where = first.quantity.replace("_", " ") + (f" of {first.layer}" if first.layer else "")
        words = f"first at step {first.step}: {where}"
        return Tile("Alerts", str(len(warnings)), "warnings", words, "bad")
    words = f"{len(notes)} notes" if notes else "no number left its range"
    return Tile("Alerts", "0", "no warning", words)


def _cost(history: History) -> str:
    spent, whole = float(np.sum(history.costs)), float(history.seconds[-1])
    text = f"recording took {short(spent, 2)} s"
    if math.isfinite(whole) and whole > spent > 0:
        text += f", {100 * spent / whole:.1f} % of {short(whole, 3)} s"
    return text
