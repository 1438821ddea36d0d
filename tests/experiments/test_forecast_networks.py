"""Forecasts of networks not calibrated on: judged on made-up tables, and a small run of them."""

import math

import numpy as np
import pytest

from dynagram_experiments._parts import Table
from dynagram_experiments.saddle.forecast_networks import judge, judge_refusals
from dynagram_experiments.saddle.forecast_networks.runs import (
    GROUPS,
    draw_member,
    run_group,
    training_stages,
)


def table(error=0.01, misses=5, share=0.2, second=1.1, count=50, late=5):
    """Networks with errors of this size, of which some miss their interval."""
    rows = []
    for index in range(count):
        width = 0.5 * error if index < misses else 2.0 * error
        steps = 300.0 + index
        rows.append({
            "group": "tanh, digits" if index % 2 else "gelu", "plateau": True, "measured": steps,
            "forecast": steps * 10**error, "low": steps * 10 ** (error - width),
            "high": steps * 10 ** (error + width), "early_share": 0.8, "reason": "",
            "second_forecast": 900.0, "second_measured": 900.0 * second, "steps": 1500.0,
            "second_low": 800.0, "second_high": 1200.0 if index >= late else 950.0,
            "third_forecast": math.nan, "third_measured": math.nan, "third_low": math.nan,
            "third_high": math.nan,
        })  # fmt: skip
    rows.append(rows[0] | {"plateau": False, "early_share": share, "forecast": math.nan})
    return Table.of_rows(rows)


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({}, []),
        ({"error": 0.06}, [0, 2]),
        ({"count": 40, "misses": 4}, [0]),
        ({"misses": 10}, [1]),
        ({"misses": 0}, [1]),
        ({"second": 1.5}, [3, 4]),
        ({"second": math.inf}, [3, 4]),  # not reached although it was due
        ({"late": 20}, [4]),
        ({"error": 0.04}, [2]),
    ],
)
def test_statements_fail_where_they_should(changes, failing):
    passed = [statement.passed for statement in judge(table(**changes))]
    assert [index for index, good in enumerate(passed) if not good] == failing


def test_refusals_are_held_against_the_curves():
    assert judge_refusals(table(share=0.2)).passed
    assert judge_refusals(table(share=math.nan)).passed  # neither part of the fall is reached
    assert not judge_refusals(table(share=0.9)).passed
    assert judge_refusals(table(share=0.9) | {"measured": np.full(51, 9.0)}).passed


def test_the_stages_of_the_training_data_are_those_of_least_squares():
    group = GROUPS["erf, biases"]
    member = draw_member(np.random.default_rng(0), group)
    stages, unit = training_stages(group, member)
    assert unit * stages.loss == pytest.approx(np.mean(np.var(member.y, axis=0)))
    x = member.x - member.x.mean(axis=0)
    y = member.y - member.y.mean(axis=0)
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert unit * (stages.loss - stages.falls[0]) >= np.mean(rest**2)
    assert sum(stages.falls) * unit < np.mean(y**2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "tanh, classes", "tanh, digits"])
def test_networks_not_calibrated_on_leave_when_they_should(name):
    rows = run_group(1, name, count=2, steps=1000)
    on = rows["plateau"]
    assert on.sum() == 2
    error = np.abs(np.log10(rows["forecast"][on] / rows["measured"][on]))
    assert np.all(error < 0.1)
    # What is refused has no plateau in its curve.
    assert not np.any(rows["early_share"][~on] >= 0.6)
