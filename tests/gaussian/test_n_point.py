"""Averages over one to four samples: exact values, conditioning on kinks, bad input."""

import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._wick import wick
from oracles.n_point import n_point

COVARIANCE = np.array(
    [[1.0, 0.5, 0.3, -0.2], [0.5, 1.2, 0.2, 0.1], [0.3, 0.2, 0.8, 0.4], [-0.2, 0.1, 0.4, 0.9]]
)


def test_linear_is_wick():
    result = n_point(activation("linear"), (0, 0, 0, 0), COVARIANCE)
    assert result.value == pytest.approx(wick(COVARIANCE, (0, 1, 2, 3)), rel=1e-10)


def test_four_sines_in_closed_form():
    """Product of four sines as a sum of exponentials of quadratic forms."""
    total = 0.0
    for signs in np.ndindex(2, 2, 2, 2):
        s = 1.0 - 2.0 * np.array(signs)
        total += np.prod(s) * np.exp(-0.5 * s @ COVARIANCE @ s) / 16  # (1/2i)⁴ = 1/16
    result = n_point(activation("sin"), (0, 0, 0, 0), COVARIANCE)
    assert result.value == pytest.approx(total, abs=1e-9)


def test_relu_delta_in_closed_form():
    """⟨σ''_0 σ'_1 σ'_1 σ_1⟩ = √(K_11 − K_01²/K_00)/(2π√K_00)."""
    index = [0, 1, 1, 1]
    K = COVARIANCE[np.ix_(index, index)]
    expected = np.sqrt(1.2 - 0.25) / (2 * np.pi)
    result = n_point(activation("relu"), (2, 1, 1, 0), K)
    assert result.value == pytest.approx(expected, rel=1e-10)
    assert result.standard_error == 0.0


def test_two_deltas():
    """⟨δ(z_0) δ(z_1) relu(z_2)⟩ = density × conditional mean of a half-normal."""
    K = COVARIANCE[:3, :3]
    block = K[:2, :2]
    variance = K[2, 2] - K[2, :2] @ np.linalg.solve(block, K[:2, 2])
    density = 1 / (2 * np.pi * np.sqrt(np.linalg.det(block)))
    result = n_point(activation("relu"), (2, 2, 0), K)
    assert result.value == pytest.approx(density * np.sqrt(variance / (2 * np.pi)), rel=1e-10)


def test_three_relus_within_their_error():
    """⟨relu_0 relu_1 relu_1⟩ = (1 + c)²/(2√(2π)) for unit variances and correlation c."""
    index = [0, 1, 2]
    K = np.ones((3, 3)) + 0.0
    K[0, 1] = K[1, 0] = K[0, 2] = K[2, 0] = 0.3
    c = 0.3
    expected = (1 + c) ** 2 / (2 * np.sqrt(2 * np.pi))
    result = n_point(activation("relu"), (0, 0, 0), K[np.ix_(index, index)], accuracy=1e-4)
    assert abs(result.value - expected) < 5 * result.standard_error + 1e-12
    assert 0 < result.standard_error < 1e-3


def test_one_and_two_samples_and_a_zero_sample():
    tanh = activation("tanh")
    assert n_point(tanh, (0,), np.array([[1.0]])).value == pytest.approx(0.0, abs=1e-15)
    pair = n_point(tanh, (0, 0), np.array([[1.0, 0.3], [0.3, 1.0]]))
    assert pair.value == pytest.approx(0.110668385547, abs=1e-12)
    K = np.zeros((3, 3))
    K[1:, 1:] = [[1.0, 0.3], [0.3, 1.0]]
    cos = n_point(activation("cos"), (0, 1, 1), K)
    sine = n_point(activation("cos"), (1, 1), K[1:, 1:])
    assert cos.value == pytest.approx(sine.value, rel=1e-9)


def test_bad_input():
    tanh = activation("tanh")
    with pytest.raises(InvalidValueError, match="one to four"):
        n_point(tanh, (0, 0), np.eye(3))
    with pytest.raises(InvalidValueError, match="positive"):
        n_point(tanh, (0, 0), np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(InvalidValueError, match="derivatives of deltas"):
        n_point(activation("relu"), (3, 0, 0), COVARIANCE[:3, :3])
