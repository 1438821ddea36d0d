"""The neural tangent kernel of one network (8.1), (8.7), exact at any width.

H_ij;ab = Σ_μ λ_μ dz_i;a/dθ_μ dz_j;b/dθ_μ. For an MLP by layers, from the factored gradients of
`gradients`, or for all layers by the forward equation (8.12); for any JAX function f(params, x) by
products with its Jacobian. Arrays are indexed [a, b, i, j]: samples first, then outputs.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
from dynagram.networks._network import Structure
from dynagram.observables.tangents._signals import (
    Gradients,
    check_differentiable,
    network_gradients,
)

# With this many rows of J or more, half of each symmetric product is worth leaving out.
_ROWS_WORTH_HALVING = 256
_STRIPS = 4
# Numbers in the directions that one step of a loop over directions holds.
_NUMBERS_AT_ONCE = 2**24

Function = Callable[[Any, Any], Array]


@takes_model
def ntk(model: Model, x: ArrayLike) -> Float[Array, "N N n_L n_L"]:
    """The NTK of a network's output: the sum of `ntk_terms`.

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** [a, b, i, j] = H_ij;ab, in the dtype of the parameters. By products of
    (N n_L, n_ℓ) matrices of which half is computed; cost per layer: (N n_L)² n_ℓ flop, and
    N n_L n_ℓ n_{ℓ-1} multiply-adds for the gradients.

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 3, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.5, lambda_W=2.0)
    >>> ones = jax.tree.map(jnp.ones_like, net.init(seed=0))
    >>> ntk(ones, jnp.array([[1.0, 2.0]])).ravel().tolist()        # 3 (.5 + 5) + .5 + 2·16·3/3
    [49.0]
    """
    return network_ntk(model.network, model.params, x)


@takes_model
def ntk_terms(model: Model, x: ArrayLike) -> Float[Array, "layer N N n_L n_L"]:
    """What the parameters of each layer add to `ntk`, by (8.7), (8.16)-(8.18).

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** [ℓ-1, a, b, i, j] of
    (λ_b + λ_W u^(ℓ-1)_a·u^(ℓ-1)_b/n_{ℓ-1}) Σ_k J^(ℓ)_ik;a J^(ℓ)_jk;b.

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 3, 1], "linear", C_b=0.0, C_W=1.0, lambda_b=0.5, lambda_W=2.0)
    >>> ones = jax.tree.map(jnp.ones_like, net.init(seed=0))
    >>> ntk_terms(ones, jnp.array([[1.0, 2.0]])).ravel().tolist()
    [16.5, 32.5]
    """
    check_differentiable(model.network, 1, "the NTK")
    return _terms(model.network, model.params, x)


@takes_model
def ntk_of_layers(model: Model, x: ArrayLike) -> tuple[Float[Array, "N N n_l n_l"], ...]:
    """The NTKs of all layers' preactivations, by the forward equation (8.12).

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** H^(1), …, H^(L), the ℓ-th [a, b, i, j] with i, j < n_ℓ. Cost per layer:
    N² n_ℓ n_{ℓ-1} (n_ℓ + n_{ℓ-1}).

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "tanh", C_b=0.1, C_W=1.0).init(seed=0)
    >>> first, last = ntk_of_layers(model, jnp.eye(2))
    >>> first[0, 0].round(6).tolist()   # λ_b + λ_W x·x/n_0 on the diagonal (8.23)
    [[1.5, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 0.0, 1.5]]
    >>> bool(jnp.allclose(last, ntk(model, jnp.eye(2))))
    True
    """
    check_differentiable(model.network, 1, "the NTK")
    return _of_layers(model.network, model.params, x)


def function_ntk(
    function: Function, params: Any, x: Any, rates: Any = 1.0
) -> Float[Array, "N N outputs outputs"]:
    """The NTK of any JAX function f(params, x) → (N, outputs). Samples may depend on each other.

    **Arguments:**

    - `function`: f, a JAX function.
    - `params`: a pytree of arrays.
    - `x`: whatever f takes.
    - `rates`: the diagonal λ, one number for all parameters, or a pytree like `params` of numbers
        or of arrays shaped as the parameters.

    **Returns:** [a, b, i, j]. Along each λ∇z_j;b, found by a vjp, one jvp gives all a, i. Cost:
    2 N·outputs passes over the batch; memory for as many directions at a time as fit in 2²⁴
    numbers.

    >>> quadratic = lambda w, x: (x @ w)[:, None] ** 2
    >>> function_ntk(quadratic, jnp.array([1.0, 2.0]), jnp.eye(2), rates=0.5)[..., 0, 0].tolist()
    [[2.0, 0.0], [0.0, 8.0]]
    """
    evaluate = checked_function(function, params, x)
    output, push = jax.linearize(evaluate, params)
    pull = jax.linear_transpose(push, params)

    def column(unit: Array) -> Array:
        return push(scaled(rates, pull(unit)[0]))

    units = jnp.eye(output.size, dtype=output.dtype).reshape(-1, *output.shape)
    columns = jax.lax.map(column, units, batch_size=directions_at_once(params))
    return columns.reshape(*output.shape, *output.shape).transpose(2, 0, 3, 1)


# --- for use inside jit and vmap ---------------------------------------------------------------


def any_ntk(network: Structure, params: Any, x: ArrayLike) -> Float[Array, "N N outputs outputs"]:
    """The NTK of one member of any architecture, traceable; rows are (sample, position)."""
    if isinstance(network, Architecture):
        return network_ntk(network, params, x)

    def rows(values: Any, inputs: ArrayLike) -> Array:
        return network.apply(values, inputs).reshape(-1, network.outputs)

    return function_ntk(rows, params, x, network.rates())


def network_ntk(network: Architecture, params: Params, x: ArrayLike) -> Float[Array, "N N n_L n_L"]:
    """`ntk` of one member, traceable."""
    check_differentiable(network, 1, "the NTK")
    return _total(network, params, x)


# --- shared with dntk and ddntk ---------------------------------------------------------------


def between(network: Architecture, first: Gradients, second: Gradients) -> Float[Array, "a b i j"]:
    """Σ_μ λ_μ ∇_μ z_i;a ∇_μ z_j;b of two sets of gradients: the NTK when they are the same."""
    terms = zip(_weights(network, first, second), first.J, second.J, strict=True)
    return functools.reduce(operator.add, (w * _gram(J_a, J_b) for w, J_a, J_b in terms))


def checked_function(function: Function, params: Any, x: Any) -> Callable[[Any], Array]:
    """params → f(params, x), after checking that the result is (N, outputs)."""
    shape = jax.eval_shape(function, params, x)
    if not isinstance(shape, jax.ShapeDtypeStruct) or shape.ndim != 2:
        got = getattr(shape, "shape", type(shape).__name__)
        raise InvalidValueError("shape of f(params, x)", got, "expected (samples, outputs)")
    return lambda values: function(values, x)


def scaled(rates: Any, gradient: Any) -> Any:
    """λ times a gradient, leaf by leaf."""
    if jax.tree.structure(rates) == jax.tree.structure(0.0):
        return jax.tree.map(lambda g: _times(rates, g), gradient)
    if jax.tree.structure(rates) != jax.tree.structure(gradient):
        wanted = "expected one number, or a pytree like params"
        raise InvalidValueError("structure of rates", jax.tree.structure(rates), wanted)
    return jax.tree.map(_times, rates, gradient)


def directions_at_once(params: Any) -> int:
    """How many directions in parameter space one step of a loop should hold."""
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return max(1, _NUMBERS_AT_ONCE // max(size, 1))


# --- how --------------------------------------------------------------------------------------


def _times(rate: ArrayLike, gradient: Array) -> Array:
    if jnp.ndim(rate) and jnp.shape(rate) != gradient.shape:
        raise InvalidValueError(
            "shape of rates", jnp.shape(rate), f"expected a number or {gradient.shape}"
        )
    return jnp.asarray(rate, dtype=gradient.dtype) * gradient


def _weights(
    network: Architecture, first: Gradients, second: Gradients
) -> list[Float[Array, "a b 1 1"]]:
    """λ_b + λ_W u_a·u_b/n_{ℓ-1} for each layer."""
    rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
    return [
        (lambda_b + lambda_W / n * (u_a @ u_b.T))[:, :, None, None]
        for (lambda_b, lambda_W, n), u_a, u_b in zip(rates, first.u, second.u, strict=True)
    ]


def _gram(first: Float[Array, "a i n"], second: Float[Array, "b j n"]) -> Float[Array, "a b i j"]:
    """Σ_k first_aik second_bjk as one product of matrices."""
    product = first.reshape(-1, first.shape[-1]) @ second.reshape(-1, second.shape[-1]).T
    return product.reshape(*first.shape[:2], *second.shape[:2]).transpose(0, 2, 1, 3)


@functools.partial(jax.jit, static_argnums=0)
def _terms(network: Architecture, params: Params, x: ArrayLike) -> Array:
    grads = network_gradients(network, params, x)
    weights = _weights(network, grads, grads)
    return jnp.stack([w * _gram(J, J) for w, J in zip(weights, grads.J, strict=True)])


@functools.partial(jax.jit, static_argnums=0)
def _total(network: Architecture, params: Params, x: ArrayLike) -> Array:
    grads = network_gradients(network, params, x)
    samples, n_L = grads.J[-1].shape[:2]
    if samples * n_L < _ROWS_WORTH_HALVING or samples < _STRIPS:
        return between(network, grads, grads)
    # Strips of rows [low:high] from the diagonal on; what lies below it is their mirror image.
    weights = _weights(network, grads, grads)
    total = weights[-1] * jnp.eye(n_L, dtype=grads.J[-1].dtype)[None, None]
    edges = np.linspace(0, samples, _STRIPS + 1).astype(int)
    for low, high in itertools.pairwise(edges):
        hidden = zip(weights[:-1], grads.J[:-1], strict=True)
        parts = (w[low:high, low:] * _gram(J[low:high], J[low:]) for w, J in hidden)
        strip = sum(parts, start=total[low:high, low:])
        total = total.at[low:high, low:].set(strip)
        mirror = strip[:, high - low :].transpose(1, 0, 3, 2)
        total = total.at[high:, low:high].set(mirror)
    return total


@functools.partial(jax.jit, static_argnums=0)
def _of_layers(network: Architecture, params: Params, x: ArrayLike) -> tuple[Array, ...]:
    z = network.preactivations(params, x)
    dtype = z[0].dtype
    signal, kernels = jnp.asarray(x, dtype=dtype), []
    slope = network.activation.derivative(1)
    for index, layer in enumerate(params):
        rate = network.lambda_W[index] / network.widths[index]
        own = network.lambda_b[index] + rate * (signal @ signal.T)
        kernel = own[:, :, None, None] * jnp.eye(z[index].shape[1], dtype=dtype)[None, None]
        if index > 0:
            # dz^(ℓ+1)_i/dz^(ℓ)_k of (8.10), for all samples.
            step = layer.W[None] * slope(z[index - 1])[:, None, :]
            if (skip := network.skip_of_layers[index]) != 0.0:
                step = step + skip * jnp.eye(layer.W.shape[0], dtype=dtype)[None]
            kernel = kernel + jnp.einsum("aik,bjm,abkm->abij", step, step, kernels[-1])
        kernels.append(kernel)
        signal = network.activation(z[index])
    return tuple(kernels)
