"""Networks trained on cross-entropy, by a loop written here, against order 1/n (D13).

A network is compared with the frozen path from its own initial outputs, which takes most of the
scatter out and leaves all parts but "start", and its NTK with what it was. The broad table, with
digits, batches and momentum, is  python benchmarks/any_loss_agreement.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles import train
from dynagram.networks import MLP
from dynagram.results import Estimate, compare
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, Optax, Training

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1]])
P = np.array([[1.0, 0.0], [0.1, 0.9], [0.8, 0.2]])
TEST = np.array([[1.5, 1.0, 1.4]])
RATES = {"C_b": 0.1, "C_W": 1.4, "lambda_b": 0.5, "lambda_W": 1.0}
ETA, MOMENTS = 1.0, (6, 25)


def network(n, outputs=2):
    return MLP([3, n, n, outputs], "tanh", **RATES)


def apply(layers, x):
    for b, W in layers[:-1]:
        x = jnp.tanh(x @ W + b[None])
    return x @ layers[-1][1] + layers[-1][0][None]


def draw(key, n):
    layers = []
    for fan, out in ((3, n), (n, n), (n, 2)):
        key, first, second = jax.random.split(key, 3)
        W = np.sqrt(RATES["C_W"] / fan) * jax.random.normal(first, (fan, out))
        layers.append((np.sqrt(RATES["C_b"]) * jax.random.normal(second, (out,)), W))
    return layers


def ntk(layers, x):
    J = jax.jacrev(lambda p: apply(p, x))(layers)
    rows = len(x)
    kernel = 0.0
    for b, W in J:
        fan = W.shape[2]
        for part, rate in ((b, RATES["lambda_b"]), (W, RATES["lambda_W"] / fan)):
            flat = part.reshape(rows, 2, -1)
            kernel = kernel + rate * jnp.einsum("aik,bjk->abij", flat, flat)
    return kernel


def slope(z):
    return (jax.nn.softmax(z) - jnp.asarray(P)) / len(P)


@functools.cache
def measured(n, members):
    """n times the mean, and its error, of differences from the frozen path, by name."""
    inputs = np.concatenate([X, TEST])
    Theta = jnp.asarray(frozen_kernels(network(n), inputs, layers="last").Theta[-1][:, :3])
    center = jnp.asarray(predicted().samples.means_infinite)

    def one(key):
        layers = draw(key, n)
        z_0, H_0 = apply(layers, inputs), ntk(layers, inputs)

        def step(_, held):
            layers, a = held
            loss = lambda p: -jnp.sum(P * jax.nn.log_softmax(apply(p, X))) / len(P)  # noqa: E731
            rates = [(RATES["lambda_b"], RATES["lambda_W"] / W.shape[0]) for _, W in layers]
            pairs = zip(layers, jax.grad(loss)(layers), rates, strict=True)
            moved = [(b - ETA * r * u, W - ETA * q * v) for (b, W), (u, v), (r, q) in pairs]
            return moved, a + ETA * slope(z_0[:3] - Theta[:3] @ a)

        seen, held, start = [], (layers, jnp.zeros((3, 2))), 0
        for index, end in enumerate(MOMENTS):
            held = jax.lax.fori_loop(start, end, step, held)
            z, frozen = apply(held[0], inputs), z_0 - Theta @ held[1]
            big, small = (v.ravel() - center[index].ravel() for v in (z, frozen))
            products = jnp.outer(big, big) - jnp.outer(small, small)
            seen.append((z - frozen, products, ntk(held[0], inputs) - H_0))
            start = end
        return tuple(jnp.stack(part) for part in zip(*seen, strict=True))

    run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=250))
    parts = run(jax.random.split(jax.random.key(n), members))
    found = [np.asarray(part) for part in parts]
    return {
        name: (n * part.mean(axis=0), n * part.std(axis=0) / np.sqrt(members))
        for name, part in zip(("mean", "covariance", "ntk"), found, strict=True)
    }


@functools.cache
def predicted():
    how = Training(GradientDescent(ETA), loss="cross-entropy", steps=MOMENTS[1], record=MOMENTS)
    return predict_outputs(network(64), Data(X, P, test_x=np.concatenate([TEST])), how)


def extrapolated(name, members):
    """2 D(2n) − D(n), which is free of the next order, from n = 48."""
    (small, small_error), (large, large_error) = (measured(n, members)[name] for n in (48, 96))
    return 2 * large - small, np.hypot(2 * large_error, small_error)


MEMBERS = 12_000
PARTS = {"A, B": ("ΔNTK",), "P, Q": ("dNTK",), "R to U": ("ddI", "ddII")}


@pytest.mark.slow
def test_cross_entropy_means_and_covariances():
    """|z| < 4 everywhere; without A, B or P, Q or R to U it is not."""
    found = predicted()
    numerical = found.samples.errors * found.width
    mean, mean_error = extrapolated("mean", MEMBERS)
    both, both_error = extrapolated("covariance", MEMBERS)
    both_error = np.hypot(both_error, found.covariance_errors.reshape(both.shape) * found.width)
    mean_error = np.hypot(mean_error, numerical)

    def worst(left_out=()):
        parts = [name for name in found.parts_of_mean if name not in ("start", *left_out)]
        expected = sum(found.parts_of_mean[name] for name in parts)
        product = sum(found.parts_of_covariance[name] for name in parts).reshape(both.shape)
        z = np.abs(mean - expected) / mean_error
        return max(np.max(z), np.max(np.abs(both - product) / both_error))

    assert worst() < 4.0
    for name, parts in PARTS.items():
        assert worst(parts) > 5.0, name
    # Infinite width alone is far off: the corrections are what is tested.
    assert np.max(np.abs(mean) / mean_error) > 10.0


@pytest.mark.slow
def test_mean_ntk_during_training():
    """The change of the mean NTK; what is left falls with the square of the width."""
    found = predicted()
    change = found.estimates["ntk_change"]  # of the test input
    still = np.asarray(found.estimates["ntk_change"].value[0]) * 0.0
    assert still.shape == (1, 1, 2, 2)
    value, error = extrapolated("ntk", MEMBERS)
    how = Training(GradientDescent(ETA), loss="cross-entropy", steps=1, record=[0, 1])
    start = predict_outputs(network(64), Data(X, P, test_x=TEST), how).estimates["ntk_change"]
    expected = change.value - start.value[:1]  # H1, which is there before training
    here = slice(3, 4)
    both = np.hypot(error[:, here, here], change.standard_error)
    z = np.abs(value[:, here, here] - expected) / both
    assert np.max(z) < 4.0
    assert np.max(np.abs(expected) / both) > 20.0
    # n·change at three widths: what is left halves when n doubles.
    left = [
        np.linalg.norm(measured(n, MEMBERS)["ntk"][0][:, here, here] - expected)
        for n in (24, 48, 96)
    ]
    assert 1.5 < left[0] / left[1] < 2.7
    assert left[2] < left[1]


@pytest.mark.slow
def test_the_law_of_initial_outputs():
    """G1 and V: frozen paths from the initial outputs of many narrow networks, without training."""
    n, members = 24, 400_000
    net = MLP([3, n, n, 1], "tanh", C_b=0.3, C_W=3.0, lambda_b=0.5, lambda_W=1.0)
    x, test = X[:1], X[1:2]
    how = Training(GradientDescent(1.0), loss="logistic", steps=6, record=[6])
    found = predict_outputs(net, Data(x, [1.0], test_x=test), how)
    inputs = np.concatenate([x, test])
    Theta = jnp.asarray(frozen_kernels(net, inputs, layers="last").Theta[-1][:, :1])

    def one(key):
        signal, wide = jnp.asarray(inputs), (3, n, n, 1)
        for layer in range(3):
            key, first, second = jax.random.split(key, 3)
            W = jnp.sqrt(3.0 / wide[layer]) * jax.random.normal(first, wide[layer : layer + 2])
            b = jnp.sqrt(0.3) * jax.random.normal(second, (wide[layer + 1],))
            z = signal @ W + b[None]
            signal = jnp.tanh(z)

        def path(z):
            a = jnp.zeros((1, 1))
            for _ in range(6):
                a = a - jax.nn.sigmoid(-(z[:1] - Theta[:1] @ a))
            return (z - Theta @ a)[:, 0]

        return 0.5 * (path(z) + path(-z))  # z and −z are equally probable

    run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=4000))
    z = np.asarray(run(jax.random.split(jax.random.key(5), members)))
    infinite = found.samples.means_infinite[-1, :, 0]
    shift, error = n * (z.mean(axis=0) - infinite), n * z.std(axis=0) / np.sqrt(members)
    expected = found.parts_of_mean["start"][-1, :, 0]
    # The next order is V^{1}/n, a fraction of a few 1/n of it.
    assert np.all(np.abs(shift - expected) < 4.0 * error + 0.25 * np.abs(expected))
    assert np.all(np.abs(shift) > 6.0 * error)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [[[0, 1], [2, 0], [1, 2]], 2])
def test_batches_with_momentum_and_a_schedule(batch):
    """Mean outputs of `train` on a squared error; given batches, and batches drawn anew."""
    data = Data(X, [0.5, -0.4, 0.3], test_x=TEST)
    how = Training(
        Optax("momentum", 0.08, momentum=0.6), steps=12, batch=batch, schedule=[1.0] * 6 + [0.5]
    )
    found = predict_outputs(network(32, outputs=1), data, how)
    seen = train(network(32, outputs=1), data, how, members=60_000, keep_members=False)
    assert compare(found, seen).ok()
    infinite = Estimate(found.mean_infinite, found.error, 1)
    assert not compare(infinite, seen.estimate("mean")).ok(6.0)
