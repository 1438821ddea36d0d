"""Averages with a third derivative that holds deltas, against conditioning on the kink."""

import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._third_derivative import third_derivative_average
from dynagram.theory._layer import Step
from oracles.n_point import n_point

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1], [0.2, 0.5, 0.4]])
K = 0.1 + X @ X.T / 2
NAMES = ("elu", "softsign", "relu2")


def averaged(name, samples):
    averages = TwoPoint(activation(name), K[:samples, :samples])
    rates = {"C_W": 1.0, "lambda_W": 1.0, "ratio": 1.0, "accuracy": 1e-3, "seed": 0}
    step = Step.at(averages, averages.K, products=[((2, 2), (1, 1))], **rates)
    curved = step.average(2, 2, 1, 1)
    return third_derivative_average(averages, curved, accuracy=1e-3, seed=1)


def conditioned(name, place):
    return n_point(activation(name), (3, 1, 1, 1), K[np.ix_(place, place)], accuracy=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_one_sample_is_exact(name):
    """All factors at the kink together."""
    found, expected = averaged(name, 1)[0, 0, 0, 0, 0], conditioned(name, (0, 0, 0, 0))
    np.testing.assert_allclose(found, expected.value, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("samples", [2, 4])
def test_any_samples(name, samples):
    """Within the errors, which are small against the deltas and against what is no delta."""
    modes = averaged(name, samples)
    errors = np.sqrt(np.sum(modes[1:] ** 2, axis=0))
    places = {2: ((0, 1, 1, 1), (1, 1, 0, 0), (1, 0, 1, 0)), 4: ((0, 1, 2, 3), (1, 1, 2, 3))}
    for place in places[samples]:
        expected = conditioned(name, place)
        error = np.hypot(errors[place], max(expected.standard_error, 1e-9))
        assert abs(modes[0][place] - expected.value) < 4.0 * error, place
        assert error < 2e-3 * np.max(np.abs(modes[0]))
