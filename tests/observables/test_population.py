"""Population values of a network's signal: against the reduced flow, and against a large batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import Model
from dynagram.observables import gaussian_batch, small_signal
from dynagram.theory.saddle import BlockNetwork, SymmetricNetwork
from dynagram.theory.saddle._flow import gaussian_nodes, output
from dynagram.theory.saddle._reduced import coordinates, scalar_problem

# Whole ensembles and trainings: a minute and more together.
pytestmark = pytest.mark.slow

INPUTS = 5


def reduced_signal(sigma, problem, state, g, w, block_size):
    """γ, T, dγ/dt and S from autodiff in the coordinates; the flow of all weights at rate 1."""
    gain, g, y = (jnp.asarray(part) for part in (problem.gain, g, problem.y[:, 0]))
    # W_1 holds N_B equal rows: its coordinates move N_B times slower than their gradient.
    metric = (1.0 / block_size, 1.0, 1.0)

    @jax.jit
    def everything(state):
        def gamma(x):
            slope = jnp.sum((w * y)[:, None] * g, axis=0)  # of the best linear predictor
            return jnp.sum(w * output(sigma, gain, x, g)[:, 0] * (g @ slope)) / jnp.sqrt(
                jnp.sum(slope**2)
            )

        def power(x, target):
            return 0.5 * jnp.sum(w * (output(sigma, gain, x, g)[:, 0] - target) ** 2)

        def paired(a, b):
            return sum(m * jnp.sum(p * q) for m, p, q in zip(metric, a, b, strict=True))

        value, G = jax.value_and_grad(gamma)(state)
        down, own = jax.grad(power)(state, y), jax.grad(power)(state, 0.0 * y)
        return value, paired(G, G), -paired(G, down), paired(G, own)

    return [float(part) for part in everything(jax.tree.map(jnp.asarray, state))]


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_the_symmetric_network_has_the_signal_of_its_reduced_flow(name):
    X, N = (0.3, 0.5, 0.4, 0.6), 7
    network = SymmetricNetwork(name, X, width=N, beta=1.3)
    model = network.embedded(INPUTS)
    v = np.eye(INPUTS)[:1]
    x, weights = gaussian_batch(np.vstack([model.params[0].W, v]), name)
    y = 1.3 * network.activation.values(x @ v.T)
    found = small_signal(model, x, y, weights=weights)
    problem = scalar_problem(network)
    gamma, T, rate, S = reduced_signal(
        network.activation, problem, coordinates(X), problem.g, problem.w, N
    )
    for ours, theirs in (
        (found.gamma, gamma), (found.gradient_energy, T),
        (found.rate, rate), (found.self_interaction, S),
    ):  # fmt: skip
        assert ours == pytest.approx(theirs, rel=1e-10)
    assert found.path_gains == pytest.approx([np.sqrt(N) * X[0], *X[1:]], rel=1e-12)
    assert found.largest_norm == pytest.approx(np.sqrt(N) * X[0], rel=1e-12)
    # E[σ'(X_1 g)], and the same one layer up the chain.
    g, w = problem.g[:, 0], problem.w
    chain = X[1] * network.activation.values(X[0] * g)
    slopes = [w @ network.activation.values(z, 1) for z in (X[0] * g, chain)]
    assert found.gains[:2] == pytest.approx(slopes, rel=1e-10)


@pytest.mark.parametrize(("name", "power"), [("tanh", 2), ("gelu", 1)])
def test_the_rate_of_a_small_signal_is_that_of_the_linear_part(name, power):
    """dγ/dt = β h_σ T (1 + O(ε^{q−1})) − S (14): halving ε cuts the deviation accordingly."""
    off = []
    for scale in (0.04, 0.02):
        network = SymmetricNetwork.balanced(name, depth=4, width=7, scale=scale, beta=1.3)
        model = network.embedded(INPUTS)
        x, weights = gaussian_batch(np.asarray(model.params[0].W), name)
        y = 1.3 * network.activation.values(x[:, :1])
        found = small_signal(model, x, y, weights=weights)
        h = network.activation_class.h
        law = 1.3 * h * found.gradient_energy - found.self_interaction
        off.append(abs(found.rate / law - 1.0))
    assert off[1] < 0.05
    assert off[0] / off[1] == pytest.approx(2.0**power, rel=0.1)


def test_a_network_of_blocks_has_the_signal_of_its_flow():
    """Two directions, off-block entries, odd σ whose flow uses half of the grid."""
    blocks = BlockNetwork("tanh", depth=3, betas=(1.0, 0.6), block_size=3, rates="uniform")
    draw = np.random.default_rng(2)
    state = jax.tree.map(
        lambda part: part + 0.1 * draw.normal(size=part.shape), blocks.aligned(0.4)
    )
    model = blocks.embedded(state, INPUTS)
    v = np.eye(INPUTS)[:2]
    x, weights = gaussian_batch(np.vstack([model.params[0].W, v]), "tanh")
    y = (np.tanh(x @ v.T) @ np.array([1.0, 0.6]))[:, None]
    found = small_signal(model, x, y, weights=weights)
    g, w = gaussian_nodes(blocks.activation, 2)
    gamma, T, rate, S = reduced_signal(blocks.activation, blocks.problem(), state, g, w, 3)
    for ours, theirs in (
        (found.gamma, gamma), (found.gradient_energy, T),
        (found.rate, rate), (found.self_interaction, S),
    ):  # fmt: skip
        assert ours == pytest.approx(theirs, rel=1e-10)


def test_a_batch_scatters_around_the_population():
    network = SymmetricNetwork("gelu", (0.3, 0.5, 0.4), width=4)
    model = network.embedded(INPUTS)
    v = np.eye(INPUTS)[:1]
    nodes, weights = gaussian_batch(np.asarray(model.params[0].W), "gelu")
    samples = np.random.default_rng(0).normal(size=(12, 2000, INPUTS))

    def values(x, weights=None):
        y = network.activation.values(x @ v.T)
        signal = small_signal(model, x, y, weights=weights)
        return np.array([signal.gamma, signal.self_interaction, *signal.nonlinearity])

    batches = np.stack([values(x) for x in samples])
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    z = (batches.mean(axis=0) - values(nodes, weights)) / error
    assert np.all(np.abs(z) < 4)
    assert np.all(error < 0.05 * np.abs(batches.mean(axis=0)))


def test_long_vectors_make_a_finer_rule():
    v = np.eye(2)
    for scale in (1.0, 4.0):
        x, w = gaussian_batch(scale * v, "tanh")
        one, own = gaussian_batch(scale * v[:1], "tanh")
        flat = np.sum(w * np.tanh(scale * x[:, 0]) ** 2 * np.tanh(scale * x[:, 1]) ** 2)
        line = np.sum(own * np.tanh(scale * one[:, 0]) ** 2)
        assert flat == pytest.approx(line**2, rel=1e-8)


def test_refusals():
    with pytest.raises(InvalidValueError, match="4 directions.*sample a batch"):
        gaussian_batch(np.eye(4), "tanh")
    with pytest.raises(InvalidValueError, match="all zero"):
        gaussian_batch(np.zeros((2, 3)), "tanh")
    with pytest.raises(InvalidValueError, match="finite"):
        gaussian_batch(np.full((1, 3), np.nan), "tanh")
    with pytest.raises(InvalidValueError, match="smooth"):
        gaussian_batch(np.eye(2), "relu")
    with pytest.raises(InvalidValueError, match="away from 0"):
        gaussian_batch(np.eye(2)[:1], "hardtanh")
    x, y = np.ones((3, 2)), np.ones((3, 1))
    model = Model.of_matrices([np.ones((2, 2)), np.ones((1, 2))], "tanh")
    with pytest.raises(InvalidValueError, match="sum 3"):
        small_signal(model, x, y, weights=np.ones(3))
