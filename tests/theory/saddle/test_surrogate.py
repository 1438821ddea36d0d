"""The deep-linear surrogate: its velocity is the gradient, its solver solves, its moments count."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from dynagram.errors import DynagramError
from dynagram.theory.saddle._surrogate import LinearTask, linear_map, surrogate_escape


def problem(outputs=1, inputs=4, widths=(6, 5), scale=0.2, seed=0, samples=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, inputs)) @ rng.normal(size=(inputs, inputs)) / 2
    y = np.tanh(x @ rng.normal(size=(inputs, outputs)))
    sizes = [inputs, *widths, outputs]
    weights = [scale * rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)]
    return x, y, weights


def test_loss_and_minimum_are_those_of_least_squares():
    x, y, weights = problem(outputs=3)
    task = LinearTask.of(x, y)
    P = linear_map(weights, 0.7)
    assert task.loss(P) == pytest.approx(0.5 * np.mean(np.sum((x @ P.T - y) ** 2, axis=1)))
    best = np.linalg.lstsq(x, y, rcond=None)[0].T
    assert task.minimum == pytest.approx(task.loss(best), rel=1e-10)
    centred = LinearTask.of(x, y, centred=True)
    assert centred.power == pytest.approx(np.sum(np.var(y, axis=0)))


def test_a_direction_without_data_is_left_out():
    x, y, _ = problem()
    x[:, 2] = 0.0
    assert math.isfinite(LinearTask.of(x, y).minimum)


@pytest.mark.parametrize("outputs", [1, 3])
def test_escape_equals_an_independent_solver_with_autodiff_gradients(outputs):
    x, y, weights = problem(outputs=outputs)
    rates = [1.0, 0.5, 2.0]
    gain = 0.7
    task = LinearTask.of(x, y)
    shapes = [w.shape for w in weights]

    def split(state):
        pieces = jnp.split(state, np.cumsum([a * b for a, b in shapes])[:-1])
        return [p.reshape(s) for p, s in zip(pieces, shapes, strict=True)]

    def loss(state):
        h = x.T
        for w in split(state):
            h = w @ h
        return 0.5 * jnp.mean(jnp.sum((gain * h.T - y) ** 2, axis=1))

    speed = np.concatenate([np.full(a * b, r) for r, (a, b) in zip(rates, shapes, strict=True)])
    gradient = jax.jit(jax.grad(loss))
    start = np.concatenate([w.ravel() for w in weights])
    first = float(loss(start))
    levels = [first - part * (first - task.minimum) for part in (0.1, 0.5)]

    def flow(_, state):
        return -speed * np.asarray(gradient(state))

    def crossing(level):
        def event(_, state):
            return float(loss(state)) - level

        event.terminal = level == levels[-1]
        return event

    reference = solve_ivp(
        flow, (0, 1e4), start, events=[crossing(level) for level in levels], rtol=1e-11, atol=1e-14
    )
    times = [float(events[0]) for events in reference.t_events]
    found = surrogate_escape(task, weights, gain=gain, levels=levels, rates=rates, rtol=1e-9)
    assert np.allclose(found.times, times, rtol=1e-7)
    last = np.concatenate([w.ravel() for w in found.weights])
    assert np.allclose(last, reference.y_events[-1][0], atol=1e-6)
    growth = np.linalg.norm(flow(0, last)) / np.linalg.norm(flow(0, start))
    assert found.velocity_growth == pytest.approx(math.log(growth), rel=1e-4)
    rough = surrogate_escape(task, weights, gain=gain, levels=levels, rates=rates)
    assert np.allclose(rough.times, times, rtol=1e-4)
    assert rough.steps < found.steps


def test_the_balanced_chain_escapes_at_its_closed_form():
    # w' = w³(1 − w⁴) for four equal scalar layers, until w⁴ = 1/2.
    task = LinearTask(np.eye(1), np.eye(1), 1.0)
    start = [np.full((1, 1), 0.01)] * 4
    found = surrogate_escape(task, start, gain=1.0, levels=[0.125], rtol=1e-8)

    def time(w):
        # ∫ dw/(w³(1 − w⁴)) = −1/(2w²) + ½ artanh(w²)
        return -0.5 / w**2 + 0.5 * math.atanh(w**2)

    assert found.times[0] == pytest.approx(time(0.5**0.25) - time(0.01), rel=1e-6)


def test_levels_already_passed_and_never_reached():
    x, y, weights = problem()
    task = LinearTask.of(x, y)
    high = task.loss(linear_map(weights, 1.0)) + 1.0
    low = task.minimum - 1.0
    found = surrogate_escape(task, weights, gain=1.0, levels=[high, low])
    assert found.times == (0.0, math.inf)
    near = surrogate_escape(task, weights, gain=1.0, levels=[1.1 * task.minimum])
    assert math.isfinite(near.times[0])
    assert task.loss(linear_map(near.weights, 1.0)) == pytest.approx(1.1 * task.minimum, rel=1e-5)
    zero = surrogate_escape(task, [0 * w for w in weights], gain=1.0, levels=[task.minimum])
    assert zero.times == (math.inf,)
    with pytest.raises(DynagramError, match="decreasing"):
        surrogate_escape(task, weights, gain=1.0, levels=[0.1, 0.2])
