"""Networks set up on their data, and their rates: against dense matrices and real training."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from dynagram.advice import OPTIMIZERS, advise_rates, initialise, operating_point
from dynagram.advice._rates import input_share, layer_shares, rate_fraction
from dynagram.data import Data, digits
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Model
from dynagram.observables._curvature import measure_curvature
from dynagram.observables._linearisation import linearise
from dynagram.training._losses import loss_value

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 5)) + 2.0
Y = np.eye(3)[RNG.integers(3, size=30)]


def network(name, depth=6, width=24, skip=0.0):
    return MLP([5, *[width] * (depth - 1), 3], name, C_b=0.0, C_W=1.0, skip=skip)


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "sigmoid"])
def test_every_layer_is_at_its_point(name):
    point = operating_point(name, 6)
    model = initialise(network(name), X, seed=1)
    *hidden, last = model.network.preactivations(model.params, X)
    for z in hidden:
        assert np.asarray(z.mean(axis=0)) == pytest.approx(point.mean, abs=1e-9)
        assert float(z.var(axis=0).mean()) == pytest.approx(point.variance, rel=1e-9)
    assert np.asarray(last.mean(axis=0)) == pytest.approx(0.0, abs=1e-9)
    assert float(last.var(axis=0).mean()) == pytest.approx(1.0, rel=1e-9)
    for layer in model.params[1:-1]:
        gram = np.asarray(layer.W @ layer.W.T)
        assert gram == pytest.approx(gram[0, 0] * np.eye(24), abs=1e-9 * gram[0, 0])


def test_blocks_with_skips_add_a_share():
    model = initialise(network("relu", skip=1.0), X)
    hidden = model.network.preactivations(model.params, X)[:-1]
    assert model.network.skip == (1.0,) * 4
    for before, after in itertools.pairwise(hidden):
        added = np.asarray(after - before)
        assert added.var(axis=0).mean() == pytest.approx(1 / 6, rel=1e-9)
    chi = operating_point("relu", 2).amplification
    shares = layer_shares(chi, model.network.skip_of_layers)
    assert shares == pytest.approx([1 / 1.4669422] * 5 + [1.0], rel=1e-6)


def test_inputs_must_differ():
    with pytest.raises(InvalidValueError, match="two different inputs"):
        initialise(network("relu"), np.ones((4, 5)))


@pytest.mark.parametrize("skip", [0.0, 1.0])
@pytest.mark.parametrize("loss", ["cross-entropy", "mean", "half-sum", "logistic"])
def test_curvature_by_dense_matrices(loss, skip):
    model = initialise(network("tanh", depth=4, width=6, skip=skip), X)
    factors = np.array([[0.3, 1.0, 2.0, 1.5], [0.7, 1.1, 0.4, 1.5]])  # of biases, of weights
    flat, restore = ravel_pytree(model.params)
    roots, _ = ravel_pytree(
        tuple(
            jax.tree.map(jnp.full_like, layer, type(layer)(*units))
            for layer, units in zip(model.params, np.sqrt(factors).T, strict=True)
        )
    )
    targets = jnp.asarray(2.0 * Y - 1.0 if loss == "logistic" else Y)

    def outputs(theta):
        return model.network.apply(restore(theta), X).reshape(-1)

    def value(z):
        return loss_value(loss, z.reshape(30, 3), targets)

    J = jax.jacfwd(outputs)(flat) * roots[None, :]
    H = jax.hessian(value)(outputs(flat))
    G, g = J.T @ H @ J, J.T @ jax.grad(value)(outputs(flat))
    curvature = measure_curvature(linearise(model, X, factors), loss, np.asarray(targets))
    signs = jnp.sign(g)
    # Forty iterations from below: (λ₂/λ₁)^80 of the rest is left.
    eigenvalues = np.linalg.eigvalsh(G)
    left = (eigenvalues[-2] / eigenvalues[-1]) ** 40
    assert curvature.largest == pytest.approx(eigenvalues[-1], rel=max(1e-10, 10 * left))
    assert curvature.line_step == pytest.approx(float(g @ g / (g @ G @ g)), rel=1e-10)
    assert curvature.sign_step == pytest.approx(float(g @ signs / (signs @ G @ signs)), rel=1e-10)
    assert curvature.loss == pytest.approx(float(value(outputs(flat))), rel=1e-12)


def test_curvature_of_a_users_loss(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def loss(z, y):\n    return ((z - y) ** 2).mean()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    here = linearise(initialise(network("tanh", depth=3, width=6), X), X)
    named, own = (measure_curvature(here, loss, Y) for loss in ("mean", "mine:loss"))
    assert own.largest == pytest.approx(named.largest, rel=1e-12)
    assert own.sign_step == pytest.approx(named.sign_step, rel=1e-12)


def test_curvature_of_nothing():
    silent = Model.of_matrices([np.ones((4, 5)), np.zeros((3, 4))], "relu")
    dead = linearise(silent, -np.abs(X))
    with pytest.raises(InvalidValueError, match="does not change"):
        measure_curvature(dead, "half-sum", np.zeros((30, 3)))
    broken = Model.of_matrices([np.full((4, 5), 1e300), np.full((3, 4), 1e300)], "linear")
    with np.errstate(all="ignore"), pytest.raises(NonFiniteError, match="not finite"):
        measure_curvature(linearise(broken, X), "mean", Y)


def test_rates_divide_by_what_layers_amplify():
    model = initialise(network("relu", depth=10), X)
    chi = operating_point("relu", 10).amplification
    data = Data(X, Y)
    plain, noisy = (
        advise_rates(model, data, loss="cross-entropy", batch=batch) for batch in (None, 8)
    )
    ratios = np.array(plain.biases[1:]) / np.array(plain.biases[:-1])
    assert ratios == pytest.approx(chi, rel=1e-9)
    assert plain.layers[-1] == pytest.approx(2 / plain.curvature.largest, rel=1e-12)
    assert noisy.layers[-1] == pytest.approx(2 / noisy.curvature.largest, rel=1e-12)
    adam = advise_rates(model, data, loss="cross-entropy", optimizer="adam")
    assert set(adam.biases) == set(adam.layers[1:]) == {adam.curvature.sign_step}
    assert [rate_fraction(name, False) for name in OPTIMIZERS] == [1.0, 0.5, 1.0, 1.0]
    assert [rate_fraction(name, True) for name in OPTIMIZERS] == [1.0, 0.175, 0.6, 0.6]
    with pytest.raises(InvalidValueError, match="optimizer = 'lion': expected one of sgd"):
        advise_rates(model, data, optimizer="lion")


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_units_and_copies_of_inputs_do_not_matter(optimizer):
    """Inputs c times as large, or each k times: the outputs move as they did in a first step."""
    data = Data(X, Y)
    model = initialise(network("tanh", depth=4), X)
    (b, W), *rest = model.params

    def first_step(model, data):
        rates = advise_rates(model, data, loss="mean", optimizer=optimizer)
        here = linearise(model, data.x)
        slopes = here.pull(2.0 * (here.outputs - Y) / Y.size)
        if optimizer == "adam":
            slopes = [(np.sign(b), np.sign(W)) for b, W in slopes]
        pairs = zip(rates.tree, slopes, strict=True)
        return rates, here.push([(rate.b * b, rate.W * W) for rate, (b, W) in pairs])

    rates, moved = first_step(model, data)
    large = Model(model.network, (type(model.params[0])(b, W / 30.0), *rest))
    scaled, moved_so = first_step(large, Data(30.0 * X, Y))
    np.testing.assert_allclose(moved_so, moved, rtol=1e-9, atol=1e-12)
    assert scaled.biases == pytest.approx(rates.biases, rel=1e-9)
    power = 1 if optimizer == "adam" else 2
    assert scaled.layers[0] == pytest.approx(rates.layers[0] / 30.0**power, rel=1e-9)
    # 40 columns for 24 units count as copies of 24.
    many = [input_share(1.0, n_in, 24, is_adam=optimizer == "adam") for n_in in (5, 24, 40)]
    assert many == pytest.approx([1.0, 1.0, 0.6])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_deep_networks_learn_digits(name):
    """24 layers, 60 steps of descent on all of 300 digits, 0 to 16, nothing tuned: below 0.06."""
    images = digits()
    chosen = np.random.default_rng(0).permutation(len(images.x))[:300]
    data = Data(images.x[chosen], np.eye(10)[images.labels[chosen]])
    model = initialise(MLP([64, *[64] * 23, 10], name, C_b=0.0, C_W=1.0), data.x)
    rates = advise_rates(model, data, loss="cross-entropy").tree
    y = jnp.asarray(data.y)

    @jax.jit
    def step(params):
        def objective(p):
            return loss_value("cross-entropy", model.network.apply(p, data.x), y)

        loss, slope = jax.value_and_grad(objective)(params)
        return loss, jax.tree.map(lambda p, g, rate: p - rate * g, params, slope, rates)

    params = model.params
    for _ in range(60):
        loss, params = step(params)
    assert float(loss) < 0.06
