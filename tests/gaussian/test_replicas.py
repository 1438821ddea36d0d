"""Means of replicas one at a time, against all at once; fewer modes keep the variance."""

import numpy as np
import pytest

from dynagram.gaussian._replicas import ReplicaMean

VALUES = np.random.default_rng(0).normal(5.0, 1.0, (8, 3, 3))


def _taken(modes, seed=0):
    found = ReplicaMean(8, modes, seed)
    for value in VALUES:
        found.add(value)
    return found


def test_all_modes_are_the_deviations():
    found = _taken(9)
    mean = VALUES.mean(axis=0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(found.deviations, (VALUES - mean) / np.sqrt(56), atol=1e-14)
    error = VALUES.std(axis=0, ddof=1) / np.sqrt(8)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-13)
    np.testing.assert_allclose(np.sum(np.square(found.deviations), axis=0), error**2, rtol=1e-13)


def test_equal_replicas_have_no_error():
    found = ReplicaMean(8, 9, 0)
    for _ in range(8):
        found.add(np.array([0.1, 1.0 / 3.0]))
    assert np.all(found.standard_error < 1e-16)


@pytest.mark.parametrize("modes", [4, 2])
def test_sums_of_deviations_keep_the_variance(modes):
    full = _taken(9).standard_error ** 2
    squares = []
    for seed in range(4000):
        found = _taken(modes, seed)
        assert len(found.deviations) == modes - 1
        squares.append(np.sum(np.square(found.deviations), axis=0))
    np.testing.assert_allclose(found.mean, VALUES.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.standard_error**2, full, rtol=1e-13)
    error = np.std(squares, axis=0) / np.sqrt(len(squares))
    assert np.all(np.abs(np.mean(squares, axis=0) - full) < 4 * error)
