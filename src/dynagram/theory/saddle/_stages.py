"""The stages of a fall: what a linear network learns one after the other, and how much each gives.

From a constant output the map grows along the leading singular pair u, v of −E[r xᵀ], r being the
gradient of the loss at the outputs; the stage ends where that direction gives no more. Then the
next pair, from there. Derivation: docs/derivations/surrogate-flow.md (D4.8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.saddle._tasks import LinearTask, Task, output_gradient

_LONGEST = 60  # doublings of an amplitude before a direction counts as endless
_USED_UP = 0.02  # of its first slope: a direction without an end is left here


@dataclass(frozen=True, eq=False)
class Stages:
    """A plateau's loss and the falls that follow it.

    **Arguments:**

    - `constant`: the output on the plateau.
    - `loss`: that of the constant.
    - `falls`: by how much each stage lowers it, the first first; a zero where there is none.
    - `drive`: −E[r xᵀ] on the plateau, without the means where a constant is learnt beside.
    """

    constant: Float[np.ndarray, " outputs"]
    loss: float
    falls: tuple[float, ...]
    drive: Float[np.ndarray, "outputs n_0"]

    @property
    def floor(self) -> float:
        """The loss after all of them."""
        return self.loss - sum(self.falls)

    def level(self, fraction: float, stage: int = 1) -> float:
        """The loss when `fraction` of the fall of a stage, from 1, is done."""
        return self.loss - sum(self.falls[: stage - 1]) - fraction * self.falls[stage - 1]


def find_stages(task: Task, constant: np.ndarray, *, is_free: bool, count: int) -> Stages:
    """The first `count` stages from a constant output, which follows the map where it `is_free`.

    Cost: one singular value decomposition and a search along a line each.

    >>> x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> task = LinearTask.of(x, x * [2.0, 1.0])
    >>> stages = find_stages(task, np.zeros(2), is_free=False, count=2)
    >>> stages.loss, stages.falls
    (1.25, (1.0, 0.25))
    """
    mu = task.input_mean
    P = np.zeros((len(constant), len(mu)))
    first = drive = _drive(task, P, constant, is_free)
    losses = [task.loss(P, constant)]
    for _ in range(count):
        left, sizes, right = np.linalg.svd(drive, full_matrices=False)
        if not sizes[0] > 0.0:
            break
        direction = np.outer(left[:, 0], right[0])
        P = P + _amplitude(task, P, constant, direction, is_free) * direction
        shift = constant - P @ mu if is_free else constant
        losses.append(task.loss(P, shift))
        drive = _drive(task, P, constant, is_free)
    falls = tuple(float(-fall) for fall in np.diff(losses)) or (0.0,)
    return Stages(constant, losses[0], falls, first)


def _drive(task: Task, P: np.ndarray, constant: np.ndarray, is_free: bool) -> np.ndarray:
    """−E[r xᵀ], or −Cov(r, x), at the map P."""
    mu = task.input_mean
    pull = task.pull(P, constant - P @ mu if is_free else constant)
    return -pull.covariance - (0.0 if is_free else np.outer(pull.mean, mu))


def _amplitude(
    task: Task, P: np.ndarray, constant: np.ndarray, direction: np.ndarray, is_free: bool
) -> float:
    """How far the loss falls along a direction."""
    from scipy.optimize import brentq

    def slope(size: float) -> float:
        return float(np.sum(_drive(task, P + size * direction, constant, is_free) * direction))

    start = slope(0.0)
    near = 1.0
    # The curvature there says how far it may be; from that on, by doubling.
    bend = start - slope(1e-6)
    reach = 1e-6 * start / bend if bend > 0.0 else near
    for _ in range(_LONGEST):
        if slope(reach) <= 0.0:
            return float(brentq(slope, 0.0, reach, rtol=1e-8))  # pyright: ignore[reportArgumentType]
        if slope(reach) < _USED_UP * start:
            return reach
        reach *= 2.0
    return reach


def count_stages(
    loss: str,
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, "samples outputs"],
    constant: Float[np.ndarray, " outputs"],
    *,
    centred: bool,
) -> tuple[int, float]:
    """Stages that are seen above the noise of the batch, and the share of power that is noise.

    These are the singular values of Σ^{−1/2}Cᵀ, with −r for targets, above the largest that targets
    without a signal give at this size: its square is about λ(√n_0 + √n_L)²/samples, with λ the
    largest eigenvalue of E[rrᵀ]; one is added to the bracket for its spread.
    """
    residual = -output_gradient(loss, np.broadcast_to(constant, y.shape), y)
    task = LinearTask.of(x, residual, centred=centred)
    values, vectors = np.linalg.eigh(task.second_moment)
    alive = values > 1e-12 * max(float(values[-1]), 0.0)
    whitened = (task.cross_moment @ vectors[:, alive]) / np.sqrt(values[alive])
    squares = np.linalg.svd(whitened, compute_uv=False) ** 2
    if centred:
        residual = residual - residual.mean(axis=0)
    largest = float(np.linalg.eigvalsh(residual.T @ residual)[-1]) / len(x)
    noise = largest * (math.sqrt(alive.sum()) + math.sqrt(y.shape[1]) + 1.0) ** 2 / len(x)
    return int(np.sum(squares > noise)), noise / max(task.power, 1e-300)
