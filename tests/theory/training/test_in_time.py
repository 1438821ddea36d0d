"""Finite times: divided differences, the end as a limit, matrix functions, real training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.results import load
from dynagram.results._regime import Judge
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training._contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._mean import mean_parts
from dynagram.theory.training._projectors import end_projectors, finite_time_projectors
from dynagram.theory.training._regime import _judge_variance
from dynagram.theory.training._tensors import output_tensors
from dynagram.training import GradientDescent, GradientFlow, Training

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


def test_divided_differences_of_the_flow_against_mpmath():
    """Near rates and far ones, early and late: to rounding."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.0, 3.0, size=(40, 3))
    rates[:10, 1] = rates[:10, 0] + 1e-7
    rates[10:20, 2] = rates[10:20, 0] = rates[10:20, 1]
    rates[20:25, 0] = 0.0
    for time in (1e-3, 0.4, 7.0, 60.0):
        decay = Decay.flow(time)
        with mpmath.workdps(60):
            for a, b, c in rates:
                # A tiny shift in 60 digits takes the place of limits.
                x = [mpmath.mpf(r) + i * mpmath.mpf(10) ** -18 for i, r in enumerate((a, b, c))]
                f = [mpmath.exp(-r * time) for r in x]
                first = [(f[i] - f[i + 1]) / (x[i] - x[i + 1]) for i in (0, 1)]
                second = (first[0] - first[1]) / (x[0] - x[2])
                assert decay(a, b).item() == pytest.approx(float(first[0]), rel=1e-13)
                assert decay(a, b, c).item() == pytest.approx(float(second), rel=1e-12)


def test_the_end_as_a_divided_difference():
    end, h = Decay.flow(np.inf), np.array([0.3, 0.7])
    np.testing.assert_array_equal(end(np.array([0.0, 0.3])), [1.0, 0.0])
    np.testing.assert_allclose(end(0.0, h), -1.0 / h)
    np.testing.assert_array_equal(end(h[:, None], h[None, :]), 0.0)
    np.testing.assert_allclose(end(0.0, h[:, None], h[None, :]), 1.0 / (h[:, None] * h))


@pytest.mark.parametrize("eta", [0.3, None])
def test_projectors_end_at_those_of_the_end(eta):
    h = np.array([0.3, 0.7, 1.9])
    decay = Decay.descent(eta, 400) if eta else Decay.flow(150.0)
    last = Decay.descent(eta, np.inf) if eta else Decay.flow(np.inf)
    late, end = finite_time_projectors(h, decay, np.zeros(1)), end_projectors(h, last)
    for name in ("response", "variance", "Z_A", "Z_B", "Z_IA", "Z_IB", "Z_IIA", "Z_IIB"):
        np.testing.assert_allclose(
            getattr(late, name), getattr(end, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    # Training outputs have stopped.
    train = finite_time_projectors(h, decay, h)
    assert max(np.max(np.abs(getattr(train, name))) for name in ("response", "Z_A", "Z_IIB")) < 1e-9


NET = network(64, 3)
DATA = Data(X, Y, T)


@pytest.mark.slow
def test_the_end_and_the_start():
    moments = Training(GradientDescent(0.4), record=[0, 400])
    found = predict_outputs(NET, DATA, moments)
    start, late, end = (found.at(time) for time in moments.times)
    for name, part in end.mean_parts.items():
        np.testing.assert_allclose(late.mean_parts[name], part, rtol=1e-10, atol=1e-12)
    for name, part in end.covariance_parts.items():
        np.testing.assert_allclose(
            late.covariance_parts[name], part, rtol=1e-10, atol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(late.std, end.std, rtol=1e-10)
    np.testing.assert_allclose(late.error, end.error, rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(late.covariance_error, end.covariance_error, rtol=1e-6, atol=1e-14)
    for now in (late, end):
        np.testing.assert_allclose(now.train.mean, Y, rtol=1e-10)
        np.testing.assert_allclose(now.samples.covariance_correction[:2], 0.0, atol=1e-10)
    # Alone, each is what it is among others.
    alone = predict_outputs(NET, DATA, Training(GradientDescent(0.4)))
    np.testing.assert_array_equal(alone.mean, end.mean)
    np.testing.assert_array_equal(alone.covariance, end.covariance)
    # Before the first step: K and the mean metric's own correction.
    start = start.samples
    np.testing.assert_allclose(start.mean, 0.0, atol=1e-14)
    inputs = np.concatenate([X, T])
    frozen = frozen_kernels(NET, inputs)
    tensors = output_tensors(NET, inputs, frozen, accuracy=1e-4, seed=0).mode(0)
    for part, kernel in (
        (start.covariance_infinite, frozen.K[-1]),
        (start.covariance_correction, tensors["G1"]),
    ):
        expected = np.einsum("ts,ij->tisj", kernel, np.eye(2))
        np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_the_regime_is_that_of_the_worst_moment():
    how = Training(GradientDescent(0.4), record=[0, 2])
    net = network(8)
    moments = [predict_outputs(net, DATA, how.at(moment)).regime for moment in how.recorded]
    found = predict_outputs(net, DATA, how).regime
    verdicts = [regime.verdict for regime in moments]
    assert verdicts[0] == "trust" != verdicts[-1]
    assert found.verdict in verdicts
    assert ("trust", "careful", "do not use").index(found.verdict) == max(
        ("trust", "careful", "do not use").index(verdict) for verdict in verdicts
    )


def test_training_outputs_have_a_verdict_of_their_own(tmp_path):
    """Late in training little is left of their variance, and the order 1/n is larger than that."""
    how = Training(GradientDescent(0.4), record=[0, 2, 30])
    found = predict_outputs(network(512), DATA, how)
    assert found.regime.verdict == "trust"
    assert found.train.regime.verdict == "do not use"
    assert found.train.test.regime == found.regime
    assert found.samples.regime == found.train.regime
    start = found.at(0.0)
    assert start.train.regime.verdict == "trust"
    late = found.at(12.0).train
    change = np.abs(np.einsum("titi->ti", late.covariance_correction)) / 512
    relative = change / np.einsum("titi->ti", late.covariance_infinite)
    assert late.regime.numbers["expansion_of_variance"] >= relative.max() > 0.9
    again = load(found.save(tmp_path / "outputs.npz"))
    assert again.train.regime == found.train.regime
    assert again.at(0.0).regime == start.regime


def test_corrections_that_cancel_are_not_trusted():
    """What is left of them may be smaller than what they leave out."""

    def judged(second):
        parts = {"one": np.full((1, 1, 1, 1), 20.0), "two": np.full((1, 1, 1, 1), second)}
        judge = Judge()
        _judge_variance(judge, np.ones(1), parts, 100)
        return judge.regime("1/n", "fine")

    assert judged(5.0).verdict == "trust"
    cancelled = judged(-19.0)
    assert cancelled.verdict == "careful"
    assert "infinite width may be as close" in str(cancelled)


@pytest.mark.slow
def test_small_steps_are_the_flow():
    flow = predict_outputs(NET, DATA, Training(GradientFlow(), time=1.0)).samples
    fine, finer = (
        predict_outputs(NET, DATA, Training(GradientDescent(1 / k), steps=k)).samples
        for k in (500, 1000)
    )
    for name in ("mean_correction", "covariance_correction"):
        limit = 2 * getattr(finer, name) - getattr(fine, name)
        np.testing.assert_allclose(limit, getattr(flow, name), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    "how",
    [Training(GradientDescent(0.3), steps=3), Training(GradientFlow(), time=0.8)],
)
def test_infinite_width_is_that_of_the_kernel(how):
    found = predict_outputs(NET, DATA, how)
    joint = Data(X, Y, DATA.inputs)  # training inputs asked as test inputs
    expected = predict_outputs(NET, joint, how, order="infinite")
    assert found.time == expected.time
    np.testing.assert_allclose(found.samples.mean_infinite, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(
        found.samples.covariance_infinite, expected.covariance, rtol=1e-10, atol=1e-14
    )
    np.testing.assert_array_equal(found.test.mean_infinite, found.samples.mean_infinite[2:])
    np.testing.assert_array_equal(
        found.train.covariance_correction, found.samples.covariance_correction[:2, :, :2]
    )


def test_a_repeated_input_counts_twice():
    """Two copies of one input at step η are one input at 2η, when it is the only one."""
    net = network(32)
    once, twice = (
        predict_outputs(net, Data(X[rows], Y[rows], T), Training(GradientDescent(eta), steps=3))
        for rows, eta in (([0], 0.4), ([0, 0], 0.2))
    )
    once, twice = once.samples, twice.samples
    np.testing.assert_allclose(twice.mean_correction, once.mean_correction, rtol=1e-10)
    np.testing.assert_allclose(twice.covariance_correction, once.covariance_correction, rtol=1e-9)


def test_without_test_inputs():
    how = Training(GradientDescent(0.3), record=[3])
    alone, among = (predict_outputs(network(16), data, how) for data in (Data(X, Y), DATA))
    assert alone.mean.shape == (0, 2)
    np.testing.assert_allclose(alone.at(0.9).train.mean, among.at(0.9).train.mean, rtol=1e-10)
    np.testing.assert_allclose(alone.train.mean, Y, atol=1e-12)


def test_refusals():
    with pytest.raises(InvalidValueError, match="2/λ_max"):
        predict_outputs(network(8), DATA, Training(GradientDescent(20.0), steps=3))


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
    frame = Eigenbasis.of(Theta, np.ones(3))
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


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 300])
def test_one_network_against_its_own_training(steps):
    """The error with all differentials falls faster than n^{-3/2}, without them as 1/n."""
    errors = {}
    points = np.concatenate([T, X[:1]])  # a training input too, before the end
    how = Training(GradientDescent(0.4), steps=steps if steps < 300 else None)
    data = Data(X, 0.5 * Y, points)
    for width in (64, 512):
        net, plain, whole = network(width), [], []
        for seed in range(6):
            model = Model(net, net.draw(jax.random.key(seed)))
            found = predict_outputs(model, data, how)
            z = np.asarray(net.apply(descended(net, model.params, 0.4, steps, X, 0.5 * Y), points))
            plain.append(np.abs(z - found.mean_infinite)[:2])
            whole.append(np.abs(z - found.mean)[: 3 if steps < 300 else 2])
            linearised = predict_outputs(model, data, how, order="infinite")
            np.testing.assert_allclose(linearised.mean, found.mean_infinite, rtol=1e-9, atol=1e-12)
            # A training input asked as a test input.
            np.testing.assert_allclose(found.mean[2], found.train.mean[0], rtol=1e-9, atol=1e-12)
            assert not np.any(found.covariance)
        errors[width] = np.median(plain), np.median(whole)
    exponent = np.log(np.array(errors[512]) / np.array(errors[64])) / np.log(8)
    assert -1.4 < exponent[0] < -0.6
    assert exponent[1] < -1.5
    assert errors[512][1] < 0.02 * errors[512][0]


@pytest.mark.slow
def test_one_network_with_skips():
    """The differentials of a network with skips improve on its NTK, as without them."""
    net = MLP([3, 256, 256, 2], "tanh", C_b=0.1, C_W=0.9, lambda_b=0.3, lambda_W=0.6, skip=0.6)
    model, data = net.init(seed=1), Data(X, 0.5 * Y, T)
    found = predict_outputs(model, data, Training(GradientDescent(0.2), steps=3))
    z = np.asarray(net.apply(descended(net, model.params, 0.2, 3, X, 0.5 * Y), T))
    left, linear = (np.max(np.abs(z - part)) for part in (found.mean, found.mean_infinite))
    assert left < 0.1 * linear


def test_kinks_are_refused_for_single_networks():
    model = MLP([3, 16, 2], "relu", C_b=0.0, C_W=2.0).init(seed=0)
    how = Training(GradientDescent(0.1))
    with pytest.raises(InvalidValueError, match='order="infinite" .* σ\' jumps'):
        predict_outputs(model, DATA, how)
    assert predict_outputs(model, DATA, how, order="infinite").mean.shape == (2, 2)
