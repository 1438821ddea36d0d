"""A report page: one HTML file with charts, tables and words, and nothing to download.

Vega, Vega-Lite and Vega-Embed are embedded once per page; every chart is its specification with
its (rounded) data. The page follows the reader's light or dark setting. Its content-security policy
lets the browser run this one script, known by its hash, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynagram.report._export import Chart, vl_convert
from dynagram.report._theme import DARK, FONT, LIGHT


@dataclass(frozen=True)
class Text:
    """One paragraph.

    **Arguments:**

    - `words`: its text, without markup.
    """

    words: str


@dataclass(frozen=True)
class Code:
    """Lines of code or of a terminal, shown as they are.

    **Arguments:**

    - `lines`: the lines, as one string.
    """

    lines: str


@dataclass(frozen=True)
class Figure:
    """A chart and what to see in it.

    **Arguments:**

    - `chart`: the chart.
    - `caption`: what to see in it; none if empty.
    """

    chart: Chart
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text; columns after the first are aligned right.

    **Arguments:**

    - `header`: the names of the columns.
    - `rows`: the cells of every row.
    - `caption`: what the table says; none if empty.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


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


Block = Text | Code | Figure | Table | Notice


@dataclass(frozen=True)
class Section:
    """A heading and its blocks.

    **Arguments:**

    - `title`: the heading; none if empty.
    - `blocks`: `Text`, `Code`, `Figure`, `Table` and `Notice`, in order.
    """

    title: str
    blocks: Sequence[Block]


def render(title: str, sections: Sequence[Section], *, lead: str = "", footer: str = "") -> str:
    """The page as one string of HTML; about 0.9 MB of it is Vega.

    **Arguments:**

    - `title`: of the page.
    - `sections`: the `Section`s, in order.
    - `lead`: a paragraph before them; none if empty.
    - `footer`: a paragraph after them; none if empty.

    **Returns:** the HTML.

    >>> text = render("Hello", [Section("First", [Text("a < b")])])
    >>> "<h2>First</h2>" in text, "a &lt; b" in text, "<script src" in text
    (True, True, False)
    """
    specifications: list[dict[str, Any]] = []
    body = "\n".join(_section(section, specifications) for section in sections)
    script = _script(specifications) if specifications else ""
    return _PAGE.format(
        policy=_policy(script),
        title=html.escape(title),
        style=_STYLE,
        lead=f'<p class="lead">{html.escape(lead)}</p>' if lead else "",
        body=body,
        footer=f"<footer><p>{html.escape(footer)}</p></footer>" if footer else "",
        script=f'<script type="module">{script}</script>' if script else "",
    )


def _section(section: Section, specifications: list[dict[str, Any]]) -> str:
    heading = f"<h2>{html.escape(section.title)}</h2>\n" if section.title else ""
    blocks = "\n".join(_block(block, specifications) for block in section.blocks)
    return f"<section>\n{heading}{blocks}\n</section>"


def _block(block: Block, specifications: list[dict[str, Any]]) -> str:
    if isinstance(block, Text):
        return f"<p>{html.escape(block.words)}</p>"
    if isinstance(block, Code):
        return f"<pre><code>{html.escape(block.lines)}</code></pre>"
    if isinstance(block, Figure):
        specifications.append(block.chart.to_dict())
        caption = f"<figcaption>{html.escape(block.caption)}</figcaption>" if block.caption else ""
        number = len(specifications)
        return f'<figure><div class="chart" id="chart-{number}"></div>{caption}</figure>'
    if isinstance(block, Notice):
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in block.lines)
        return (
            f'<div class="notice {block.kind}"><strong>{html.escape(block.heading)}</strong>'
            f"<ul>{lines}</ul></div>"
        )
    header = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in block.rows
    )
    caption = f'<p class="caption">{html.escape(block.caption)}</p>' if block.caption else ""
    return (
        f'<div class="table">{caption}<table><thead><tr>{header}</tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _script(specifications: Sequence[dict[str, Any]]) -> str:
    data = {"charts": specifications, "light": LIGHT, "dark": DARK}
    # "<" never appears inside the data, so that no string of it can end the script element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace(
        "</script", "<\\/script"
    )
    return f"{library}\nconst report = {text};\n{_DRAW}"


def _policy(script: str) -> str:
    """Nothing from elsewhere, and no script but this one, which never makes code of strings.

    Vega writes style attributes; exported figures are `blob:` and `data:` addresses.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


_DRAW = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const draw = () => report.charts.forEach((chart, i) => vegaEmbed(`#chart-${i + 1}`, chart, {
  config: dark.matches ? report.dark : report.light,
  renderer: "svg",
  ast: true,  // expressions are interpreted: the policy of the page forbids to compile them
  actions: {export: true, source: false, compiled: false, editor: false},
}));
dark.addEventListener("change", draw);
draw();
"""

_STYLE = (
    ":root { color-scheme: light dark; --text: #1f2328; --faint: #59636e; --page: #f6f7f9;"
    " --card: #ffffff; --line: #d7dbe0; --good: #00704f; --warn: #a84300; --bad: #b00020; }\n"
    "@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --faint: #9aa4af;"
    " --page: #111418; --card: #1b1f24; --line: #363c44; --good: #2cc79b; --warn: #f0a030;"
    " --bad: #ff7b8a; } }\n"
    f"body {{ margin: 0; background: var(--page); color: var(--text); font: 16px/1.55 {FONT}; }}\n"
    """main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.5rem; }
p, figcaption, li { max-width: 46rem; }
.lead { font-size: 1.1rem; color: var(--faint); }
figure, .table { margin: 1rem 0; padding: 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
.chart { width: 100%; }
figcaption, .caption, footer { color: var(--faint); font-size: 0.9rem; }
figcaption { margin-top: 0.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
.caption { margin: 0 0 0.5rem; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid var(--line); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
pre { padding: 0.8rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; font-size: 0.88rem; }
.notice { margin: 1rem 0; padding: 0.7rem 1rem; background: var(--card);
  border: 1px solid var(--line); border-left: 5px solid var(--good); border-radius: 8px; }
.notice strong { color: var(--good); }
.notice.warn { border-left-color: var(--warn); } .notice.warn strong { color: var(--warn); }
.notice.bad { border-left-color: var(--bad); } .notice.bad strong { color: var(--bad); }
.notice ul { margin: 0.3rem 0 0; padding-left: 1.2rem; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); }
.vega-embed { width: 100%; }
"""
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
<main>
<h1>{title}</h1>
{lead}
{body}
{footer}
</main>
{script}
</body>
</html>
"""
