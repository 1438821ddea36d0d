"""What a page is made of: words, figures, tables, findings. Records without behaviour.

Every block turns into plain data and back (`to_plain`, `from_plain`), so that a page that was
interrupted can take up the parts that were finished.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynagram.report._export import Chart

KINDS = ("good", "warn", "bad")


@dataclass(frozen=True)
class Text:
    """One paragraph.

    **Arguments:**

    - `words`: its text, without markup.
    """

    words: str


@dataclass(frozen=True)
class Heading:
    """A heading within a section.

    **Arguments:**

    - `words`: its text.
    """

    words: str


@dataclass(frozen=True)
class Code:
    """Lines of code or of a terminal, shown as they are, to be copied.

    **Arguments:**

    - `lines`: the lines, as one string.
    """

    lines: str


@dataclass(frozen=True)
class Figure:
    """A chart and what to see in it.

    **Arguments:**

    - `chart`: the chart, or its specification.
    - `caption`: what to see in it; none if empty.
    - `made_by`: the calls that give its numbers; none if empty.
    """

    chart: Chart | Mapping[str, Any]
    caption: str = ""
    made_by: str = ""


@dataclass(frozen=True)
class Picture:
    """A small image in a cell of a table.

    **Arguments:**

    - `address`: a `data:` address of it.
    - `words`: what it shows, for those who cannot see it.
    """

    address: str
    words: str


@dataclass(frozen=True)
class Table:
    """Rows of text, sorted by any column; columns after the first are aligned right.

    **Arguments:**

    - `header`: the names of the columns.
    - `rows`: the cells of every row, texts or a `Picture`.
    - `caption`: what the table says; none if empty.
    - `made_by`: the calls that give its numbers; none if empty.
    - `folded`: where it is only for some readers, the line that unfolds it; shown if empty.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Picture]]
    caption: str = ""
    made_by: str = ""
    folded: str = ""


@dataclass(frozen=True)
class Notice:
    """A framed statement, e.g. the verdict on a prediction.

    **Arguments:**

    - `heading`: the statement.
    - `lines`: what it rests on, listed below it.
    - `kind`: "good", "warn" or "bad".
    """

    heading: str
    lines: Sequence[str]
    kind: str = "good"


@dataclass(frozen=True)
class Finding:
    """One question answered: what theory expects, what was measured, whether theory applies.

    **Arguments:**

    - `sentence`: the answer in plain words.
    - `expected`: the prediction, with its order.
    - `measured`: the measurement, with its error.
    - `applies`: the verdict on the theory here, and why.
    - `kind`: "good", "warn" or "bad".
    - `reasons`: what else the verdict rests on, unfolded by the reader.
    """

    sentence: str
    expected: str
    measured: str
    applies: str
    kind: str = "good"
    reasons: Sequence[str] = ()


@dataclass(frozen=True)
class Tile:
    """One of the few numbers that a page begins with.

    **Arguments:**

    - `name`: what it is about.
    - `value`: the number, or a word or two.
    - `verdict`: the judgement on it.
    - `words`: one plain sentence.
    - `kind`: "good", "warn" or "bad".
    """

    name: str
    value: str
    verdict: str
    words: str
    kind: str = "good"


Block = Text | Heading | Code | Figure | Table | Notice | Finding


@dataclass(frozen=True)
class Section:
    """A heading and its blocks.

    **Arguments:**

    - `title`: the heading; none if empty.
    - `blocks`: `Text`, `Heading`, `Code`, `Figure`, `Table`, `Notice` and `Finding`, in order.
    - `tile`: what the summary of the page says of it; None for nothing.
    """

    title: str
    blocks: Sequence[Block]
    tile: Tile | None = field(default=None)


_CLASSES = {
    kind.__name__: kind
    for kind in (Text, Heading, Code, Figure, Picture, Table, Notice, Finding, Tile, Section)
}


def to_plain(part: Any) -> Any:
    """A block, or anything made of blocks, in the types of JSON.

    >>> to_plain(Text("a"))
    {'block': 'Text', 'words': 'a'}
    """
    if type(part).__name__ in _CLASSES:
        fields = dataclasses.fields(part)
        return {"block": type(part).__name__} | {
            f.name: to_plain(getattr(part, f.name)) for f in fields
        }
    if isinstance(part, str) or part is None:
        return part
    if isinstance(part, Mapping):
        return part
    if isinstance(part, Sequence):
        return [to_plain(entry) for entry in part]
    return part.to_dict()  # a chart


def from_plain(part: Any) -> Any:
    """What `to_plain` was given; charts come back as specifications.

    >>> from_plain(to_plain(Section("A", [Code("b")])))
    Section(title='A', blocks=[Code(lines='b')], tile=None)
    """
    if isinstance(part, Mapping) and part.get("block") in _CLASSES:
        values = {name: from_plain(value) for name, value in part.items() if name != "block"}
        return _CLASSES[part["block"]](**values)
    if isinstance(part, list):
        return [from_plain(entry) for entry in part]
    return part
