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
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training._fluctuations import Fluctuations
from dynagram.training import GradientDescent, Optax, Training, TwoStep

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1]])
P = np.array([[1.0, 0.0], [0.1, 0.9], [0.8, 0.2]])
TEST = np.array([[1.5, 1.0, 1.4]])
RATES = {"C_b": 0.1, "C_W": 1.4, "lambda_b": 0.5, "lambda_W": 1.0}
ETA, MOMENTS = 1.0, (6, 25)


SIGMA = {"tanh": jnp.tanh, "elu": jax.nn.elu}


def network(n, outputs=2, sigma="tanh"):
    return MLP([3, n, n, outputs], sigma, **RATES)


def hidden(layers, x, sigma="tanh"):
    """What enters the last layer."""
    for b, W in layers[:-1]:
        x = SIGMA[sigma](x @ W + b[None])
    return x


def apply(layers, x, sigma="tanh"):
    return hidden(layers, x, sigma) @ layers[-1][1] + layers[-1][0][None]


def draw(key, n):
    layers = []
    for fan, out in ((3, n), (n, n), (n, 2)):
        key, first, second = jax.random.split(key, 3)
        W = np.sqrt(RATES["C_W"] / fan) * jax.random.normal(first, (fan, out))
        layers.append((np.sqrt(RATES["C_b"]) * jax.random.normal(second, (out,)), W))
    return layers


def ntk(layers, x, sigma="tanh"):
    J = jax.jacrev(lambda p: apply(p, x, sigma))(layers)
    kernel = 0.0
    for b, W in J:
        for part, rate in ((b, RATES["lambda_b"]), (W, RATES["lambda_W"] / W.shape[2])):
            flat = part.reshape(len(x), 2, -1)
            kernel = kernel + rate * jnp.einsum("aik,bjk->aibj", flat, flat)
    return kernel


def step(layers, sigma="tanh"):
    def loss(p):
        return -jnp.sum(P * jax.nn.log_softmax(apply(p, X, sigma))) / len(P)

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
def measured(n, members, trained, sigma="tanh"):
    """What the own NTK, held fixed, changes in first order; if `trained`, what is left beside it.

    Of the mean and of the products of two outputs about the mean at infinite width. The first are
    H1, D and F and need no training; the others are of order 1/n in every network.
    """
    inputs = np.concatenate([X, TEST])
    frozen = frozen_kernels(network(n, sigma=sigma), inputs, layers="last").Theta[-1][:, :3]
    Theta = jnp.einsum("sa,ij->siaj", jnp.asarray(frozen), jnp.eye(2))
    center = jnp.asarray(predicted(sigma).samples.means_infinite)

    def one(key):
        layers = draw(key, n)
        z_0, shift = apply(layers, inputs, sigma), ntk(layers, inputs, sigma)[:, :, :3] - Theta
        still, first = jax.jvp(lambda H: path(z_0, H), (Theta,), (shift,))
        products = twice(still - center, first)
        if not trained:
            return first, products, projected(first, products, sigma)
        seen, start = [], 0
        for end in MOMENTS:
            layers = jax.lax.fori_loop(start, end, lambda _, p: step(p, sigma), layers)
            seen.append(apply(layers, inputs, sigma))
            start = end
        d = jnp.stack(seen) - still
        both = twice(still - center, d) + 0.5 * twice(d, d)
        return d - first, both - products, projected(d - first, both - products, sigma)

    return statistics(one, n, members, 250)


@functools.cache
def predicted(sigma="tanh"):
    how = Training(GradientDescent(ETA), loss="cross-entropy", steps=MOMENTS[1], record=MOMENTS)
    return predict_outputs(network(64, sigma=sigma), Data(X, P, test_x=TEST), how)


def extrapolated(widths, members, trained, sigma="tanh"):
    """2 D(2n) − D(n), which is free of the next order, of mean and covariance."""
    small, large = (measured(n, members, trained, sigma) for n in widths)
    return [
        (2 * b - a, np.hypot(2 * b_error, a_error))
        for (a, a_error), (b, b_error) in zip(small, large, strict=True)
    ]


PARTS = ("H1", "zΔH", "ΔNTK", "dNTK", "ddI", "ddII")


def projected(mean, covariance, sigma="tanh"):
    """Along the mean and the covariance of every part: all entries together see more than one."""
    rows, found = [], predicted(sigma)
    for name in PARTS:
        for value, parts in (
            (mean, found.parts_of_mean), (covariance, found.parts_of_covariance),
        ):  # fmt: skip
            direction = parts[name] / np.linalg.norm(parts[name])
            rows.append(jnp.sum(value * jnp.asarray(direction)))
    return jnp.stack(rows)


def worst(measurements, parts, sigma="tanh"):
    """The largest |z| of mean, covariance and projections against some of the parts."""
    found, scores = predicted(sigma), []
    mean, covariance = (
        sum(prediction[name] for name in parts)
        for prediction in (found.parts_of_mean, found.parts_of_covariance)
    )
    errors = [error * found.width for error in (found.mean_errors, found.covariance_errors)]
    errors.append(np.tile([rms(error) for error in errors], len(PARTS)))
    expected = (mean, covariance, np.asarray(projected(mean, covariance, sigma)))
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


# Large weights: initial outputs that a softmax does not take for small.
LARGE = RATES | {"C_W": 3.0}
# Of the mean of loss and test loss and of their variances: along this V is seen best.
SEEN = np.array([-1.0, -1.0, 0.2, 0.2])


def losses_at_the_start(n, members):
    """n times what finite width changes in means and variances of losses before training.

    Given its hidden layers, with their covariance G = LLᵀ, the initial outputs of a network are
    Lξ with normal ξ, and the same ξ with the root of K are those at infinite width.
    """
    inputs, targets = np.concatenate([X[:1], TEST]), np.array([[1.0, 0.0], [0.0, 1.0]])
    frozen = frozen_kernels(MLP([3, n, n, 2], "tanh", **LARGE), inputs, layers="last")
    root, estimates = jnp.linalg.cholesky(frozen.K[-1]), before_training().estimates
    middle = jnp.array([[estimates[f"{k}_infinite"].value[0] for k in ("loss", "test_loss")]])

    def one(key):
        key, other = jax.random.split(key)
        layers = [(b, W * np.sqrt(LARGE["C_W"] / RATES["C_W"])) for b, W in draw(key, n)]
        signals = hidden(layers, inputs)
        own = jnp.linalg.cholesky(LARGE["C_b"] + LARGE["C_W"] / n * signals @ signals.T)
        # The output layer is Gaussian: many ξ for each of the costly hidden layers.
        xi = jax.random.normal(other, (64, 2, 2))
        rows = []
        for part in (own, root):
            z = jnp.einsum("st,kti->ksi", part, jnp.concatenate([xi, -xi]))
            loss = -jnp.sum(targets[None] * jax.nn.log_softmax(z), -1)
            squares = jnp.mean((loss - middle) ** 2, 0)
            rows.append(jnp.concatenate([jnp.mean(loss, 0), squares]))
        return (jnp.dot(rows[0] - rows[1], SEEN),)

    return statistics(one, n, members, 5_000)[0]


@functools.cache
def before_training():
    how = Training(GradientDescent(ETA), loss="cross-entropy", steps=1, record=(0, 1))
    data = Data(X[:1], [[1.0, 0.0]], test_x=TEST, test_y=[[0.0, 1.0]])
    return predict_outputs(MLP([3, 64, 64, 2], "tanh", **LARGE), data, how)


def corrections_of_losses(found):
    """Coefficients of 1/n in means and variances of both losses before training."""
    rows = []
    for power, suffix in ((1, ""), (2, "_std")):
        for name in ("loss", "test_loss"):
            here, there = (found.estimates[f"{name}{suffix}{kind}"] for kind in ("", "_infinite"))
            rows.append(found.width * (here.value[0] ** power - there.value[0] ** power))
    return np.array(rows)


@pytest.mark.slow
def test_initial_outputs_are_not_gaussian(monkeypatch):
    """Losses before training and their variance: G1 and V; without V it is far off."""
    (a, a_error), (b, b_error) = (losses_at_the_start(n, 300_000) for n in (16, 32))
    value, error = 2 * b - a, np.hypot(2 * b_error, a_error)

    def distance(found):
        return abs(value - SEEN @ corrections_of_losses(found)) / error

    assert distance(before_training()) < 4.0
    whole = Fluctuations.of

    def without_V(tensors, *sizes):
        left = {name: np.asarray(tensors[name]) for name in "VDAB"}
        return whole(left | {"V": np.zeros_like(left["V"])}, *sizes)

    monkeypatch.setattr(Fluctuations, "of", without_V)
    assert distance(before_training.__wrapped__()) > 5.0


@pytest.mark.slow
def test_training_where_the_second_derivative_jumps():
    """ELU: with R, whose average holds a delta; without R it is far off."""
    measurements = extrapolated((48, 96), 4_000, trained=True, sigma="elu")
    parts = ("ΔNTK", "dNTK", "ddI", "ddII")
    assert worst(measurements, parts, "elu") < 4.0
    assert worst(measurements, ("ΔNTK", "dNTK", "ddII"), "elu") > 6.0


def ntk_changes(n, members, step, moments):
    """n times what training changes in the NTK of the test input, at every moment."""

    def one(key):
        layers = draw(key, n)
        before, seen, begin = ntk(layers, TEST), [], 0
        for end in moments:
            layers = jax.lax.fori_loop(begin, end, lambda _, p: step(p), layers)
            seen.append((ntk(layers, TEST) - before)[0, :, 0])
            begin = end
        return (jnp.stack(seen),)

    return statistics(one, n, members, 500)[0]


@pytest.mark.slow
def test_mean_ntk_during_training():
    """The change of the mean NTK at the test input; what is left falls with the square of n."""
    found = predicted()
    change = found.estimates["ntk_change"]
    inputs = np.concatenate([X, TEST])
    # H1, which is there before training, is the same at all moments.
    start = predict(network(48), inputs, ["H1"])["H1"][-1, 3, 3] * np.eye(2)
    expected = change.value[:, 0, 0] - start[None]

    sizes = ((12, 20_000), (24, 20_000), (48, 10_000))
    (a, _), (b, b_error), (c, c_error) = (ntk_changes(*size, step, MOMENTS) for size in sizes)
    error = np.hypot(np.hypot(2 * c_error, b_error), change.standard_error[:, 0, 0])
    assert np.max(np.abs(2 * c - b - expected) / error) < 4.0
    assert np.max(np.abs(expected) / error) > 20.0
    # n times what is left halves when n doubles; at n = 48 it is known to a quarter of itself.
    left = [np.linalg.norm(value - expected) for value in (a, b, c)]
    assert 1.6 < left[0] / left[1] < 2.5
    assert 1.2 < left[1] / left[2] < 3.5


@pytest.mark.slow
def test_mean_ntk_at_the_end_of_a_squared_error():
    """Closed forms; the way to the end counts, and Newton's leap would change the NTK otherwise."""
    x, y = X[:2], np.array([[0.5, -0.2], [-0.4, 0.3]])
    net, data = network(32), Data(x, y, test_x=TEST)
    eta = 0.8 / np.linalg.eigvalsh(frozen_kernels(net, x, layers="last").Theta[-1])[-1]
    start = predict(net, np.concatenate([x, TEST]), ["H1"])["H1"][-1, 2, 2] * np.eye(2)
    expected, leap = (
        predict_outputs(net, data, Training(how)).estimates["ntk_change"].value[-1, 0, 0] - start
        for how in (GradientDescent(eta), TwoStep())
    )

    def step(layers):
        slope = jax.grad(lambda p: 0.5 * jnp.sum((apply(p, x) - y) ** 2))(layers)
        rates = [(RATES["lambda_b"], RATES["lambda_W"] / W.shape[0]) for _, W in layers]
        pairs = zip(layers, slope, rates, strict=True)
        return [(b - eta * r * u, W - eta * q * v) for (b, W), (u, v), (r, q) in pairs]

    sizes = ((24, 20_000), (48, 10_000))
    (b, b_error), (c, c_error) = (ntk_changes(*size, step, (60,)) for size in sizes)
    value, error = (2 * c - b)[0], np.hypot(2 * c_error, b_error)[0]
    assert np.max(np.abs(value - expected) / error) < 4.0
    for wrong in (0.0, leap):
        assert np.max(np.abs(value - wrong) / error) > 6.0


def trained_in_batches(n, members, how, y):
    """n times mean and error of outputs less the frozen path from the same initial outputs."""
    inputs = np.concatenate([X, TEST])
    Theta = jnp.asarray(frozen_kernels(network(n), inputs, layers="last").Theta[-1][:, :3])
    options = dict(how.algorithm.options)

    def one(key):
        layers = draw(key, n)
        z_0, a = apply(layers, inputs), jnp.zeros((3, 2))
        velocity, slow = jax.tree.map(jnp.zeros_like, layers), a
        for index in range(how.steps):
            rows = jax.random.permutation(jax.random.fold_in(key, index), 3)[:2]
            if isinstance(how.batch, tuple):
                rows = jnp.asarray(how.batch[index % len(how.batch)])
            eta = how.eta * how.schedule[min(index, len(how.schedule) - 1)]
            slope = jax.grad(lambda p, r: 0.5 * jnp.sum((apply(p, jnp.asarray(X)[r]) - y[r]) ** 2))
            velocity = jax.tree.map(
                lambda v, g: options["momentum"] * v + g, velocity, slope(layers, rows)
            )
            rates = [(RATES["lambda_b"], RATES["lambda_W"] / W.shape[0]) for _, W in layers]
            layers = [
                (b - eta * r * u, W - eta * q * v)
                for (b, W), (u, v), (r, q) in zip(layers, velocity, rates, strict=True)
            ]
            z = z_0[:3] - Theta[:3] @ a
            slow = options["momentum"] * slow + jnp.zeros_like(a).at[rows].set((z - y)[rows])
            a = a + eta * slow
        return (apply(layers, inputs) - (z_0 - Theta @ a),)

    return statistics(one, n, members, 500)[0]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [[[0, 1], [2, 0], [1, 2]], 2])
def test_batches_with_momentum_and_a_schedule(batch):
    """Mean outputs after a squared error in batches, given ones and ones drawn anew."""
    y = np.array([[0.5, -0.2], [-0.4, 0.3], [0.3, 0.6]])
    how = Training(
        Optax("momentum", 0.1, momentum=0.6), steps=10, batch=batch, schedule=[1.0] * 5 + [0.5]
    )
    found = predict_outputs(network(32), Data(X, y, test_x=TEST), how)
    (small, small_error), (large, large_error) = (
        trained_in_batches(n, 12_000, how, jnp.asarray(y)) for n in (24, 48)
    )
    parts = {name: part[-1] for name, part in found.parts_of_mean.items() if name != "start"}
    error = np.hypot(np.hypot(2 * large_error, small_error), found.width * found.samples.error)
    value, expected = 2 * large - small, sum(parts.values())
    assert np.max(np.abs(value - expected) / error) < 4.0
    assert np.max(np.abs(value) / error) > 6.0
