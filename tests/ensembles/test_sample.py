"""The two samplers of the stochastic metric: law, seeds, singular inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram._pairs import pairs_to_matrix
from dynagram.ensembles.initial._sample import SAMPLERS, sample_metrics, square_root
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP


def collect(network, x, **options):
    return np.concatenate(list(sample_metrics(network, x, **options)))


def inputs(samples, n_0, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, n_0))


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_square_root_of_singular_matrices(rank):
    factor = inputs(4, rank, seed=rank)
    metric = factor @ factor.T
    root = np.asarray(square_root(jnp.asarray(metric)))
    np.testing.assert_allclose(root @ root.T, metric, rtol=0, atol=1e-13 * (1 + metric.max()))
    assert np.array_equal(root, np.tril(root))
    assert np.count_nonzero(np.abs(root).sum(axis=0)) == rank


def test_square_root_is_that_of_cholesky():
    factor = inputs(5, 7)
    metric = factor @ factor.T
    root = np.asarray(square_root(jnp.asarray(metric)))
    np.testing.assert_allclose(root, np.linalg.cholesky(metric), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_member_does_not_depend_on_the_chunks(sampler):
    network = MLP([3, 7, 5, 2], "tanh", C_b=0.1, C_W=1.5)
    x = inputs(2, 3)
    whole = collect(network, x, members=50, seed=3, sampler=sampler)
    assert whole.shape == (50, 3, 3)
    for members, chunk in ((50, 7), (20, 7)):
        parts = collect(network, x, members=members, seed=3, sampler=sampler, chunk=chunk)
        np.testing.assert_allclose(parts, whole[:members], rtol=1e-12)
    other = collect(network, x, members=50, seed=4, sampler=sampler)
    # No member of another seed, and no two members of one seed, are alike beyond layer 1.
    everything = np.concatenate([whole, other])[:, 1:].reshape(100, -1)
    assert len(np.unique(everything.round(12), axis=0)) == 100


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_layer_one_is_the_same_in_every_member(sampler):
    network = MLP([3, 7, 2], "relu", C_b=[0.2, 0.4], C_W=[1.5, 2.0])
    x = inputs(2, 3)
    metrics = collect(network, x, members=30, seed=0, sampler=sampler)
    first = 0.2 + 1.5 * x @ x.T / 3
    np.testing.assert_allclose(pairs_to_matrix(metrics[0, 0]), first, rtol=1e-14)
    assert np.all(metrics[:, 0] == metrics[0, 0])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_network_without_hidden_layers_has_one_metric(sampler):
    network = MLP([3, 2], "relu", C_b=0.1, C_W=1.0)
    metrics = collect(network, inputs(2, 3), members=9, seed=0, sampler=sampler)
    assert metrics.shape == (9, 1, 3)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("C_b", [0.0, 0.3])
def test_repeated_and_zero_inputs(sampler, C_b):
    """Samples 1 and 3 are the same; sample 2 is zero; there are more samples than dimensions."""
    x = inputs(4, 2)
    x[2], x[3] = 0.0, x[1]
    network = MLP([2, 200, 31, 9, 1], "tanh", C_b=C_b, C_W=1.4)
    metrics = pairs_to_matrix(collect(network, x, members=200, seed=1, sampler=sampler))
    np.testing.assert_allclose(metrics[..., 3, :], metrics[..., 1, :], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(metrics[..., :, 3], metrics[..., :, 1], rtol=1e-11, atol=1e-13)
    assert np.linalg.eigvalsh(metrics).min() > -1e-12
    if C_b == 0.0:  # tanh(0) = 0
        assert np.all(metrics[..., 2, :] == 0.0)
    else:
        assert np.all(metrics[:, 1:, 2, 2] > C_b)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_collinear_inputs_stay_collinear_through_linear_layers(sampler):
    x = inputs(3, 4)
    x[1] = -2.5 * x[0]
    network = MLP([4, 6, 9, 5, 1], "linear", C_b=0.0, C_W=1.2)
    metrics = pairs_to_matrix(collect(network, x, members=200, seed=2, sampler=sampler))
    np.testing.assert_allclose(
        metrics[..., 1, :], -2.5 * metrics[..., 0, :], rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_callers_precision_is_left_alone_between_chunks(sampler):
    network = MLP([3, 4, 1], "relu", C_b=0.0, C_W=2.0)
    with jax.enable_x64(False):
        chunks = sample_metrics(network, inputs(1, 3), members=20, seed=0, sampler=sampler, chunk=5)
        metrics = next(chunks)
        assert jnp.ones(1).dtype == jnp.float32
    assert metrics.dtype == np.float64
    exact = collect(network, inputs(1, 3), members=5, seed=0, sampler=sampler)
    np.testing.assert_allclose(metrics, exact, rtol=1e-13)


def test_a_metric_that_overflows_is_reported():
    network = MLP([1, 5, 5, 1], "linear", C_b=0.0, C_W=1e200)
    with pytest.raises(NonFiniteError, match="layer 2 of member 0 is not finite"):
        collect(network, np.ones((1, 1)), members=10, seed=0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"members": 0}, InvalidValueError, "members = 0: expected 1 to"),
        ({"seed": -1}, InvalidValueError, "seed = -1: expected 0 to"),
        ({"chunk": -5}, InvalidValueError, "chunk = -5"),
        ({"chunk": 0}, InvalidValueError, "chunk = 0"),
        ({"sampler": "wights"}, InvalidValueError, "expected one of metric, weights"),
        ({"members": True}, InvalidTypeError, "members = True: expected an integer"),
    ],
)
def test_bad_requests_name_the_argument(options, error, message):
    network = MLP([3, 4, 1], "relu", C_b=0.0, C_W=2.0)
    with pytest.raises(error, match=message):
        sample_metrics(network, inputs(1, 3), **({"members": 10, "seed": 0} | options))
    with pytest.raises(InvalidValueError, match="shape of x"):
        sample_metrics(network, inputs(1, 2), members=10, seed=0)
