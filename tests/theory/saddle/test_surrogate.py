"""The deep-linear surrogate: its velocity is the gradient, its solver solves, its moments count."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import block_diag

from dynagram.activations import activation
from dynagram.errors import DynagramError
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._network_flow import network_escape
from dynagram.theory.saddle._surrogate import (
    iterated_escape,
    linear_map,
    sharpness,
    surrogate_escape,
    velocity,
)
from dynagram.theory.saddle._tasks import LinearTask, make_task
from dynagram.training import loss_value


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
    chain = Chain.linear(weights, gain=gain, rates=rates)
    found = surrogate_escape(task, chain, levels, rtol=1e-9)
    assert np.allclose(found.times, times, rtol=1e-7)
    last = np.concatenate([w.ravel() for w in found.chain.weights])
    assert np.allclose(last, reference.y_events[-1][0], atol=1e-6)
    speeds = [np.linalg.norm(flow(0, state)) for state in reference.y.T]
    growth = np.linalg.norm(flow(0, last)) / min(speeds)
    assert found.velocity_growth == pytest.approx(math.log(growth), abs=2e-3)
    rough = surrogate_escape(task, chain, levels)
    assert np.allclose(rough.times, times, rtol=1e-4)
    assert rough.steps < found.steps


def test_the_balanced_chain_escapes_at_its_closed_form():
    # w' = w³(1 − w⁴) for four equal scalar layers, until w⁴ = 1/2.
    task = LinearTask(np.eye(1), np.eye(1), 1.0)
    start = [np.full((1, 1), 0.01)] * 4
    found = surrogate_escape(task, Chain.linear(start), [0.125], rtol=1e-8)

    def time(w):
        # ∫ dw/(w³(1 − w⁴)) = −1/(2w²) + ½ artanh(w²)
        return -0.5 / w**2 + 0.5 * math.atanh(w**2)

    assert found.times[0] == pytest.approx(time(0.5**0.25) - time(0.01), rel=1e-6)


def test_levels_already_passed_and_never_reached():
    x, y, weights = problem()
    task = LinearTask.of(x, y)
    high = task.loss(linear_map(weights, 1.0)) + 1.0
    low = task.minimum - 1.0
    found = surrogate_escape(task, Chain.linear(weights), [high, low])
    assert found.times == (0.0, math.inf)
    near = surrogate_escape(task, Chain.linear(weights), [1.1 * task.minimum])
    assert math.isfinite(near.times[0])
    reached = task.loss(linear_map(near.chain.weights, 1.0))
    assert reached == pytest.approx(1.1 * task.minimum, rel=1e-5)
    zero = surrogate_escape(task, Chain.linear([0 * w for w in weights]), [task.minimum])
    assert zero.times == (math.inf,)
    with pytest.raises(DynagramError, match="decreasing"):
        surrogate_escape(task, Chain.linear(weights), [0.1, 0.2])


@pytest.mark.parametrize("loss", ["mean", "cross-entropy", "logistic"])
def test_velocity_of_the_affine_chain_is_the_gradient(loss):
    rng = np.random.default_rng(1)
    x, y, weights = problem(outputs=3)
    x = x + 0.4
    if loss == "cross-entropy":
        y = np.eye(3)[rng.integers(0, 3, len(x))]
    if loss == "logistic":
        y = np.sign(y)
    sizes = [len(W) for W in weights]
    biases, (gains, offsets) = [rng.normal(size=n) for n in sizes], rng.normal(size=(2, 11))
    parts = [np.split(values, [6]) for values in (gains, offsets)]
    rates, bias_rates = (1.0, 0.5, 2.0), (0.3, 0.0, 1.5)
    chain = Chain(tuple(weights), tuple(biases), *map(tuple, parts), rates, bias_rates)
    name = "half-sum" if loss == "mean" else loss
    # Per sample and summed over outputs, where the library's losses differ in their factors.
    factor = {"mean": 1.0 / len(x), "cross-entropy": 1.0, "logistic": 3.0}[loss]

    def value(layers):
        h = jnp.asarray(x)
        for index, layer in enumerate(layers):
            h = h @ layer[:, :-1].T + layer[None, :, -1]
            if index < 2:
                h = jnp.asarray(parts[1][index])[None] + jnp.asarray(parts[0][index])[None] * h
        return factor * loss_value(name, h, jnp.asarray(y))

    layers = [jnp.asarray(layer) for layer in chain.joined]
    task = make_task(loss, x, y)
    assert task.loss(*chain.affine_map) == pytest.approx(float(value(layers)), rel=1e-12)
    slopes = jax.grad(value)(layers)
    for slope, left, right, weight, bias in zip(
        slopes, *velocity(task, chain), rates, bias_rates, strict=True
    ):
        speed = np.array([*[weight] * (slope.shape[1] - 1), bias])
        assert np.allclose(left.T @ right, -np.asarray(slope) * speed, rtol=1e-10, atol=1e-13)
    # The network's own flow has the same velocity where the activation is a straight line.
    ones = [np.ones(n) for n in sizes[:2]]
    lines = (tuple(ones), tuple(0 * one for one in ones))
    plain = Chain(tuple(weights), tuple(biases), *lines, rates, bias_rates)
    level = task.loss(*plain.affine_map) - 0.1
    both = [
        surrogate_escape(task, plain, [level], rtol=1e-6),
        network_escape(activation("linear"), loss, x, y, plain, [level], rtol=1e-6),
    ]
    assert both[0].times == pytest.approx(both[1].times, rel=1e-6)


def test_a_slower_mean_gives_the_same_escape():
    rng = np.random.default_rng(2)
    x, _, _ = problem(inputs=4)
    y = 3.0 + x[:, :1]
    weights = (0.02 * rng.normal(size=(12, 4)), 0.02 * rng.normal(size=(1, 12)))
    task = make_task("mean", x, y)
    ones = np.ones(12)
    chain = Chain(
        weights, (0 * ones, np.zeros(1)), (ones,), (0.5 * ones,), (1e-2, 1.0), (0.0, 30.0)
    )
    level = 0.5 * (task.centred.power / 2 + task.least)
    exact = surrogate_escape(task, chain, [level])
    slow = surrogate_escape(task, chain, [level], slowness=0.1)
    assert slow.slowness == 0.1
    assert exact.times[0] == pytest.approx(slow.times[0], rel=0.02)
    assert slow.steps < 0.6 * exact.steps


def test_steps_taken_one_by_one_are_those_of_descent_with_momentum():
    x, y, weights = problem()
    task, chain = make_task("mean", x, y), Chain.linear(weights)
    level = 0.5 * (task.loss(*chain.affine_map) + task.minimum)

    def loss(weights):
        h = jnp.asarray(x)
        for W in weights:
            h = h @ W.T
        return 0.5 * jnp.mean(jnp.sum((h - jnp.asarray(y)) ** 2, axis=1))

    now, buffer, count = [jnp.asarray(W) for W in weights], [0.0 * W for W in weights], 0
    gradient = jax.jit(jax.value_and_grad(loss))
    while float(gradient(now)[0]) > level:
        buffer = [0.9 * v - 0.1 * g for v, g in zip(buffer, gradient(now)[1], strict=True)]
        now, count = [W + v for W, v in zip(now, buffer, strict=True)], count + 1
    steps = iterated_escape(task, chain, level, rate=0.1, momentum=0.9, most=1000)
    assert count - 1 <= steps <= count
    assert iterated_escape(task, chain, level, rate=0.1, momentum=0.9, most=3) == math.inf


@pytest.mark.parametrize("loss", ["mean", "cross-entropy", "logistic"])
def test_sharpness_is_the_top_of_the_gauss_newton_matrix(loss):
    # Dense, with the Jacobian by finite differences and rates that differ between layers.
    x, y, weights = problem(outputs=3, scale=0.4)
    y = {"mean": y, "cross-entropy": np.eye(3)[y.argmax(1)], "logistic": np.sign(y)}[loss]
    rng = np.random.default_rng(1)
    chain = Chain(
        tuple(weights),
        tuple(0.1 * rng.normal(size=len(W)) for W in weights),
        tuple(0.5 + rng.random(len(W)) for W in weights[:-1]),
        tuple(0.3 * rng.normal(size=len(W)) for W in weights[:-1]),
        (1.0, 0.5, 2.0),
        (0.3, 1.0, 0.7),
    )

    def outputs(layers):
        P, c = chain.with_layers(layers).affine_map
        return (x @ P.T + c).ravel()

    columns, speeds = [], []
    for index, layer in enumerate(chain.joined):
        for place in np.ndindex(layer.shape):
            plus, minus = chain.joined, chain.joined
            plus[index][place] += 1e-5
            minus[index][place] -= 1e-5
            columns.append((outputs(plus) - outputs(minus)) / 2e-5)
            is_bias = place[1] == layer.shape[1] - 1
            speeds.append(chain.bias_rates[index] if is_bias else chain.rates[index])
    J = np.array(columns).T
    z = outputs(chain.joined).reshape(y.shape)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    s = 1.0 / (1.0 + np.exp(-z))
    each = {
        "mean": np.broadcast_to(np.eye(3), (len(x), 3, 3)),
        "cross-entropy": p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :],
        "logistic": (s * (1 - s))[:, :, None] * np.eye(3),
    }[loss]
    H = block_diag(*each) / len(x)
    expected = np.linalg.eigvals(J * np.array(speeds) @ J.T @ H).real.max()
    assert sharpness(make_task(loss, x, y), chain) == pytest.approx(expected, rel=2e-3)
