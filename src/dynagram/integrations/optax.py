"""Gram-only training in JAX: an optax transformation around any other."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from dynagram.errors import AccuracyError, InvalidValueError
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
    if output_axis not in (0, -1):
        raise InvalidValueError("output_axis", output_axis, "expected 0 (out, in) or -1 (in, out)")

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
