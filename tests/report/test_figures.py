"""The figures draw what they are given: values, error bars, residuals, ranges."""

import json

import numpy as np
import pytest
import vl_convert

from dynagram.report._figures import flow, phase_plane, theory_and_ensemble
from dynagram.report._theme import DARK, LIGHT

LAYERS = np.arange(1, 5)


def named(chart, count):
    """The inline rows of the data set with `count` rows."""
    sets = [d["values"] for d in _data(chart.to_dict())]
    return next(rows for rows in sets if len(rows) == count)


def _data(spec):
    if isinstance(spec, dict):
        rows = spec.get("values")
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            yield spec
        for value in spec.values():
            yield from _data(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from _data(value)


def test_error_bars_are_two_standard_errors_and_residuals_are_z_scores():
    theory = {"V": np.array([0.0, 1.0, 2.0, 3.0])}
    measured = {"V": np.array([0.0, 1.2, 1.9, 3.0])}
    errors = {"V": np.array([0.0, 0.1, 0.1, 0.1])}
    chart = theory_and_ensemble(LAYERS, theory, measured, errors, y_title="vertex V")
    rows = named(chart, 4)
    assert [row["score"] for row in rows] == pytest.approx([None, 2.0, -1.0, 0.0])
    assert rows[1]["low"] == pytest.approx(1.0)
    assert rows[1]["high"] == pytest.approx(1.4)


def test_residual_panel_makes_room_for_the_worst():
    ones, small = {"V": np.ones(4)}, {"V": np.full(4, 0.1)}
    chart = theory_and_ensemble(LAYERS, ones, {"V": np.full(4, 2.0)}, small, y_title="V")
    domain = chart.to_dict()["vconcat"][1]["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert domain == pytest.approx([-11.5, 11.5])


def test_flow_draws_the_law_dashed():
    chart = flow(LAYERS, {"K": 1.0 / LAYERS}, y_title="K", law=("law", 0.5 / LAYERS), log=True)
    encoding = chart.to_dict()["encoding"]
    assert encoding["strokeDash"]["scale"] == {"domain": ["K", "law"], "range": [[1, 0], [6, 4]]}
    assert encoding["x"]["scale"]["type"] == encoding["y"]["scale"]["type"] == "log"
    assert encoding["x"]["axis"]["values"] == [1.0, 2.0]


def test_phase_plane_marks_the_points():
    chart = phase_plane(
        {"curve": (np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.1, 0.4]))},
        {"critical": (1.0, 0.0), "yours": (1.5, 0.2)},
        C_W=(0.5, 3.0),
        C_b=(-0.1, 0.5),
    )
    assert named(chart, 2) == [
        {"label": "critical", "C_W": 1.0, "C_b": 0.0},
        {"label": "yours", "C_W": 1.5, "C_b": 0.2},
    ]


@pytest.mark.parametrize("config", [LIGHT, DARK])
def test_every_figure_renders(config):
    ones = {"V": np.ones(4)}
    charts = [
        flow(LAYERS, {"K": 1.0 / LAYERS}, y_title="K"),
        phase_plane(
            {"c": (np.ones(2), np.ones(2))}, {"p": (1.0, 0.0)}, C_W=(0.0, 2.0), C_b=(0.0, 2.0)
        ),
        theory_and_ensemble(LAYERS, ones, ones, ones, y_title="V"),
    ]
    for chart in charts:
        svg = vl_convert.vegalite_to_svg(json.dumps(chart.to_dict()), config=config)
        assert config["background"] in svg
