"""Averages over nodes with their errors, and what answers do to the losses of a path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.theory.training._nodes import Nodes
from dynagram.theory.training._path_problem import PathProblem


@dataclass(frozen=True, eq=False)
class Statistics:
    """An average and its numerical standard error."""

    value: np.ndarray
    error: np.ndarray

    @classmethod
    def of(cls, groups: Float[np.ndarray, "group ..."]) -> Statistics:
        """From the averages of several scramblings; one exact rule has no error."""
        count = len(groups)
        error = np.zeros_like(groups[0])
        if count > 1:
            error = groups.std(axis=0, ddof=1) / np.sqrt(count)
        return cls(groups.mean(axis=0), error)

    def __add__(self, other: Statistics) -> Statistics:
        """The sum of independent ones."""
        return Statistics(self.value + other.value, np.hypot(self.error, other.error))


def group_averages(nodes: Nodes, values: Float[np.ndarray, "node ..."]) -> np.ndarray:
    """The average of every scrambling."""
    grouped = values.reshape(nodes.groups, -1, *values.shape[1:])
    return np.einsum("gn,gn...->g...", nodes.weights.reshape(nodes.groups, -1), grouped)


def bilinear_average(
    nodes: Nodes,
    left: Float[np.ndarray, "node time sample outputs"],
    right: Float[np.ndarray, "node time sample outputs"],
) -> Float[np.ndarray, "group time sample outputs sample outputs"]:
    """The average of the products of two outputs, of every scrambling."""
    shape = (nodes.groups, len(nodes.weights) // nodes.groups, left.shape[1], -1)
    x, y = left.reshape(shape), right.reshape(shape)
    weighted = x * nodes.weights.reshape(nodes.groups, -1)[:, :, None, None]
    found = np.matmul(weighted.transpose(0, 2, 3, 1), y.transpose(0, 2, 1, 3))
    return found.reshape(*found.shape[:2], *left.shape[2:], *right.shape[2:])


def transposed(covariance: Any) -> Any:
    """X_sirj → X_rjsi in the last four axes."""
    lead = covariance.ndim - 4
    return covariance.transpose(*range(lead), lead + 2, lead + 3, lead, lead + 1)


def loss_values(
    problem: PathProblem, paths: Float[np.ndarray, "node time sample outputs"]
) -> Float[np.ndarray, "node time set"]:
    """The losses along every path."""
    return np.asarray(jax.jit(jax.vmap(jax.vmap(problem.losses)))(jnp.asarray(paths)))


def loss_shift(
    problem: PathProblem,
    paths: Float[np.ndarray, "node time sample outputs"],
    answers: Float[np.ndarray, "part node time sample outputs"],
    mean: Float[np.ndarray, "time set"],
) -> tuple[np.ndarray, np.ndarray]:
    """First-order changes at nodes: of the losses by part, of their squared distance from `mean`.

    Shapes (part, node, time, set) and (node, time, set).
    """

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 1, None))
    @partial(jax.vmap, in_axes=(0, 1, 0))
    def shift(z: Array, parts: Array, center: Array) -> tuple[Array, Array]:
        value, slope = jax.linearize(problem.losses, z)
        slopes = jax.vmap(slope)(parts)
        return slopes, 2.0 * (value - center) * jnp.sum(slopes, axis=0)

    by_part, spread = shift(jnp.asarray(paths), jnp.asarray(answers), jnp.asarray(mean))
    return np.moveaxis(np.asarray(by_part), 2, 0), np.asarray(spread)


def loss_shift_of_fluctuation(
    problem: PathProblem,
    seen: dict[str, Array],
    weights: Float[Array, "2 node"],
    mean: Float[Array, "time set"],
) -> tuple[dict[str, Array], Array]:
    """The same to second order in a fluctuation, added up with the weights of its two parts.

    Traceable.
    """

    def second_order(z: Array, first: Array, second: Array, center: Array) -> tuple[Array, Array]:
        """The coefficients of s² at z + s first + s² second."""

        def values(s: Array) -> tuple[Array, Array]:
            loss = problem.losses(z + s * first + s * s * second)
            return loss, (loss - center) ** 2

        def slope(s: Array) -> tuple[Array, Array]:
            return jax.jvp(values, (s,), (jnp.ones(()),))[1]

        curved = jax.jvp(slope, (jnp.zeros(()),), (jnp.ones(()),))[1]
        return jax.tree.map(lambda value: 0.5 * value, curved)

    batched = jax.vmap(jax.vmap(second_order), in_axes=(0, 0, 0, None))

    def total(weight: Array, first: Array, second: Array) -> tuple[Array, Array]:
        parts = batched(seen["path"], first, second, mean)
        return jax.tree.map(lambda part: jnp.einsum("n,ntl->tl", weight, part), parts)

    both = (seen["g"] + seen["x"], seen["gg"] + seen["gx"] + seen["xx"])
    diagonal, spread = total(weights[0], *both)
    mixing, mixing_spread = total(weights[1], seen["y"], seen["yy"])
    start, _ = total(weights[0], seen["g"], seen["gg"])
    kernel, _ = total(weights[0], seen["x"], seen["xx"])
    by_part = {"start": start, "zΔH": diagonal - start - kernel, "ΔNTK": kernel + mixing}
    return by_part, spread + mixing_spread
