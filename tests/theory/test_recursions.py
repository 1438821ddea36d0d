"""Fewer modes of the numerical error: the same value, the same variance on average."""

from dataclasses import replace

import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.gaussian.families import TwoPoint
from dynagram.gaussian.four_point import MODES, Covariances
from dynagram.theory.layer import Step
from dynagram.theory.recursions import _reduced

KEY = ((0, 0), (1, 1))


@pytest.mark.parametrize("modes", [4, 2])
def test_sums_of_deviations_keep_the_variance(modes):
    full = np.random.default_rng(0).normal(size=(MODES, 3, 3))
    step = Step.at(
        TwoPoint(activation("tanh"), np.eye(2)), np.eye(2), C_W=1.0, lambda_W=1.0, ratio=0.0,
        products=[], accuracy=0.1, seed=0,
    )  # fmt: skip
    step = replace(step, covariances={KEY: Covariances(full, 8)})
    found = [_reduced(step, modes, seed).covariances[KEY] for seed in range(4000)]
    for one in found[:3]:
        assert one.modes.shape[0] == modes
        np.testing.assert_array_equal(one.value, full[0])
    squares = np.array([one.standard_error**2 for one in found])
    error = squares.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(squares.mean(axis=0) - np.sum(full[1:] ** 2, axis=0)) < 4 * error)
