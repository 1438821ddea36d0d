"""The differential of the NTK of one network, dH_012 = D²z_0[λ∇z_1, λ∇z_2] (11.8), exact.

Digits stand for an output and a sample. Arrays are indexed [a0, a1, a2, i0, i1, i2]: samples
first, then outputs; symmetric under the exchange of 1 and 2. No Hessian is formed: gradients are
differentiated along each λ∇z_1 and paired with every λ∇z_2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
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


@takes_model
def dntk(model: Model, x: ArrayLike) -> Float[Array, "N N N n_L n_L n_L"]:
    """The dNTK of a network's output.

    It is that of the network as it stands: where σ' jumps (ReLU), σ'' is taken as 0. The delta
    function that is left out is felt by steps that cross the kink and by averages over networks,
    so that P and Q of several inputs must not be measured this way.

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** dH, [a0, a1, a2, i0, i1, i2], in the dtype of the parameters. Cost per layer:
    (N n_L)² n_ℓ n_{ℓ-1} and (N n_L)³ n_ℓ multiply-adds.

    >>> from dynagram.networks import MLP
    >>> net = MLP([1, 1, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.0)
    >>> ones = jax.tree.map(jnp.ones_like, net.init(seed=0))
    >>> dntk(ones, jnp.array([[2.0]])).item()           # z = w₂(2w₁ + b₁) + b₂, v = (2, 3)
    24.0
    """
    return network_dntk(model.network, model.params, x)


def function_dntk(
    function: Function, params: Any, x: Any, rates: Any = 1.0
) -> Float[Array, "N N N outputs outputs outputs"]:
    """The dNTK of any JAX function f(params, x) → (N, outputs).

    **Arguments:**

    - `function`, `params`, `x`, `rates`: as for `function_ntk`.

    **Returns:** [a0, a1, a2, i0, i1, i2]. All N·outputs directions λ∇z are held in memory; along
    each pair of them two nested jvps give all z_0 at once. Cost: (N·outputs)² passes over the
    batch.

    >>> cubic = lambda w, x: (x @ w)[:, None] ** 3     # D²z[λ∇z, λ∇z] = 6w (3w²)² for x = 1
    >>> function_dntk(cubic, jnp.array([2.0]), jnp.array([[1.0]])).ravel().tolist()
    [1728.0]
    """
    evaluate = checked_function(function, params, x)
    ways, shape = directions(evaluate, params, rates)
    at_once = directions_at_once(params)

    def rows(way: Any) -> Array:
        first = along(evaluate, way)
        return jax.lax.map(lambda other: along(first, other)(params), ways, batch_size=at_once)

    return jax.lax.map(rows, ways).reshape(*shape, *shape, *shape).transpose(4, 0, 2, 5, 1, 3)


# --- for use inside jit and vmap ---------------------------------------------------------------


def network_dntk(
    network: Architecture, params: Params, x: ArrayLike
) -> Float[Array, "N N N n_L n_L n_L"]:
    """`dntk` of one member, traceable."""
    check_differentiable(network, 1, "the dNTK")
    return _dntk(network, params, x)


# --- shared with ddntk ------------------------------------------------------------------------


def along(function: Callable[[Any], Any], way: Any) -> Callable[[Any], Any]:
    """The derivative of `function` in the direction `way`, as a function of the same argument."""
    return lambda point: jax.jvp(function, (point,), (way,))[1]


def at_zero(function: Callable[[Array], Any], dtype: Any) -> Any:
    """d/dt of a function of one number, at t = 0."""
    return along(function, jnp.ones((), dtype))(jnp.zeros((), dtype))


def over_directions(function: Callable[[Gradients], Any], ways: Gradients) -> Any:
    """`function` of every gradient ∇z_i;a, with the axes (sample, output) put in front."""
    return jax.vmap(jax.vmap(function, (OUTPUT_AXES,)))(ways)


def directions(
    evaluate: Callable[[Any], Array], params: Any, rates: Any
) -> tuple[Any, tuple[int, ...]]:
    """λ∇z of every output of every sample, stacked on a first axis; and (N, outputs)."""
    output, pull = jax.vjp(evaluate, params)
    units = jnp.eye(output.size, dtype=output.dtype).reshape(-1, *output.shape)
    return jax.vmap(lambda unit: scaled(rates, pull(unit)[0]))(units), output.shape


# --- how --------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def _dntk(network: Architecture, params: Params, x: ArrayLike) -> Array:
    here = network_gradients(network, params, x)

    def paired(way: Gradients) -> Array:
        """v_2·∇²z_0 v_1 for one v_1, [a0, a2, i0, i2]."""

        def kernel(step: Array) -> Array:
            return between(network, network_gradients(network, params, x, [(step, way)]), here)

        return at_zero(kernel, here.J[0].dtype)

    return over_directions(paired, here).transpose(2, 0, 3, 4, 1, 5)
