"""Finite times: divided differences, the end as a limit, matrix functions, real training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Frame
from dynagram.theory.training._finite import trained, training_tensors
from dynagram.theory.training._in_time import predict_in_time, trained_in_time
from dynagram.theory.training._infinite import from_problem
from dynagram.theory.training._mean import mean_parts
from dynagram.theory.training._one_network import linearised_output, trained_output
from dynagram.theory.training._problem import Problem
from dynagram.theory.training._projectors import finite_time_projectors, projectors

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
T = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])


def network(width, depth=2):
    per_layer = ((0.10, 0.20, 0.15), (1.1, 1.3, 0.9), (0.3, 0.5, 0.2), (0.7, 0.6, 0.9))
    return MLP([3, *[width] * (depth - 1), 2], "tanh", *(v[:depth] for v in per_layer))


@pytest.mark.parametrize("decay", [Decay.descent(0.3, 6), Decay.flow(1.7)])
def test_divided_differences(decay):
    r = np.array([0.0, 0.4, 1.1])
    D = decay(r)
    first = decay(r[:, None], r[None, :])
    for i in range(3):
        for j in range(3):
            if i != j:
                assert first[i, j] == pytest.approx((D[i] - D[j]) / (r[i] - r[j]), rel=1e-12)
    step = 1e-6
    slope = (decay(r + step) - decay(r - step)) / (2 * step)
    np.testing.assert_allclose(np.diagonal(first), slope, rtol=1e-7)
    second = decay(*r[:, None])
    expected = (first[0, 1] - first[1, 2]) / (r[0] - r[2])
    assert second.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("eta", [0.3, None])
def test_projectors_end_at_those_of_the_end(eta):
    h = np.array([0.3, 0.7, 1.9])
    algorithm = Algorithm("gd", eta) if eta else Algorithm("flow")
    decay = Decay.descent(eta, 400) if eta else Decay.flow(150.0)
    late, end = finite_time_projectors(h, decay, np.zeros(1)), projectors(h, algorithm)
    for name in ("response", "variance", "Z_A", "Z_B", "Z_IA", "Z_IB", "Z_IIA", "Z_IIB"):
        np.testing.assert_allclose(
            getattr(late, name), getattr(end, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    # Training outputs have stopped.
    train = finite_time_projectors(h, decay, h)
    assert max(np.max(np.abs(getattr(train, name))) for name in ("response", "Z_A", "Z_IIB")) < 1e-9


@pytest.fixture(scope="module")
def prepared():
    problem = Problem.checked(network(64, 3), X, Y, T)
    return problem, training_tensors(problem)


def test_the_end_and_the_start(prepared):
    problem, tensors = prepared
    end = trained(problem, tensors, Algorithm("gd", 0.4))
    late = trained_in_time(problem, tensors, Algorithm("gd", 0.4), steps=400)
    for name, part in end.mean_parts.items():
        np.testing.assert_allclose(late.test.mean_parts[name], part, rtol=1e-10, atol=1e-12)
    for name, part in end.covariance_parts.items():
        found = late.test.covariance_parts[name]
        np.testing.assert_allclose(found, part, rtol=1e-10, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(late.test.std, end.std, rtol=1e-10)
    np.testing.assert_allclose(late.test.mean_error, end.mean_error, rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(
        late.test.covariance_error, end.covariance_error, rtol=1e-6, atol=1e-14
    )
    assert late.test.regime.verdict == end.regime.verdict
    np.testing.assert_allclose(late.train.mean, Y, rtol=1e-10)
    np.testing.assert_allclose(late.samples.covariance_correction[:2], 0.0, atol=1e-10)
    # Before the first step: K and the mean metric's own correction.
    start = trained_in_time(problem, tensors, Algorithm("gd", 0.4), steps=0).samples
    np.testing.assert_allclose(start.mean, 0.0, atol=1e-14)
    for found, kernel in (
        (start.covariance_infinite, tensors.frozen.K[-1]),
        (start.covariance_correction, tensors.mode(0)["G1"]),
    ):
        expected = np.einsum("ts,ij->tisj", kernel, np.eye(2))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


def test_small_steps_are_the_flow(prepared):
    problem, tensors = prepared
    flow = trained_in_time(problem, tensors, Algorithm("flow"), time=1.0).samples
    fine, finer = (
        trained_in_time(problem, tensors, Algorithm("gd", 1 / k), steps=k).samples
        for k in (500, 1000)
    )
    for name in ("mean_correction", "covariance_correction"):
        limit = 2 * getattr(finer, name) - getattr(fine, name)
        np.testing.assert_allclose(limit, getattr(flow, name), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "when"),
    [(Algorithm("gd", 0.3), {"steps": 3}), (Algorithm("flow"), {"time": 0.8})],
)
def test_infinite_width_is_that_of_the_kernel(prepared, algorithm, when):
    problem, tensors = prepared
    found = trained_in_time(problem, tensors, algorithm, **when)
    joint = Problem.checked(problem.network, X, Y, problem.inputs)
    expected = from_problem(joint, algorithm).at(**when)
    assert found.time == expected.time
    np.testing.assert_allclose(found.samples.mean_infinite, expected.mean, rtol=1e-10)
    spread = np.einsum("ts,ij->tisj", expected.covariance, np.eye(2))
    np.testing.assert_allclose(found.samples.covariance_infinite, spread, rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(found.test.mean_infinite, found.samples.mean_infinite[2:])
    np.testing.assert_array_equal(
        found.train.covariance_correction, found.samples.covariance_correction[:2, :, :2]
    )


def test_a_repeated_input_counts_twice():
    """Two copies of one input at step η are one input at 2η, when it is the only one."""
    net, y = network(32), Y[:1]
    once = predict_in_time(net, X[:1], y, T, eta=0.4, steps=3).samples
    twice = predict_in_time(net, X[[0, 0]], Y[[0, 0]], T, eta=0.2, steps=3).samples
    np.testing.assert_allclose(twice.mean_correction, once.mean_correction, rtol=1e-10)
    np.testing.assert_allclose(twice.covariance_correction, once.covariance_correction, rtol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "when", "message"),
    [
        ("flow", {}, "`trained` gives the end"),
        ("flow", {"steps": 3}, "gradient flow a `time`"),
        ("two-step", {"steps": 3}, "gradient descent takes `steps`"),
        ("gd", {"time": 1.0, "eta": 0.2}, "gradient descent takes `steps`"),
        ("gd", {"steps": 3, "eta": 20.0}, "2/λ_max"),
    ],
)
def test_refusals(algorithm, when, message):
    with pytest.raises(InvalidValueError, match=message):
        predict_in_time(network(8), X, Y, T, algorithm=algorithm, **when)


@pytest.mark.parametrize("decay", [Decay.descent(0.3, 5), Decay.flow(1.2)])
def test_variance_of_the_kernel_as_a_matrix_function(decay):
    """Kernels Θ ± sΔ in equal shares: E[Ĥ_β f(Ĥ)] y to order s² is what A = ΔΔ gives."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(5, 8))
    Theta, delta = root @ root.T / 8, rng.normal(size=(5, 5))
    delta = (delta + delta.T) / 2
    y = rng.normal(size=(3, 1))

    def path(H):
        inner = H[:3, :3]
        left = (
            np.linalg.matrix_power(np.eye(3) - decay.eta * inner, decay.steps)
            if decay.eta
            else expm(-decay.time * inner)
        )
        return H[:, :3] @ np.linalg.solve(inner, (np.eye(3) - left) @ y)

    zero = np.zeros((5,) * 4)
    tensors = dict.fromkeys("BPQRSTU", zero) | {"H1": np.zeros((5, 5))}
    tensors["A"] = np.einsum("ab,cd->abcd", delta, delta)
    frame = Frame.of(Theta, np.ones(3))
    slots, moved = Slots.of(tensors, frame), {}
    for row, start in (("t", np.zeros(1)), ("a", frame.h)):
        z, block = finite_time_projectors(frame.h, decay, start), Slots(slots.tensors, frame, row)
        linear, cubic = linear_coefficients(block, z, 1), cubic_coefficients(block, z)
        moved[row] = mean_parts(block, z, frame.basis @ y, np.eye(3), linear, cubic)["ΔNTK"]
    carried = Theta[3:, :3] @ frame.basis.T / frame.h
    s = 1e-3
    second = (path(Theta + s * delta) + path(Theta - s * delta) - 2 * path(Theta)) / (2 * s**2)
    np.testing.assert_allclose(moved["t"] + carried @ moved["a"], second[3:], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(frame.basis.T @ moved["a"], second[:3], rtol=1e-4, atol=1e-6)


def descended(net, params, eta, steps, x, y):
    """Plain gradient descent on ½ Σ (z − y)²."""

    def loss(p):
        return 0.5 * jnp.sum((net.apply(p, x) - y) ** 2)

    @jax.jit
    def step(p, _):
        g = jax.grad(loss)(p)
        rates = zip(net.lambda_b, net.lambda_W, net.widths[:-1], strict=True)
        return tuple(
            Layer(layer.b - eta * b * d.b, layer.W - eta * W / n * d.W)
            for layer, d, (b, W, n) in zip(p, g, rates, strict=True)
        ), None

    return jax.lax.scan(step, params, None, length=steps)[0]


@pytest.mark.parametrize("steps", [2, 300])
def test_one_network_against_its_own_training(steps):
    """The error with all differentials falls faster than n^{-3/2}, without them as 1/n."""
    errors = {}
    points = np.concatenate([T, X[:1]])  # a training input too, before the end
    for width in (64, 512):
        net, plain, whole = network(width), [], []
        for seed in range(6):
            params = net.draw(jax.random.key(seed))
            how = {"eta": 0.4, "steps": steps if steps < 300 else None}
            found = trained_output(Model(net, params), X, 0.5 * Y, points, **how)
            z = np.asarray(net.apply(descended(net, params, 0.4, steps, X, 0.5 * Y), points))
            plain.append(np.abs(z - found.linearised)[:2])
            whole.append(np.abs(z - found.output)[: 3 if steps < 300 else 2])
            own = linearised_output(Model(net, params), X, 0.5 * Y, points, **how)
            np.testing.assert_allclose(own, found.linearised, rtol=1e-9, atol=1e-12)
        errors[width] = np.median(plain), np.median(whole)
    exponent = np.log(np.array(errors[512]) / np.array(errors[64])) / np.log(8)
    assert -1.4 < exponent[0] < -0.6
    assert exponent[1] < -1.5
    assert errors[512][1] < 0.02 * errors[512][0]


def test_kinks_are_refused_for_single_networks():
    net = MLP([3, 16, 2], "relu", C_b=0.0, C_W=2.0)
    params = net.draw(jax.random.key(0))
    with pytest.raises(InvalidValueError, match="σ' jumps"):
        trained_output(Model(net, params), X, Y, T, eta=0.1)
    assert linearised_output(Model(net, params), X, Y, T, eta=0.1).shape == (2, 2)
