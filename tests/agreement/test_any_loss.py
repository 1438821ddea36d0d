"""Networks trained on cross-entropy, by a loop written here, against order 1/n (D13).

A network is compared with the frozen path from its own initial outputs, and with what its own NTK,
held fixed, changes in it to first order; so most of the scatter is gone, and parts are seen apart.
The broad table, with digits, batches and momentum, is  python benchmarks/any_loss_agreement.py.
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
from dynagram.theory._predict import predict
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
    kernel = 0.0
    for b, W in J:
        for part, rate in ((b, RATES["lambda_b"]), (W, RATES["lambda_W"] / W.shape[2])):
            flat = part.reshape(len(x), 2, -1)
            kernel = kernel + rate * jnp.einsum("aik,bjk->aibj", flat, flat)
    return kernel


def step(layers):
    def loss(p):
        return -jnp.sum(P * jax.nn.log_softmax(apply(p, X))) / len(P)

    rates = [(RATES["lambda_b"], RATES["lambda_W"] / W.shape[0]) for _, W in layers]
    pairs = zip(layers, jax.grad(loss)(layers), rates, strict=True)
    return [(b - ETA * r * u, W - ETA * q * v) for (b, W), (u, v), (r, q) in pairs]


def path(z_0, H):
    """Outputs at the moments with an NTK (sample, output, train, output) held fixed."""
    a, seen = jnp.zeros((3, 2)), []
    for index in range(MOMENTS[-1]):
        z = z_0 - jnp.einsum("siaj,aj->si", H, a)
        a = a + ETA * (jax.nn.softmax(z[:3]) - jnp.asarray(P)) / len(P)
        if index + 1 in MOMENTS:
            seen.append(z_0 - jnp.einsum("siaj,aj->si", H, a))
    return jnp.stack(seen)


def twice(left, right):
    """left ⊗ right and its transpose, at every moment."""
    both = jnp.einsum("tsi,trj->tsirj", left, right)
    return both + jnp.einsum("tsi,trj->trjsi", left, right)


def statistics(one, n, members, batch):
    """n times mean and standard error of the arrays that `one(key)` gives."""
    run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=batch))
    found = [np.asarray(part) for part in run(jax.random.split(jax.random.key(n), members))]
    return [(n * part.mean(axis=0), n * part.std(axis=0) / np.sqrt(members)) for part in found]


@functools.cache
def measured(n, members, trained):
    """What the own NTK, held fixed, changes in first order; if `trained`, what is left beside it.

    Of the mean and of the products of two outputs about the mean at infinite width. The first are
    H1, D and F and need no training; the others are of order 1/n in every network.
    """
    inputs = np.concatenate([X, TEST])
    frozen = frozen_kernels(network(n), inputs, layers="last").Theta[-1][:, :3]
    Theta = jnp.einsum("sa,ij->siaj", jnp.asarray(frozen), jnp.eye(2))
    center = jnp.asarray(predicted().samples.means_infinite)

    def one(key):
        layers = draw(key, n)
        z_0, shift = apply(layers, inputs), ntk(layers, inputs)[:, :, :3] - Theta
        still, first = jax.jvp(lambda H: path(z_0, H), (Theta,), (shift,))
        products = twice(still - center, first)
        if not trained:
            return first, products, projected(first, products)
        seen, start = [], 0
        for end in MOMENTS:
            layers = jax.lax.fori_loop(start, end, lambda _, p: step(p), layers)
            seen.append(apply(layers, inputs))
            start = end
        d = jnp.stack(seen) - still
        both = twice(still - center, d) + 0.5 * twice(d, d)
        return d - first, both - products, projected(d - first, both - products)

    return statistics(one, n, members, 250)


@functools.cache
def predicted():
    how = Training(GradientDescent(ETA), loss="cross-entropy", steps=MOMENTS[1], record=MOMENTS)
    return predict_outputs(network(64), Data(X, P, test_x=TEST), how)


def extrapolated(widths, members, trained):
    """2 D(2n) − D(n), which is free of the next order, of mean and covariance."""
    small, large = (measured(n, members, trained) for n in widths)
    return [
        (2 * b - a, np.hypot(2 * b_error, a_error))
        for (a, a_error), (b, b_error) in zip(small, large, strict=True)
    ]


PARTS = ("H1", "zΔH", "ΔNTK", "dNTK", "ddI", "ddII")


def projected(mean, covariance):
    """Along the mean and the covariance of every part: all entries together see more than one."""
    rows = []
    for name in PARTS:
        for value, parts in (
            (mean, predicted().parts_of_mean), (covariance, predicted().parts_of_covariance),
        ):  # fmt: skip
            direction = parts[name] / np.linalg.norm(parts[name])
            rows.append(jnp.sum(value * jnp.asarray(direction)))
    return jnp.stack(rows)


def worst(measurements, parts):
    """The largest |z| of mean, covariance and projections against some of the parts."""
    found, scores = predicted(), []
    mean, covariance = (
        sum(prediction[name] for name in parts)
        for prediction in (found.parts_of_mean, found.parts_of_covariance)
    )
    errors = [error * found.width for error in (found.mean_errors, found.covariance_errors)]
    errors.append(np.tile([rms(error) for error in errors], len(PARTS)))
    expected = (mean, covariance, np.asarray(projected(mean, covariance)))
    for (value, error), prediction, numerical in zip(measurements, expected, errors, strict=True):
        scores.append(np.max(np.abs(value - prediction) / np.hypot(error, numerical)))
    return max(scores)


def rms(values):
    return np.sqrt(np.mean(values**2))


@pytest.mark.slow
def test_what_the_own_ntk_changes():
    """H1, D and F, of untrained networks; without D and F it is far off."""
    measurements = extrapolated((24, 48), 40_000, trained=False)
    assert worst(measurements, ("H1", "zΔH")) < 4.0
    assert worst(measurements, ("H1",)) > 6.0


@pytest.mark.slow
def test_what_else_training_changes():
    """A, B, then P, Q, then R to U, of trained networks; without any of them it is far off."""
    measurements = extrapolated((48, 96), 4_000, trained=True)
    parts = ("ΔNTK", "dNTK", "ddI", "ddII")
    assert worst(measurements, parts) < 4.0
    for left_out in (("ΔNTK",), ("dNTK",), ("ddI", "ddII")):
        rest = [name for name in parts if name not in left_out]
        assert worst(measurements, rest) > 6.0, left_out


@pytest.mark.slow
def test_mean_ntk_during_training():
    """The change of the mean NTK at the test input; what is left falls with the square of n."""
    found = predicted()
    change = found.estimates["ntk_change"]
    inputs = np.concatenate([X, TEST])
    # H1, which is there before training, is the same at all moments.
    start = predict(network(48), inputs, ["H1"])["H1"][-1, 3, 3] * np.eye(2)
    expected = change.value[:, 0, 0] - start[None]

    def at_width(n):
        def one(key):
            layers = draw(key, n)
            before, seen, begin = ntk(layers, TEST), [], 0
            for end in MOMENTS:
                layers = jax.lax.fori_loop(begin, end, lambda _, p: step(p), layers)
                seen.append((ntk(layers, TEST) - before)[0, :, 0])
                begin = end
            return (jnp.stack(seen),)

        return statistics(one, n, 4_000, 250)[0]

    (a, _), (b, b_error), (c, c_error) = (at_width(n) for n in (32, 64, 128))
    error = np.hypot(np.hypot(2 * c_error, b_error), change.standard_error[:, 0, 0])
    assert np.max(np.abs(2 * c - b - expected) / error) < 4.0
    assert np.max(np.abs(expected) / error) > 20.0
    left = [np.linalg.norm(value - expected) for value in (a, b, c)]
    assert left[0] / left[1] > 1.4
    assert left[1] / left[2] > 1.4


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
