"""Gradient descent on the weights of one network with one output, full batch (Nordio (11), (12)).

θ ← θ − η λ_θ ∂𝓛/∂θ with 𝓛 = (1/M) Σ_α (Ŷ^α − Y^α)²: what the laws of the fields must reproduce.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass

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

_STEPS_BETWEEN_CHECKS = 100


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
    losses, flips = [], []
    before: Signals | None = None
    for step in range(steps + 1):
        moved, seen, loss = gradient_step(model, inputs, targets, rate)
        if before is not None:
            flips.append(count_flips(before, seen))
        losses.append(loss)
        check = step % _STEPS_BETWEEN_CHECKS == 0 or step == steps
        if check and not np.isfinite(np.asarray(loss)):
            raise divergence(np.asarray(losses), eta)
        if step < steps:
            model, before = moved, seen
    counts = np.asarray(flips, dtype=int).reshape(steps, model.network.depth - 1)
    end = jax.tree.map(np.asarray, model)
    return Descent(end, np.asarray(losses, dtype=np.float64), counts)


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
def count_flips(before: Signals, after: Signals) -> Int[Array, " layer"]:
    """How many preactivations of each hidden layer changed sign."""
    return _flips(before.z[:-1], after.z[:-1])


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
