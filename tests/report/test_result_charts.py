"""The charts of results draw what the results hold, predicted or measured, with their errors."""

import dataclasses
import json

import numpy as np
import pytest
import vl_convert

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.report import entries_chart, learning_curves_chart, outputs_chart, tensor_flow
from dynagram.report._theme import LIGHT
from dynagram.results import LETTERS, Estimate, Outputs, Tensors
from dynagram.training import GradientDescent, Training

NET = MLP([2, 10, 20, 2], "tanh", C_b=0.1, C_W=1.2)
X = np.array([[1.0, 0.5], [0.0, 0.0]])


def tensors(names, order="1/n", layers=(1, 2, 3), error=0.1):
    values, errors = {}, {}
    for name in names:
        shape = (len(layers), *[2] * len(LETTERS[name].axes))
        values[name] = 1.0 + np.arange(np.prod(shape), dtype=float).reshape(shape)
        errors[name] = np.full(shape, error)
    members = 500 if order == "measured" else None
    return Tensors(NET, X, order, values, errors, dict.fromkeys(names, layers), None, members, 0)


def rows(chart):
    """All inline rows of a chart."""
    found = []

    def walk(spec):
        if isinstance(spec, dict):
            values = spec.get("values")
            if isinstance(values, list) and values and isinstance(values[0], dict):
                found.extend(values)
            for value in spec.values():
                walk(value)
        elif isinstance(spec, list):
            for value in spec:
                walk(value)

    walk(chart.to_dict())
    return found


def drawn(chart):
    assert "<svg" in vl_convert.vegalite_to_svg(json.dumps(chart.to_dict()), config=LIGHT)
    return rows(chart)


def test_flow_of_a_prediction():
    result = tensors(("K", "V", "G1", "B"))
    points = drawn(tensor_flow(result))
    series = {row["series"] for row in points}
    assert series == {"K, infinite width", "K + G1/n, these widths", "V/(nK²)", "B/n"}
    K = [row["value"] for row in points if row["series"] == "K, infinite width"]
    assert K[:3] == pytest.approx(result.diagonals()["K"].mean(axis=1), rel=1e-5)
    V = [row["value"] for row in points if row["series"] == "V/(nK²)"]
    n = np.array([2, 10, 20])[:, None]
    expected = (result.diagonals()["V"] / (n * result.diagonals()["K"] ** 2)).mean(axis=1)
    assert V[:3] == pytest.approx(expected, rel=1e-5)
    B = next(row for row in points if row["series"] == "B/n" and row["layer"] == 2)
    assert (B["high"] - B["low"]) == pytest.approx(4 * 0.1 / 10)


def test_what_is_known_of_one_layer_only_is_a_strip():
    points = drawn(tensor_flow(tensors(("Theta", "A"), "measured", (3,))))
    assert {row["series"] for row in points} == {"Theta", "A/n"}
    assert all("layer" not in row for row in points)


def test_flow_without_a_signal():
    result = tensors(("K", "V"))
    result.values["K"][:] = 0.0
    assert {row["series"] for row in drawn(tensor_flow(result))} == {"K, infinite width"}


@pytest.mark.parametrize("name", LETTERS)
def test_every_letter_can_be_drawn(name):
    assert drawn(tensors((name,)).plot())
    assert drawn(tensors((name,), "measured", (3,)).plot())


def test_entries_beside_an_ensemble():
    predicted, measured = tensors(("K", "V")), tensors(("K", "V"), "measured")
    measured.values["V"][:] += 0.2
    points = drawn(entries_chart(predicted, measured, "V", ["AAAA", "AABB"], y_title="V"))
    first = next(row for row in points if row.get("entry") == "(AA)(AA)" and row["layer"] == 2)
    scale = 10 * predicted["K"][1, 0, 0] ** 2
    assert first["theory"] == pytest.approx(predicted["V"][1, 0, 0, 0, 0] / scale, rel=1e-5)
    assert first["score"] == pytest.approx(2.0)
    assert {row["entry"] for row in points if "entry" in row} == {"(AA)(AA)", "(AA)(BB)"}


def outputs(inputs, outputs_size, times, order="1/n"):
    net = MLP([inputs, 20, outputs_size], "tanh", 0.1, 1.2)
    x = np.linspace(-1, 1, 5 * inputs).reshape(5, inputs)
    mean = np.ones((len(times), 5, outputs_size)) * x.sum(axis=1)[None, :, None]
    kernel = np.tile(0.25 * np.eye(5), (len(times), 1, 1))
    parts = {"dNTK": np.full_like(mean, 2.0)} if order == "1/n" else {}
    how = Training(GradientDescent(0.1))
    return Outputs(
        net, how, order, times, x, 0, None, infinite_mean=mean, infinite_kernel=kernel,
        parts_of_mean=parts,
    )  # fmt: skip


def test_outputs_over_samples():
    points = drawn(outputs_chart(outputs(3, 2, (np.inf,))))
    first = next(row for row in points if row["series"] == "output 1" and row["sample"] == 0)
    assert first["value"] == pytest.approx(first["infinite"] + 2.0 / 20, rel=1e-5)
    assert first["high"] - first["low"] == pytest.approx(1.0)


def test_outputs_over_one_input():
    points = drawn(outputs(1, 1, (np.inf,)).plot())
    assert {row["x"] for row in points} == {-1.0, -0.5, 0.0, 0.5, 1.0}
    assert drawn(outputs(1, 1, (np.inf,), "∞").plot())


@pytest.mark.parametrize("times", [(0.0, 1.0, 2.0), (0.0, 0.1, 1.0, 100.0, np.inf), (0.1, 100.0)])
def test_outputs_over_time(times):
    points = drawn(outputs(2, 2, times).plot())
    assert {row["x"] for row in points} == {t for t in times if np.isfinite(t)}
    assert len({row["series"] for row in points}) == 6  # no more than there are colours


def test_learning_curves():
    """Both orders, the spread, and measured points; refused without a curve."""
    times = (1.0, 2.0, 3.0)
    curve = Estimate(np.array([3.0, 2.0, 1.0]), np.full(3, 0.1), 10)
    names = ("loss", "loss_std", "loss_infinite", "test_loss", "accuracy")
    predicted = dataclasses.replace(
        outputs(3, 2, times), estimates=dict.fromkeys(names, curve), order="1/n"
    )
    seen = dataclasses.replace(predicted, order="measured", members=10)
    points = drawn(learning_curves_chart(predicted, seen))
    assert {row["series"] for row in points} == {"training set", "test set"}
    # Of two losses and an accuracy: line and band, point and bar; one has infinite width too.
    assert sum(row["value"] == pytest.approx(3.0) for row in points) == 3 * 4 + 1
    with pytest.raises(InvalidValueError, match="no learning curve"):
        learning_curves_chart(outputs(3, 2, (np.inf,)))
