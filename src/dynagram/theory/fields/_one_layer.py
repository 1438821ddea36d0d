"""One hidden layer trained without its weights: the preactivations are a closed dynamics (47).

v_i^α(t+1) = v_i^α(t) − (2η/M) Σ_β Q^(0)_αβ a_i^β c_i r^β with a = σ'(v): exact at every η, for
seen and unseen inputs (62), also when masks flip. Activations alone (50) cannot do that: where
u = 0 the sign of v is lost, and a unit that has gone out never comes back.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number
from dynagram.observables.fields._overlaps import moved_overlaps
from dynagram.observables.fields._state import Fields, check_fixed_readout
from dynagram.theory.fields._descent import checked_targets, divergence


@dataclass(frozen=True, eq=False)
class FieldRun:
    """Training and test curves that came from fields alone.

    **Arguments:**

    - `losses`: 𝓛 before each step, the last at the end.
    - `outputs`, `unseen_outputs`: Ŷ(t).
    - `flips`: the number of (α, i) of the training set that changed sign in each step.
    - `v`, `unseen_v`: preactivations at the end.
    """

    losses: Float[np.ndarray, " steps_and_one"]
    outputs: Float[np.ndarray, "steps_and_one samples"]
    unseen_outputs: Float[np.ndarray, "steps_and_one unseen"]
    flips: Int[np.ndarray, " steps"]
    v: Float[np.ndarray, "samples N"]
    unseen_v: Float[np.ndarray, "unseen N"]


def simulate_one_layer(
    train: Fields, y: object, *, eta: float, steps: int, unseen: Fields | None = None
) -> FieldRun:
    """Gradient descent of a network with one hidden layer, from its fields at the start.

    Uses v(0), the input overlaps and the targets; no weight enters. In float64 it equals `descend`
    to rounding, for any activation, η and number of steps. In float32 a preactivation near 0 may
    take the other sign, and the runs part.

    **Arguments:**

    - `train`: fields of the training set at the start.
    - `y`: targets (M,).
    - `eta`, `steps`: η, and how many steps.
    - `unseen`: fields of further inputs at the start.

    **Returns:** `FieldRun`. Cost per step: (M + M') M N multiply-adds, where weights cost
    2 (M + M') n_0 N; memory (M + M')(M + steps + N) numbers.

    >>> from dynagram.observables.fields import fields, fixed_readout
    >>> start = fields(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0]]))
    >>> other = fields(start.model, np.array([[1.0, 1.0]]))
    >>> run = simulate_one_layer(start, [1.0], eta=0.05, steps=1, unseen=other)
    >>> run.outputs[:, 0].round(6).tolist(), run.unseen_outputs[:, 0].round(6).tolist()
    ([2.0, 1.5], [1.0, 0.8])
    """
    if train.hidden_layers != 1:
        allowed = "one needed: from two on the fields are no closed dynamics, use anchored_run"
        raise InvalidValueError("hidden layers", train.hidden_layers, allowed)
    check_fixed_readout(train.network, "the dynamics of fields alone")
    targets = checked_targets(train.model, y, train.samples)
    rate = checked_number("eta", eta, "a learning rate must be ≥ 0")
    if steps < 0:
        raise InvalidValueError("steps", steps, "expected 0 or more")
    Q, v = moved_overlaps(train)[0], train.v[0]
    if unseen is not None:
        Q = np.concatenate([Q, moved_overlaps(unseen, train)[0]])
        v = np.concatenate([v, unseen.v[0]])
    readout = train.weights(2)[0]
    offset = float(np.asarray(train.model.params[-1].b)[0])
    factor = -2.0 * rate * train.N / train.samples
    end, outputs, flips = _simulate(
        train.network.activation, v, factor * Q, readout, offset, targets, steps
    )
    with np.errstate(over="ignore", invalid="ignore"):
        losses = np.mean((outputs[:, : train.samples] - targets) ** 2, axis=1)
    if not np.all(np.isfinite(losses)):
        raise divergence(losses, eta)
    M = train.samples
    return FieldRun(losses, outputs[:, :M], outputs[:, M:], flips, end[:M], end[M:])


@float64
def _simulate(
    sigma: Activation,
    v: np.ndarray,
    coupling: np.ndarray,
    readout: np.ndarray,
    offset: float,
    targets: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = _scan(sigma, steps, v, coupling, readout, offset, targets.astype(v.dtype))
    end, outputs, flips = (np.asarray(part) for part in found)
    return end, outputs.astype(np.float64), flips.astype(int)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _scan(
    sigma: Activation,
    steps: int,
    v: Array,
    coupling: Array,
    readout: Array,
    offset: Array,
    targets: Array,
) -> tuple[Array, Array, Array]:
    """The dynamics in float64: v at the end, Ŷ before each step and at the end, flips."""
    slope, M = sigma.derivative(1), targets.shape[0]

    def output(field: Array) -> Array:
        return sigma(field) @ readout + offset

    def step(field: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        now = output(field)
        pull = slope(field[:M]) * readout[None, :] * (now[:M] - targets)[:, None]
        moved = field + coupling @ pull
        return moved, (now, jnp.sum((moved[:M] > 0) != (field[:M] > 0)))

    end, (outputs, flips) = jax.lax.scan(step, v, None, length=steps)
    return end, jnp.concatenate([outputs, output(end)[None, :]]), flips
