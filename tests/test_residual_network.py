"""The residual MLP and chains of general blocks: validation, TOML, forward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.networks import MLP, BlockChain, ResidualMLP
from dynagram.theory._kernels import frozen_kernels

WIDTHS = (3, 7, 7, 7, 5, 2)


def network(**changes):
    given = {"widths": WIDTHS, "activation": "tanh", "C_b": 0.1, "C_W": 1.2, "skip": [0.5, -2, 0]}
    return ResidualMLP(**given | changes)


def test_forward_pass_is_the_printed_recursion(getkey):
    """z' = b + Wσ(z) + γz (B.3), written out by hand."""
    net, x = network(), np.array([[1.0, -0.5, 0.3], [0.2, 2.0, -1.0]])
    params = net.draw(getkey(), dtype=jnp.float64)
    z = [np.asarray(params[0].b) + x @ np.asarray(params[0].W).T]
    for layer, gamma in zip(params[1:], (0.5, -2.0, 0.0, 0.0), strict=True):
        step = np.asarray(layer.b) + np.tanh(z[-1]) @ np.asarray(layer.W).T
        z.append(step + (gamma * z[-1] if gamma else 0.0))
    found = net.preactivations(params, x)
    for mine, wanted in zip(found, z, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-13)
    np.testing.assert_array_equal(net.apply(params, x), found[-1])


def test_without_skips_it_is_the_plain_network(getkey):
    net = network(skip=0.0)
    params = net.draw(getkey())
    x = jnp.ones((2, 3))
    assert net.plain == MLP(WIDTHS, "tanh", 0.1, 1.2)
    np.testing.assert_array_equal(net.apply(params, x), net.plain.apply(params, x))


def test_specification_is_hashable_and_survives_toml():
    net = network()
    assert net == network()
    assert hash(net) == hash(network())
    assert net != network(skip=0)
    assert ResidualMLP.from_toml(net.to_toml()) == net
    assert eval(repr(net)) == net
    assert net.skip_of_layers == (0.0, 0.5, -2.0, 0.0, 0.0)
    assert net.number_of_parameters == net.plain.number_of_parameters


def test_functions_of_a_plain_network_do_not_take_it():
    """They would leave out the skips without a word."""
    with pytest.raises(Exception, match="ResidualMLP|C_b"):
        frozen_kernels(network(), np.ones((1, 3)))  # pyright: ignore[reportArgumentType]


def test_critical_initialisation():
    net = ResidualMLP.critical([2, 4, 4, 4, 1], "tanh", [0.5, 0.8])
    assert pytest.approx((1.0, 0.75, 0.36, 1.0)) == net.plain.C_W
    assert net.plain.C_b == (0.0,) * 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"skip": [0.5, 0.5]}, "one per block: 3 expected, 2 given"),
        ({"skip": [0.5, 0.5, 0.5]}, "layer 4 goes from 7 to 5 neurons"),
        ({"skip": float("nan")}, "must be finite"),
        ({"skip": "0.5"}, "expected a real number"),
        ({"widths": (3, 7, 2)}, "a block joins two hidden layers"),
        ({"C_W": 0}, "C_W = 0.0"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(DynagramError, match=words) as caught:
        network(**changes)
    assert "\n" not in str(caught.value)


def test_refusals_of_criticality_and_toml():
    with pytest.raises(DynagramError, match="skip of block 1 = 1.0: criticality needs γ² < 1"):
        ResidualMLP.critical([2, 4, 4, 1], "tanh", 1)
    with pytest.raises(DynagramError, match="no critical initialisation"):
        ResidualMLP.critical([2, 4, 4, 1], "sigmoid", 0.5)
    with pytest.raises(DynagramError, match="skip = .*: this key must be given|skip"):
        ResidualMLP.from_toml(network().plain.to_toml())
    with pytest.raises(DynagramError, match="unknown key"):
        MLP.from_toml(network().to_toml())


def test_chain_of_general_blocks(getkey):
    def init(key):
        return jax.random.normal(key, (4, 4), dtype=jnp.float64)

    chain = BlockChain(init, lambda W, z: jnp.tanh(z @ W.T), (0.5, 2.0), (0.9, -1.0))
    params = chain.init(getkey())
    z = np.ones((3, 4))
    first = 0.5 * np.tanh(z @ np.asarray(params[0]).T) + 0.9 * z
    second = 2.0 * np.tanh(first @ np.asarray(params[1]).T) - first
    fields = chain.fields(params, jnp.asarray(z))
    np.testing.assert_allclose(fields[1], first, rtol=1e-13)
    np.testing.assert_allclose(chain.apply(params, jnp.asarray(z)), second, rtol=1e-13)
    assert not np.array_equal(params[0], params[1])
    with pytest.raises(DynagramError, match="one ξ per block"):
        BlockChain(init, lambda _, z: z, (1.0,), (0.5, 0.5))
