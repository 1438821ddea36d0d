"""Residual ensembles: two samplers, exact results for linear networks, the NTK by autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynagram.observables.tangents._residual import residual_ntk

from dynagram.ensembles.initial._skips import ResidualJob, measure_residual
from dynagram.errors import DynagramError
from dynagram.networks import ResidualMLP
from dynagram.observables.tangents._ntk import function_ntk
from dynagram.results._comparison import compare

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1]])


def network(name="relu", skip=0.5, widths=(3, 12, 12, 12, 2)):
    return ResidualMLP(widths, name, 0.1, 1.2, skip, lambda_b=0.7, lambda_W=[1.0, 2.0, 0.5, 1.5])


def test_ntk_of_one_network_by_automatic_differentiation(getkey):
    net = network("tanh", [0.5, -1.3])
    params = net.draw(getkey(), dtype=jnp.float64)
    rates = tuple(
        type(layer)(lambda_b, lambda_W / n * jnp.ones_like(layer.W))
        for layer, lambda_b, lambda_W, n in zip(
            params, net.plain.lambda_b, net.plain.lambda_W, net.widths[:-1], strict=True
        )
    )
    rates = tuple(
        type(r)(r.b * jnp.ones_like(p.b), r.W) for r, p in zip(rates, params, strict=True)
    )
    wanted = function_ntk(net.apply, params, jnp.asarray(X), rates)
    np.testing.assert_allclose(residual_ntk(net, params, X), wanted, rtol=1e-12, atol=1e-14)


def test_samplers_have_the_same_law_and_moments_of_neurons_agree(getkey):
    """V and T from h_i against plain fourth and third moments of z, and the two samplers."""
    net, members = network("relu", [0.7, -0.6]), 5_000
    one, two = (
        measure_residual(net, X, members=members, seed=seed, tensors=("G", "V", "T"), sampler=name)
        for seed, name in ((1, "metric"), (2, "weights"))
    )
    for name in ("G", "V", "T"):
        first, second = getattr(one, name), getattr(two, name)
        found = compare(
            first.value[1:],
            type(second)(second.value[1:], second.standard_error[1:], members),
            prediction_error=first.standard_error[1:],
            name=name,
        )
        assert found.ok(4.5), found
    keys = jax.random.split(getkey(), 6_000)
    fields = jax.jit(jax.vmap(lambda key: net.preactivations(net.draw(key, dtype=jnp.float64), X)))(
        keys
    )
    for layer in (1, 2):
        z, n = np.asarray(fields[layer]), 12
        squares = z[:, :, None, :] * z[:, None, :, :]  # member a b neuron
        total, drift = squares.sum(axis=-1), z.sum(axis=-1)
        products = np.einsum("mab,mcd->mabcd", total, total)
        products -= np.einsum("mabi,mcdi->mabcd", squares, squares)
        products /= n * (n - 1)
        mean = total.mean(axis=0) / n
        V = n * (products.mean(axis=0) - np.einsum("ab,cd->abcd", mean, mean))
        influence = products - np.einsum("mab,cd->mabcd", total / n, mean)
        influence -= np.einsum("ab,mcd->mabcd", mean, total / n)
        error = n * influence.std(axis=0) / len(keys) ** 0.5
        z_scores = (V - one.V.value[layer]) / np.hypot(error, one.V.standard_error[layer])
        assert np.max(np.abs(z_scores)) < 4
        odd = np.einsum("mab,mc->mabc", total, drift) - np.einsum("mabi,mci->mabc", squares, z)
        odd /= n - 1
        error = odd.std(axis=0) / len(keys) ** 0.5
        T = one.T.value[layer]
        scores = (odd.mean(axis=0) - T) / np.hypot(error, one.T.standard_error[layer])
        assert np.max(np.abs(scores)) < 4
        assert np.max(np.abs(T)) > 10 * np.max(one.T.standard_error[layer])


def test_linear_block_is_known_at_any_width():
    """σ(z) = z without biases: layer 2 follows from the Gaussian first layer."""
    n, C_W, gamma = 5, 0.6, -0.8
    net = ResidualMLP([1, n, n, 1], "linear", 0.0, [1.0, C_W, 1.0], gamma)
    found = measure_residual(net, np.ones((1, 1)), members=20_000, seed=4, tensors=("G", "V", "G1"))
    # Ĝ = C_W Σz²/n: Var Ĝ = 2C_W²/n, and h_i adds γ²z_i² with Cov(Ĝ, z_i²) = 2C_W/n.
    exact = 2 * C_W**2 + 4 * C_W * gamma**2
    V, error = found.V.value[1].item(), found.V.standard_error[1].item()
    assert abs(V - exact) < 4 * error
    assert error < 0.05 * exact
    assert abs(found.G.value[1].item() - (C_W + gamma**2)) < 4 * found.G.standard_error[1].item()
    assert np.all(np.abs(found.G1.value) <= 4 * found.G1.standard_error + 1e-12)


def test_job_is_cut_anywhere_and_reads_itself_back():
    job = ResidualJob.of(network(), X, seed=3, tensors=("V", "H"), sampler="weights")
    again = ResidualJob.from_toml(job.to_toml(), job.arrays())
    assert again.network == job.network
    assert again.chunk_members == job.chunk_members
    whole, parts = job.run_chunk(0, 100), [again.run_chunk(0, 70), again.run_chunk(70, 30)]
    for name in ("fields", "H"):
        merged = parts[0][name].merge(parts[1][name])
        np.testing.assert_allclose(merged.mean().value, whole[name].mean().value, rtol=1e-10)
    assert set(job.dims()) == {"V", "H", "x", "K"}
    assert job.coordinates()["layer"].tolist() == [1, 2, 3, 4]


def test_refusals():
    for options, words in (
        ({"tensors": ("Z",)}, "expected some of G, G1, V, T, H"),
        ({"tensors": ("H",)}, 'needs "weights"'),
        ({"sampler": "guess"}, "expected one of metric, weights"),
        ({"members": 3}, "at least 64"),
        ({"seed": -1}, "expected 0 to"),
    ):
        arguments = {"members": 64, "seed": 0} | options
        with pytest.raises(DynagramError, match=words):
            measure_residual(network(), X, **arguments)
    narrow = ResidualMLP([3, 1, 1, 1], "relu", 0.1, 1.2, 0.5)
    with pytest.raises(DynagramError, match="two distinct neurons"):
        measure_residual(narrow, X, members=64, seed=0)
