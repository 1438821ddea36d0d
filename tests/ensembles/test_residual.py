"""Ensembles with skips: two samplers, exact results for linear networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.ensembles import simulate
from dynagram.ensembles.initial import TensorJob, sample_metrics
from dynagram.errors import DynagramError
from dynagram.networks import MLP
from dynagram.results._comparison import compare

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1]])


def network(name="relu", skip=0.5, widths=(3, 12, 12, 12, 2)):
    return MLP(widths, name, 0.1, 1.2, lambda_b=0.7, lambda_W=[1.0, 2.0, 0.5, 1.5], skip=skip)


@pytest.mark.slow
def test_samplers_have_the_same_law_and_moments_of_neurons_agree(getkey):
    """V and the odd cumulant from h_i against moments of z, and the two samplers."""
    net, members = network("relu", [0.7, -0.6]), 5_000
    one, two = (
        simulate(net, X, ("K", "V", "odd"), members=members, seed=seed, sampler=name)
        for seed, name in ((1, "metric"), (2, "weights"))
    )
    for name in ("K", "V", "odd"):
        first, second = one.estimate(name), two.estimate(name)
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
        z_scores = (V - one["V"][layer]) / np.hypot(error, one.error("V")[layer])
        assert np.max(np.abs(z_scores)) < 4
        odd = np.einsum("mab,mc->mabc", total, drift) - np.einsum("mabi,mci->mabc", squares, z)
        odd /= n - 1
        error = odd.std(axis=0) / len(keys) ** 0.5
        cumulant, cumulant_error = one["odd"][layer], one.error("odd")[layer]
        scores = (odd.mean(axis=0) - cumulant) / np.hypot(error, cumulant_error)
        assert np.max(np.abs(scores)) < 4
        assert np.max(np.abs(cumulant)) > 10 * np.max(cumulant_error)


def test_linear_block_is_known_at_any_width():
    """σ(z) = z without biases: layer 2 follows from the Gaussian first layer."""
    n, C_W, gamma = 5, 0.6, -0.8
    net = MLP([1, n, n, 1], "linear", 0.0, [1.0, C_W, 1.0], skip=gamma)
    found = simulate(net, np.ones((1, 1)), ("K", "V", "G1"), members=20_000, seed=4)
    # Ĝ = C_W Σz²/n: Var Ĝ = 2C_W²/n, and h_i adds γ²z_i² with Cov(Ĝ, z_i²) = 2C_W/n.
    exact = 2 * C_W**2 + 4 * C_W * gamma**2
    V, error = found["V"][1].item(), found.error("V")[1].item()
    assert abs(V - exact) < 4 * error
    assert error < 0.05 * exact
    assert abs(found["K"][1].item() - (C_W + gamma**2)) < 4 * found.error("K")[1].item()
    assert np.all(np.abs(found["G1"]) <= 4 * found.error("G1") + 1e-12)


def test_job_is_cut_anywhere_and_reads_itself_back():
    job = TensorJob(network(), X, ("V", "Theta"), seed=3, chunk_members=150)
    again = TensorJob.from_toml(job.to_toml(), job.arrays())
    assert (again.network, again.sampler) == (job.network, "weights")
    assert again.chunk_members == 150
    whole, parts = job.run_chunk(0, 100), [again.run_chunk(0, 70), again.run_chunk(70, 30)]
    assert set(whole) == {"fields", "row"}
    for name, sums in whole.items():
        merged = parts[0][name].merge(parts[1][name])
        np.testing.assert_allclose(merged.mean().value, sums.mean().value, rtol=1e-10, atol=1e-14)
    assert set(job.dims()) == {"V", "Theta", "x", "fields", "row"}


def test_tangents_of_the_same_members():
    """With the last layer trained alone Ĥ_ij = δ_ij Ĝ: A = D = V and Θ = K at the output."""
    net = MLP([3, 6, 6, 3], "tanh", 0.2, 1.1, [0, 0, 0.2], [0, 0, 1.1], skip=0.6)
    found = simulate(net, X, ("K", "V", "Theta", "A", "D", "B"), members=200, seed=3)
    np.testing.assert_allclose(found["Theta"][0], found["K"][-1], rtol=1e-12)
    for name in ("A", "D"):
        np.testing.assert_allclose(found[name][0], found["V"][-1], rtol=1e-10)
        np.testing.assert_allclose(found.error(name)[0], found.error("V")[-1], rtol=1e-8)
    assert np.max(np.abs(found["B"])) == 0.0


def test_refusals():
    with pytest.raises(DynagramError, match="for networks without skips only"):
        sample_metrics(network(), X, members=64, seed=0)
    with pytest.raises(DynagramError, match="'six_point': networks with skips have K, V, G1, odd"):
        simulate(network(), X, ("K", "six_point"), members=64)
    narrow = MLP([3, 1, 1, 1], "relu", 0.1, 1.2, skip=0.5)
    with pytest.raises(DynagramError, match="two distinct neurons"):
        simulate(narrow, X, members=64)
