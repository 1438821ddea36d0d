"""Deep networks between two looks at them: masks held fixed from an anchor on, then compared.

From two hidden layers on the fields are no closed state: the forward transports diag(a_ℓ)W^(ℓ)
still carry the weights (Nordio (203) ff.). So a prediction starts from an anchor, where everything
is known, keeps the masks of that moment for k steps, and is compared with gradient descent at
every step. What it carries along decides what it knows:

- "weights": W moves by gradient descent of the network with frozen masks;
- "fields": u and b move by their first-order laws, Q, S and K follow them, W stays;
- "kernel": K stays, so r(t+1) = (1 − 2η/M K) r(t), and u, b move by the laws at Σ_t r(t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import Model, check_inputs, checked_number
from dynagram.observables.fields._overlaps import collective_kernel
from dynagram.observables.fields._state import (
    Fields,
    check_fixed_readout,
    check_piecewise_linear,
    fields,
)
from dynagram.theory.fields._descent import checked_targets, gradient_step
from dynagram.theory.fields._laws import activation_updates, conjugate_updates, output_update

CARRIED = ("weights", "fields", "kernel")


@dataclass(frozen=True, eq=False)
class AnchoredRun:
    """Prediction and truth after each step t = 1..steps; the anchors are at 0, k, 2k, …

    **Arguments:**

    - `every`, `carried`: k, and what the prediction carries along.
    - `losses`, `predicted_losses`: after each step.
    - `residual_error`: ‖r_predicted − r‖/‖r(anchor)‖.
    - `residual_change`: the same of r − r(anchor), what there was to predict.
    - `unseen_error`, `unseen_change`: likewise for the outputs on unseen inputs, relative to the
        root of their mean square at the anchor.
    - `u_error`, `u_change`, `b_error`, `b_change`: likewise, layer by layer and by Frobenius norms,
        for u_ℓ (ℓ = 1..L) and b_ℓ (ℓ = 1..L-1).
    - `flips`: [t, ℓ-1] counts the (α, i) that changed sign in step t.
    - `flipped`: those whose sign differs from the anchor's.
    """

    every: int
    carried: str
    losses: Float[np.ndarray, " steps"]
    predicted_losses: Float[np.ndarray, " steps"]
    residual_error: Float[np.ndarray, " steps"]
    residual_change: Float[np.ndarray, " steps"]
    unseen_error: Float[np.ndarray, " steps"] | None
    unseen_change: Float[np.ndarray, " steps"] | None
    u_error: Float[np.ndarray, "steps layer"]
    u_change: Float[np.ndarray, "steps layer"]
    b_error: Float[np.ndarray, "steps layers_below"]
    b_change: Float[np.ndarray, "steps layers_below"]
    flips: Int[np.ndarray, "steps layer"]
    flipped: Int[np.ndarray, "steps layer"]

    def at(self, distance: int) -> slice:
        """The steps that lie `distance` steps after an anchor: an index for every array here."""
        if not 1 <= distance <= self.every:
            raise InvalidValueError("distance", distance, f"expected 1 to {self.every}")
        return slice(distance - 1, None, self.every)


def anchored_run(
    model: Model,
    x: object,
    y: object,
    *,
    eta: float,
    steps: int,
    every: int,
    carried: str = "fields",
    unseen: object | None = None,
) -> AnchoredRun:
    """Train by gradient descent and predict it from an anchor renewed `every` k steps.

    **Arguments:**

    - `model`: a network with one output, a fixed readout and a piecewise linear activation.
    - `x`, `y`: training inputs (M, n_0) and targets (M,).
    - `eta`: the learning rate η.
    - `steps`, `every`: how many steps, and after how many of them the anchor is renewed.
    - `carried`: "weights", "fields" or "kernel", as in the heading of this module; for one hidden
        layer the three agree.
    - `unseen`: further inputs whose outputs are predicted, too.

    **Returns:** `AnchoredRun`. Cost per step: that of training, once more for "weights", and
    M² Σ n_ℓ for the others.

    >>> from dynagram.observables.fields import fixed_readout
    >>> model = fixed_readout([np.eye(2), np.array([[2.0, 1.0], [1.0, 2.0]])])
    >>> sets = {"x": np.array([[3.0, 1.0]]), "y": [5.0], "unseen": np.array([[1.0, 1.0]])}
    >>> run = anchored_run(model, **sets, eta=1e-3, steps=4, every=2)
    >>> run.losses.round(4).tolist(), run.predicted_losses.round(4).tolist()
    ([0.8102, 0.6571, 0.5335, 0.4334], [0.81, 0.6568, 0.5333, 0.4332])
    """
    check_fixed_readout(model.network, "a prediction with fixed masks")
    check_piecewise_linear(model.network, "a prediction with fixed masks")
    if carried not in CARRIED:
        raise InvalidValueError("carried", carried, f"expected one of {', '.join(CARRIED)}")
    for name, value in (("steps", steps), ("every", every)):
        if value < 1:
            raise InvalidValueError(name, value, "expected 1 or more")
    inputs = check_inputs(x, model.network.input_size)
    targets = checked_targets(model, y, inputs.shape[0])
    others = None if unseen is None else check_inputs(unseen, model.network.input_size, "unseen")
    rate = checked_number("eta", eta, "a learning rate must be ≥ 0")
    problem = _Problem(inputs, targets, others, rate)
    rows: list[dict[str, object]] = []
    truth = problem.state(model)
    anchor, prediction, last = truth, _PREDICTIONS[carried](problem, truth), truth
    for step in range(steps):
        model = gradient_step(model, inputs, targets, rate)[0]
        if step and step % every == 0:
            anchor, prediction = last, _PREDICTIONS[carried](problem, last)
        truth = problem.state(model)
        rows.append(_compared(problem, anchor, last, truth, next(prediction)))
        last = truth
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    arrays = {n: None if c[0] is None else np.array(c) for n, c in columns.items()}
    return AnchoredRun(every=every, carried=carried, **arrays)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, eq=False)
class _State:
    """The fields of the training set and of the unseen inputs, if there are any."""

    train: Fields
    unseen: Fields | None


@dataclass(frozen=True, eq=False)
class _Problem:
    x: np.ndarray
    y: np.ndarray
    unseen: np.ndarray | None
    eta: float

    def state(self, model: Model) -> _State:
        """What the network is."""
        unseen = None if self.unseen is None else fields(model, self.unseen)
        return _State(fields(model, self.x), unseen)


_Prediction = Callable[[_Problem, _State], Iterator[_State]]


def _by_weights(problem: _Problem, anchor: _State) -> Iterator[_State]:
    """Gradient descent of the network whose masks are those of the anchor."""
    gates = anchor.train.a
    model = anchor.train.model
    while True:
        model = gradient_step(model, problem.x, problem.y, problem.eta, gates)[0]
        yield _State(
            _gated(model, problem.x, anchor.train),
            None
            if anchor.unseen is None or problem.unseen is None
            else _gated(model, problem.unseen, anchor.unseen),
        )


def _gated(model: Model, x: np.ndarray, anchor: Fields) -> Fields:
    """The fields of the network with the masks of `anchor`."""
    seen = gradient_step(model, x, np.zeros(x.shape[0]), 0.0, anchor.a)[1]
    found = jax.tree.map(np.asarray, seen)
    b = tuple(anchor.N * B[:, 0, :] for B in found.B)
    return replace(anchor, u=found.u, b=b, output=found.z[-1][:, 0])


def _by_fields(problem: _Problem, anchor: _State) -> Iterator[_State]:
    """The first-order laws applied again and again, to fields that are their own anchor."""
    state = anchor
    while True:
        residual = state.train.output - problem.y
        state = _moved(state, state, residual, problem.eta)
        yield state


def _by_kernel(problem: _Problem, anchor: _State) -> Iterator[_State]:
    """r by the frozen kernel; the laws are linear in r, so one application serves all steps."""
    K = collective_kernel(anchor.train)
    residual = anchor.train.output - problem.y
    total = np.zeros_like(residual)
    while True:
        total = total + residual
        residual = residual - 2.0 * problem.eta / len(residual) * (K @ residual)
        yield _moved(anchor, anchor, total, problem.eta)


_PREDICTIONS: dict[str, _Prediction] = {
    "weights": _by_weights,
    "fields": _by_fields,
    "kernel": _by_kernel,
}


def _moved(state: _State, law: _State, residual: np.ndarray, eta: float) -> _State:
    """`state` after one step of the laws taken at `law`."""

    def after(old: Fields, others: Fields | None) -> Fields:
        du = activation_updates(law.train, residual, eta, others)
        db = conjugate_updates(law.train, residual, eta, others)
        return replace(
            old,
            u=(old.u[0], *(u + d for u, d in zip(old.u[1:], du, strict=True))),
            b=tuple(b + d for b, d in zip(old.b, db, strict=True)),
            output=old.output + output_update(law.train, residual, eta, others),
        )

    unseen = None if state.unseen is None else after(state.unseen, law.unseen)
    return _State(after(state.train, None), unseen)


def _compared(
    problem: _Problem, anchor: _State, before: _State, truth: _State, predicted: _State
) -> dict[str, object]:
    """One row of the run."""
    start = anchor.train.output - problem.y
    found = truth.train.output - problem.y
    guess = predicted.train.output - problem.y
    if not np.all(np.isfinite(guess)):
        raise NonFiniteError(
            "the prediction is not finite: eta is too large, or the anchors too far apart"
        )
    unseen_error = unseen_change = None
    if truth.unseen is not None and anchor.unseen is not None and predicted.unseen is not None:
        old, new = anchor.unseen.output, truth.unseen.output
        unseen_error = _distance(predicted.unseen.output, new, old)
        unseen_change = _distance(old, new, old)
    row: dict[str, object] = {
        "losses": np.mean(found**2),
        "predicted_losses": np.mean(guess**2),
        "residual_error": _distance(guess, found, start),
        "residual_change": _distance(start, found, start),
        "unseen_error": unseen_error,
        "unseen_change": unseen_change,
        "flips": _flips(before.train, truth.train),
        "flipped": _flips(anchor.train, truth.train),
    }
    for name, kept in (("u", slice(1, None)), ("b", slice(0, -1))):
        old, new, guessed = (
            getattr(state.train, name)[kept] for state in (anchor, truth, predicted)
        )
        row[f"{name}_error"] = _distances(guessed, new, old)
        row[f"{name}_change"] = _distances(old, new, old)
    return row


def _distances(first: tuple, second: tuple, scale: tuple) -> np.ndarray:
    """The distances of each layer."""
    return np.array([_distance(*triple) for triple in zip(first, second, scale, strict=True)])


def _distance(first: np.ndarray, second: np.ndarray, scale: np.ndarray) -> float:
    """‖first − second‖/‖scale‖; of a field that was zero only 0 or ∞ can be said."""
    distance, size = float(np.linalg.norm(first - second)), float(np.linalg.norm(scale))
    if size == 0.0:
        return 0.0 if distance == 0.0 else np.inf
    return distance / size


def _flips(before: Fields, after: Fields) -> np.ndarray:
    pairs = zip(before.v, after.v, strict=True)
    return np.array([int(np.sum((old > 0) != (new > 0))) for old, new in pairs])
