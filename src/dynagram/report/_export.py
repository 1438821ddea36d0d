"""One chart, three files: SVG, PNG, or an HTML page that works without a network."""

from __future__ import annotations

import json
from pathlib import Path

from dynagram.errors import InvalidValueError, MissingExtraError
from dynagram.report._theme import LIGHT
from dynagram.results._files import write_atomically

try:
    import altair as alt
    import vl_convert
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("altair with vl-convert-python", "report") from error

SUFFIXES = (".svg", ".png", ".html")
Chart = (
    alt.Chart
    | alt.LayerChart
    | alt.FacetChart
    | alt.ConcatChart
    | alt.HConcatChart
    | alt.VConcatChart
)


def check_plot_path(path: str | Path) -> Path:
    """`path`, refused at once when its suffix is none of .svg, .png, .html."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidValueError("plot", str(path), "the file name must end in .svg, .png or .html")
    return path


def save(chart: Chart, path: str | Path, *, title: str = "dynagram") -> Path:
    """Write `chart` as the suffix of `path` says; the file appears complete or not at all.

    An HTML file carries Vega itself (0.9 MB) and its data, and loads nothing.

    **Arguments:**

    - `chart`: what a function of `dynagram.report` returned, or any chart of altair.
    - `path`: a file name that ends in .svg, .png or .html.
    - `title`: of the page, for .html.

    **Returns:** the path.

    >>> import tempfile
    >>> chart = alt.Chart(alt.Data(values=[{"x": 1, "y": 2}])).mark_point().encode(x="x:Q", y="y:Q")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(chart, Path(folder) / "figure.svg").read_text()[:4]
    '<svg'
    """
    path = check_plot_path(path)
    kind = path.suffix.lower()
    if kind == ".html":
        from dynagram.report._page import Figure, Section, render

        return write_atomically(path, render(title, [Section("", [Figure(chart)])]).encode())
    specification = json.dumps(chart.to_dict())
    if kind == ".svg":
        svg = vl_convert.vegalite_to_svg(specification, config=LIGHT)
        return write_atomically(path, svg.encode())
    return write_atomically(
        path, vl_convert.vegalite_to_png(specification, config=LIGHT, scale=2.0)
    )
