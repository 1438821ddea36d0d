"""Tables for people: one list of rows, shown by rich in a terminal and as HTML in a notebook."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
else:
    Table = object  # imported when a table is shown

# Errors below this fraction of a tensor are rounding and vary from machine to machine.
ROUNDING = 1e-10
# Spaces between the columns of a rich table.
_GAP = 2


@dataclass(frozen=True)
class Grid:
    """Headings, rows of texts, and sentences below them; the first `keys` columns name a row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    keys: int = 1

    def rich(self) -> Table:
        """A rich table without lines, numbers to the right."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, heading in enumerate(self.headings):
            table.add_column(Text(heading), justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def fitted(self, width: int) -> list[Grid]:
        """The same table in pieces of at most `width` characters, each beginning with the keys.

        Notes stay with the whole.

        >>> grid = Grid(("ℓ", "first", "second"), (("1", "10", "20"),))
        >>> [piece.headings for piece in grid.fitted(12)]
        [('ℓ', 'first'), ('ℓ', 'second')]
        """
        columns = zip(self.headings, *self.rows, strict=True)
        sizes = [max(map(len, column)) + _GAP for column in columns]
        head, room = list(range(self.keys)), width + _GAP - sum(sizes[: self.keys])
        pieces: list[list[int]] = [[]]
        for column in range(self.keys, len(sizes)):
            taken = sum(sizes[other] for other in pieces[-1])
            if pieces[-1] and taken + sizes[column] > room:
                pieces.append([])
            pieces[-1].append(column)
        return [self._only([*head, *piece]) for piece in pieces]

    def _only(self, columns: list[int]) -> Grid:
        rows = tuple(tuple(row[column] for column in columns) for row in self.rows)
        return Grid(tuple(self.headings[column] for column in columns), rows, keys=self.keys)

    def html(self, title: str = "") -> str:
        """An HTML table; everything in it is escaped.

        >>> Grid(("a",), (("<b>",),)).html()
        '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
        """
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.headings)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
            for row in self.rows
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(title)}</caption>" if title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


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


def with_error(value: float, error: float, scale: float) -> str:
    """A number and its error; an error below 1e-10 of `scale` is rounding and is left out.

    >>> with_error(0.254371, 0.000912, 1.0), with_error(0.254371, 4e-16, 1.0)
    ('0.25437 ± 0.00091', '0.25437')
    """
    return f"{short(value)} ± {short(error, 2)}" if error > ROUNDING * scale else short(value)


def short_error(value: float, scale: float) -> str:
    """An error for a table: below 1e-10 of `scale` it is rounding, which differs between machines.

    >>> short_error(0.00123, 1.0), short_error(4e-16, 1.0), short_error(0.0, 0.0)
    ('0.0012', 'rounding', 'rounding')
    """
    return short(value, 2) if value > 1e-10 * scale else "rounding"
