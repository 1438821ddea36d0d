"""The second differentials of the NTK of one network (∞.5), (∞.7), exact.

dd_I_0123 = D³z_0[v_1, v_2, v_3] and dd_II_1234 = (∇²z_1 v_3)·λ(∇²z_2 v_4) with v = λ∇z, digits
standing for an output and a sample. Arrays are indexed by the four samples, then by the outputs,
in the order of the digits. Nothing of the size of a Hessian is formed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int

from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
from dynagram.observables.tangents._dntk import along, at_zero, directions, over_directions
from dynagram.observables.tangents._ntk import (
    Function,
    between,
    checked_function,
    directions_at_once,
    scaled,
)
from dynagram.observables.tangents._signals import (
    OUTPUT_AXES,
    Gradients,
    check_differentiable,
    network_gradients,
)


class DDNTK(NamedTuple):
    """The two second differentials of the NTK.

    **Arguments:**

    - `first`: dd_I, [a0, a1, a2, a3, i0, i1, i2, i3], symmetric in its last three places.
    - `second`: dd_II, [a1, a2, a3, a4, i1, i2, i3, i4], symmetric under 1 ↔ 2 together with 3 ↔ 4.
    """

    first: Array
    second: Array


class DDNTKPatterns(NamedTuple):
    """Entries of the ddNTKs with two distinct outputs: [four samples, pair].

    **Arguments:**

    - `first_iijj`: dd_I with the outputs [i, i, j, j]; pairs as numbered by `output_pairs`.
    - `second_iijj`, `second_ijij`, `second_ijji`: dd_II with these outputs.
    """

    first_iijj: Array
    second_iijj: Array
    second_ijij: Array
    second_ijji: Array


def output_pairs(outputs: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """The ordered pairs of distinct outputs.

    **Arguments:**

    - `outputs`: n_L.

    **Returns:** all i and all j.

    >>> [numbers.tolist() for numbers in output_pairs(3)]
    [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    """
    i, j = np.nonzero(~np.eye(outputs, dtype=bool))
    return i, j


@takes_model
def ddntk(model: Model, x: ArrayLike) -> DDNTK:
    """Both ddNTKs of a network's output.

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights. Refused with a σ of which
        a derivative below the third jumps (ReLU): the expansion in the step size behind these
        tensors fails there.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** `DDNTK`, in the dtype of the parameters. Cost per layer: (N n_L)³ n_ℓ n_{ℓ-1} and
    (N n_L)⁴ n_ℓ.

    >>> from dynagram.networks import MLP
    >>> net = MLP([1, 1, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.0)
    >>> ones = jax.tree.map(jnp.ones_like, net.init(seed=0))
    >>> both = ddntk(ones, jnp.array([[2.0]]))          # z = w₂(2w₁ + b₁) + b₂, v = (2, 3)
    >>> both.first.item(), both.second.item()           # and ∇²z v = (2·3, 2·2)
    (0.0, 52.0)
    """
    return network_ddntk(model.network, model.params, x)


@takes_model
def ddntk_patterns(model: Model, x: ArrayLike) -> DDNTKPatterns:
    """The entries of the ddNTKs whose means are R, S, T and U over n_{L-1} (∞.11), (∞.12).

    **Arguments:**

    - `model`, `x`: as for `ddntk`.

    **Returns:** `DDNTKPatterns`. Cost per layer: N³ n_L² n_ℓ n_{ℓ-1} and N⁴ n_L² n_ℓ.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 2], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> whole, patterns = (f(model, jnp.eye(2)) for f in (ddntk, ddntk_patterns))
    >>> bool(jnp.allclose(patterns.second_ijji[..., 0], whole.second[..., 0, 1, 1, 0]))
    True
    """
    _check(model.network)
    return network_ddntk_patterns(model.network, model.params, x)


def function_ddntk(function: Function, params: Any, x: Any, rates: Any = 1.0) -> DDNTK:
    """Both ddNTKs of any JAX function f(params, x) → (N, outputs), which must be smooth.

    **Arguments:**

    - `function`, `params`, `x`, `rates`: as for `function_ntk`.

    **Returns:** `DDNTK`. All N·outputs directions λ∇z are held in memory; along sets of them
    nested jvps give all z_0 or z_1 at once. Cost: (N·outputs)³ passes over the batch.

    >>> cubic = lambda w, x: (x @ w)[:, None] ** 3      # x = 1: v = 3w², D³z = 6, ∇²z = 6w
    >>> both = function_ddntk(cubic, jnp.array([2.0]), jnp.array([[1.0]]))
    >>> both.first.item(), both.second.item()           # 6·12³, (12·12)²
    (10368.0, 20736.0)
    """
    evaluate = checked_function(function, params, x)
    ways, shape = directions(evaluate, params, rates)
    at_once = directions_at_once(params)

    def third(way: Any) -> Array:
        def rows(other: Any) -> Array:
            twice = along(along(evaluate, way), other)
            return jax.lax.map(lambda last: along(twice, last)(params), ways, batch_size=at_once)

        return jax.lax.map(rows, ways)

    def squared(way: Any) -> Array:
        """dd_II for v_4 = `way`, [2, 3, 1], as D²z_1[v_3, λ∇²z_2 v_4]."""
        output, pull = jax.vjp(along(evaluate, way), params)

        def rows(unit: Array) -> Array:
            tilted = along(evaluate, scaled(rates, pull(unit)[0]))
            return jax.lax.map(lambda last: along(tilted, last)(params), ways, batch_size=at_once)

        units = jnp.eye(output.size, dtype=output.dtype).reshape(-1, *output.shape)
        return jax.lax.map(rows, units)

    axes = (*shape, *shape, *shape, *shape)
    first = jax.lax.map(third, ways).reshape(axes).transpose(6, 0, 2, 4, 7, 1, 3, 5)
    second = jax.lax.map(squared, ways).reshape(axes).transpose(6, 2, 4, 0, 7, 3, 5, 1)
    return DDNTK(first, second)


# --- for use inside jit and vmap ---------------------------------------------------------------


def network_ddntk(network: Architecture, params: Params, x: ArrayLike) -> DDNTK:
    """`ddntk` of one member, traceable."""
    _check(network)
    return _ddntk(network, params, x)


def network_ddntk_patterns(network: Architecture, params: Params, x: ArrayLike) -> DDNTKPatterns:
    """`ddntk_patterns` of one member, traceable; where σ'' jumps only its second ones count."""
    return _ddntk_patterns(network, params, x)


# --- how --------------------------------------------------------------------------------------


def _check(network: Architecture) -> None:
    check_differentiable(network, 3, "the expansion in the step size behind the ddNTK")


@functools.partial(jax.jit, static_argnums=0)
def _ddntk(network: Architecture, params: Params, x: ArrayLike) -> DDNTK:
    here = network_gradients(network, params, x)
    tangents = _tangents(network, params, x, here)

    def first(way: Gradients) -> Array:
        return over_directions(lambda last: _third(network, params, x, here, way, last), here)

    def second(way: Gradients) -> Array:
        return jax.vmap(jax.vmap(lambda last: _mixed(network, here, way, here, last)))(tangents)

    return DDNTK(
        # [a2, i2, a3, i3, a0, a1, i0, i1] and [a3, i3, a4, i4, a1, a2, i1, i2] before.
        over_directions(first, here).transpose(4, 5, 0, 2, 6, 7, 1, 3),
        jax.vmap(jax.vmap(second))(tangents).transpose(4, 5, 0, 2, 6, 7, 1, 3),
    )


@functools.partial(jax.jit, static_argnums=0)
def _ddntk_patterns(network: Architecture, params: Params, x: ArrayLike) -> DDNTKPatterns:
    here = network_gradients(network, params, x)
    tangents = _tangents(network, params, x, here)
    i, j = output_pairs(network.widths[-1])
    return DDNTKPatterns(
        _third_iijj(network, params, x, here)[..., i, j],
        _products(network, _derived(here, tangents, i, j), _derived(here, tangents, i, j)),
        _products(network, _derived(here, tangents, i, i), _derived(here, tangents, j, j)),
        _products(network, _derived(here, tangents, i, j), _derived(here, tangents, j, i)),
    )


def _tangents(network: Architecture, params: Params, x: ArrayLike, here: Gradients) -> Gradients:
    """∇²z v in factors: derivatives of u and J along every v, whose axes come first."""

    def tangent(way: Gradients) -> Gradients:
        def moved(step: Array) -> Gradients:
            return network_gradients(network, params, x, [(step, way)])

        return at_zero(moved, here.J[0].dtype)

    return over_directions(tangent, here)


def _third(
    network: Architecture,
    params: Params,
    x: ArrayLike,
    here: Gradients,
    way: Gradients,
    last: Gradients,
) -> Array:
    """v_1·D²∇z_0[v_2, v_3] for one v_2 and one v_3, [a0, a1, i0, i1]."""
    dtype = here.J[0].dtype

    def kernel(step: Array, other: Array) -> Array:
        moves = [(step, way), (other, last)]
        return between(network, network_gradients(network, params, x, moves), here)

    return at_zero(lambda step: at_zero(lambda other: kernel(step, other), dtype), dtype)


def _third_iijj(network: Architecture, params: Params, x: ArrayLike, here: Gradients) -> Array:
    """dd_I with the outputs [i, i, j, j], [a0, a1, a2, a3, i, j], j = i included."""

    def rows(way: Gradients, last: Gradients) -> Array:
        return jnp.diagonal(_third(network, params, x, here, way, last), axis1=2, axis2=3)

    def of_output(J: tuple[Array, ...]) -> Array:
        ways = Gradients(here.u, J)
        return jax.vmap(jax.vmap(rows, (None, 0)), (0, None))(ways, ways)

    # [j, a2, a3, a0, a1, i] before
    return jax.vmap(of_output, 1)(here.J).transpose(3, 4, 1, 2, 5, 0)


def _mixed(
    network: Architecture, first: Gradients, way: Gradients, second: Gradients, last: Gradients
) -> Array:
    """λ-product of the derivative `way` of `first` and the derivative `last` of `second`."""

    def varied(one: Gradients) -> Array:
        return along(lambda two: between(network, one, two), last)(second)

    return along(varied, way)(first)


def _derived(
    here: Gradients, tangents: Gradients, of: np.ndarray, by: np.ndarray
) -> tuple[Gradients, Gradients]:
    """∇z of the outputs `of` and its derivatives along v of the outputs `by`, pair by pair."""
    J = tuple(v[:, of].swapaxes(0, 1)[:, :, None] for v in here.J)
    du = tuple(v[:, by].swapaxes(0, 1) for v in tangents.u)
    dJ = tuple(v[:, by, :, of][..., None, :] for v in tangents.J)
    return Gradients(here.u, J), Gradients(du, dJ)


def _products(
    network: Architecture, one: tuple[Gradients, Gradients], two: tuple[Gradients, Gradients]
) -> Array:
    """dd_II of pairs of outputs, [a1, a2, a3, a4, pair]."""

    def product(first: Gradients, ways: Gradients, second: Gradients, lasts: Gradients) -> Array:
        def mixed(way: Gradients, last: Gradients) -> Array:
            return _mixed(network, first, way, second, last)[..., 0, 0]

        return jax.vmap(jax.vmap(mixed, (None, 0)), (0, None))(ways, lasts)

    in_axes = (OUTPUT_AXES, 0, OUTPUT_AXES, 0)
    # [pair, a3, a4, a1, a2] before
    return jax.vmap(product, in_axes)(*one, *two).transpose(3, 4, 1, 2, 0)
