"""A readout tied to the embedding: exact for tokens that no input holds, and not for others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Dense, Embedding, LayerNorm, Residual, Select

VOCABULARY, WIDTH = 6, 8
TOKENS = jnp.array([[0.0, 1.0, 2.0], [2.0, 2.0, 1.0]])
NET = Chain(
    [
        Embedding(VOCABULARY, WIDTH, 1.0, 0.5, 1.0, 1.0),
        Residual([LayerNorm(), Dense(12), Activate("gelu"), Dense(WIDTH)]),
        LayerNorm(),
        Select(-1),
        Dense(VOCABULARY, C_W=float(WIDTH), lambda_W=float(WIDTH)),
    ],
    inputs=(3, 1),
)


def with_readout(params, matrix):
    """The same parameters with this matrix (vocabulary, width) at the end."""
    return (*params[:-1], {**params[-1], "W": matrix[None]})


def read(params, *, tied):
    """All outputs; the last matrix is the table of vectors where it is tied."""
    return NET.apply(with_readout(params, params[0]["token"]) if tied else params, TOKENS)


@pytest.fixture(scope="module")
def params():
    """One draw for both: the untied readout has the same rows, in a matrix of its own."""
    drawn = NET.draw(jax.random.key(0))
    return with_readout(drawn, drawn[0]["token"])


def tangents(params, *, tied):
    """J Jᵀ over all parameters, all with one rate, (output, output) of every two inputs."""

    leaves = jax.tree.leaves(jax.jacrev(lambda tree: read(tree, tied=tied))(params))
    flat = jnp.concatenate([leaf.reshape(*TOKENS.shape[:1], VOCABULARY, -1) for leaf in leaves], -1)
    return np.asarray(jnp.einsum("avp,bwp->abvw", flat, flat))


def test_outputs_of_absent_tokens_are_those_of_a_matrix_of_its_own(params):
    absent, present = [3, 4, 5], [0, 1, 2]
    one, two = (np.asarray(read(params, tied=tied)) for tied in (True, False))
    np.testing.assert_array_equal(one, two)  # one draw; they differ in what moves with what
    tied, free = (tangents(params, tied=tied) for tied in (True, False))
    block = np.ix_([0, 1], [0, 1], absent, absent)
    np.testing.assert_allclose(tied[block], free[block], rtol=1e-12)
    block = np.ix_([0, 1], [0, 1], present, present)
    assert np.max(np.abs(tied[block] / free[block] - 1.0)) > 0.05
