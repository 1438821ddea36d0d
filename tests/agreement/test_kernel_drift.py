"""The NTK along training in few long steps, against networks trained in many short ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import MLP, Model
from dynagram.observables.tangents import kernel_path
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.training import loss_gradient
from dynagram.watch._drift_band import LARGEST_DEPARTURE, predict_drift
from dynagram.watch._mixing import mixing_signs

SAMPLES, PROBE = 12, 8


def task(loss):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 6))
    return x, x[:, :1] if loss == "mean" else np.eye(3)[rng.integers(0, 3, SAMPLES)]


def network(width, sigma, outputs):
    return MLP(
        [6, width, width, outputs], sigma, C_b=0.05, C_W=1.0, lambda_b=1.0,
        lambda_W=[6.0, width, width],
    )  # fmt: skip


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def descend(net, loss, eta, counts, params, x, y):
    """NTKs on the probe before and after so many steps of gradient descent."""
    rates = net.rates()

    def step(_, params):
        z, pull = jax.vjp(lambda values: net.apply(values, x), params)
        slopes = pull(loss_gradient(loss, z, y))[0]
        return tuple(
            type(layer)(layer.b - eta * b * slope.b, layer.W - eta * W * slope.W)
            for layer, slope, (b, W) in zip(params, slopes, rates, strict=True)
        )

    kernels, done = [network_ntk(net, params, x[:PROBE])], 0
    for count in counts:
        params = jax.lax.fori_loop(done, count, step, params)
        kernels.append(network_ntk(net, params, x[:PROBE]))
        done = count
    return jnp.stack(kernels)


def drifts(kernels):
    """‖Θ_τ − Θ_0‖/‖Θ_0‖ of the mixture of outputs that a watch looks at."""
    outputs = kernels.shape[-1]
    signs = mixing_signs((2, outputs)) / outputs**0.5
    mixed = np.einsum("...abij,i,j->...ab", kernels, signs, signs)
    change = np.linalg.norm(mixed[..., 1:, :, :] - mixed[..., :1, :, :], axis=(-2, -1))
    return change / np.linalg.norm(mixed[..., :1, :, :], axis=(-2, -1))


@pytest.mark.parametrize(
    ("sigma", "loss"),
    [("tanh", "mean"), pytest.param("gelu", "cross-entropy", marks=pytest.mark.slow)],
)
def test_one_network_and_the_order_of_the_method(sigma, loss):
    x, y = task(loss)
    net = network(16, sigma, y.shape[1])
    with jax.enable_x64(True):
        params = net.draw(jax.random.key(3))
        model = jax.tree.map(np.asarray, Model(net, params))
        eta, counts = 2e-4, (8000,)
        exact = np.asarray(descend(net, loss, eta, counts, params, jnp.asarray(x), jnp.asarray(y)))
    change, errors = np.linalg.norm(exact[1] - exact[0]), []
    for nodes in (8, 16, 32):
        times = eta * counts[0] * np.linspace(1 / nodes, 1, nodes)
        path = kernel_path(model, x, y, times, loss=loss, probe=x[:PROBE], tolerance=np.inf)
        np.testing.assert_allclose(path.start, exact[0], rtol=1e-9, atol=1e-9)
        errors.append(float(np.linalg.norm(path.kernels[-1] - exact[1])) / change)
    assert np.linalg.norm(change) > 0.1 * np.linalg.norm(exact[0])  # there is something to follow
    # Second order: half the interval, a quarter of the error.
    assert min(errors[0] / errors[1], errors[1] / errors[2]) > 2.5, errors
    assert errors[2] < 0.01, errors


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "loss"), [("tanh", "mean"), ("relu", "cross-entropy")])
def test_mean_and_spread_of_trained_networks(sigma, loss):
    """160 networks trained by gradient descent, 160 others followed: |z| < 4 for both moments."""
    x, y = task(loss)
    net, members = network(32, sigma, y.shape[1]), 160
    eta, counts = 2e-3, (50, 500, 4000)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1), 2 * members)
        train = functools.partial(descend, net, loss, eta, counts)
        arrays = jnp.asarray(x), jnp.asarray(y)
        run = jax.jit(lambda keys: jax.lax.map(lambda k: train(net.draw(k), *arrays), keys))
        trained = drifts(np.asarray(run(keys[:members])))
        others = [Model(net, net.draw(key)) for key in keys[members:]]
    times = eta * np.array(counts)
    grid = np.unique(np.concatenate([np.geomspace(times[0] / 10, times[-1], 20), times]))
    followed, departures = [], []
    for other in others:
        path = kernel_path(other, x, y, grid, loss=loss, probe=x[:PROBE])
        whole = drifts(np.concatenate([path.start[None], path.kernels]))
        followed.append(whole[np.isin(grid, times)])
        departures.append(path.departure[np.isin(grid, times)])
    followed = np.array(followed)
    # As far as a watch would tell it.
    told = np.flatnonzero(np.median(departures, axis=0) <= LARGEST_DEPARTURE)
    assert len(told) >= 2
    assert np.all(followed.mean(axis=0)[told[1:]] > 0.02)
    for index in told:
        # By their logarithms, which are nearly normal, as the range of a watch takes them.
        a, b = np.log(trained[:, index]), np.log(followed[:, index])
        error = np.hypot(a.std(ddof=1), b.std(ddof=1)) / members**0.5
        assert abs(a.mean() - b.mean()) < 4 * error, (index, a.mean(), b.mean(), error)
        # The standard error of a standard deviation, from the fourth moment.
        spreads = [
            (c.std(ddof=1), np.sqrt(np.var((c - c.mean()) ** 2) / members) / (2 * c.std()))
            for c in (a, b)
        ]
        error = np.hypot(spreads[0][1], spreads[1][1])
        assert abs(spreads[0][0] - spreads[1][0]) < 4 * error, (index, spreads)
        assert error < 0.25 * spreads[0][0]  # so sharp that a factor 2 would show


@pytest.mark.slow
def test_bands_hold_trained_networks():
    """The range for one network, from draws with the sizes of its own weights."""
    x, y = task("mean")
    net, members, eta, counts = network(48, "tanh", 1), 24, 2e-3, (50, 500, 4000)
    held = []
    with jax.enable_x64(True):
        for key in jax.random.split(jax.random.key(5), members):
            params = net.draw(key)
            kernels = descend(net, "mean", eta, counts, params, jnp.asarray(x), jnp.asarray(y))
            band = predict_drift(jax.tree.map(np.asarray, Model(net, params)), x, y, "mean")
            for count, drift in zip(counts, drifts(np.asarray(kernels)).tolist(), strict=True):
                range_ = band.band(eta * count)
                assert range_ is not None
                assert not range_.alarms(drift)
                held.append(range_.holds(drift))
    # 95 %, less four standard deviations of as many independent networks.
    assert np.mean(held) > 0.95 - 4 * (0.05 * 0.95 / members) ** 0.5
