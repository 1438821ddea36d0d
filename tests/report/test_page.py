"""The report page: escaping, one copy of Vega, data that is valid JSON."""

import json
import re

import numpy as np

from dynagram.report._figures import flow
from dynagram.report._page import Code, Figure, Notice, Section, Table, Text, render


def embedded(page: str) -> dict:
    return json.loads(re.search(r"^const report = (.*);$", page, re.M).group(1))


def chart(name="K"):
    return flow(np.arange(1, 4), {name: np.array([1.0, np.nan, 1 / 3])}, y_title="y")


def test_every_block_is_shown_and_escaped():
    blocks = [
        Text("a < b"),
        Code("x & y"),
        Table(["name", "value ± s.e."], [["<b>", "1"]], caption="c > d"),
        Notice("careful", ["1 < 2"], kind="warn"),
    ]
    page = render("T & U", [Section("S & S", blocks)], lead="l < m", footer="f < g")
    for piece in (
        "<title>T &amp; U</title>",
        "<h2>S &amp; S</h2>",
        "<p>a &lt; b</p>",
        "<code>x &amp; y</code>",
        "<td>&lt;b&gt;</td>",
        '<p class="caption">c &gt; d</p>',
        'class="notice warn"',
        "1 &lt; 2",
        "l &lt; m",
        "f &lt; g",
    ):
        assert piece in page
    assert "<script" not in page  # no chart, no Vega


def test_two_charts_share_one_copy_of_vega():
    one = render("t", [Section("", [Figure(chart())])])
    two = render("t", [Section("", [Figure(chart()), Figure(chart("V"), "caption")])])
    assert len(two) - len(one) < 5_000
    assert len(embedded(two)["charts"]) == 2
    assert 'id="chart-1"' in two
    assert 'id="chart-2"' in two


def test_data_cannot_end_the_script_and_gaps_are_null():
    page = render("t", [Section("", [Figure(chart("</script><b>"))])])
    assert page.count("</script>") == 1
    data = embedded(page)
    rows = data["charts"][0]["data"]["values"]
    assert rows == [
        {"series": "</script><b>", "layer": 1, "value": 1.0},
        {"series": "</script><b>", "layer": 2, "value": None},
        {"series": "</script><b>", "layer": 3, "value": 0.333333},
    ]
    assert data["light"]["background"] != data["dark"]["background"]
