"""The NTK of one network while it trains, in few steps.

Gradient flow moves parameters by dθ = −λJᵀ dI with dI = ε dτ, ε = ∂L/∂z (10.3). Over an interval in
which the NTK changes little, I follows dI/dτ = ε(z − Ĥ I) with the present Ĥ held fixed, however
stiff that is (∞.93); along this I the parameters are moved with J as it changes, and outputs and
NTK are taken where they arrive. So every interval holds dĤ and ddĤ, the terms of order 1/n of one
network (∞.102). Intervals that grow with τ need some five a decade, more while features are learnt.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram._precision import own_precision
from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.networks import Model
from dynagram.networks._layers import Architecture, Layer, Params
from dynagram.observables.tangents._ntk import network_ntk, scaled
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.training._losses import SQUARED, check_loss_targets, half_sum_factor

_RTOL, _ATOL = 1e-6, 1e-9
_MOST_HALVINGS = 64


class KernelPath(NamedTuple):
    """The NTK of one network at some times of its training.

    **Arguments:**

    - `start`: [a, b, i, j] before training.
    - `kernels`: [time, a, b, i, j].
    - `departure`: by time, the largest distance so far of training outputs from those of the fixed
        NTK at the end of an interval, over how far they have moved since the start. Where it is not
        small, even halved intervals are too long for how fast the NTK changes.
    """

    start: Float[np.ndarray, "probe probe outputs outputs"]
    kernels: Float[np.ndarray, "time probe probe outputs outputs"]
    departure: Float[np.ndarray, " time"]


def kernel_path(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    times: Sequence[float] | Float[np.ndarray, " time"],
    *,
    loss: str = "mean",
    probe: ArrayLike | None = None,
    tolerance: float = 0.05,
) -> KernelPath:
    """The NTK of this very network during gradient flow, an interval or more for each time.

    **Arguments:**

    - `model`: an MLP with its weights, before training.
    - `x`, `y`: what it trains on, samples in rows; probabilities for "cross-entropy".
    - `times`: τ > 0, increasing; under gradient descent the sum of the learning rates.
    - `loss`: "half-sum", "mean" or "cross-entropy".
    - `probe`: inputs whose NTK is wanted; `x` by default.
    - `tolerance`: of the departure, beyond which an interval is halved, 64 times in all at most.

    **Returns:** `KernelPath`. Cost, for each interval: the NTK on the training samples and its
    eigenvalues, (N n_L)³, and two gradients.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 32, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> path = kernel_path(model, np.eye(2), np.ones((2, 1)), [0.1, 1.0])
    >>> path.kernels.shape, bool(np.all(path.departure < 0.1))
    ((2, 2, 2, 1, 1), True)
    """
    network = model.network
    check_differentiable(network, 1, "the NTK")
    moments = np.asarray(times, dtype=np.float64)
    if moments.size == 0 or not moments[0] > 0 or not np.all(np.diff(moments) > 0):
        raise InvalidValueError("times", moments.tolist(), "expected increasing times > 0")
    targets = np.asarray(y, dtype=np.float64)
    where = x if probe is None else probe
    H, start, first = _seen(model.params, network, x, where)
    if targets.shape != first.shape:
        raise InvalidValueError("shape of y", targets.shape, f"expected {first.shape}")
    params, z, kernels, departures, halvings = model.params, first, [], [], 0
    largest, kernel = 0.0, start
    for span in np.diff(moments, prepend=0.0):
        spans = [float(span)]
        while spans:
            rows = H.transpose(0, 2, 1, 3).reshape(z.size, z.size)
            change = fixed_kernel_impulse(rows, z, targets, spans[-1], loss)
            expected = z - (rows @ change.reshape(-1)).reshape(z.shape)
            after = _moved(params, network, x, change)
            seen = _seen(after, network, x, where)
            departure = _distance(seen[2], expected) / max(_distance(seen[2], first), 1e-300)
            if not departure <= tolerance and halvings < _MOST_HALVINGS:
                halvings += 1
                spans[-1:] = [0.5 * spans[-1]] * 2
                continue
            spans.pop()
            params, (H, kernel, z) = after, seen
            largest = max(largest, departure)
        kernels.append(kernel)
        departures.append(largest)
    return KernelPath(start, np.stack(kernels), np.array(departures))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one - other))


def fixed_kernel_impulse(
    H: Float[np.ndarray, "rows rows"],
    z: Float[np.ndarray, "samples outputs"],
    y: Float[np.ndarray, "samples outputs"],
    span: float,
    loss: str,
) -> Float[np.ndarray, "samples outputs"]:
    """I after a time `span` of dI/dτ = ε(z − H I); H on (sample, output) as one index.

    In closed form for a squared error, by a method for stiff equations for cross-entropy.

    >>> H, z, y = np.eye(1), np.zeros((1, 1)), np.ones((1, 1))
    >>> fixed_kernel_impulse(H, z, y, 1.0, "half-sum").ravel().round(4)
    array([-0.6321])
    """
    if loss in SQUARED:
        rate = half_sum_factor(loss, *z.shape)
        values, basis = np.linalg.eigh(H)
        values = np.maximum(values, 1e-300)  # (1 − e^{−rλτ})/λ is rτ where nothing is learnt
        summed = -np.expm1(-rate * span * values) / values
        return (basis @ (summed * (basis.T @ (z - y).reshape(-1)))).reshape(z.shape)
    if loss != "cross-entropy":
        raise InvalidValueError("loss", loss, "expected half-sum, mean or cross-entropy")
    check_loss_targets(loss, y)
    return _entropic(H, y, z, span)


def _entropic(H: np.ndarray, y: np.ndarray, z: np.ndarray, span: float) -> np.ndarray:
    from scipy.integrate import solve_ivp

    samples, outputs = y.shape
    rows = H.reshape(samples, outputs, -1)

    def softmax(impulse: np.ndarray) -> np.ndarray:
        now = z - (H @ impulse).reshape(z.shape)
        share = np.exp(now - now.max(axis=1, keepdims=True))
        return share / share.sum(axis=1, keepdims=True)

    def velocity(_: float, impulse: np.ndarray) -> np.ndarray:
        return ((softmax(impulse) - y) / samples).reshape(-1)

    def slope(_: float, impulse: np.ndarray) -> np.ndarray:
        p = softmax(impulse)
        mean = np.einsum("ai,aix->ax", p, rows)
        return -(p[:, :, None] * (rows - mean[:, None])).reshape(H.shape) / samples

    solution = solve_ivp(
        velocity, (0.0, span), np.zeros(z.size), "BDF", [span], jac=slope, rtol=_RTOL, atol=_ATOL
    )
    if not solution.success:
        raise AccuracyError(f"the kernel ODE could not be integrated: {solution.message}")
    return solution.y[:, -1].reshape(z.shape)


@own_precision
def _seen(
    params: Params, network: Architecture, x: ArrayLike, probe: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The NTK on the training samples and on the probe, and the training outputs."""
    dtype = params[0].W.dtype
    arrays = _look(network, params, jnp.asarray(x, dtype), jnp.asarray(probe, dtype))
    whole, part, z = (np.asarray(array, np.float64) for array in arrays)
    return whole, part, z


@own_precision
def _moved(params: Params, network: Architecture, x: ArrayLike, change: np.ndarray) -> Params:
    dtype = params[0].W.dtype
    return _step(network, params, jnp.asarray(x, dtype), jnp.asarray(change, dtype))


@functools.partial(jax.jit, static_argnums=0)
def _look(
    network: Architecture, params: Params, x: Array, probe: Array
) -> tuple[Array, Array, Array]:
    kernels = network_ntk(network, params, x), network_ntk(network, params, probe)
    return (*kernels, network.apply(params, x))


@functools.partial(jax.jit, static_argnums=0)
def _step(network: Architecture, params: Params, x: Array, change: Array) -> Params:
    """θ − λJᵀ ΔI by the midpoint rule."""
    rates = tuple(Layer(*pair) for pair in network.rates())  # pyright: ignore[reportArgumentType]

    def moved(there: Params, part: Array) -> Params:
        _, pull = jax.vjp(lambda values: network.apply(values, x), there)
        return jax.tree.map(jnp.subtract, params, scaled(rates, pull(part)[0]))

    return moved(moved(params, 0.5 * change), change)
