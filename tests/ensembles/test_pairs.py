"""Networks trained in pairs: control variates change the errors, not the numbers.

A wrong control variate would leave measured means right and only make them noisy, so that what the
frozen NTK of a network makes of its training has a test of its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram import (
    MLP,
    Data,
    GradientDescent,
    GradientFlow,
    Optax,
    Training,
    TwoStep,
    open_run,
    train,
)
from dynagram.ensembles import resume_run
from dynagram.ensembles.engine import run_job
from dynagram.ensembles.trained import _job as job_module
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.ensembles.trained._pairs import _changes, _turned_shift
from dynagram.errors import InvalidValueError
from dynagram.networks import Layer

# Whole ensembles and trainings: a minute and more together.
pytestmark = pytest.mark.slow

NET = MLP([2, 12, 1], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
X, Y, T = np.array([[1.0, 0.3]]), np.array([[0.8]]), np.array([[0.4, -0.9]])
DATA = Data(X, Y, T)


def measured(members, seed, *, network=NET, data=DATA, eta=0.3, steps=None, **options):
    how = Training(GradientDescent(eta), steps=steps)
    return train(network, data, how, members=members, seed=seed, pairs=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [150, 2])
def test_against_plain_averages(steps):
    """A narrow network, trained by a plain loop: all orders in 1/n are in both."""
    eta, members = 0.3, 6000

    def end(key):
        def step(p, _):
            g = jax.grad(lambda q: 0.5 * jnp.sum((NET.apply(q, X) - Y) ** 2))(p)
            rates = zip(NET.lambda_b, NET.lambda_W, NET.widths[:-1], strict=True)
            return tuple(
                Layer(layer.b - eta * b * d.b, layer.W - eta * W / n * d.W)
                for layer, d, (b, W, n) in zip(p, g, rates, strict=True)
            ), None

        return NET.apply(jax.lax.scan(step, NET.draw(key), None, length=steps)[0], T)[0, 0]

    z = np.asarray(jax.jit(jax.vmap(end))(jax.random.split(jax.random.key(9), members)))
    before = steps if steps < 150 else None
    found = measured(2048, 0, eta=eta, steps=before)
    error = np.hypot(z.std() / np.sqrt(members), found.error[0, 0])
    assert abs(found.mean[0, 0] - z.mean()) < 4 * error
    spread = np.std((z - z.mean()) ** 2) / np.sqrt(members)
    error = np.hypot(spread, found.covariance_error[0, 0, 0, 0])
    assert abs(found.covariance[0, 0, 0, 0] - z.var()) < 4 * error
    assert found.about.get("unfinished", 0) == 0


def test_a_small_ensemble_agrees_with_a_large_one():
    """64 networks are enough, and chunks of one pair are added up as if together."""
    small, large = measured(64, 1), measured(2048, 2)
    for name in ("mean", "covariance"):
        one, other = small.estimate(name), large.estimate(name)
        error = np.hypot(one.standard_error, other.standard_error)
        assert np.all(np.abs(one.value - other.value) < 4 * error)
        assert np.all(one.standard_error > other.standard_error)
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(large.joint_error)), large.error.ravel(), rtol=1e-8
    )
    by_pairs = measured(64, 1, chunk_members=2)
    np.testing.assert_allclose(by_pairs.mean, small.mean, rtol=1e-10)
    np.testing.assert_allclose(by_pairs.covariance_error, small.covariance_error, rtol=1e-9)
    assert small.about["pairs"] == 32
    assert small.about["untrained"] == 256


def test_an_odd_chunk_loses_no_pair():
    """The engine may cut chunks anywhere, as when it looks for a member that kills workers."""
    how = Training(GradientDescent(0.3), steps=3)
    whole, cut = (
        run_job(TrainingJob(NET, DATA, how, pairs=True, chunk_members=size), members=64)
        for size in (64, 7)
    )
    for name in ("pairs", "untrained"):
        assert cut.moments[name].count == whole.moments[name].count
        one, other = cut.moments[name].mean(), whole.moments[name].mean()
        np.testing.assert_allclose(one.value, other.value, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-9, atol=1e-14)


def test_moments_recorded_together_are_those_of_shorter_trainings():
    how = Training(GradientDescent(0.3), steps=6, record=[0, 2])
    several = train(NET, DATA, how, members=64, pairs=True)
    assert several.times == (0.0, 0.6, pytest.approx(1.8))
    alone = measured(64, 0, steps=2)
    np.testing.assert_allclose(several.means[1], alone.mean, rtol=1e-9)
    np.testing.assert_allclose(several.errors[1], alone.error, rtol=1e-8)


def test_the_mean_loss_is_the_sum_at_another_rate():
    network = MLP([2, 12, 2], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    data = Data([[1.0, 0.3], [0.2, 1.0]], [[0.8, 0.1], [-0.5, 0.4]], T)
    half = train(network, data, Training(GradientDescent(0.2)), members=64, pairs=True)
    how = Training(GradientDescent(0.4), loss="mean")  # L = 2/(2·2) · half-sum
    mean = train(network, data, how, members=64, pairs=True)
    np.testing.assert_allclose(mean.mean, half.mean, rtol=1e-10)
    np.testing.assert_allclose(mean.covariance, half.covariance, rtol=1e-9)


def test_networks_with_skips():
    """Infinite width knows skips: pairs agree with plain averages, with far smaller errors."""
    network = MLP([2, 24, 24, 1], "tanh", C_b=0.1, C_W=0.8, skip=0.5, lambda_b=0.5)
    how = Training(GradientDescent(0.2), steps=20)
    pairs = train(network, DATA, how, members=256, pairs=True)
    plain = train(network, DATA, how, members=2048, seed=5)
    error = np.hypot(pairs.error, plain.error)
    assert np.all(np.abs(pairs.mean - plain.mean) < 4 * error)
    assert np.all(pairs.error < plain.error)


X2 = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y2 = np.array([[0.9, -0.45], [-0.6, 0.7]])
TEST2 = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])


@pytest.mark.parametrize("steps", [1, 4, None])
def test_first_order_in_the_fluctuation_of_the_ntk(steps):
    """What is left of ρ is of second order, 1/√n of it."""
    network = MLP([3, 2000, 2], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    data = Data(X2, Y2, TEST2)
    how = Training(GradientDescent(0.3), steps=steps)
    job = TrainingJob(network, data, how, pairs=True)
    arrays = jax.tree.map(jnp.asarray, job.pair_arrays)
    ends = train(network, data, how, members=4, observables=["outputs"])["outputs"][:, -1]
    change, left = [], []
    for member, end in enumerate(ends):
        key = jax.random.fold_in(jax.random.key(0), member)
        params = network.draw(key, dtype=jnp.float64)
        z = network.apply(params, arrays.inputs)
        rho = end - job.infinite.mean[0] - np.asarray(arrays.bracket[0] @ z)
        shift = _turned_shift(network, params, arrays)
        first, _ = _changes(shift, arrays.slopes[0], z, arrays)
        change.append(rho)
        left.append(rho - np.asarray(first))
    assert np.linalg.norm(left) < 0.15 * np.linalg.norm(change)


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        ({}, {"members": 513}, "an even number"),
        ({}, {"members": 2}, "members = 2: at least 64 needed"),
        ({"algorithm": GradientDescent(90.0)}, {}, "diverges"),
        ({"algorithm": Optax("adam", 0.1), "steps": 3}, {}, "algorithm = 'adam': pairs are comp"),
        ({"loss": "cross-entropy", "steps": 3}, {}, "targets of a cross-entropy"),
        ({"steps": 3, "batch": 1}, {}, "batch = 1: pairs are compared"),
        ({"steps": 3, "dtype": "float32"}, {}, "dtype = 'float32': pairs are compared"),
        ({}, {"observables": ["loss"]}, "observables = .*outputs only"),
        ({}, {"data": Data(X, Y)}, "data = .*on a Data with test inputs"),
        ({}, {"data": Data(np.eye(2)[[0, 0, 1]] * [1, 0], np.ones((3, 1)), T)}, "rank deficient"),
    ],
)
def test_refusals(how, options, message):
    training = Training(**{"algorithm": GradientDescent(0.3)} | how)
    request = {"data": DATA, "members": 64, "pairs": True} | options
    network = MLP([2, 12, 1], "linear", 0.0, 1.2, lambda_b=0.0) if "rank" in message else NET
    with pytest.raises(InvalidValueError, match=message):
        train(network, how=training, **request)


def test_a_network_that_diverges_ends_the_run():
    """Leaving it out would select networks with a small NTK."""
    network = MLP([2, 4, 4, 1], "linear", C_b=0.0, C_W=1.0)
    how = Training(GradientDescent(0.42), steps=400)
    with pytest.raises(InvalidValueError, match="eta = 0.42: the training of a network diverged"):
        train(network, DATA, how, members=512, pairs=True, chunk_members=64)


@pytest.mark.parametrize("algorithm", [GradientFlow(), TwoStep()])
def test_other_algorithms_end_near_gradient_descent(algorithm):
    """All end at the same infinite-width outputs: what differs is of order 1/n."""
    found = train(NET, DATA, Training(algorithm), members=256, seed=3, pairs=True)
    descent = measured(256, 3, eta=0.05)
    error = np.hypot(found.error, descent.error)
    assert np.all(np.abs(found.mean - descent.mean) < 4 * error + 0.1)
    assert found.about.get("unfinished", 0) == 0


def test_infinite_width_is_worked_out_once(tmp_path, monkeypatch):
    """By `train`, and by what continues or opens its run: it may take minutes."""
    calls, infinite_width = [], job_module.infinite_width

    def counted(*arguments):
        calls.append(1)
        return infinite_width(*arguments)

    monkeypatch.setattr(job_module, "infinite_width", counted)
    expected = measured(70, 0, steps=2, run=tmp_path / "run")
    assert len(calls) == 1
    for function in (resume_run, open_run):
        calls.clear()
        np.testing.assert_array_equal(function(tmp_path / "run").mean, expected.mean)
        assert len(calls) == 1
    whole = measured(70, 0, steps=2, chunk_members=70)
    np.testing.assert_allclose(whole.mean, expected.mean, rtol=1e-10)
