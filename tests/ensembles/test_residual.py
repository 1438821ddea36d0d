"""Ensembles with skips: two samplers, exact results for linear networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.initial._metric import measure_kernels
from dynagram.ensembles.initial._sample import sample_metrics
from dynagram.ensembles.initial._simulation import InitialJob
from dynagram.ensembles.initial._skips import ResidualJob, measure_residual
from dynagram.ensembles.initial._tangents import measure_tangents
from dynagram.errors import DynagramError
from dynagram.networks import MLP
from dynagram.results._comparison import compare

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1]])


def network(name="relu", skip=0.5, widths=(3, 12, 12, 12, 2)):
    return MLP(widths, name, 0.1, 1.2, lambda_b=0.7, lambda_W=[1.0, 2.0, 0.5, 1.5], skip=skip)


def test_samplers_have_the_same_law_and_moments_of_neurons_agree(getkey):
    """V and the odd cumulant from h_i against moments of z, and the two samplers."""
    net, members = network("relu", [0.7, -0.6]), 5_000
    one, two = (
        measure_residual(
            net, X, members=members, seed=seed, tensors=("G", "V", "odd"), sampler=name
        )
        for seed, name in ((1, "metric"), (2, "weights"))
    )
    for name in ("G", "V", "odd"):
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
        T = one.odd.value[layer]
        scores = (odd.mean(axis=0) - T) / np.hypot(error, one.odd.standard_error[layer])
        assert np.max(np.abs(scores)) < 4
        assert np.max(np.abs(T)) > 10 * np.max(one.odd.standard_error[layer])


def test_linear_block_is_known_at_any_width():
    """σ(z) = z without biases: layer 2 follows from the Gaussian first layer."""
    n, C_W, gamma = 5, 0.6, -0.8
    net = MLP([1, n, n, 1], "linear", 0.0, [1.0, C_W, 1.0], skip=gamma)
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
    several = job.in_chunks(3 * job.chunk_members // 2)  # two batches
    whole = several.run_chunk(0, several.chunk_members)["H"].mean().value
    batches = [job.run_chunk(first, size)["H"] for first, size in _halves(job, several)]
    np.testing.assert_allclose(batches[0].merge(batches[1]).mean().value, whole, rtol=1e-10)
    assert set(job.dims()) == {"V", "H", "x", "K"}
    assert job.coordinates()["layer"].tolist() == [1, 2, 3, 4]


def _halves(job, several):
    return (0, job.chunk_members), (job.chunk_members, several.chunk_members - job.chunk_members)


def test_simulation_of_the_prediction_letters():
    """K, G1, V and Theta by the job of `dynagram simulate`; the other letters are refused."""
    net, members = network("tanh"), 2_000
    job = InitialJob(net, X, ("K", "G1", "V", "Theta"), seed=5, chunk_members=400)
    again = InitialJob.from_toml(job.to_toml(), job.arrays())
    assert again.network == net
    found = run_job(again, members=members).estimates
    alone = measure_residual(
        net, X, members=members, seed=5, tensors=("G", "G1", "V", "H"), sampler="weights"
    )
    for letter, name in (("K", "G"), ("G1", "G1"), ("V", "V"), ("Theta", "H")):
        np.testing.assert_allclose(found[letter].value, getattr(alone, name).value, rtol=1e-9)
        assert job.dims()[letter] == (() if letter == "Theta" else ("layer",)) + tuple(
            "abcd"[: found[letter].value.ndim - (letter != "Theta")]
        )
    with pytest.raises(DynagramError, match="'A,B': not measured on networks with skips"):
        InitialJob(net, X, ("K", "A", "B"), seed=0)


def test_ensembles_of_plain_networks_refuse_skips():
    for measure in (
        lambda: measure_kernels(network(), X, members=64, seed=0),
        lambda: measure_tangents(network(), X, members=64, seed=0),
        lambda: sample_metrics(network(), X, members=64, seed=0),
    ):
        with pytest.raises(DynagramError, match="for networks without skips only"):
            measure()


def test_refusals():
    for options, words in (
        ({"tensors": ("Z",)}, "expected some of G, G1, V, odd, H"),
        ({"tensors": ("H",)}, 'needs "weights"'),
        ({"sampler": "guess"}, "expected one of metric, weights"),
        ({"members": 3}, "at least 64"),
        ({"seed": -1}, "expected 0 to"),
    ):
        arguments = {"members": 64, "seed": 0} | options
        with pytest.raises(DynagramError, match=words):
            measure_residual(network(), X, **arguments)
    narrow = MLP([3, 1, 1, 1], "relu", 0.1, 1.2, skip=0.5)
    with pytest.raises(DynagramError, match="two distinct neurons"):
        measure_residual(narrow, X, members=64, seed=0)
