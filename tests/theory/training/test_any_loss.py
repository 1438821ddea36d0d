"""Any loss with a frozen kernel: scipy's integrator, closed forms, conservation, refusals."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from dynagram.errors import InvalidValueError
from dynagram.theory.training import kernel_descent, kernel_flow
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.training import GradientDescent, GradientFlow, Training

RNG = np.random.default_rng(3)
ROOT = RNG.normal(size=(6, 9))
THETA = ROOT @ ROOT.T / 9
INITIAL = RNG.normal(size=(6, 3))
P = np.array([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6], [1.0, 0.0, 0.0]])


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_cross_entropy_against_scipy():
    """All outputs, test ones too, as one system of equations; the loss is the mean over four."""

    def velocity(_, flat):
        z = flat.reshape(6, 3)
        return -(THETA[:, :4] @ (softmax(z[:4]) - P)).ravel() / 4

    times = [0.0, 2.8, 20.0, 160.0]
    found = kernel_flow(THETA, INITIAL, P, times, loss="cross-entropy")
    direct = solve_ivp(
        velocity, (0, 160), INITIAL.ravel(), method="DOP853", t_eval=times, rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(found, direct.y.T.reshape(4, 6, 3), rtol=1e-8, atol=1e-8)
    # Σ_i ε_i = 0 conserves the sum over outputs of every sample (10.38).
    sums = found.sum(axis=2)
    np.testing.assert_allclose(sums, np.broadcast_to(sums[0], sums.shape), atol=1e-9)


def test_cross_entropy_ends_at_the_softmax_of_the_trained_logits():
    """(10.36)-(10.38): with soft targets the test softmax is that of MSE on y = log p."""
    end = kernel_flow(THETA, INITIAL, P[:3], [9e4], loss="cross-entropy")[0]
    np.testing.assert_allclose(softmax(end[:3]), P[:3], atol=1e-8)
    response = THETA[3:, :3] @ np.linalg.inv(THETA[:3, :3])
    expected = INITIAL[3:] - response @ (INITIAL[:3] - np.log(P[:3]))
    np.testing.assert_allclose(softmax(end[3:]), softmax(expected), atol=1e-7)
    assert np.max(np.abs(end[3:] - expected)) > 0.1  # raw outputs need not agree


def test_squared_error_has_a_closed_form():
    y = RNG.normal(size=(4, 3))
    found = kernel_flow(THETA, INITIAL, y, [0.3, 2.0], loss="half-sum")
    kernel = InfiniteTraining(THETA, np.eye(6), y, np.ones(4), Training(GradientFlow()))
    for time, z in zip((0.3, 2.0), found, strict=True):
        expected = INITIAL[4:] - kernel.at(time).response[4:] @ (INITIAL[:4] - y)
        np.testing.assert_allclose(z[4:], expected, rtol=1e-8, atol=1e-9)
    descent = Training(GradientDescent(0.2))
    kernel = InfiniteTraining(THETA, np.eye(6), y, np.ones(4), descent)
    steps = kernel_descent(THETA, INITIAL, y, eta=0.2, steps=7, loss="half-sum")
    expected = INITIAL[4:] - kernel.at(7).response[4:] @ (INITIAL[:4] - y)
    np.testing.assert_allclose(steps[4:], expected, rtol=1e-10)


def test_a_loss_of_ones_own_and_small_steps():
    def huber(z, y):
        d = jnp.abs(z - y)
        return jnp.sum(jnp.where(d < 1.0, 0.5 * d**2, d - 0.5))

    y = RNG.normal(size=(2, 3))
    flow = kernel_flow(THETA, INITIAL, y, [1.5], loss=huber)[0]
    coarse, fine = (
        kernel_descent(THETA, INITIAL, y, eta=1.5 / k, steps=k, loss=huber) for k in (2000, 4000)
    )
    # Euler's method converges linearly: Richardson's extrapolation meets the flow.
    np.testing.assert_allclose(2 * fine - coarse, flow, atol=1e-5)


def test_refusals():
    with pytest.raises(InvalidValueError, match="y\\[0\\] .* probabilities"):
        kernel_flow(THETA, INITIAL, 2 * P, [1.0])
    with pytest.raises(InvalidValueError, match="loss = 'mse': write \"half-sum\""):
        kernel_flow(THETA, INITIAL, P, [1.0], loss="mse")
    with pytest.raises(InvalidValueError, match="loss = 'hinge': expected one of half-sum, mean"):
        kernel_flow(THETA, INITIAL, P, [1.0], loss="hinge")
    with pytest.raises(InvalidValueError, match="increasing times"):
        kernel_flow(THETA, INITIAL, P, [2.0, 1.0])
    with pytest.raises(InvalidValueError, match="shape of initial"):
        kernel_flow(THETA, INITIAL[:5], P, [1.0])
    with pytest.raises(InvalidValueError, match="diverges at this step size"):
        kernel_descent(THETA, INITIAL, P, eta=1e3, steps=900, loss="half-sum")
