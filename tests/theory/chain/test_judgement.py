"""A drawn network held against its birth: what is said of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
from dynagram.networks.blocks._composite import apply_blocks
from dynagram.theory.chain import judge_birth, trace_birth
from dynagram.theory.chain._scalings import shrink_outputs

n = 256
BLOCK = Residual([RMSNorm(), Dense(n), Activate("relu"), Dense(n, C_W=2.0)])
PLAIN = Chain([Dense(n), *[BLOCK] * 6, RMSNorm(), Dense(1)], inputs=3)
X = np.array([[1.0, -0.5, 0.7]])


def squares(network, seed=0, change=None):
    """Mean squares of the stream of a drawn network, its parameters changed on the way."""
    params = network.draw(jax.random.key(seed), jnp.float64)
    signal, shape, found = jnp.asarray(X)[:, None, :], network.in_shape, []
    for number, (block, values) in enumerate(zip(network.blocks, params, strict=True)):
        if change is not None:
            values = change(number, values)
        signal = apply_blocks((block,), (values,), signal, shape)
        shape = block.out_shape(shape)
        found.append(float(jnp.mean(signal**2)))
    return found


@pytest.fixture(scope="module")
def birth():
    return trace_birth(PLAIN, X)


@pytest.mark.parametrize("seed", range(3))
def test_a_good_network_is_inside(birth, seed):
    judged = judge_birth(birth, squares(PLAIN, seed))
    assert judged.is_inside
    assert judged.messages == ()
    # The norm has no spread, and the readout is one channel: neither is judged.
    assert [reading.number for reading in judged.readings] == list(range(7))


def test_depth_scaling_that_is_not_meant(birth):
    judged = judge_birth(birth, squares(shrink_outputs(PLAIN, 1 / 6)))
    assert len(judged.outside) == 6
    assert "divided by √6 = 2.45, a scaling with depth that is not meant" in judged.messages[0]


def test_depth_scaling_that_is_missing():
    birth = trace_birth(shrink_outputs(PLAIN, 1 / 6), X)
    judged = judge_birth(birth, squares(PLAIN))
    assert "the scaling with depth 1/√(2L) is left out" in judged.messages[0]


def test_all_branches_too_strong(birth):
    judged = judge_birth(birth, squares(shrink_outputs(PLAIN, 2.5)))
    assert len(judged.messages) == 1
    assert "the matrices of all branches are 1.6 times too large" in judged.messages[0]


def test_one_wrong_block(birth):
    def change(number, values):
        if number != 3:
            return values
        (branch,) = values
        return ((*branch[:-1], {"W": 2.0 * branch[-1]["W"]}),)

    judged = judge_birth(birth, squares(PLAIN, change=change))
    assert len(judged.messages) == 1
    assert judged.messages[0].startswith("block 4, residual (mlp), adds ")
    assert "one of W1, W2" in judged.messages[0]
    assert min(reading.number for reading in judged.outside) == 3


def test_a_wrong_first_matrix(birth):
    def change(number, values):
        return {"W": 1.5 * values["W"]} if number == 0 else values

    judged = judge_birth(birth, squares(PLAIN, change=change))
    assert judged.messages[0].startswith("block 1, dense: its mean square is 2.")


def test_what_was_not_measured_is_not_judged(birth):
    measured = squares(PLAIN)
    some = judge_birth(birth, [measured[0], None, measured[2]])
    assert [reading.number for reading in some.readings] == [0, 2]
    assert judge_birth(birth, {6: 50.0}).messages[0].startswith("block 7, residual (mlp) is the")
    assert "z" in str(some.summary().headings)
    assert repr(some) == "Judgement(2 readings, inside)"
    with pytest.raises(DynagramError, match="stages 0 to 8"):
        judge_birth(birth, {11: 1.0})
