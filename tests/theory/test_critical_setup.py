"""Advice: its numbers against their sources, its words, and real training at its step limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._critical_setup import critical_setup
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.criticality import critical_initialisation, scale_invariant_tangents
from dynagram.theory.information import optimal_aspect_ratio

X = np.array([[1.2, -0.3, 0.8], [-0.5, 1.1, 0.4], [0.9, 0.7, -1.3], [-1.0, -0.6, 0.2]])


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "elu", "hardtanh", "linear"])
def test_every_number_has_a_meaning_and_an_equation(name):
    setup = critical_setup(name, width=256, depth=6, outputs=3, x=X)
    assert setup.network.widths == (3, *[256] * 5, 3)
    assert len({s.name for s in setup.statements}) == len(setup.statements)
    for statement in setup.statements:
        assert statement.meaning
        assert statement.equation.startswith("(")
        assert np.all(np.isfinite(statement.value))
    shares = setup["layer_shares"].value
    assert sum(shares) == pytest.approx(1.0, rel=1e-12)
    assert setup["C_W"].value == setup.network.C_W
    assert setup["lambda_b"].value == setup.network.lambda_b


def test_relu_numbers_are_the_closed_forms():
    width, depth = 512, 10
    setup = critical_setup("relu", width, depth, inputs=20)
    exact = scale_invariant_tangents("relu", np.array([10.0]), K=2.0, lambda_b=0.1, lambda_W=0.1)
    Theta, A, B, Q = (float(exact[k][0]) for k in ("Theta", "A", "B", "Q"))
    assert Theta == pytest.approx(2.0)
    assert setup.number("Theta") == pytest.approx(Theta)
    fluctuation = np.sqrt((A + 2 * B) / width) / Theta
    assert setup.number("ntk_fluctuation") == pytest.approx(fluctuation, rel=1e-12)
    assert setup.number("kernel_change") == pytest.approx(Q / (width * Theta**2), rel=1e-12)
    assert setup.number("largest_step") == pytest.approx(1.0)
    assert setup.number("step") == pytest.approx(0.5)
    assert setup.number("optimal_aspect_ratio") == pytest.approx(4 / 23 / 5)
    assert set(setup.network.C_W) == {2.0}
    assert "R, S, T, U" in " ".join(setup.notes)
    assert "second_change" not in {s.name for s in setup.statements}


def test_initialisation_is_critical_and_renormalised():
    """(5.142) adds (2/3)/n to C_W of tanh from layer 2 on; the first layer's fan-in is n_0."""
    network = critical_setup("tanh", 100, 5).network
    assert list(network.C_W) == [1.0, *[1.0 + 2 / 300] * 4]
    assert network.lambda_b == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert network.lambda_W == (1.0,) * 5


def test_half_stable_points_are_reached_in_the_first_layer():
    """GELU: C_W^(1) puts K^(1) = K*, and all layers share alike."""
    point = critical_initialisation("gelu")
    x = 3.0 * X
    setup = critical_setup("gelu", 64, 4, x=x)
    mean_square = np.mean(x**2)
    first = setup.network.C_b[0] + setup.network.C_W[0] * mean_square
    assert first == pytest.approx(point.K_star, rel=1e-12)
    assert setup["layer_shares"].value == pytest.approx([0.25] * 4, rel=1e-9)


def test_step_limit_of_data_and_losses():
    mse, entropy = (
        critical_setup("tanh", 128, 4, outputs=3, loss=loss, x=X)
        for loss in ("mean", "cross-entropy")
    )
    largest = np.linalg.eigvalsh(frozen_kernels(mse.network, X, layers="last").Theta[0])[-1]
    assert mse.number("largest_step") == pytest.approx(2 / largest)
    assert entropy.number("largest_step") == pytest.approx(4 / largest)
    assert mse.number("pytorch_factor") == pytest.approx(4 * 3 / 2)
    assert entropy.number("pytorch_factor") == pytest.approx(4.0)
    eta = mse.number("step") * 6
    assert mse.pytorch.rate_b == pytest.approx([eta * rate for rate in mse.network.lambda_b])
    fan_in = mse.network.widths[:-1]
    wanted = [eta * rate / n for rate, n in zip(mse.network.lambda_W, fan_in, strict=True)]
    assert mse.pytorch.rate_W == pytest.approx(wanted)


def test_one_input_bounds_any_number_for_a_mean_loss():
    """λ_max(Θ) ≤ N max Θ_aa: the rate for one unit input is safe for a mean over many."""
    x = X / np.sqrt(np.mean(X**2, axis=1, keepdims=True))
    one, many = critical_setup("tanh", 128, 4, inputs=3), critical_setup("tanh", 128, 4, x=x)
    assert np.all(np.array(one.pytorch.rate_W) <= np.array(many.pytorch.rate_W))


@pytest.mark.parametrize(
    ("name", "width", "depth", "verdict", "words"),
    [
        ("relu", 512, 8, "trust", "sweet spot"),
        ("tanh", 512, 24, "trust", "sweet spot"),
        ("relu", 100, 6, "careful", "deep for its width"),
        ("relu", 100, 30, "do not use", "far too deep"),
        ("tanh", 64, 40, "do not use", "far too deep"),
        ("relu", 100_000, 3, "trust", "nearly infinitely wide"),
    ],
)
def test_depth_against_width(name, width, depth, verdict, words):
    setup = critical_setup(name, width, depth)
    assert setup.regime.verdict == verdict
    assert words in setup.sweet_spot
    fluctuation = setup.regime.numbers["ntk_fluctuation"]
    assert fluctuation == pytest.approx(setup.number("ntk_fluctuation"), rel=1e-9)
    if verdict == "do not use":
        assert fluctuation > 0.5


def test_the_width_asked_for_is_enough():
    setup = critical_setup("relu", 100, 30)
    needed = int(setup.sweet_spot.split("a width of ")[1].split()[0])
    assert critical_setup("relu", needed, 30).number("ntk_fluctuation") == pytest.approx(
        0.25, abs=1e-3
    )


def test_skips_restore_the_fit():
    """γ* makes r* equal to L/n, and its network is critical with the spread that was promised."""
    setup = critical_setup("relu", 64, 10, outputs=2, inputs=5, residual=True)
    found = setup.residual
    assert optimal_aspect_ratio("relu", 2, skip=found.skip).r_star == pytest.approx(10 / 64)
    network = MLP.critical([5, *[64] * 9, 2], "relu", skip=found.skip)
    assert network.C_W[1] == pytest.approx(found.C_W)
    predicted = predict(network, np.ones((1, 5)), ("K", "V"))
    V, K = predicted["V"][-1].item(), predicted["K"][-1].item()
    assert found.fluctuation == pytest.approx((V / 64) ** 0.5 / K, rel=1e-9)
    assert found.plain_fluctuation == pytest.approx(setup.number("signal_fluctuation"), rel=1e-9)


def train(setup, key, y, factor, steps):
    """Errors z − y along full-batch descent of MSELoss with the PyTorch rates times `factor`."""
    network, rates = setup.network, setup.pytorch
    params = network.draw(key)

    def loss(params):
        error = network.apply(params, X) - y
        return jnp.mean(error**2), error

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    errors = []
    for _ in range(steps):
        (_, error), gradient = step(params)
        errors.append(np.asarray(error))
        params = tuple(
            type(layer)(layer.b - factor * rb * g.b, layer.W - factor * rW * g.W)
            for layer, g, rb, rW in zip(params, gradient, rates.rate_b, rates.rate_W, strict=True)
        )
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_gradient_descent_at_the_limit(name, getkey):
    """Wide networks with the per-tensor rates: the error along the NTK's top eigenvector is
    multiplied by 1 − ηλ_max a step, −0.8 just below the limit and −1.4 at 1.2 times it."""
    setup = critical_setup(name, width=1500, depth=3, outputs=2, x=X)
    Theta = frozen_kernels(setup.network, X, layers="last").Theta[0]
    top = np.linalg.eigh(Theta)[1][:, -1]
    y = jnp.array([[0.5, -0.2], [-0.3, 0.4], [0.1, 0.6], [-0.4, -0.1]])
    to_limit = setup.number("largest_step") / setup.number("step")
    key = getkey()
    below = train(setup, key, y, 0.9 * to_limit, 100)
    above = train(setup, key, y, 1.2 * to_limit, 6)
    for errors, share in ((below, 0.9), (above, 1.2)):
        along = np.linalg.norm(np.einsum("a,tai->ti", top, errors[:6]), axis=1)
        rate = (along[-1] / along[0]) ** (1 / 5)
        spread = 2.0 * share * setup.number("ntk_fluctuation")  # λ_max differs between networks
        assert rate == pytest.approx(2.0 * share - 1.0, abs=2.0 * spread)
        assert (rate > 1.0) == (share > 1.0)
    assert np.mean(below[-1] ** 2) < 0.01 * np.mean(below[0] ** 2)


def test_refusals():
    with pytest.raises(InvalidValueError, match="no critical initialisation: K\\* = 0 needs C_b"):
        critical_setup("sigmoid", 10, 3)
    with pytest.raises(InvalidValueError, match="σ jumps"):
        critical_setup("step", 10, 3)
    with pytest.raises(InvalidValueError, match="depth = 1: expected an integer ≥ 2"):
        critical_setup("relu", 10, 1)
    with pytest.raises(InvalidValueError, match="cross-entropy needs at least two classes"):
        critical_setup("relu", 10, 3, loss="cross-entropy")
    with pytest.raises(InvalidValueError, match="loss = 'hinge'"):
        critical_setup("relu", 10, 3, loss="hinge")
    with pytest.raises(InvalidValueError, match="not all zero"):
        critical_setup("relu", 10, 3, x=np.zeros((2, 3)))
    with pytest.raises(InvalidValueError, match="shape of x"):
        critical_setup("relu", 10, 3, inputs=4, x=X)
    setup = critical_setup("relu", 10, 3)
    with pytest.raises(InvalidValueError, match="known statements"):
        setup["luck"]
    with pytest.raises(InvalidValueError, match="one value per layer"):
        setup.number("C_W")
