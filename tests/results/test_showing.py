"""Every record shows itself: in one line, as an HTML table that escapes, and as a figure."""

import numpy as np
import pytest

from dynagram import Data, forecast, measure
from dynagram.networks import Model
from dynagram.results import Estimate, Regime, compare
from dynagram.results._citations import citations
from dynagram.training import GradientDescent, Training


def in_one_line(record, *pieces):
    text = repr(record)
    assert "\n" not in text
    assert len(text) < 200
    for piece in pieces:
        assert piece in text


def as_html(record, *pieces):
    text = record._repr_html_()
    assert text.count("<table>") >= 1
    assert "<b>" not in text
    for piece in pieces:
        assert piece in text


def drawn(record):
    return record.plot().to_dict()


def test_estimates_and_comparisons():
    many = Estimate(np.arange(60.0).reshape(6, 10), np.full((6, 10), 0.5), 100)
    in_one_line(many, "shape (6, 10)", "up to 0.5", "100 members")
    as_html(many, "and 20 more entries", "(0, 0)")
    assert len(drawn(many)["datasets" if "datasets" in drawn(many) else "layer"]) >= 1
    one = Estimate(np.array(2.0), np.array(0.25), 1)
    in_one_line(one, "2 ± 0.25", "1 member")
    as_html(one)
    found = compare(np.zeros((6, 10)), many, name="<b>")
    in_one_line(found, "worst z = +118.00")
    as_html(found, "&lt;b&gt;", "+118.00")
    assert drawn(found)["layer"]


def test_a_regime_has_its_numbers():
    regime = Regime("1/n", "careful", ("a < b",), {"<b>size": 0.25})
    as_html(regime, "careful", "a &lt; b", "&lt;b&gt;size", "0.25")


@pytest.fixture(scope="module")
def model_and_data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 6))
    sizes = [(16, 6), (16, 16), (16, 16), (1, 16)]
    weights = [0.1 * rng.normal(size=s) * np.sqrt(2 / s[1]) for s in sizes]
    names = ["<b>", "two", "three", "four"]
    return Model.of_matrices(weights, "tanh", names=names), Data(x, np.tanh(x[:, :1]))


def test_measurements_and_forecasts(model_and_data):
    model, data = model_and_data
    found = measure(model, data)
    in_one_line(found, "4 layers on 200 samples")
    as_html(found)
    titles = {panel["title"] for panel in drawn(found)["vconcat"][0]["hconcat"]}
    assert titles == {"target linearity", "share of the tangent kernel", "effective rank"}
    answer = forecast(model, data, Training(GradientDescent(0.02), loss="mean"))
    assert answer.plateau
    in_one_line(answer, "escape in")
    as_html(answer, "&lt;b&gt;")
    assert drawn(answer)["layer"]


def test_citations():
    keys = [work.key for work in citations()]
    assert keys[0] == "dynagram"
    assert len(set(keys)) == len(keys)
    for work in citations():
        assert work.bibtex.count("{") == work.bibtex.count("}")
