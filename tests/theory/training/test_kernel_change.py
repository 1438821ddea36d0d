"""Coefficients of a squared error in closed form, against steps taken one by one."""

import numpy as np
import pytest

from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._kernel_change import squared_coefficients

THETA = np.array([[2.0, 0.4, -0.3], [0.4, 1.1, 0.2], [-0.3, 0.2, 0.9]])
K = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, -0.2], [0.1, -0.2, 0.7]])
WEIGHTS = np.array([2.0, 1.0])  # the first training sample comes twice
Y = np.array([[0.9, -0.4], [-0.6, 0.7]])


def stepped(eta, steps):
    """E[u a], E[a a], E[b] by moving the matrix that takes initial errors to errors."""
    square = np.einsum("ab,ij->aibj", K[:2, :2], np.eye(2)) + np.einsum("ai,bj->aibj", Y, Y)
    left, a, b = np.eye(2), np.zeros((2, 2)), np.zeros((2, 2, 2, 2))
    for _ in range(steps):
        force = eta * WEIGHTS[:, None] * left
        b = b + np.einsum("ac,bd,cidj->aibj", force, a, square)
        a = a + force
        left = left - THETA[:2, :2] @ force
    ua = np.zeros((3, 2, 2, 2))
    ua[:2] = np.einsum("ax,ij->xiaj", a, np.eye(2))
    return {"ua": ua, "aa": np.einsum("ac,bd,cidj->aibj", a, a, square), "b": b}


@pytest.mark.parametrize(
    ("decay", "eta", "steps", "tolerance"),
    [
        (Decay.descent(0.3, 0), 0.3, 0, 1e-15),
        (Decay.descent(0.3, 1), 0.3, 1, 1e-14),
        (Decay.descent(0.3, 7), 0.3, 7, 1e-13),
        (Decay.descent(0.3, np.inf), 0.3, 400, 1e-12),
    ],
)
def test_coefficients_equal_steps(decay, eta, steps, tolerance):
    frame = Eigenbasis.of(THETA, WEIGHTS)
    found, expected = squared_coefficients(frame, [decay], Y, K), stepped(eta, steps)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name][0], values, atol=tolerance, err_msg=name)


def test_coefficients_of_flow_are_those_of_small_steps():
    """Two sizes of steps, without what is linear in them."""
    frame = Eigenbasis.of(THETA, WEIGHTS)
    found = squared_coefficients(frame, [Decay.flow(1.5)], Y, K)
    coarse, fine = stepped(0.006, 250), stepped(0.003, 500)
    for name, values in found.items():
        np.testing.assert_allclose(2.0 * fine[name] - coarse[name], values[0], atol=3e-5)
        assert np.max(np.abs(fine[name] - values[0])) > 3e-4


def test_a_leap_is_the_end_without_a_way():
    """One step with κ = Θ⁻¹: a is that of the end and b is zero."""
    frame, leap = Eigenbasis.of(THETA, WEIGHTS), Decay(0.0, 0, np.inf, leaps=True)
    found, end = (squared_coefficients(frame, [d], Y, K) for d in (leap, Decay.flow(np.inf)))
    np.testing.assert_array_equal(found["aa"], end["aa"])
    assert np.max(np.abs(end["b"])) > 0.1
    assert not found["b"].any()
