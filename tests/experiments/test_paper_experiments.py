"""Experiments on fields, Gram and saddles, each run once at a size of seconds.

At that size most statements need not hold; what must hold at any size is asserted.
"""

import numpy as np
import pytest

from dynagram_experiments import Settings
from dynagram_experiments.fields import spectrum
from dynagram_experiments.gram import boundary, collapse, interpolation, regularisers
from dynagram_experiments.saddle import fig4, large_start
from dynagram_experiments.saddle.fig4 import runs as fig4_runs

pytestmark = pytest.mark.slow


def run(monkeypatch, module, **constants):
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)
    result = module.EXPERIMENT.run(Settings())
    for statement in result.statements:
        assert any(character.isdigit() for character in statement.measured)
    for columns in result.tables.values():
        assert len({len(column) for column in columns.values()}) == 1
    assert result.figures
    for chart in result.figures.values():
        assert chart.to_dict()["$schema"]
    return {statement.claim: statement for statement in result.statements}


def named(statements, words):
    return next(s for claim, s in statements.items() if words in claim)


def test_spectrum(monkeypatch):
    found = run(monkeypatch, spectrum, WIDTH=24, SAMPLES=30, LOOKS=6, EARLY=2, STRIDE=3, SEEDS=2)
    assert named(found, "sum of its steps").passed


def test_collapse(monkeypatch):
    found = run(monkeypatch, collapse, WIDTH=16, EPOCHS=(0, 1, 2), SEEDS=2)
    assert "shuffled labels" in named(found, "NC1: variability").measured


def test_regularisers(monkeypatch):
    found = run(monkeypatch, regularisers, WIDTH=12, EPOCHS=(0, 1), SEEDS=2)
    assert named(found, "The factor steers").passed
    assert named(found, "The anchor holds").passed


def test_boundary(monkeypatch):
    found = run(
        monkeypatch, boundary, WIDTHS=(4, 8), SEEDS=2, SAMPLES=12, MOST=300,
        SCALES=(0.4, 0.8, 2.4),
    )  # fmt: skip
    assert len(found) == 5


def test_interpolation(monkeypatch):
    found = run(monkeypatch, interpolation, WIDTH=12, EPOCHS=1, STEPS=20, PAIRS=20, SEEDS=2)
    assert "±" in named(found, "Training straightens").measured


def test_large_start(monkeypatch):
    found = run(
        monkeypatch, large_start, SCALES=(0.3, 2.0), SEEDS=2, SAMPLES=40, DEPTHS=(4,),
        ANSATZ_SCALES=np.geomspace(0.02, 0.2, 4), WIDTH=16,
    )  # fmt: skip
    assert named(found, "tanh, L = 4").passed


def test_slopes_at_three_thresholds(monkeypatch):
    """The times of a loss that falls as a power: slopes that do not depend on the threshold."""

    def power_law(_seed, r, scale, _run, *, seeds):
        thresholds = np.array(fig4_runs.THRESHOLDS)[:, None]
        return thresholds**-0.5 * scale ** (2 - r) * np.ones(seeds)

    monkeypatch.setattr(fig4, "sgd_times", power_law)
    part = {name: np.asarray(value) for name, value in fig4._sgd(Settings(), 3, 2).items()}
    statement = fig4._threshold_shift(3, part)
    assert statement.passed
    assert "largest shift 0.000: -1.000" in statement.measured
