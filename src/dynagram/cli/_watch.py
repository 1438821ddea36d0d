"""`dynagram watch`: the records of a run that is watched, live in a terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagram.cli._options import Json
from dynagram.cli._output import console, continuable, print_json

if TYPE_CHECKING:
    from dynagram.watch import History
else:
    History = object  # imported when the command runs, so that --help stays quick

_ALERTS = 5
_LONGEST = 86_400.0  # seconds between looks
_PATIENCE = 10  # times as long as reading takes, between looks: long runs take seconds


def watch(
    run: Annotated[Path, typer.Argument(help="The folder given to dynagram.watch as run.")],
    once: Annotated[bool, typer.Option("--once", help="Print once, in a terminal too.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=_LONGEST, help="Seconds between looks.")
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Show what a watched run records: live in a terminal, once in a pipe."""
    from dynagram.watch import read_watch

    history = read_watch(run)
    if as_json:
        alerts = [alert.to_dict() for alert in history.alerts]
        newest = {k: v for k, v in history.last().to_dict().items() if k not in _NOT_KEPT}
        print_json({"records": len(history.steps), **newest, "alerts": alerts,
                    "failures": history.failures, "lost_bytes": history.lost})  # fmt: skip
        return
    out = console()
    if once or not out.is_terminal:
        for part in _parts(history, out.width):
            out.print(part)
        return
    with continuable(None, "watch"):
        _follow(run, history, interval, out)


def _follow(run: Path, history: History, interval: float, out: Any) -> None:
    """A table that is kept up to date until Ctrl-C; however it ends, the terminal is as it was."""
    from rich.console import Group
    from rich.live import Live

    from dynagram.ensembles.engine._interrupts import interrupts
    from dynagram.watch import read_watch

    table = Group(*_parts(history, out.width))
    try:
        with interrupts(), Live(table, console=out, auto_refresh=False) as live:
            size, cost = -1, 0.0
            while True:
                time.sleep(max(interval, _PATIENCE * cost))
                if (now := _size(run)) == size:
                    continue
                size, start = now, time.perf_counter()
                live.update(Group(*_parts(read_watch(run), out.width)), refresh=True)
                cost = time.perf_counter() - start
    finally:
        out.show_cursor()  # a signal may have come while the table was being put up


def _size(run: Path) -> int:
    """Bytes in the folder: what has not grown need not be read again."""
    try:
        return sum(path.stat().st_size for path in run.iterdir() if path.is_file())
    except OSError:  # it went away: reading says so
        return 0


_NOT_KEPT = ("cost", "seconds")


def _parts(history: History, width: int) -> list[Any]:
    """Tables that fit, the last alerts, what could not be measured."""
    from rich.text import Text

    from dynagram.watch._table import layer_grid, run_grid

    lost = []
    if history.lost:
        lost = [Text(f"The file of records is damaged here: {history.lost} bytes after this step "
                     "cannot be read.")]  # fmt: skip
    if not len(history.steps):
        return [Text("No record yet."), *lost]
    record = history.last()
    layers = layer_grid(record, history.layers)
    parts: list[Any] = [run_grid(record).rich(), Text()]
    for piece in layers.fitted(width):
        parts += [piece.rich(), Text()]
    parts += [Text(" ".join(layers.notes)), *lost]
    hidden = len(history.alerts) - _ALERTS
    if hidden > 0:
        parts.append(Text(f"{hidden} earlier alerts"))
    parts += [Text(f"{a.level}: {a.sentence}") for a in history.alerts[-_ALERTS:]]
    parts += [Text(f"not recorded: {line}") for line in history.failures[-_ALERTS:]]
    return parts
