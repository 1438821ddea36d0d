"""Newton tensors: what one step with each leaves of the error, and how it falls with width."""

import jax
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import DynagramError
from dynagram.networks import MLP, Model
from dynagram.observables.tangents import ddntk, dntk, ntk
from dynagram.theory.training import newton_step, newton_tensor
from dynagram.theory.training._one_network import flattened

DATA = Data([[1.0, -0.4], [-0.3, 1.2]], [[0.9, -0.4], [-0.6, 0.7]])


def network(width, depth=3):
    return MLP([2, *[width] * (depth - 1), 2], "tanh", C_b=0.1, C_W=1.1, lambda_b=0.5)


def left(model, kind):
    after = newton_step(model, DATA, newton_tensor(model, DATA, kind))
    return np.asarray(after(DATA.x)) - DATA.y


def test_a_network_linear_in_its_parameters_needs_one_step():
    model = MLP([2, 2], "linear", C_b=0.3, C_W=1.0, lambda_W=0.7).init(seed=3)
    for kind in ("frozen", "own", "one-step"):
        np.testing.assert_allclose(left(model, kind), 0.0, atol=1e-12)


@pytest.mark.slow
def test_the_first_terms_of_what_is_left():
    """(∞.64), (∞.73): ε − Hκε + ½dH κε κε − ⅙ddH_I κε κε κε; (∞.80) cancels all of it."""
    model = network(400).init(seed=0)
    with jax.enable_x64():
        exact = model.in_float64()
        error = (np.asarray(exact(DATA.x)) - DATA.y).reshape(-1)
        H, dH = (flattened(np.asarray(f(exact, DATA.x))) for f in (ntk, dntk))
        ddH = flattened(np.asarray(ddntk(exact, DATA.x).first))
    for kind in ("frozen", "own", "one-step"):
        lifted = newton_tensor(model, DATA, kind) @ error
        bent = 0.5 * dH @ lifted @ lifted
        curved = -np.einsum("abcd,b,c,d->a", ddH, lifted, lifted, lifted) / 6.0
        found = left(model, kind).reshape(-1)
        # The fourth derivative is next: smaller than dH by two powers of the step.
        rest = found - (error - H @ lifted + bent + curved)
        assert np.max(np.abs(rest)) < 0.02 * np.max(np.abs(bent))
        if kind == "one-step":
            assert np.max(np.abs(found)) < 0.05 * np.max(np.abs(bent))
            assert np.max(np.abs(found)) < 0.1 * np.max(np.abs(curved))


@pytest.mark.slow
def test_powers_of_the_width():
    """Root mean squares over networks fall like n^{−1/2}, n^{−1} and faster."""
    widths, seeds = (32, 128), range(24)
    size = {
        kind: [
            np.sqrt(np.mean([left(network(n).init(seed=s), kind) ** 2 for s in seeds]))
            for n in widths
        ]
        for kind in ("frozen", "own", "one-step")
    }
    powers = {kind: np.log(one / two) / np.log(4.0) for kind, (one, two) in size.items()}
    assert 0.3 < powers["frozen"] < 0.75
    assert 0.8 < powers["own"] < 1.3
    assert powers["one-step"] > 1.35
    assert size["frozen"][1] > size["own"][1] > size["one-step"][1]


def test_refusals():
    model = network(8).init(seed=0)
    with pytest.raises(DynagramError, match="frozen, own, one-step"):
        newton_tensor(model, DATA, "giant")
    with pytest.raises(DynagramError, match="one row for each"):
        newton_step(model, DATA, np.eye(3))
    with pytest.raises(DynagramError, match="singular"):
        newton_tensor(model, Data([[1.0, 2.0]] * 2, [[0.0, 0.0]] * 2))
    bare = Model.of_matrices([np.ones((3, 2)), np.ones((2, 3))], "tanh")
    with pytest.raises(DynagramError, match="drawn from an MLP"):
        newton_tensor(bare, DATA, "frozen")
    kinked = MLP([2, 8, 2], "relu", C_b=0.1, C_W=2.0).init(seed=0)
    with pytest.raises(DynagramError, match="one-step"):
        newton_tensor(kinked, DATA, "one-step")
