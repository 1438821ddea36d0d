"""What the commands share: reading numbers, printing tables and JSON, showing progress."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from dynagram.errors import InvalidValueError, RunWarning, printable
from dynagram.results._files import plain as plain
from dynagram.results._table import short as short

if TYPE_CHECKING:
    from dynagram.ensembles.engine._progress import Progress
    from dynagram.results import Outputs, Tensors
else:
    Progress = Outputs = Tensors = (
        object  # imported when a command runs, so that --help stays quick
    )

T = TypeVar("T", int, float)


def per_layer(name: str, text: str, each: str = "layer") -> float | list[float]:
    """One number, or one per layer (or other part) separated by commas.

    >>> per_layer("--cw", "1.5"), per_layer("--cw", "1,2")
    (1.5, [1.0, 2.0])
    """
    values = _split(name, text, float, f"a number, or one per {each} separated by commas, needed")
    return values[0] if len(values) == 1 else values


def integers(name: str, text: str) -> list[int]:
    """Whole numbers separated by commas.

    >>> integers("--widths", "3,20,2")
    [3, 20, 2]
    """
    return _split(name, text, int, "whole numbers separated by commas needed, such as 3,20,20,2")


def _split(name: str, text: str, kind: Callable[[str], T], allowed: str) -> list[T]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidValueError(name, text, allowed) from error


class _SafeConsole(Console):
    """A console through which names in files cannot speak to the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield Segment(text, segment.style, segment.control)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # ends as any other command whose reader has gone


def console() -> Console:
    """A rich console on stdout: colours and boxes on a terminal, plain text in a pipe."""
    return _SafeConsole(highlight=False, soft_wrap=False)


def narrow_table(*columns: str | Column) -> Table:
    """A table without lines, for many columns in 80 characters."""
    return Table(*columns, box=None, pad_edge=False, header_style="bold")


def print_list(out: Console, items: Sequence[str]) -> None:
    """One item per line, continuation lines indented; nothing for no items."""
    if not items:
        return
    grid = Table.grid(padding=(0, 1))
    for item in items:
        grid.add_row("  -", Text(item))
    out.print(grid)


def tell(message: str) -> None:
    """A remark for people, kept out of stdout so that it cannot spoil JSON."""
    print(printable(message), file=sys.stderr)


@contextmanager
def progress_bar(
    words: str, unit: str = "members"
) -> Iterator[Callable[[Progress], object] | None]:
    """A bar on stderr with the rate, the time left and the worst error; None if no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn(words),
        rich.BarColumn(),
        rich.TextColumn(f"{{task.completed:.0f}} {unit}, {{task.fields[rate]}}/s"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[error]}"),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="–", error="")
        state: dict[str, Any] = {"start": None, "seen": 0.0}

        def update(progress: Progress) -> None:
            now = time.monotonic()
            if state["start"] is None:  # chunks read back from a stored run took no time
                state["start"] = now, progress.done
            since, base = state["start"]
            rate = (progress.done - base) / (now - since) if now > since else 0.0
            bar.update(task, completed=progress.done, rate=_rate_text(rate))
            if now - state["seen"] > 1.0:  # the error costs a jackknife
                state["seen"] = now
                bar.update(task, total=progress.expected, error=_error_text(progress))

        yield update


@contextmanager
def working(words: str) -> Iterator[None]:
    """What is being done and for how long, on stderr while it lasts; nothing if no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich import progress as rich

    columns = (rich.SpinnerColumn(), rich.TextColumn(words), rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task("", total=None)
        yield


def _rate_text(rate: float) -> str:
    if rate == 0.0:
        return "–"
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _error_text(progress: Progress) -> str:
    failed = f", {progress.failed} failed" if progress.failed else ""
    if progress.worst is None or not math.isfinite(progress.worst.value):
        return failed.removeprefix(", ")
    return f"{progress.worst.name} ± {100 * progress.worst.value:.2g} %{failed}"


def print_result(result: Tensors | Outputs) -> None:
    """A result for people: its network, its table in pieces that fit, notes and verdict."""
    out, grid = console(), result.summary()
    out.print(str(result.network), markup=False)
    for piece in grid.fitted(out.width):
        out.print(piece.rich())
        out.print()
    out.print(" ".join(grid.notes), markup=False)
    if result.regime is not None:
        out.print(f"[bold]{result.regime.verdict}[/bold]")
        print_list(out, result.regime.reasons)


def show_result(result: Tensors | Outputs, output: Path | None, *, as_json: bool) -> None:
    """Write a result to `output`, where one is given, and print it for machines or people."""
    if output is not None:
        tell(f"wrote {result.save(output)}")
    if as_json:
        print_json(result.brief())
    else:
        print_result(result)


@contextmanager
def telling_warnings() -> Iterator[None]:
    """What a run wants to tell besides its result goes to stderr, a line each."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RunWarning)
        yield
    for warning in told:
        tell(str(warning.message))


@contextmanager
def continuable(folder: Path | None, command: str) -> Iterator[None]:
    """When a signal ends a run that is kept in `folder`, say how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        if folder is not None and folder.exists():
            tell(f"`dynagram {command} --resume {folder}` continues this run")
        if error.args and error.args[0] != signal.SIGINT:  # ended by SIGTERM or SIGHUP
            raise typer.Exit(128 + error.args[0]) from error
        raise


def print_json(data: Mapping[str, Any]) -> None:
    """`data` as JSON on stdout; a number that is not finite becomes null."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    is_ascii = not encoding.startswith("utf")  # of other encodings too much would be lost
    print(json.dumps(plain(data), indent=2, ensure_ascii=is_ascii, allow_nan=False))
