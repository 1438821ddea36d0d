"""What the commands share: reading numbers, printing tables and JSON, showing progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dynagram.errors import InvalidValueError

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


def console() -> Console:
    """A rich console on stdout: colours and boxes on a terminal, plain text in a pipe."""
    return Console(highlight=False, soft_wrap=False)


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
    print(message, file=sys.stderr)


@contextmanager
def progress_bar(words: str, total: int) -> Iterator[Callable[[int, int], object]]:
    """A bar on stderr when that is a terminal, nothing otherwise; yields `update(done, total)`."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(words),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(data: Mapping[str, Any]) -> None:
    """`data` as JSON on stdout; a number that is not finite becomes null."""
    print(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """`value` in the types of JSON.

    >>> plain({"K": np.array([1.0, np.inf]), "layers": (1, 2)})
    {'K': [1.0, None], 'layers': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def short(value: float | None, digits: int = 5) -> str:
    """A number for a table; a dash where there is none.

    >>> short(0.172922390756), short(None), short(float("inf"))
    ('0.17292', '–', '∞')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}g}"
