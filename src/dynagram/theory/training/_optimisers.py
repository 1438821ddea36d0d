"""Optimisers that are linear in past gradients: W, which turns a history into its running sum.

Parameters move by −Λ W[∂L]: gradient descent sums η times the past, momentum a decaying average of
it, gradient flow integrates. The coefficients of docs/derivations/any-loss.md (D13.2) are sums of
the same kind, so that an optimiser here moves any tree of arrays m = W[x(m)].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.training import GradientDescent, GradientFlow, Optax, Training

_RTOL, _ATOL, _MOST_STEPS = 1e-8, 1e-10, 100_000

Tree = Any
Moments = tuple[float | int, ...]
# (memory, step) ↦ what is summed; (memory) ↦ what is looked at.
Drive = Callable[[Tree, Array], Tree]
Observe = Callable[[Tree], Tree]


@dataclass(frozen=True)
class Optimiser:
    """The numbers of an optimiser that is linear in past gradients; hashable.

    `eta` is None for gradient flow; `schedule` are factors of it, one per step, of which the last
    holds from then on. A momentum μ adds v ← μ v + x and moves by η v, with Nesterov's
    look ahead by η (x + μ v).
    """

    eta: float | None
    momentum: float = 0.0
    nesterov: bool = False
    schedule: tuple[float, ...] = ()

    @classmethod
    def of(cls, how: Training) -> Optimiser:
        """That of a training; others are refused with the reason why they do not close.

        >>> from dynagram.training import Optax
        >>> Optimiser.of(Training(Optax("momentum", 0.1, momentum=0.8), steps=3))
        Optimiser(eta=0.1, momentum=0.8, nesterov=False, schedule=())
        """
        algorithm = how.algorithm
        if isinstance(algorithm, GradientFlow):
            return cls(None)
        if isinstance(algorithm, GradientDescent):
            return cls(algorithm.eta, schedule=how.schedule)
        if isinstance(algorithm, Optax) and algorithm.rule == "momentum":
            options = dict(algorithm.options)
            momentum = float(options.get("momentum", 0.9))
            nesterov = bool(options.get("nesterov", False))
            return cls(algorithm.eta, momentum, nesterov, how.schedule)
        raise InvalidValueError(
            "algorithm", how.name, "its steps are not linear in past gradients, so that no "
            "equations for outputs and kernels close: expected gd, flow or momentum, or train "
            "networks with dynagram.train",
        )  # fmt: skip

    def run(self, drive: Drive, observe: Observe, start: Tree, moments: Moments) -> Tree:
        """m = W[drive(m)] from `start` = 0, seen by `observe` at `moments`; traceable.

        `moments` are increasing: steps, or times of flow. Returns what is seen with the moments
        first, and whether the solver arrived.
        """
        if self.eta is None:
            return self._flow(drive, observe, start, moments)
        return self._steps(drive, observe, start, moments)

    def _steps(self, drive: Drive, observe: Observe, start: Tree, moments: Moments) -> Tree:
        assert self.eta is not None
        momentum = self.momentum
        rates = self.eta * np.array(self.schedule or (1.0,))

        def step(index: Array, held: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            memory, velocity = held
            eta = jnp.asarray(rates)[jnp.minimum(index, len(rates) - 1)]
            push = drive(memory, index)
            if momentum == 0.0:
                return jax.tree.map(lambda m, x: m + eta * x, memory, push), velocity
            velocity = jax.tree.map(lambda v, x: momentum * v + x, velocity, push)
            ahead = velocity
            if self.nesterov:
                ahead = jax.tree.map(lambda v, x: momentum * v + x, velocity, push)
            return jax.tree.map(lambda m, v: m + eta * v, memory, ahead), velocity

        def segment(held: tuple[Tree, Tree], bounds: tuple[Array, Array]) -> tuple[Any, Tree]:
            held = jax.lax.fori_loop(bounds[0], bounds[1], step, held)
            return held, observe(held[0])

        still = () if momentum == 0.0 else jax.tree.map(jnp.zeros_like, start)
        ends = jnp.asarray(np.array(moments, dtype=np.int32))
        bounds = (jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]]), ends)
        return jax.lax.scan(segment, (start, still), bounds)[1], jnp.array(True)

    def _flow(self, drive: Drive, observe: Observe, start: Tree, moments: Moments) -> Tree:
        import diffrax

        if moments[-1] == 0.0:
            seen = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(moments)), observe(start))
            return seen, jnp.array(True)
        times = jnp.asarray(np.array(moments, dtype=np.float64))
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda _, memory, __: drive(memory, jnp.int32(0))),
            diffrax.Dopri8(),
            t0=0.0,
            t1=times[-1],
            dt0=None,
            y0=start,
            saveat=diffrax.SaveAt(ts=times, fn=lambda _, memory, __: observe(memory)),
            stepsize_controller=diffrax.PIDController(rtol=_RTOL, atol=_ATOL),
            max_steps=_MOST_STEPS,
            throw=False,
        )
        return solution.ys, solution.result == diffrax.RESULTS.successful


def require_arrival(arrived: object, end: float | int) -> None:
    """Refuse a flow whose solver did not come to the end."""
    if not bool(np.all(np.asarray(arrived))):
        raise AccuracyError(
            f"the equations of training need more than {_MOST_STEPS} steps up to τ = {end:g}: they "
            "are stiff; ask for an earlier time (the largest NTK eigenvalue sets the step)"
        )
