"""Depth laws against known numbers and iterated maps, and the ways to scale a network."""

import numpy as np
import pytest

from dynagram.networks import Chain, load_architecture
from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
from dynagram.theory.chain import depth_law, examine
from dynagram.theory.chain._backward import squared_gradients
from dynagram.theory.chain._birth import similarity_of
from dynagram.theory.chain._scalings import count_layers, post_norm, scaled_variants


def transformer(**options):
    return Chain.transformer(64, 3, 8, positions=2, outputs=1, **options)


@pytest.mark.parametrize(
    ("options", "chi", "power"),
    [
        ({"hidden_C": (2.0, 2.0)}, 1.061753, 0.31156),
        ({"activation": "tanh", "hidden_C": (1.0, 2.0)}, 1.177807, 0.48070),
        ({"activation": "tanh", "hidden_C": (4.0, 1.0), "C_O": 0.25}, 1.611623, -0.156497),
    ],
)
def test_exponents_of_rank_collapse(options, chi, power):
    law = depth_law(transformer(**options))
    assert law.chi == pytest.approx(chi, abs=1e-6)
    assert law.collapse == pytest.approx(power, abs=1e-5)
    assert law.gradient == pytest.approx(
        1 - law.collapse + law.attention / (law.attention + law.mlp)
    )


@pytest.mark.parametrize("gated", [False, True])
def test_exponents_of_a_deep_stream(gated):
    """Two nearly equal tokens without attention: a layer multiplies 1 − ρ by (K + cχ)/(K + c)."""
    options = {"activation": "tanh", "hidden_C": (1.5, 2.0), "gated": gated, "hidden": 64}
    blocks = Chain.transformer(64, 1, 8, positions=2, outputs=1, inputs=2, **options).blocks
    mlp = next(b for b in blocks if isinstance(b, Residual) and len(b.branches[0]) > 2)
    depth = 15
    network = Chain([Dense(64), *[mlp] * depth, RMSNorm(), Dense(1)], (2, 2))
    grams = squared_gradients(network, np.array([[1.0, 0.0, 1.0, 2e-4]]), np.ones(2)).grams
    law, K = depth_law(network), np.array([np.mean(np.diagonal(G)) for G in grams[: depth + 1]])
    np.testing.assert_allclose(np.diff(K), law.mlp, rtol=1e-6)
    factor = np.prod((K[:-1] + law.mlp * law.chi) / (K[:-1] + law.mlp))
    first, last = (1.0 - similarity_of(grams[i], 1) for i in (0, depth))
    assert last / first == pytest.approx(factor, rel=1e-3)
    assert law.collapse == pytest.approx(1.0 - law.chi)


def test_norms_on_the_stream_shrink_distances_by_a_factor():
    mlp = [Dense(64, C_W=1.5), Activate("tanh"), Dense(64, C_W=2.0)]
    rows = [block for _ in range(40) for block in (Residual(mlp), RMSNorm())]
    network = Chain([Dense(64), RMSNorm(), *rows, Dense(1)], (2, 2))
    grams = squared_gradients(network, np.array([[1.0, 0.0, 1.0, 2e-4]]), np.ones(2)).grams
    one, two = (1.0 - similarity_of(grams[i], 1) for i in (-4, -2))
    law = depth_law(network)
    assert law.norm == "post"
    assert two / one == pytest.approx(law.collapse, rel=1e-3)


def test_what_has_no_depth_law():
    assert depth_law(Chain([Dense(8), Activate("relu"), Dense(1)], 3)) is None
    bare = Residual([Dense(8), Activate("relu"), Dense(8)])
    assert depth_law(Chain([Dense(8), bare, Dense(1)], 3)) is None


def test_scalings_of_a_network():
    plain = load_architecture("gpt2", depth=3, width=128, scaled=False)
    assert count_layers(plain) == (3, 6)
    variants = scaled_variants(plain)
    assert variants["1/√(2L), GPT-2"] == load_architecture("gpt2", depth=3, width=128)
    strengths = {b.strength for b in variants["1/√L, depth-muP"].blocks if isinstance(b, Residual)}
    assert strengths == {3**-0.5}
    assert depth_law(variants["post-norm"]).norm == "post"
    assert post_norm(variants["post-norm"]) is None
    assert scaled_variants(Chain([Dense(8), Activate("relu"), Dense(1)], 3)) == {}


def test_a_network_without_branches_is_examined_too():
    found = examine(load_architecture("convnet", depth=2, width=8, positions=3), bands="none")
    assert found.scalings == ()
    assert found.law is None
    assert [stage.name for stage in found.birth.stages][:2] == ["conv", "activate"]
    assert found.birth.stages[0].gradient > 0
