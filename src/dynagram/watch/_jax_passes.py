"""The compiled passes that a `JaxRecorder` looks with."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import own_precision
from dynagram.watch._jax_products import evaluate, trace

if TYPE_CHECKING:
    from dynagram.watch._jax_recorder import JaxRecorder
else:
    JaxRecorder = object  # it imports this module


@own_precision
def signals(
    params: Any, recorder: JaxRecorder, x: np.ndarray, y: np.ndarray | None, signs: np.ndarray
) -> dict[str, Any]:
    return _compiled_signals(recorder, params, jnp.asarray(x), y, signs)


@functools.partial(jax.jit, static_argnums=0)
def _compiled_signals(
    recorder: JaxRecorder, params: Any, x: Any, y: Any, signs: Any
) -> dict[str, Any]:
    """Inputs and outputs of all products with weights, and derivatives by the outputs."""
    function = recorder.function
    shapes = [use.shape for use in trace(function, params, x)[1]]
    dtype = jnp.result_type(*jax.tree.leaves(params))
    zeros = [jnp.zeros(shape, dtype) for shape in shapes]
    z, pull, seen = jax.vjp(
        lambda shifts: evaluate(function, params, x, shifts), zeros, has_aux=True
    )
    scale = np.prod(z.shape[1:]) ** -0.5
    mix = jnp.broadcast_to(jnp.asarray(signs, z.dtype) * jnp.asarray(scale, z.dtype), z.shape)
    found = {"inputs": seen["inputs"], "outputs": seen["outputs"], "response": pull(mix)[0]}
    if y is None:
        return found | {"errors": None, "loss": jnp.zeros(())}
    loss, slope = jax.value_and_grad(recorder.loss)(z, y)
    return found | {"errors": pull(slope)[0], "loss": loss}


@own_precision
def outputs(params: Any, recorder: JaxRecorder, x: np.ndarray) -> Any:
    return _compiled_outputs(recorder, params, jnp.asarray(x))


@functools.partial(jax.jit, static_argnums=0)
def _compiled_outputs(recorder: JaxRecorder, params: Any, x: Any) -> Any:
    return evaluate(recorder.function, params, x, None)[1]["outputs"]


@own_precision
def largest(
    params: Any, recorder: JaxRecorder, x: np.ndarray, y: np.ndarray, start: np.ndarray, count: int
) -> tuple[Any, Any]:
    return _compiled_largest(recorder, count, params, jnp.asarray(x), y, start)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _compiled_largest(
    recorder: JaxRecorder, count: int, params: Any, x: Any, y: Any, start: Any
) -> tuple[Any, Any]:
    def outputs(p: Any) -> Any:
        return jax.tree.leaves(recorder.function(p, x))[0]  # as `trace` reads them

    z, push = jax.linearize(outputs, params)
    pull = jax.linear_transpose(push, params)
    slope = jax.grad(lambda outputs: recorder.loss(outputs, y))
    direction, value = jnp.asarray(start, z.dtype), jnp.zeros((), z.dtype)
    for _ in range(count):
        (back,) = pull(direction)
        moved = push(back)
        image = jax.jvp(slope, (z,), (moved,))[1]
        size = jnp.vdot(direction, moved)  # |Jᵀu|² = u·JJᵀu
        value = jnp.where(size <= 0, 0.0, jnp.vdot(moved, image) / size)
        direction = image / jnp.linalg.norm(image)
    return value, direction


@own_precision
def along(
    params: Any, recorder: JaxRecorder, x: np.ndarray, x2: Any, y2: Any, direction: np.ndarray
) -> Any:
    return _compiled_along(recorder, params, jnp.asarray(x), jnp.asarray(x2), y2, direction)


@functools.partial(jax.jit, static_argnums=0)
def _compiled_along(
    recorder: JaxRecorder, params: Any, x: Any, x2: Any, y2: Any, direction: Any
) -> Any:
    """vᵀJᵀL''Jv/|v|² of (x2, y2), for v = Jᵀ of a direction among the outputs of x."""
    function = recorder.function
    z, pull = jax.vjp(lambda p: jax.tree.leaves(function(p, x))[0], params)
    (v,) = pull(jnp.asarray(direction, z.dtype))
    z2, moved = jax.jvp(lambda p: jax.tree.leaves(function(p, x2))[0], (params,), (v,))
    image = jax.jvp(jax.grad(lambda z: recorder.loss(z, y2)), (z2,), (moved,))[1]
    return jnp.vdot(moved, image) / sum(jnp.vdot(part, part) for part in jax.tree.leaves(v))


def usual_loss(z: Any, y: Any) -> Any:
    """Cross-entropy for classes, the mean squared error for reals."""
    if jnp.issubdtype(y.dtype, jnp.floating):
        return jnp.mean((z - y.reshape(z.shape)) ** 2)
    rows = jax.nn.log_softmax(z, axis=-1).reshape(-1, z.shape[-1])
    classes = y.reshape(-1, 1).astype(jnp.int32)
    return -jnp.mean(jnp.take_along_axis(rows, classes, axis=1))
