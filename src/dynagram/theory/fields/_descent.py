"""Gradient descent on the weights of one network with one output, full batch (Nordio (11), (12)).

θ ← θ − η λ_θ ∂𝓛/∂θ with 𝓛 = (1/M) Σ_α (Ŷ^α − Y^α)²: what the laws of the fields must reproduce,
step by step and flip by flip. That is why it is a loop of its own and no `train` of an ensemble:
every step counts the preactivations that change sign, and with frozen masks the same step serves
the predictions from an anchor.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dynagram._precision import float64
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import (
    Architecture,
    Layer,
    Model,
    Params,
    check_inputs,
    checked_number,
)
from dynagram.observables.tangents._signals import Signals, network_signals

# Steps of one call of the compiled loop; the loss is looked at in between.
_BLOCK = 100


@dataclass(frozen=True, eq=False)
class Descent:
    """A training run: the network at its end, and what was seen on the way.

    **Arguments:**

    - `model`: the trained network.
    - `losses`: 𝓛 before each step, and last that of `model`.
    - `flips`: [t, ℓ-1] counts the (α, i) of layer ℓ whose preactivation changed sign in step t.
    """

    model: Model
    losses: Float[np.ndarray, " steps_and_one"]
    flips: Int[np.ndarray, "steps layer"]


def descend(model: Model, x: object, y: object, *, eta: float, steps: int) -> Descent:
    """Train a network with one output by full-batch gradient descent, in the dtype of its weights.

    Stable while η < M/λ_max(K), K the `collective_kernel`. Raises `NonFiniteError` when the loss
    leaves the range of numbers.

    **Arguments:**

    - `model`: the network to start from, with its learning rates.
    - `x`, `y`: training inputs (M, n_0) and targets (M,).
    - `eta`: the learning rate η.
    - `steps`: how many steps.

    **Returns:** `Descent`. Cost per step: three times that of a forward pass.

    >>> from dynagram.observables.fields import fixed_readout
    >>> run = descend(fixed_readout([np.eye(2)]), np.array([[3.0, 1.0]]), [1.0], eta=0.1, steps=2)
    >>> run.losses.round(6).tolist(), run.flips.tolist()        # K = 5, and b 1 - 2ηK = 0
    ([1.0, 0.0, 0.0], [[1], [0]])
    """
    inputs = check_inputs(x, model.network.input_size)
    targets = checked_targets(model, y, inputs.shape[0])
    rate = checked_number("eta", eta, "a learning rate must be ≥ 0")
    if steps < 0:
        raise InvalidValueError("steps", steps, "expected 0 or more")
    depth = model.network.depth
    losses = np.zeros(steps + 1)
    flips = np.zeros((steps + 1, depth - 1), dtype=int)  # between a step and the one before
    z = gradient_step(model, inputs, targets, rate)[1].z[:-1]
    for first in range(0, steps, _BLOCK):
        count = min(_BLOCK, steps - first)
        model, z, seen, changed = _descend(model, z, inputs, targets, rate, count)
        losses[first : first + count] = np.asarray(seen)[:count]
        flips[first : first + count] = np.asarray(changed)[:count]
        if not np.isfinite(losses[first + count - 1]):
            raise divergence(losses[: first + count], eta)
    _, end, losses[-1] = gradient_step(model, inputs, targets, rate)
    flips[-1] = count_flips(z, end.z[:-1])
    if not np.isfinite(losses[-1]):
        raise divergence(losses, eta)
    return Descent(jax.tree.map(np.asarray, model), losses, flips[1:])


@float64
def _descend(
    model: Model,
    z: tuple[Array, ...],
    x: np.ndarray,
    y: np.ndarray,
    eta: float,
    count: int,
) -> tuple[Model, tuple[Array, ...], Array, Array]:
    """`count` ≤ _BLOCK steps: the model after, z before the last, all losses before a step, flips.

    `z` are the hidden preactivations of the step before; the first flips are since then.
    """
    params, *seen = _block(model.network, model.params, z, x, y, eta, count)
    return model.with_params(params), *seen


@functools.partial(jax.jit, static_argnums=0)
def _block(
    network: Architecture,
    params: Params,
    z: tuple[Array, ...],
    x: Array,
    y: Array,
    eta: Array,
    count: Array,
) -> tuple[Params, tuple[Array, ...], Array, Array]:
    def step(index: Array, carry: Any) -> Any:
        params, before, losses, flips = carry
        params, seen, loss = _step(network, params, x, y, eta, None)
        flips = flips.at[index].set(_flips(before, seen.z[:-1]))
        return params, seen.z[:-1], losses.at[index].set(loss.astype(losses.dtype)), flips

    # Places for a whole block, so that one compilation serves every number of steps.
    empty = jnp.zeros(_BLOCK), jnp.zeros((_BLOCK, network.depth - 1), dtype=int)
    return jax.lax.fori_loop(0, count, step, (params, z, *empty))


@float64
def gradient_step(
    model: Model,
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, " samples"],
    eta: float,
    gates: tuple[np.ndarray, ...] | None = None,
) -> tuple[Model, Signals, Array]:
    """The network after one step; the signals and the loss before it. Inputs are not checked.

    With `gates` the slopes of the hidden layers are held at these values: the masks are frozen.
    """
    params, seen, loss = _step(model.network, model.params, x, y, eta, gates)
    return model.with_params(params), seen, loss


@functools.partial(jax.jit, static_argnums=0)
def _step(
    network: Architecture,
    params: Params,
    x: Array,
    y: Array,
    eta: Array,
    gates: tuple[Array, ...] | None,
) -> tuple[Params, Signals, Array]:
    seen = network_signals(network, params, x, gates=gates)
    dtype = seen.z[-1].dtype
    residual = seen.z[-1][:, 0] - y.astype(dtype)
    factor = (-2.0 / residual.shape[0]) * eta * residual
    layers = []
    for index, layer in enumerate(params):
        J = factor[:, None].astype(dtype) * seen.J[index][:, 0, :]
        rate = network.lambda_W[index] / network.widths[index]
        b = layer.b + network.lambda_b[index] * J.sum(axis=0)
        layers.append(Layer(b, layer.W + rate * (J.T @ seen.u[index])))
    return tuple(layers), seen, jnp.mean(residual**2)


@float64
def count_flips(before: tuple[Array, ...], after: tuple[Array, ...]) -> Int[Array, " layer"]:
    """How many preactivations of each hidden layer changed sign."""
    return _flips(before, after)


@jax.jit
def _flips(before: tuple[Array, ...], after: tuple[Array, ...]) -> Array:
    pairs = zip(before, after, strict=True)
    return jnp.stack([jnp.sum((old > 0) != (new > 0)) for old, new in pairs])


def checked_targets(model: Model, y: object, samples: int) -> Float[np.ndarray, " samples"]:
    """`y` as a float64 vector; warns of targets that a mean of ReLUs cannot reach."""
    targets = np.asarray(y)
    if targets.dtype.kind not in "biuf":
        raise InvalidTypeError("y", type(y).__name__, "expected real numbers, one per sample")
    if targets.shape != (samples,):
        raise InvalidValueError("shape of y", targets.shape, f"expected ({samples},)")
    if not np.all(np.isfinite(targets)):
        raise InvalidValueError("y", "nan or inf", "every target must be finite")
    network, readout = model.network, np.asarray(model.params[-1].W)
    sigma = network.activation.homogeneity
    never_negative = sigma is not None and min(sigma.plus, sigma.minus) >= 0.0
    lowest = float(np.asarray(model.params[-1].b)[0])
    fixed = network.lambda_W[-1] == 0.0 and network.lambda_b[-1] == 0.0
    if fixed and never_negative and np.all(readout >= 0) and np.any(targets < lowest):
        warnings.warn(
            f"the output cannot be below {lowest:g} but targets are: a mean of activations ≥ 0 "
            "cannot fit them; use targets {0, 1} or a readout of both signs",
            stacklevel=3,
        )
    return targets.astype(np.float64)


def divergence(losses: Float[np.ndarray, " steps"], eta: float) -> NonFiniteError:
    """The error that says where the loss left the range of numbers, and what to do."""
    step = int(np.argmin(np.isfinite(losses)))
    return NonFiniteError(
        f"the loss is not finite at step {step}: eta = {eta:g} is too large, "
        "keep it below M/λ_max of the collective kernel"
    )
