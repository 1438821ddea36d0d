"""One chart as SVG, PNG and HTML."""

import re
import struct
import sys

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, MissingExtraError
from dynagram.report._export import check_plot_path, save
from dynagram.report._figures import flow


@pytest.fixture
def chart():
    return flow(np.arange(1, 4), {"K": np.array([1.0, 0.5, 0.3])}, y_title="kernel K")


def test_svg_holds_the_words(chart, tmp_path):
    text = save(chart, tmp_path / "a.svg").read_text()
    assert text.startswith("<svg")
    assert "kernel K" in text
    assert "layer ℓ" in text


def test_png_is_a_png_of_sensible_size(chart, tmp_path):
    data = save(chart, tmp_path / "a.PNG").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > height > 300


def test_html_loads_nothing_and_is_small(chart, tmp_path):
    text = save(chart, tmp_path / "a.html", title="A < B").read_text()
    assert "<title>A &lt; B</title>" in text
    assert "vegaEmbed" in text
    outside_the_script = re.sub(r"<script type=.module.>.*</script>", "", text, flags=re.S)
    assert not re.search(r"<script|src=|href=(?!.#)|@import|url\(|https?:", outside_the_script)
    assert len(text) < 1_000_000


@pytest.mark.parametrize("name", ["a.pdf", "a", "svg"])
def test_other_suffixes_are_refused(name):
    with pytest.raises(InvalidValueError, match="must end in .svg, .png or .html"):
        check_plot_path(name)


def test_missing_extra_is_one_line_with_the_command(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("dynagram.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dynagram\[report\]'"):
        __import__("dynagram.report._export")
