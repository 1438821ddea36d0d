"""Evidence over depth and initialisation: golden numbers, and points without a value."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.bayes import evidence_landscape, log_evidence
from dynagram.training import Posterior

EXACT = Posterior()
# Two inputs of norm 1 with overlap ½.
X = np.sqrt(2.0) * np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]])


def test_two_inputs_deep_relu():
    grid = [1.9, 2.0, 2.1, 2.2]
    for y, expected, best in (
        ([1.0, 0.8], (-6.28, -1.28, -3.15), 2.0),
        ([1.0, -0.2], (None, -16.05, -4.43, -5.55), 2.1),
    ):
        y = np.array(y)[:, None]
        found = evidence_landscape("relu", Data(X, y), EXACT, depth=[50], C_b=[0.0], C_W=grid)
        for value, target in zip(found.log_evidence[0, 0], expected, strict=False):
            assert target is None or value == pytest.approx(target, abs=5e-3)
        assert best == found.best.C_W
        assert found.unresolved == ()


def test_two_inputs_deep_tanh_is_not_best_at_criticality():
    y = np.array([[1.0], [0.8]])
    found = evidence_landscape(
        "tanh", Data(X, y), EXACT, depth=[50], C_b=[0.0], C_W=[0.9, 1.0, 2.0]
    )
    difference = found.log_evidence[0, 0] - [-1971, -52.75, -2.62]
    assert np.all(np.abs(difference) < [1.0, 5e-3, 5e-3])  # the digits printed in the reference
    assert found.best.C_W == 2.0


def test_finite_width_uses_the_order_one_over_n():
    y = np.array([[0.4], [0.3]])
    found = evidence_landscape(
        "sin", Data(X, y), EXACT, depth=[2, 3], C_b=[0.1], C_W=[1.2], width=40
    )
    for L, value in zip((2, 3), found.log_evidence.ravel(), strict=True):
        network = MLP([2, *[40] * (L - 1), 1], "sin", 0.1, 1.2)
        assert value == pytest.approx(log_evidence(network, Data(X, y), EXACT).value, rel=1e-12)
    assert found.width == 40


def test_points_without_a_value_are_nan_with_a_reason():
    x = np.concatenate([X, X[:1]])
    y = np.array([[1.0], [0.5], [0.9]])
    found = evidence_landscape("relu", Data(x, y), EXACT, depth=[3], C_b=[0.0], C_W=[2.0])
    assert np.isnan(found.log_evidence).all()
    assert found.unresolved[0].startswith("depth=3, C_b=0, C_W=2: smallest over largest")
    with pytest.raises(InvalidValueError, match="no point could be evaluated"):
        _ = found.best
    overflow = evidence_landscape("relu", Data(X, y[:2]), EXACT, depth=[20], C_b=[0.0], C_W=[1e15])
    assert "overflows" in overflow.unresolved[0]


def test_bad_arguments():
    y = np.array([[1.0], [0.5]])
    with pytest.raises(InvalidValueError, match="at least one value"):
        evidence_landscape("relu", Data(X, y), EXACT, depth=[], C_b=[0.0], C_W=[2.0])
    with pytest.raises(InvalidValueError, match="C_W"):
        evidence_landscape("relu", Data(X, y), EXACT, depth=[2], C_b=[0.0], C_W=[-1.0])
