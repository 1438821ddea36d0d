"""Averages over nodes with their errors, and what answers do to the losses of a path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

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


def transposed(covariance: np.ndarray) -> np.ndarray:
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
    answers: Float[np.ndarray, "node time sample outputs"],
    mean: Float[np.ndarray, "time set"],
) -> tuple[np.ndarray, np.ndarray]:
    """First-order changes of the losses and of their squared distance from `mean`, at nodes."""

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    @jax.vmap
    def shift(z: Array, answer: Array, center: Array) -> tuple[Array, Array]:
        value, slope = jax.jvp(problem.losses, (z,), (answer,))
        return slope, 2.0 * (value - center) * slope

    found = shift(jnp.asarray(paths), jnp.asarray(answers), jnp.asarray(mean))
    return tuple(np.asarray(part) for part in found)  # pyright: ignore


def loss_shift_of_fluctuation(
    problem: PathProblem,
    seen: dict[str, np.ndarray],
    weights: Float[np.ndarray, "2 node"],
    mean: Float[np.ndarray, "time set"],
) -> list[np.ndarray]:
    """The same to second order in a fluctuation, added up with the weights of its two parts."""
    return [np.asarray(part) for part in _fluctuation_shift(problem, seen, weights, mean)]


@partial(jax.jit, static_argnums=0)
def _fluctuation_shift(
    problem: PathProblem, seen: dict[str, Array], weights: Array, mean: Array
) -> tuple[Array, Array]:
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
    diagonal = (seen["g"] + seen["x"], seen["gg"] + seen["gx"] + seen["xx"])
    found = [
        jax.tree.map(
            lambda part, weight=weight: jnp.einsum("n,ntl->tl", weight, part),
            batched(seen["path"], *answers, mean),
        )
        for weight, answers in zip(weights, (diagonal, (seen["y"], seen["yy"])), strict=True)
    ]
    return jax.tree.map(lambda *parts: sum(parts), *found)
