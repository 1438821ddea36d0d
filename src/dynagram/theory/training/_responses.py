"""How the frozen path of outputs answers what finite width adds to it, at one node of z(0).

The frozen path is z = z(0) − Θ a, a = W[ε(z)]. A small addition p(t) to outputs is answered by
r = p − Θ W[ε'(z) r]; a fluctuation of the NTK or of the law of z(0), of order n^{−1/2}, also in
second order. docs/derivations/any-loss.md (D13.7)-(D13.12). Everything is for one node and vmapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dynagram.theory.training._insertions import (
    Blocks,
    Given,
    Rows,
    history_of_first_ddntk,
    history_of_second_ddntk,
    moving_by_dntk,
    moving_by_first_ddntk,
    moving_by_kernel,
    moving_by_mixing_kernel,
    moving_by_second_ddntk,
)
from dynagram.theory.training._optimisers import Moments, Optimiser

FIRST_ORDER = ("H1", "zΔH", "dNTK", "ddI", "ddII", "start")
# (training outputs, step) ↦ ε = ∂L/∂z.
Epsilon = Callable[[Array, Array], Array]


class Frozen(NamedTuple):
    """Infinite width on all samples, training ones first: Θ, K⁻¹ and the 1/n shift of K."""

    Theta: Float[Array, "sample train"]
    inverse: Float[Array, "sample sample"]
    G1: Float[Array, "sample sample"]


class Fluctuation(NamedTuple):
    """A direction in which networks of one width differ, in units of n^{−1/2}.

    `metric` changes the covariance of z(0) and `kernel` the NTK of every output with it; `mixing`
    changes the NTK between outputs, independently of both.
    """

    metric: Float[Array, "sample sample"]
    kernel: Float[Array, "sample train"]
    mixing: Float[Array, "sample outputs train outputs"]


def frozen_path(
    frozen: Frozen, optimiser: Optimiser, epsilon: Epsilon, moments: Moments, z: Rows
) -> tuple[Array, Array]:
    """Outputs (moment, sample, outputs) with a frozen NTK from the initial ones `z`."""
    n = frozen.Theta.shape[1]

    def drive(a: Array, step: Array) -> Array:
        return epsilon(z[:n] - frozen.Theta[:n] @ a, step)

    def observe(a: Array) -> Array:
        return z - frozen.Theta @ a

    return optimiser.run(drive, observe, jnp.zeros_like(z[:n]), moments)


def first_responses(
    frozen: Frozen,
    blocks: Blocks,
    optimiser: Optimiser,
    epsilon: Epsilon,
    moments: Moments,
    z: Rows,
    u: Rows,
) -> tuple[dict[str, Array], Array]:
    """The frozen path and its answers, by part, to what finite width adds in first order.

    `u` = K⁻¹z. Returns, moments first, `path` (sample, outputs), `parts` (part, sample, outputs) in
    the order of `FIRST_ORDER`, and the coefficients `a` and `b`.
    """
    n = frozen.Theta.shape[1]
    given = Given.of(blocks, u, frozen.inverse)
    near, given_near = blocks.for_training(), given.for_training()
    shift = 0.5 * frozen.G1 @ u

    def additions(memory: dict[str, Array], blocks: Blocks, given: Given, rows: int) -> Array:
        a, b = memory["a"], memory["b"]
        return jnp.stack(
            [
                moving_by_kernel(blocks.H1_sa, a),
                moving_by_mixing_kernel(given.kernel_siaj, a),
                moving_by_dntk(given, a, b),
                moving_by_first_ddntk(blocks, a) - memory["I"][:rows],
                moving_by_second_ddntk(blocks, a, b) - memory["II"][:rows],
                shift[:rows],
            ]
        )

    def drive(memory: dict[str, Array], step: Array) -> dict[str, Array]:
        a, b = memory["a"], memory["b"]
        here = z[:n] - frozen.Theta[:n] @ a
        answer = additions(memory, near, given_near, n)
        answer -= jnp.einsum("ab,kbi->kai", frozen.Theta[:n], memory["answers"])
        error, slopes = _slopes(lambda at: epsilon(at, step), here, answer)
        return {
            "a": error,
            "b": jnp.einsum("ai,bj->aibj", error, a),
            "I": history_of_first_ddntk(blocks, error, a),
            "II": history_of_second_ddntk(blocks, error, b),
            "answers": slopes,
        }

    def observe(memory: dict[str, Array]) -> dict[str, Array]:
        pulled = jnp.einsum("sa,kai->ksi", frozen.Theta, memory["answers"])
        return {
            "path": z - frozen.Theta @ memory["a"],
            "parts": additions(memory, blocks, given, z.shape[0]) - pulled,
            "a": memory["a"],
            "b": memory["b"],
        }

    outputs = z.shape[1]
    start = {
        "a": jnp.zeros((n, outputs)),
        "b": jnp.zeros((n, outputs, n, outputs)),
        "I": jnp.zeros_like(z),
        "II": jnp.zeros_like(z),
        "answers": jnp.zeros((len(FIRST_ORDER), n, outputs)),
    }
    return optimiser.run(drive, observe, start, moments)


def second_responses(
    frozen: Frozen,
    optimiser: Optimiser,
    epsilon: Epsilon,
    moments: Moments,
    z: Rows,
    u: Rows,
    direction: Fluctuation,
) -> tuple[dict[str, Array], Array]:
    """The frozen path and its answers to a fluctuation, up to second order.

    Returns, moments first, `path`; `g`, `x`, `y`, the first-order answers to the metric, the NTK
    and its mixing part; and `gg`, `gx`, `xx`, `yy`, the Taylor coefficients of second order.
    """
    n = frozen.Theta.shape[1]
    metric, kernel, mixing = direction
    start_g = 0.5 * metric @ u
    start_gg = -0.25 * metric @ (frozen.inverse @ start_g)

    def additions(memory: dict[str, Array], rows: int) -> dict[str, Array]:
        H, Y = kernel[:rows], mixing[:rows]
        return {
            "g": start_g[:rows],
            "x": moving_by_kernel(H, memory["a"]),
            "y": moving_by_mixing_kernel(Y, memory["a"]),
            "gg": start_gg[:rows],
            "gx": moving_by_kernel(H, memory["g"]),
            "xx": moving_by_kernel(H, memory["x"]),
            "yy": moving_by_mixing_kernel(Y, memory["y"]),
        }

    def answers(memory: dict[str, Array], rows: int) -> dict[str, Array]:
        Theta = frozen.Theta[:rows]
        added = additions(memory, rows)
        return {name: added[name] - Theta @ memory[name] for name in added}

    def drive(memory: dict[str, Array], step: Array) -> dict[str, Array]:
        here = z[:n] - frozen.Theta[:n] @ memory["a"]
        answer = answers(memory, n)
        names = tuple(answer)

        def at(point: Array) -> Array:
            return epsilon(point, step)

        error, slopes = _slopes(at, here, jnp.stack([answer[name] for name in names]))
        driven = {name: slopes[index] for index, name in enumerate(names)}
        for first, second, factor in _PAIRS:
            pair = (answer[first], answer[second])
            driven[first + second] += factor * _curvature(at, here, *pair)
        return {"a": error, **driven}

    def observe(memory: dict[str, Array]) -> dict[str, Array]:
        path = z - frozen.Theta @ memory["a"]
        return {"path": path, **answers(memory, z.shape[0])}

    nothing = jnp.zeros((n, z.shape[1]))
    start = dict.fromkeys(("a", *_TANGENTS), nothing)
    return optimiser.run(drive, observe, start, moments)


_PAIRS = (("g", "g", 0.5), ("g", "x", 1.0), ("x", "x", 0.5), ("y", "y", 0.5))
_TANGENTS = ("g", "x", "y", *(first + second for first, second, _ in _PAIRS))


def _slopes(
    function: Callable[[Array], Array], point: Array, along: Float[Array, "k train outputs"]
) -> tuple[Array, Array]:
    """ε at a point and its derivatives along several directions."""
    value, slope = jax.linearize(function, point)
    return value, jax.vmap(slope)(along)


def _curvature(
    function: Callable[[Array], Array], point: Array, first: Array, second: Array
) -> Array:
    """The second derivative of ε along two directions."""

    def along(at: Array) -> Array:
        return jax.jvp(function, (at,), (first,))[1]

    return jax.jvp(along, (point,), (second,))[1]
