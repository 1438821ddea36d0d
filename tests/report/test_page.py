"""The report page: escaping, one copy of Vega, data that is valid JSON."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np

from dynagram.report._blocks import (
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
    from_plain,
    to_plain,
)
from dynagram.report._figures import flow
from dynagram.report._page import render


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
        '<h2 id="section-1">S &amp; S</h2>',
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
    assert "vegaEmbed =" not in page  # no chart, no Vega


def test_a_finding_a_tile_and_a_picture_are_escaped_too():
    tile = Tile("<i>", "1 < 2", "a & b", "words", "warn")
    finding = Finding("s < t", "e & f", "m", "trust: <script>", "good", ["r < q"])
    table = Table(["image"], [[Picture('data:image/png;base64,"x', "a <b>")]])
    folded = Table(["n"], [["1"]], folded="more > less")
    page = render("t", [Section("S", [finding, table, folded, Heading("<u>")], tile)])
    for piece in (
        'class="tile warn" href="#section-1"', "&lt;i&gt;", "1 &lt; 2", "a &amp; b", "s &lt; t",
        "trust: &lt;script&gt;", "&quot;x", "a &lt;b&gt;", "<h3>&lt;u&gt;</h3>",
        "<li>r &lt; q</li>", "<summary>more &gt; less</summary>",
    ):  # fmt: skip
        assert piece in page, piece


def test_blocks_come_back_from_plain_data():
    blocks = [Text("a"), Figure(chart(), "c", "m"), Table(["x"], [[Picture("data:,", "w")]])]
    section = Section("S", blocks, Tile("n", "v", "v", "w"))
    stored = json.loads(json.dumps(to_plain(section)))
    assert to_plain(from_plain(stored)) == stored
    again = render("t", [from_plain(stored)])
    assert again == render("t", [section])


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


class Parts(HTMLParser):
    """The policy of a page and its scripts, as a browser finds them."""

    def __init__(self, page):
        super().__init__()
        self.policy, self.scripts, self.inside, self.handlers = [], [], False, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.inside = tag == "script"
        self.handlers += [name for name in attributes if name.startswith("on")]
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy.append(attributes["content"])

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)
        self.inside = False


def test_a_page_allows_its_own_script_and_nothing_else():
    page = render("t", [Section("", [Figure(chart("a"))])])
    parts = Parts(page)
    (policy,), (script,) = parts.policy, parts.scripts
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert "ast: true" in script  # else Vega compiles expressions, which the policy forbids
    # Browsers turn these into others before they compute the hash.
    assert "\r" not in page
    assert "\0" not in page
    assert parts.handlers == []
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_a_page_without_charts_runs_nothing():
    (policy,) = Parts(render("t", [Section("", [Text("words")])])).policy
    assert "script-src 'none'" in policy
