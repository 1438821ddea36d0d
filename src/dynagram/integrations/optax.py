"""Feature learning in JAX, made faster, slower or alone: optax transformations around any other."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.integrations._feature_part import feature_part
from dynagram.integrations._procrustes import gram_error, rotate_back


class GramOnlyState(NamedTuple):
    """The wrapped optimiser's state, the steps taken, and the largest of any step and layer of
    ‖ΔGram‖/‖Gram‖ (rounding) and of ‖W₂' − W₁‖/‖W₂ − W₁‖ (at most 1)."""

    inner: Any
    steps: Array
    gram_error: Float[Array, ""]
    step_ratio: Float[Array, ""]


def gram_only(
    inner: optax.GradientTransformation, *, output_axis: int = 0
) -> optax.GradientTransformation:
    """`inner`, with every weight matrix rotated back after its step; `update` needs `params`.

    Leaves of two or more dimensions are weight matrices, unfolded with the outputs on
    `output_axis`: 0 for dynagram and PyTorch, (out, in, …), −1 for Flax and Haiku, (…, in, out).
    Biases and other vectors move as `inner` says. The state keeps the largest relative change
    that the rotation made to a Gram matrix; `check_gram` judges it.

    >>> params = {"W": jnp.eye(3), "b": jnp.zeros(3)}
    >>> optimiser = gram_only(optax.sgd(0.1))
    >>> state = optimiser.init(params)
    >>> gradient = jax.tree.map(jnp.ones_like, params)
    >>> updates, state = optimiser.update(gradient, state, params)
    >>> bool(state.gram_error < 1e-6), updates["b"].round(4).tolist()
    (True, [-0.1, -0.1, -0.1])
    """
    _check_axis(output_axis)

    def init(params: optax.Params) -> GramOnlyState:
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(params)]
        dtype = jnp.result_type(*(leaf.dtype for leaf in leaves)) if leaves else float
        zero = jnp.zeros((), dtype=dtype)
        return GramOnlyState(inner.init(params), jnp.zeros((), jnp.int32), zero, zero)

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, GramOnlyState]:
        if params is None:
            raise InvalidValueError(
                "params", None, "gram_only rotates towards the weights: give them"
            )
        stepped, inner_state = inner.update(updates, state.inner, params)
        moves, structure = jax.tree.flatten(stepped)
        errors, ratios = [state.gram_error], [state.step_ratio]
        for index, (move, old) in enumerate(zip(moves, jax.tree.leaves(params), strict=True)):
            if jnp.ndim(old) >= 2:
                rotated, error = _rotated(jnp.asarray(old), move, output_axis)
                free = jnp.linalg.norm(move)
                ratio = jnp.linalg.norm(rotated) / jnp.where(free > 0, free, 1.0)
                errors.append(error.astype(state.gram_error.dtype))
                ratios.append(ratio.astype(state.gram_error.dtype))
                moves[index] = rotated
        error, ratio = (jnp.max(jnp.stack(values)) for values in (errors, ratios))
        return structure.unflatten(moves), GramOnlyState(inner_state, state.steps + 1, error, ratio)

    return optax.GradientTransformation(init, update)


def check_gram(state: GramOnlyState, tolerance: float) -> None:
    """Raise `AccuracyError` if any step so far changed a Gram by more than `tolerance` of it.

    1e-10 is right for float64, 1e-4 for float32.

    >>> check_gram(GramOnlyState((), jnp.array(3), jnp.array(1e-15), jnp.array(0.9)), 1e-10)
    """
    error = float(state.gram_error)
    if not error <= tolerance:
        raise AccuracyError(
            f"Gram-only training changed a Gram matrix by {error:.1e} of itself within "
            f"{int(state.steps)} steps, allowed {tolerance:.1e}: the weights diverged, or train "
            "in float64"
        )


def modulate_features(
    inner: optax.GradientTransformation, factor: float, *, output_axis: int = 0
) -> optax.GradientTransformation:
    """`inner`, with the part of every step that changes a Gram matrix multiplied by `factor`.

    0 freezes WᵀW of every layer to first order and leaves rotations of the outputs, 1 is `inner`,
    more than 1 learns features faster. Leaves of two or more dimensions are weight matrices, as in
    `gram_only`; `update` needs `params`.

    >>> params = {"W": jnp.eye(2)}
    >>> optimiser = modulate_features(optax.sgd(1.0), 2.0)
    >>> gradient = {"W": jnp.array([[1.0, 1.0], [0.0, 0.0]])}
    >>> optimiser.update(gradient, optimiser.init(params), params)[0]["W"].tolist()
    [[-2.0, -1.5], [-0.5, 0.0]]
    """
    _check_axis(output_axis)
    if not 0.0 <= factor < float("inf"):
        raise InvalidValueError("factor", factor, "must be ≥ 0 and finite")

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Any]:
        if params is None:
            raise InvalidValueError("params", None, "the part is that of the weights: give them")
        stepped, state = inner.update(updates, state, params)

        def scaled(move: Array, old: Array) -> Array:
            if jnp.ndim(old) < 2:
                return move
            step = _as_matrix(move, output_axis)
            part = feature_part(jnp, _as_matrix(jnp.asarray(old), output_axis), step)
            changed = step + (factor - 1.0) * part
            return (changed.T if output_axis == -1 else changed).reshape(old.shape)

        return jax.tree.map(scaled, stepped, params), state

    return optax.GradientTransformation(inner.init, update)


class AnchorState(NamedTuple):
    """The weights at the start."""

    start: Any


def anchor_gram(strength: float, *, output_axis: int = 0) -> optax.GradientTransformation:
    """Adds the gradient of (strength/4) Σ ‖WᵀW − W₀ᵀW₀‖²: features are drawn back to their start.

    A regulariser to chain before an optimiser, `optax.chain(anchor_gram(0.1), optax.adam(1e-3))`;
    a negative strength drives features away. W₀ are the weights given to `init`.

    >>> optimiser = optax.chain(anchor_gram(1.0), optax.sgd(1.0))
    >>> start = {"W": jnp.eye(1)}
    >>> state = optimiser.init(start)
    >>> moved = {"W": 2.0 * jnp.eye(1)}
    >>> optimiser.update({"W": jnp.zeros((1, 1))}, state, moved)[0]["W"].tolist()   # W(W² − 1)
    [[-6.0]]
    """
    _check_axis(output_axis)

    def init(params: optax.Params) -> AnchorState:
        return AnchorState(params)

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, AnchorState]:
        if params is None:
            raise InvalidValueError("params", None, "the anchor needs the weights: give them")

        def pulled(gradient: Array, now: Array, start: Array) -> Array:
            if jnp.ndim(now) < 2:
                return gradient
            W, W0 = (_as_matrix(jnp.asarray(part), output_axis) for part in (now, start))
            # From the side of the outputs: no n_in × n_in matrix.
            pull = strength * ((W @ W.T) @ W - (W @ W0.T) @ W0)
            return gradient + (pull.T if output_axis == -1 else pull).reshape(now.shape)

        return jax.tree.map(pulled, updates, params, state.start), state

    return optax.GradientTransformation(init, update)


def _check_axis(output_axis: int) -> None:
    if output_axis not in (0, -1):
        raise InvalidValueError("output_axis", output_axis, "expected 0 (out, in) or -1 (in, out)")


def _rotated(old: Array, move: Array, output_axis: int) -> tuple[Array, Array]:
    """The rotated move and the relative error of the Gram matrix."""
    before = _as_matrix(old, output_axis)
    after = before + _as_matrix(move, output_axis)
    rotated = rotate_back(before, after)
    step = rotated - before
    if output_axis == -1:
        step = step.T
    return step.reshape(old.shape), gram_error(rotated, after)


def _as_matrix(values: Array, output_axis: int) -> Array:
    """(out, everything else)."""
    if output_axis == 0:
        return values.reshape(values.shape[0], -1)
    return values.reshape(-1, values.shape[-1]).T
