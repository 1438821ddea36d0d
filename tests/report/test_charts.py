"""Charts of lines and points: what is drawn where, and how much room there is."""

import json

import numpy as np
import pytest
import vl_convert

from dynagram.report import Axis, Line, coloured_points, line_chart, panels
from dynagram.report._theme import LIGHT
from dynagram.results import Estimate


def marks(chart):
    return [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]


def rows(chart, layer=0):
    spec = chart.to_dict()
    return spec["layer"][layer].get("data", spec.get("data"))["values"]


def domain(chart, axis, layer=0):
    return chart.to_dict()["layer"][layer]["encoding"][axis]["scale"]["domain"]


def test_bars_are_twice_the_standard_error_and_fit_into_the_panel():
    estimates = {1: Estimate.of_samples([1.0, 3.0]), 2: Estimate.of_samples([4.0, 4.0])}
    chart = line_chart({"a": Line.through(estimates)}, Axis("x"), Axis("y"))
    assert marks(chart) == ["line", "rule"]
    assert rows(chart)[0]["low"] == pytest.approx(0.0)
    assert rows(chart)[0]["high"] == pytest.approx(4.0)
    low, high = domain(chart, "y")
    assert low < 0.0 < 4.0 < high
    assert domain(chart, "x") == pytest.approx([0.96, 2.04])


def test_axes_take_logarithms_guides_and_zeros():
    line = Line([1.0, 10.0, 100.0], [0.5, np.nan, 2.0])
    y = Axis("y", zero=True, guides={"null": 3.0})
    chart = line_chart({"a": line}, Axis("x", "log", guides={"edge": 20.0}), y)
    assert marks(chart) == ["rule", "text", "rule", "text", "line"]
    assert domain(chart, "y", 4)[0] == 0.0
    assert domain(chart, "y", 4)[1] > 3.0
    low, high = domain(chart, "x", 4)
    assert 0.0 < low < 1.0 < 100.0 < high
    assert rows(chart, 4)[1]["y"] is None


def test_points_share_the_colours_of_lines_and_the_diagonal_is_where_both_are():
    a, b = Line([1.0, 4.0], [1.0, 5.0]), Line([2.0, 3.0], [2.0, 3.0])
    both = line_chart({"a": a}, Axis("x"), Axis("y"), points={"a": b, "b": b}, diagonal=True)
    assert marks(both) == ["line", "line", "point"]
    assert "shape" not in both.to_dict()["layer"][2]["encoding"]
    ends = [row["x"] for row in rows(both)]
    assert ends == pytest.approx([0.88, 4.12])
    alone = line_chart({}, Axis("x"), Axis("y"), points={"a": a, "b": b})
    assert "shape" in alone.to_dict()["layer"][0]["encoding"]


def test_panels_share_scale_and_names():
    few = {"left": {"a": Line([0, 1], [0.0, 1.0])}, "right": {"b": Line([0, 1], [5.0, 9.0])}}
    chart = panels(few, Axis("x"), Axis("y", zero=True))
    left, right = chart.to_dict()["vconcat"][0]["hconcat"]
    for panel in (left, right):
        encoding = panel["layer"][0]["encoding"]
        assert encoding["y"]["scale"]["domain"] == pytest.approx([0.0, 9.36])
        assert encoding["color"]["scale"]["domain"] == ["a", "b"]


def test_charts_can_be_drawn():
    line = Line(
        [1.0, 2.0, 4.0], [1e-3, 1e-1, 10.0], error=[1e-4, 1e-2, 1.0], rings=[1e-3, 0.1, 9.0]
    )
    cloud = (np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0))
    charts = [
        panels({"one": {"a": line}}, Axis("x", "symlog", ticks=(0, 1, 4)), Axis("y", "log")),
        coloured_points({"cloud": cloud}, colour_title="target"),
    ]
    for chart in charts:
        drawn = vl_convert.vegalite_to_svg(json.dumps(chart.to_dict()), config=LIGHT)
        assert drawn.startswith("<svg")
