"""A report page: one HTML file with charts, tables and words, and nothing to download.

Vega, Vega-Lite and Vega-Embed are embedded once per page; every chart is its specification with
its (rounded) data. The page follows the reader's light or dark setting, and charts the width of
their column. Its content-security policy lets the browser run this one script, known by its hash,
and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from dynagram.report._blocks import (
    Block,
    Code,
    Figure,
    Finding,
    Heading,
    Notice,
    Picture,
    Section,
    Table,
    Text,
    Tile,
)
from dynagram.report._export import vl_convert
from dynagram.report._theme import DARK, FONT, LIGHT

# Columns with a cell longer than this are sentences.
_LONG_CELL = 36


def render(title: str, sections: Sequence[Section], *, lead: str = "", footer: str = "") -> str:
    """The page as one string of HTML; about 0.9 MB of it is Vega.

    **Arguments:**

    - `title`: of the page.
    - `sections`: the `Section`s, in order; the tiles of all of them make a summary on top.
    - `lead`: a paragraph before them; none if empty.
    - `footer`: a paragraph after them; none if empty.

    **Returns:** the HTML.

    >>> text = render("Hello", [Section("First", [Text("a < b")])])
    >>> '<h2 id="section-1">First</h2>' in text, "a &lt; b" in text, "<script src" in text
    (True, True, False)
    """
    specifications: list[Mapping[str, Any]] = []
    body = "\n".join(
        _section(section, number, specifications) for number, section in enumerate(sections, 1)
    )
    is_static = not specifications and "<table" not in body and "<pre" not in body
    script = "" if is_static else _script(specifications)
    return _PAGE.format(
        policy=content_policy(script),
        title=html.escape(title),
        style=style_sheet(),
        lead=f'<p class="lead">{html.escape(lead)}</p>' if lead else "",
        tiles=_tiles(sections),
        body=body,
        footer=f"<footer><p>{html.escape(footer)}</p></footer>" if footer else "",
        script=f'<script type="module">{script}</script>' if script else "",
    )


@cache
def asset(name: str) -> str:
    """A file that comes with this package."""
    return files("dynagram.report").joinpath("assets", name).read_text(encoding="utf-8")


def style_sheet() -> str:
    """The style of all pages."""
    return f":root {{ --font: {FONT}; }}\n{asset('page.css')}"


@cache
def vega_library() -> str:
    """Vega with what it needs, as a script that sets `window.vegaEmbed` (and loads nothing)."""
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return library.replace("</script", "<\\/script")


def content_policy(script: str) -> str:
    """Nothing from elsewhere, and no script but this one, which never makes code of strings.

    Vega writes style attributes; exported figures are `blob:` and `data:` addresses.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _script(specifications: Sequence[Mapping[str, Any]]) -> str:
    data = {"charts": specifications, "light": LIGHT, "dark": DARK}
    # "<" never appears inside the data, so that no string of it can end the script element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    library = vega_library() if specifications else ""
    return f"{library}\nconst report = {text};\n{asset('page.js')}"


def _tiles(sections: Sequence[Section]) -> str:
    tiles = [(number, s.tile) for number, s in enumerate(sections, 1) if s.tile is not None]
    if not tiles:
        return ""
    links = "\n".join(_tile(number, tile) for number, tile in tiles)
    return f'<nav class="tiles" aria-label="Summary">\n{links}\n</nav>'


def _tile(number: int, tile: Tile) -> str:
    parts = "".join(
        f'<span class="{name}">{html.escape(getattr(tile, name))}</span>'
        for name in ("name", "value", "verdict", "words")
    )
    return f'<a class="tile {html.escape(tile.kind)}" href="#section-{number}">{parts}</a>'


def _section(section: Section, number: int, specifications: list[Mapping[str, Any]]) -> str:
    title = html.escape(section.title)
    heading = f'<h2 id="section-{number}">{title}</h2>\n' if title else ""
    blocks = "\n".join(_block(block, specifications) for block in section.blocks)
    return f"<section>\n{heading}{blocks}\n</section>"


def _block(block: Block, specifications: list[Mapping[str, Any]]) -> str:
    if isinstance(block, Text):
        return f"<p>{html.escape(block.words)}</p>"
    if isinstance(block, Heading):
        return f"<h3>{html.escape(block.words)}</h3>"
    if isinstance(block, Code):
        return f'<div class="code"><pre><code>{html.escape(block.lines)}</code></pre></div>'
    if isinstance(block, Figure):
        return _figure(block, specifications)
    if isinstance(block, Notice):
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in block.lines)
        return (
            f'<div class="notice {block.kind}"><strong>{html.escape(block.heading)}</strong>'
            f"<ul>{lines}</ul></div>"
        )
    return _finding(block) if isinstance(block, Finding) else _table(block)


def _figure(block: Figure, specifications: list[Mapping[str, Any]]) -> str:
    chart = block.chart
    specifications.append(chart if isinstance(chart, Mapping) else chart.to_dict())
    caption = f"<figcaption>{html.escape(block.caption)}</figcaption>" if block.caption else ""
    words = html.escape(block.caption or "Chart", quote=True)
    number = len(specifications)
    return (
        f'<figure><div class="chart" id="chart-{number}" data-title="{words}"></div>{caption}'
        f"{_made(block.made_by)}</figure>"
    )


def _finding(block: Finding) -> str:
    named = {
        "Expected": block.expected,
        "Measured": block.measured,
        "Does the theory apply here?": block.applies,
    }
    pairs = "".join(
        f"<div><dt>{name}</dt><dd>{html.escape(words)}</dd></div>" for name, words in named.items()
    )
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in block.reasons)
    more = f'<details class="more"><summary>The other reasons</summary><ul>{lines}</ul></details>'
    return (
        f'<div class="finding {html.escape(block.kind)}"><p>{html.escape(block.sentence)}</p>'
        f"<dl>{pairs}</dl>{more if lines else ''}</div>"
    )


def _table(block: Table) -> str:
    kinds = [_column_kind([row[index] for row in block.rows]) for index in range(len(block.header))]
    header = "".join(
        f'<th scope="col"{kind}>{html.escape(cell)}</th>'
        for cell, kind in zip(block.header, kinds, strict=True)
    )
    rows = "\n".join("<tr>" + "".join(map(_cell, row, kinds)) + "</tr>" for row in block.rows)
    caption = f'<p class="caption">{html.escape(block.caption)}</p>' if block.caption else ""
    table = (
        f'<div class="table">{caption}<table class="sortable"><thead><tr>{header}</tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table>{_made(block.made_by)}</div>"
    )
    if not block.folded:
        return table
    words = html.escape(block.folded)
    return f'<details class="more"><summary>{words}</summary>{table}</details>'


def _column_kind(cells: Sequence[str | Picture]) -> str:
    """The class of a column of sentences, which are set to the left and may break."""
    is_long = any(isinstance(cell, str) and len(cell) > _LONG_CELL for cell in cells)
    return ' class="words"' if is_long else ""


def _cell(cell: str | Picture, kind: str) -> str:
    if isinstance(cell, Picture):
        address, words = (html.escape(text, quote=True) for text in (cell.address, cell.words))
        return f'<td><img src="{address}" alt="{words}"></td>'
    return f"<td{kind}>{html.escape(cell)}</td>"


def _made(lines: str) -> str:
    if not lines:
        return ""
    return (
        '<details class="made"><summary>How these numbers are made</summary>'
        f'<div class="code"><pre><code>{html.escape(lines)}</code></pre></div></details>'
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<main id="content">
<div class="top"><h1>{title}</h1><button type="button" class="theme" hidden>Dark</button></div>
{lead}
{tiles}
{body}
{footer}
</main>
{script}
</body>
</html>
"""
