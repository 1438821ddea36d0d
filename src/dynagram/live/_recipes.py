"""Known ways to draw weights, by name, and the way in which given weights were drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._recognition import Weight
from dynagram.live._walk import Matrix, Place, matrices_of, with_variances
from dynagram.networks import MLP, Chain, load_config, load_network
from dynagram.networks._files import is_config
from dynagram.networks.blocks import Activate, Attention, Dense, Residual
from dynagram.networks.blocks._composite import every_block
from dynagram.theory.chain._scalings import count_layers

_STD = 0.02
RECIPES: dict[str, Callable[[Matrix, int], float]] = {
    "kaiming": lambda m, _: 2.0 / m.fan_in,
    "xavier": lambda m, _: 2.0 / (m.fan_in + m.fan_out),
    "lecun": lambda m, _: 1.0 / m.fan_in,
    "pytorch": lambda m, _: 1.0 / (3.0 * m.fan_in),
    "gpt2": lambda m, branches: _STD**2 / (branches if m.is_branch_end else 1),
    "normal-0.02": lambda _, __: _STD**2,
}
OF_TABLES = ("gpt2", "normal-0.02")  # that say how embeddings are drawn
Recipe = Callable[[Matrix, int], float | None]  # None where it says nothing


def declared_network(
    network: Chain, expected: Any, wholes: Mapping[Place, int] | None = None
) -> Chain:
    """The structure that was read, with the variances that are declared for it.

    `expected` is the name of a recipe, a network of blocks or an MLP, or the config.json of a
    model, as path or mapping. `wholes` are the fan-outs of parameters that hold several matrices,
    such as queries, keys and values in one: a recipe sees the parameter.
    """
    if isinstance(expected, str) and expected in RECIPES:
        return _of_recipe(network, expected, wholes or {})
    return _aligned(network, as_chain(expected, network))


def constant_biases(weights: Sequence[Weight]) -> dict[Place, str]:
    """The names of biases that are one number other than 0, by place; not those of the readout.

    No recipe draws them so, and a readout may begin with what is known of the targets.
    """
    last = max(weight.block for weight in weights)
    return {
        (w.block, *w.place): w.name
        for w in weights
        if w.place[-1] == "b" and w.block < last and w.values.size > 1
        and np.any(w.values) and np.all(w.values == w.values.flat[0])
    }  # fmt: skip


def recipe_of(expected: Any, positions: int) -> Recipe | None:
    """What is declared as the variance of a matrix and its role alone; None where it is not so.

    For models that are no network of ours: a config.json draws all matrices alike, and the last
    ones of the branches alike.
    """
    if isinstance(expected, str) and expected in RECIPES:
        name, says = expected, expected in OF_TABLES
        return lambda m, n: None if m.key == "token" and not says else RECIPES[name](m, n)
    like = Chain([Dense(1)], (positions, 1))
    listed = [m for m in matrices_of(as_chain(expected, like)) if m.is_weight]
    if not any(m.key == "q" for m in listed):
        return None  # of a network without attention every matrix is declared by itself
    roles = {m.place: "token" if m.fan_in == 1 else str(m.is_branch_end) for m in listed}
    sizes = {role: [m.variance for m in listed if roles[m.place] == role]
             for role in roles.values()}  # fmt: skip
    if any(max(some) > 1.001 * min(some) for some in sizes.values()):
        return None

    def variance(matrix: Matrix, branches: int) -> float | None:
        del branches
        role = "token" if matrix.fan_in == 1 else str(matrix.is_branch_end)
        return sizes[role][0] if role in sizes else None

    return variance


def is_causal(expected: Any) -> bool:
    """Whether all attention of what is declared is causal; recipes do not say."""
    if isinstance(expected, str) and expected in RECIPES:
        return False
    blocks = every_block(as_chain(expected, Chain([Dense(1)], (2, 1))).blocks)
    masks = [block.causal for block in blocks if isinstance(block, Attention)]
    return bool(masks) and all(masks)


def as_chain(expected: Any, like: Chain) -> Chain:
    """What is declared as a network of blocks."""
    if isinstance(expected, Chain):
        return expected
    if isinstance(expected, MLP):
        if any(expected.skip):
            raise InvalidValueError("expected", expected, "MLPs with skips: pass a Chain")
        return _of_mlp(expected)
    positions = like.in_shape.positions
    if isinstance(expected, Mapping):
        return load_config(expected, positions=positions)
    if not isinstance(expected, str | Path):
        allowed = "expected a Network, a config.json or the name of a recipe"
        raise InvalidTypeError("expected", type(expected).__name__, allowed)
    if not Path(expected).exists():
        allowed = f"no such file; recipes are {', '.join(RECIPES)}"
        raise InvalidValueError("expected", str(expected), allowed)
    if is_config(expected, "expected"):
        return load_config(expected, positions=positions)
    return as_chain(load_network(expected, name="expected"), like)


def _of_mlp(mlp: MLP) -> Chain:
    blocks: list[Any] = []
    for width, C_b, C_W in zip(mlp.widths[1:], mlp.C_b, mlp.C_W, strict=True):
        blocks += [Dense(width, C_W=C_W, C_b=C_b), Activate(mlp.activation)]
    return Chain(blocks[:-1], mlp.widths[0])


def _of_recipe(network: Chain, name: str, wholes: Mapping[Place, int]) -> Chain:
    branches = count_layers(network)[1]

    def variance(matrix: Matrix) -> float:
        if matrix.key == "b":
            return 0.0 if name in OF_TABLES else matrix.variance
        if matrix.key in ("token", "position") and name not in OF_TABLES:
            return matrix.variance
        whole = replace(matrix, fan_out=wholes.get(matrix.place, matrix.fan_out))
        return RECIPES[name](whole, max(branches, 1))

    return with_variances(network, variance)


def _aligned(network: Chain, expected: Chain) -> Chain:
    """Variances matrix by matrix, in order: the readout of the network may be wider."""
    found, wanted = ([m for m in matrices_of(net) if m.is_weight] for net in (network, expected))
    fits = len(found) == len(wanted) and all(
        a.key == b.key and a.fan_in == b.fan_in for a, b in zip(found, wanted, strict=True)
    )
    if not fits:
        allowed = (
            f"has {len(wanted)} matrices, the model {len(found)}, or others: declare a network "
            "with the same layers"
        )
        raise InvalidValueError("expected", str(expected), allowed)
    by_place = {a.place: b.variance for a, b in zip(found, wanted, strict=True)}
    biases = {m.place[:-1]: m.variance for m in matrices_of(expected) if not m.is_weight}
    partner = {a.place[:-1]: b.place[:-1] for a, b in zip(found, wanted, strict=True)}

    def variance(matrix: Matrix) -> float:
        if matrix.is_weight:
            return by_place[matrix.place]
        return biases.get(partner.get(matrix.place[:-1], ()), 0.0)

    made = with_variances(network, variance)
    strengths = [b.strength for b in expected.blocks if isinstance(b, Residual)]
    places = [i for i, b in enumerate(made.blocks) if isinstance(b, Residual)]
    if len(strengths) != len(places):
        return made
    blocks = list(made.blocks)
    for place, strength in zip(places, strengths, strict=True):
        blocks[place] = replace(blocks[place], strength=strength)
    return Chain(blocks, made.inputs)


def pooled_network(
    network: Chain, error: Callable[[Matrix], float]
) -> tuple[Chain, dict[Place, float]]:
    """The structure that was read, with one variance for all matrices of a role.

    And for every matrix that shares its variance with others, its relative error about that.

    A role whose matrices agree but for a third of them has the median of C_W; others keep their
    own. `error` is the relative sampling error of a matrix's variance.
    """
    roles: dict[str, list[Matrix]] = {}
    for matrix in matrices_of(network):
        roles.setdefault(matrix.role, []).append(matrix)
    common: dict[str, float] = {}
    about: dict[Place, float] = {}
    for role, members in roles.items():
        shared = common_size(
            [m.variance * m.fan_in for m in members],
            [error(m) for m in members],
            same_shape=len({(m.fan_in, m.fan_out) for m in members}) == 1,
        )
        if shared is not None:
            common[role], errors = shared
            about |= {m.place: e for m, e in zip(members, errors, strict=True) if m.is_weight}

    def variance(matrix: Matrix) -> float:
        if matrix.role in common and matrix.key != "b":
            return common[matrix.role] / matrix.fan_in
        return matrix.variance

    return with_variances(network, variance), about


def common_size(
    sizes: Sequence[float], errors: Sequence[float], *, same_shape: bool = False
) -> tuple[float, list[float]] | None:
    """The size that all but a third of three or more agree in; None for none.

    Large matrices know it best and count most. With it the relative standard deviation of every
    size about the common one, which varies less if it is part of it. Of three matrices of one
    shape two are enough.

    >>> size, errors = common_size([1.0, 1.02, 0.98, 4.0], [0.02] * 4)
    >>> size, [round(error, 4) for error in errors]
    (1.0, [0.0163, 0.0163, 0.0163, 0.0231])
    >>> common_size([1.0, 1.02, 4.0], [0.02] * 3, same_shape=True)[0]
    1.01
    """
    middle = float(np.median(sizes))
    if len(sizes) < 3 or middle <= 0.0:
        return None
    own = np.asarray(errors)
    close = np.abs(np.asarray(sizes) / middle - 1.0) < np.maximum(6.0 * own, 0.1)
    if 3 * int(np.sum(close)) < 2 * len(sizes) + (not same_shape):
        return None
    size = float(np.average(np.asarray(sizes)[close], weights=own[close] ** -2.0))
    together = 1.0 / np.sum(own[close] ** -2.0)
    return size, np.sqrt(own**2 + np.where(close, -together, together)).tolist()


def name_recipe(network: Chain, wholes: Mapping[Place, int]) -> str | None:
    """The recipe that all matrices were drawn by, to a tenth of their variance; None for none."""
    for name in RECIPES:
        meant = {m.place: m.variance for m in matrices_of(_of_recipe(network, name, wholes))}
        weights = [m for m in matrices_of(network) if m.is_weight and m.key not in
                   ("token", "position")]  # fmt: skip
        if all(abs(m.variance / meant[m.place] - 1.0) < 0.1 for m in weights if meant[m.place]):
            return name
    return None
