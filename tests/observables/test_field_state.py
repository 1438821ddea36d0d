"""The fields of one pass against their definitions, written out layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Model
from dynagram.observables.fields import fields, fixed_readout

WIDTHS = {1: (6, 9), 2: (6, 9, 7), 3: (6, 9, 7, 8), 4: (6, 8, 8, 8, 8), 5: (6, 8, 9, 7, 8, 6)}


def matrices(L, seed=0):
    rng = np.random.default_rng(seed)
    sizes = zip(WIDTHS[L][1:], WIDTHS[L][:-1], strict=True)
    return [rng.standard_normal((n, m)) * np.sqrt(2 / m) for n, m in sizes]


@pytest.mark.parametrize("L", WIDTHS)
def test_the_definitions(L):
    rng = np.random.default_rng(L)
    weights, x, c = matrices(L), rng.standard_normal((5, 6)), rng.standard_normal(WIDTHS[L][-1])
    found = fields(fixed_readout(weights, readout=c), x)
    assert (found.hidden_layers, found.samples, found.N) == (L, 5, WIDTHS[L][-1])
    np.testing.assert_array_equal(found.u[0], x)
    for ell, W in enumerate(weights, start=1):
        np.testing.assert_allclose(found.v[ell - 1], found.u[ell - 1] @ W.T, rtol=1e-13)
        np.testing.assert_array_equal(found.a[ell - 1], found.v[ell - 1] > 0)
        np.testing.assert_array_equal(found.u[ell], np.maximum(found.v[ell - 1], 0))
    b = np.broadcast_to(c, found.b[-1].shape)
    for ell in range(L, 0, -1):
        np.testing.assert_allclose(found.b[ell - 1], b, rtol=1e-12, atol=1e-14)
        b = (found.a[ell - 1] * found.b[ell - 1]) @ weights[ell - 1]
    np.testing.assert_allclose(found.output, found.u[-1] @ c / found.N, rtol=1e-13)


def test_the_conjugate_field_is_a_derivative_of_the_output():
    weights, x = matrices(3), np.random.default_rng(1).standard_normal((4, 6))
    found = fields(fixed_readout(weights, "tanh"), x)

    def output(u):  # from u_1 on
        return jnp.mean(jnp.tanh(weights[2] @ jnp.tanh(weights[1] @ u)))

    expected = found.N * jax.vmap(jax.grad(output))(jnp.asarray(found.u[1]))
    np.testing.assert_allclose(found.b[0], expected, rtol=1e-12)


def test_a_network_of_the_library_with_its_biases():
    network = MLP([6, 9, 7, 1], "relu", C_b=0.3, C_W=2.0)
    params, x = network.draw(jax.random.key(0)), np.random.default_rng(2).standard_normal((4, 6))
    found = fields(Model(network, params), x)
    np.testing.assert_allclose(found.output, network.apply(params, x)[:, 0], rtol=1e-13)
    np.testing.assert_allclose(found.b[-1], 7 * np.asarray(params[-1].W).repeat(4, axis=0))
    given = fixed_readout(
        [np.asarray(layer.W) for layer in params[:-1]],
        biases=[np.asarray(layer.b) for layer in params[:-1]],
        readout=7 * np.asarray(params[-1].W)[0],
    )
    again = fields(given, x)
    for name in ("u", "v", "a", "b"):
        for one, other in zip(getattr(found, name), getattr(again, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.output, again.output + float(params[-1].b[0]), rtol=1e-12)


def test_a_silent_sample_has_no_active_unit():
    found = fields(fixed_readout(matrices(2)), np.zeros((1, 6)))
    assert not np.any(found.a[0])  # 1(v > 0) at v = 0, not 1/2
    assert not np.any(found.a[1])


def test_single_precision_stays():
    weights = [W.astype(np.float32) for W in matrices(2)]
    found = fields(fixed_readout(weights), np.ones((2, 6)))
    assert {field.dtype for field in (*found.u, *found.b, *found.a)} == {np.dtype("float32")}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), InvalidValueError, "weights = \\[\\]: at least one matrix needed"),
        ((np.ones((3, 3)),), InvalidTypeError, "weights = 'ndarray': expected a list of arrays"),
        (([np.ones(3)],), InvalidValueError, "shape of weights\\[0\\] = \\(3,\\)"),
        (([np.ones((3, 2)), np.ones((4, 2))],), InvalidValueError, "expected \\(…, 3\\)"),
        (([np.full((3, 2), np.nan)],), InvalidValueError, "every entry must be finite"),
        (([np.array([["a"]])],), InvalidTypeError, "expected an array of real numbers"),
        (([np.ones((3, 2))], "nonsense"), InvalidValueError, "nonsense"),
    ],
)
def test_bad_weights_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        fixed_readout(*arguments)


def test_bad_readouts_biases_and_inputs_are_refused():
    weights = matrices(1)
    with pytest.raises(InvalidValueError, match="shape of readout = \\(3,\\): expected \\(9,\\)"):
        fixed_readout(weights, readout=np.ones(3))
    with pytest.raises(InvalidValueError, match="number of biases = 2: expected 1"):
        fixed_readout(weights, biases=[np.ones(9), np.ones(9)])
    with pytest.raises(InvalidValueError, match="shape of biases\\[0\\]"):
        fixed_readout(weights, biases=[np.ones(8)])
    with pytest.raises(InvalidValueError, match="shape of x"):
        fields(fixed_readout(weights), np.ones((2, 5)))
    network = MLP([6, 4, 2], "relu", C_b=0, C_W=2)
    with pytest.raises(InvalidValueError, match="one output"):
        fields(network.init(seed=0), np.ones((2, 6)))
    network = MLP([6, 1], "relu", C_b=0, C_W=2)
    with pytest.raises(InvalidValueError, match="one hidden layer"):
        fields(network.init(seed=0), np.ones((2, 6)))
    with pytest.raises(InvalidValueError, match="does not exist"):
        fields(fixed_readout(weights, lambda z: jnp.where(z > 0, 1.0, 0.0)), np.ones((2, 6)))
    with pytest.raises(NonFiniteError, match="field v of layer 1 is not finite"):
        fields(fixed_readout([1e300 * W for W in weights]), np.full((1, 6), 1e300))
