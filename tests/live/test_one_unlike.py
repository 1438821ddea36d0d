"""Bugs where one layer is unlike the others, and weights that the first output does not show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from dynagram.errors import DynagramError
from dynagram.live import check, read_live
from dynagram.live._lone_blocks import find_lone_block
from dynagram.live._recipes import recipe_of
from dynagram.live._unread_weights import branch_ends, sizes_beside
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Dense, Flatten, Residual, RMSNorm
from dynagram.networks.blocks._block import Shape


def linears(model: nn.Module) -> list[nn.Linear]:
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


def he(model: nn.Module) -> nn.Module:
    for part in linears(model):
        nn.init.kaiming_normal_(part.weight)
        nn.init.zeros_(part.bias)
    return model


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 64), nn.ReLU())
        self.actor, self.critic = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.actor(h), self.critic(h)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32))
        self.other = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32))

    def forward(self, x, y):
        return (self.one(x) * self.other(y)).sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("kind", "name"), [(TwoHeads, "critic.weight"), (TwoTowers, "other.2.weight")]
)
def test_weights_of_other_outputs_and_inputs_are_held_against_recipes(kind, name):
    torch.manual_seed(0)
    model = he(kind())
    x = torch.randn(16, 8)
    batch = x if kind is TwoHeads else (x, torch.randn(16, 6))
    recipe = recipe_of("kaiming", 1)
    sizes = {s.name: s for s in sizes_beside(read_live(model, batch).graph, recipe)}
    assert name in sizes
    assert all(abs(size.z) < 5.0 for size in sizes.values())
    with torch.no_grad():
        model.get_parameter(name).mul_(4.0)
    (cause,) = check(model, batch, expected="kaiming").causes
    assert cause.parameters == (name,)


def mlp(*widths: int) -> nn.Sequential:
    pairs = pairwise(widths)
    layers = [part for a, b in pairs for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def test_biases_of_one_number_are_judged_by_what_they_do():
    torch.manual_seed(0)
    model, x = he(mlp(16, 256, 256, 4)), torch.randn(32, 16)
    *hidden, readout = linears(model)
    for part in hidden:
        nn.init.constant_(part.bias, 0.01)  # as some do on purpose
    nn.init.constant_(readout.bias, 2.0)  # what is known of the targets
    result = check(model, x, expected="kaiming")
    assert result.is_fine
    assert any("one number other than 0: 0.bias" in note for note in result.notes)
    for part in hidden:
        nn.init.ones_(part.bias)
    (cause,) = check(model, x, expected="kaiming").causes
    assert cause.name == "constant biases"
    assert cause.parameters == ("0.bias", "2.bias", "4.bias")


def test_a_gain_of_another_activation_is_named():
    torch.manual_seed(0)
    model = he(mlp(32, 96, 96, 32))
    for part in linears(model):
        nn.init.kaiming_normal_(part.weight, nonlinearity="tanh")
    (cause,) = check(model, torch.randn(32, 32), expected="kaiming").causes
    assert cause.name == "gain of another activation"


def chain(*, odd: int | None = None, **changes) -> Chain:
    usual = {"norm": True, "sigma": "relu", "skip": 1.0, "strength": 1.0}
    blocks: list[Any] = [Dense(8)]
    for number in range(5):
        asked = {**usual, **(changes if number == odd else {})}
        norm = [RMSNorm()] if asked["norm"] else []
        branch = [*norm, Dense(8), Activate(asked["sigma"]), Dense(8)]
        blocks.append(Residual(branch, asked["skip"], asked["strength"]))
    return Chain([*blocks, Dense(1)], 4)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"skip": 2.0}, "other skip"),
        ({"strength": 0.5}, "other strength"),
        ({"norm": False}, "norm missing"),
        ({"sigma": "gelu"}, "other activation"),
    ],
)
def test_one_block_that_is_not_built_like_the_others(change, name):
    assert not find_lone_block(chain(), ())
    assert [cause.name for cause in find_lone_block(chain(odd=2, **change), ())] == [name]
    assert not find_lone_block(chain(odd=0, **change), ())  # a first block may be another one
    assert not find_lone_block(chain(odd=4, **change), ())


def test_a_matrix_that_reads_all_positions_is_one_product():
    block, shape = Flatten(5, C_b=1.0), Shape((4, 6), 3)
    params = block.draw(jax.random.key(0), shape, jnp.float64)
    x = jax.random.normal(jax.random.key(1), (2, 24, 3), jnp.float64)
    W, b = np.asarray(params["W"]), np.asarray(params["b"])
    wanted = sum(np.asarray(x)[:, p] @ W[p].T for p in range(24)) + b
    np.testing.assert_allclose(block.apply(params, x, shape)[:, 0], wanted, rtol=1e-12)
    jaxpr = jax.make_jaxpr(lambda x: block.apply(params, x, shape))(x)
    assert len(jaxpr.eqns) < 24


def test_branches_end_before_a_bias_that_is_added_by_itself():
    rng = np.random.default_rng(0)
    params = {"table": rng.normal(size=(7, 4)), "W": rng.normal(size=(4, 4)), "b": np.zeros(4)}

    def model(p, tokens):
        x = p["table"][tokens]
        x = x + (jnp.tanh(x) @ p["W"] + p["b"][None, None])
        return x @ p["table"].T

    live = read_live(model, np.zeros((2, 3), np.int64), params=params)
    (end,) = branch_ends(live.graph)
    assert live.graph.nodes[end].parameters == ("W",)
    assert len(live.measure(None)) > 0  # no warning about the 64 bits of tokens


LAZY = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
META = nn.Sequential(nn.Linear(4, 3, device="meta"))


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (LAZY, torch.ones(2, 4), "0.weight.*call the lazy module on a batch once"),
        (META, torch.ones(2, 4), "0.weight.*meta device"),
        (nn.Linear(4, 3), torch.ones(2, 4, device="meta"), "data.*no numbers"),
        (nn.Linear(4, 3), np.array([["a"] * 4] * 2), "data.*expected numbers"),
        (nn.ReLU(), torch.ones(2, 4), "ReLU.*no parameters"),
    ],
)
def test_what_holds_no_numbers_is_refused_in_one_line(model, x, words):
    with pytest.raises(DynagramError, match=words) as caught:
        check(model, x)
    assert "\n" not in str(caught.value)


class Neighbours(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(6).to_sparse())
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.relu(torch.sparse.mm(self.adjacency, self.first(x)))
        return torch.sparse.mm(self.adjacency, self.last(h))


def test_sparse_matrices_of_a_model_are_numbers_too():
    live = read_live(Neighbours(), torch.randn(6, 4))
    assert {"first.weight", "last.weight"} <= live.graph.used()
