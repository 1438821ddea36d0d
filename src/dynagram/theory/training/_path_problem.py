"""A training at infinite width, ready to be averaged over initial outputs: kernels, loss, nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dynagram.errors import InvalidValueError
from dynagram.theory.training._nodes import Nodes, draw_nodes
from dynagram.theory.training._optimisers import Optimiser
from dynagram.theory.training._responses import Frozen
from dynagram.training import loss_gradient, loss_value
from dynagram.training._losses import SQUARED

# Directions of initial outputs with less than this fraction of the largest variance are none.
_SMALLEST = 1e-10


class Draws(NamedTuple):
    """Points of one scrambling: for the frozen path, first-order and second-order answers."""

    frozen: int
    first: int
    second: int

    @classmethod
    def usual(cls, train: int, samples: int, outputs: int) -> Draws:
        """As many as cost about as much as the tensors do; few samples take more of them.

        >>> Draws.usual(3, 4, 2), Draws.usual(16, 32, 2)
        (Draws(frozen=4096, first=1024, second=4096), Draws(frozen=2048, first=64, second=512))
        """
        first = 10 * train**3 * samples * outputs
        second = 10 * train * samples * outputs**2
        return cls(
            4096 if samples * outputs <= 16 else 2048,
            _power_of_two(1.7e8 / first, 64, 1024),
            _power_of_two(1.5e7 / second, 512, 4096),
        )


class Targets(NamedTuple):
    """Targets (sample, outputs), and the row of the kernels that each belongs to."""

    y: Float[np.ndarray, "target outputs"]
    place: Int[np.ndarray, " target"]


@dataclass(frozen=True, eq=False)
class PathProblem:
    """Kernels on distinct samples, training ones first, the targets, the loss and its optimiser.

    `batch` is a number of samples drawn in every step, in an order of its own for every network
    and epoch, or the batches themselves, taken in turn; None: all samples.
    """

    Theta: Float[np.ndarray, "sample sample"]
    K: Float[np.ndarray, "sample sample"]
    training_samples: int
    train: Targets
    test: Targets | None
    loss: str
    optimiser: Optimiser
    moments: tuple[float | int, ...]
    batch: int | tuple[tuple[int, ...], ...] | None = None
    seed: int = 0

    @cached_property
    def draws(self) -> Draws:
        """How many points averages take."""
        return Draws.usual(self.training_samples, self.samples, self.outputs)

    @property
    def samples(self) -> int:
        """Distinct samples."""
        return self.K.shape[0]

    @property
    def outputs(self) -> int:
        """n_L."""
        return self.train.y.shape[1]

    @property
    def is_polynomial(self) -> bool:
        """Whether paths are linear in initial outputs and the same for all networks."""
        return self.loss in SQUARED and not isinstance(self.batch, int)

    # --- initial outputs ----------------------------------------------------------------------

    @cached_property
    def roots(self) -> tuple[np.ndarray, np.ndarray]:
        """L with K = LLᵀ, of which training rows take training columns only, and L⁻ᵀ.

        Columns without variance are zero in both: there is nothing to average over. In each block
        the column with the largest variance comes first.
        """
        n = self.training_samples
        inner, inner_dual = _root(self.K[:n, :n], self.K)
        lower = self.K[n:, :n] @ inner_dual
        outer, outer_dual = _root(self.K[n:, n:] - lower @ lower.T, self.K)
        nothing = np.zeros((n, self.samples - n))
        root = np.block([[inner, nothing], [lower, outer]])
        above = -inner_dual @ (lower.T @ outer_dual)
        dual = np.block([[inner_dual, above], [nothing.T, outer_dual]])
        return root, dual

    def nodes(self, count: int, *, stream: int, exact: bool = True) -> Nodes:
        """Nodes for the initial outputs, `count` in a scrambling; streams are independent.

        `exact` allows a rule without a random part where there is one.
        """
        n, all_ = self.training_samples * self.outputs, self.samples * self.outputs
        seed = self.seed + 1009 * stream
        grid, polynomial = exact and not isinstance(self.batch, int), exact and self.is_polynomial
        return draw_nodes(n, all_ - n, polynomial=polynomial, grid=grid, count=count, seed=seed)

    def initial(self, xi: Float[np.ndarray, "node entry"]) -> tuple[np.ndarray, np.ndarray]:
        """Initial outputs z = Lξ and their duals u = K⁻¹z, (node, sample, outputs)."""
        coordinates = xi.reshape(len(xi), self.samples, self.outputs)
        root, dual = self.roots
        return tuple(np.einsum("ab,nbi->nai", part, coordinates) for part in (root, dual))  # pyright: ignore

    def frozen(self, G1: Float[np.ndarray, "sample sample"] | None = None) -> Frozen:
        """The arrays of infinite width."""
        shift = np.zeros_like(self.K) if G1 is None else np.asarray(G1)
        _, dual = self.roots
        arrays = (self.Theta[:, : self.training_samples], dual @ dual.T, shift)
        return Frozen(*(jnp.asarray(array) for array in arrays))

    # --- the loss -----------------------------------------------------------------------------

    def epsilon(self, key: Array, z: Float[Array, "train outputs"], step: Array) -> Array:
        """ε = ∂L/∂z on the distinct training samples, of the loss that a step sees."""
        y, rows = jnp.asarray(self.train.y), jnp.asarray(self.train.place)
        if self.batch is None:
            if rows.size == self.training_samples:
                return loss_gradient(self.loss, z, y)
        else:
            chosen = self._chosen(key, step)
            y, rows = y[chosen], rows[chosen]
        return jnp.zeros_like(z).at[rows].add(loss_gradient(self.loss, z[rows], y))

    def _chosen(self, key: Array, step: Array) -> Array:
        if isinstance(self.batch, tuple):
            batches = jnp.asarray(np.array(self.batch, dtype=np.int32))
            return batches[step % len(self.batch)]
        assert self.batch is not None
        count = self.train.place.size
        per_epoch = count // self.batch
        epoch, index = step // per_epoch, step % per_epoch
        order = jax.random.permutation(jax.random.fold_in(key, epoch), count)
        return jax.lax.dynamic_slice_in_dim(order, index * self.batch, self.batch)

    def losses(self, z: Float[Array, "sample outputs"]) -> Float[Array, " set"]:
        """The loss of all training samples and, where they have targets, of the test samples."""
        sets = [self.train] if self.test is None else [self.train, self.test]
        return jnp.stack(
            [loss_value(self.loss, z[jnp.asarray(place)], jnp.asarray(y)) for y, place in sets]
        )


def _power_of_two(wanted: float, least: int, most: int) -> int:
    """The power of two below `wanted`, within bounds."""
    return int(np.clip(2 ** int(np.log2(max(wanted, 1.0))), least, most))


def _root(matrix: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V√λ and V/√λ by decreasing eigenvalue; zero columns where there is no variance."""
    if matrix.size == 0:
        return matrix, matrix
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    limit = _SMALLEST * float(np.max(np.diagonal(whole), initial=0.0))
    alive = eigenvalues > limit
    size = np.sqrt(np.where(alive, eigenvalues, 1.0))
    return np.where(alive, vectors * size, 0.0), np.where(alive, vectors / size, 0.0)


def require_finite(values: np.ndarray, eta: float | None) -> None:
    """Refuse outputs that are not finite: training diverges."""
    if not np.all(np.isfinite(values)):
        name, allowed = ("eta", "training diverges at this step size; lower it")
        if eta is None:
            name, allowed = ("time", "outputs grow out of range before this time")
        raise InvalidValueError(name, eta, allowed)
