"""One pair of networks, a network and its reverse, trained and compared with its frozen NTK.

What `ensembles.trained` averages: traceable functions of the arrays of a problem and of the
parameters of one network, for gradient descent, gradient flow and the two-step algorithm.
Derivation: docs/derivations/control-variates.md (D8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.networks import MLP, Layer, Params
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.theory.training._infinite import FrozenMoment, InfiniteTraining


class PairData(NamedTuple):
    """Arrays of one problem, as the compiled programs need them."""

    inputs: Array  # training, then test
    targets: Array
    weights: Array
    kernel: Array  # Θ of all samples with those of training
    rows: Array  # the training frame
    back: Array  # from the frame to test outputs
    slopes: Array  # D[r, h], what Ĥ − Θ does to a row of rate r in direction h
    bracket: Array  # [−R 1]
    step: Array
    tolerance: Array


@float64
def pair_data(
    inputs: Float[np.ndarray, "sample n_0"],
    training: InfiniteTraining,
    limit: FrozenMoment,
    step: float,
    tolerance: float,
) -> PairData:
    """The arrays of a problem; `limit` is its end, or a moment before."""
    n, frame = training.weights.size, training.basis
    rates = np.append(frame.h, np.zeros(inputs.shape[0] - n))[:, None]
    slopes = limit.decay(rates, frame.h[None, :])
    arrays = (
        inputs, training.targets, training.weights, training.Theta[:, :n], frame.rows,
        frame.back[n:], slopes, limit.kept[n:], step, tolerance,
    )  # fmt: skip
    return PairData(*(jnp.asarray(array, dtype=jnp.float64) for array in arrays))


def trained_pair(
    network: MLP, algorithm: str, max_steps: int, data: PairData, params: Params
) -> tuple[Array, Array]:
    """The statistics of trained outputs less those with a frozen NTK, and the largest error."""
    train = _leaps if algorithm == "two-step" else _descent
    gradient = _runge_kutta if algorithm == "flow" else _gradient
    last = params[-1]
    reversed_params = (*params[:-1], Layer(-last.b, -last.W))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, reversed_params)
    ends, errors = jax.vmap(lambda p: train(network, p, data, max_steps, gradient))(both)
    z = network.apply(params, data.inputs)
    zeta = data.bracket @ z
    base = -data.bracket[:, : data.targets.shape[0]] @ data.targets
    rho = (ends[0] - base - zeta, ends[1] - base + zeta)
    frozen = _frozen_changes(network, params, data, z)
    return _statistics(zeta, rho) - _statistics(zeta, frozen), jnp.max(errors)


def frozen_pair(network: MLP, data: PairData, params: Params) -> tuple[Array]:
    """The statistics of a pair with a frozen NTK; E[ζζ'] given the hidden layers is (D8.2)."""
    fields = network.preactivations(params, data.inputs)
    signal = network.activation(fields[-2]) if network.depth > 1 else data.inputs
    metric = network.C_b[-1] + network.C_W[-1] / signal.shape[1] * (signal @ signal.T)
    spread = data.bracket @ metric @ data.bracket.T
    same = jnp.einsum("ts,ij->tisj", spread, jnp.eye(data.targets.shape[1]))
    zeta = data.bracket @ fields[-1]
    found = _statistics(zeta, _frozen_changes(network, params, data, fields[-1]))
    if network.depth == 2:  # the mean NTK is Θ at every width (8.63)
        found = found.at[: zeta.size].set(0.0)
    return (found.at[zeta.size :].add(same.reshape(-1)),)


def _frozen_changes(network: MLP, params: Params, data: PairData, z: Array) -> tuple[Array, Array]:
    """The change ρ of a network and of its reverse to first order in Ĥ − Θ (D8.3)."""
    n, outputs = data.targets.shape
    mean = jnp.einsum("ab,ij->abij", data.kernel, jnp.eye(outputs))
    shift = network_ntk(network, params, data.inputs)[:, :n] - mean
    basis = data.rows[:n, :n]
    turned = jnp.einsum("ra,abij,cb->rcij", data.rows, shift, basis) * data.slopes[:, :, None, None]
    own = jnp.einsum("tr,rcij->tcij", data.back, turned)

    def change(error: Array) -> Array:
        return jnp.einsum("tcij,cj->ti", own, basis @ error)

    return change(z[:n] - data.targets), change(-z[:n] - data.targets)


def _statistics(zeta: Float[Array, "test outputs"], rho: tuple[Array, Array]) -> Array:
    """½(ρ⁺ + ρ⁻), and ζρ' + ρζ' + ρρ' averaged over the pair (D8.4), (D8.5)."""
    z = zeta.reshape(-1)
    plus, minus = (part.reshape(-1) for part in rho)
    cross = 0.5 * z[:, None] * (plus - minus)[None, :]
    squares = 0.5 * (plus[:, None] * plus[None, :] + minus[:, None] * minus[None, :])
    second = cross + cross.T + squares
    return jnp.concatenate([0.5 * (plus + minus), second.reshape(-1)])


# --- training ---------------------------------------------------------------------------------


def _moved(network: MLP, params: Params, way: Params, step: Array) -> Params:
    """θ − step·λ·way."""
    rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
    return tuple(
        Layer(layer.b - step * b * d.b, layer.W - step * (W / n) * d.W)
        for layer, d, (b, W, n) in zip(params, way, rates, strict=True)
    )


def _pulled(
    network: MLP, params: Params, data: PairData, error: Callable[[Array], Array]
) -> tuple[Params, Array]:
    """Jᵀ error(z_A) and z_A."""
    x = data.inputs[: data.targets.shape[0]]
    z, pull = jax.vjp(lambda p: network.apply(p, x), params)
    return pull(error(z))[0], z


def _gradient(network: MLP, params: Params, data: PairData) -> tuple[Params, Array]:
    """The gradient of the loss and the largest error."""
    way, z = _pulled(network, params, data, lambda z: data.weights[:, None] * (z - data.targets))
    return way, jnp.max(jnp.abs(z - data.targets))


def _runge_kutta(network: MLP, params: Params, data: PairData) -> tuple[Params, Array]:
    """The mean gradient over one step of gradient flow, and the largest error at its start."""
    h = data.step
    k1, error = _gradient(network, params, data)
    k2, _ = _gradient(network, _moved(network, params, k1, 0.5 * h), data)
    k3, _ = _gradient(network, _moved(network, params, k2, 0.5 * h), data)
    k4, _ = _gradient(network, _moved(network, params, k3, h), data)
    way = jax.tree.map(lambda a, b, c, d: (a + 2.0 * b + 2.0 * c + d) / 6.0, k1, k2, k3, k4)
    return way, error


def _descent(
    network: MLP, params: Params, data: PairData, max_steps: int, gradient: Callable[..., Any]
) -> tuple[Array, Array]:
    """Test outputs when training ends and the largest error then."""

    def more(state: tuple[Params, Array, Array]) -> Array:
        return (state[1] > data.tolerance) & (state[2] < max_steps)

    def step(state: tuple[Params, Array, Array]) -> tuple[Params, Array, Array]:
        way, error = gradient(network, state[0], data)
        return _moved(network, state[0], way, data.step), error, state[2] + 1

    start = (params, jnp.asarray(jnp.inf), jnp.asarray(0))
    end, _, _ = jax.lax.while_loop(more, step, start)
    z, n = network.apply(end, data.inputs), data.targets.shape[0]
    return z[n:], jnp.max(jnp.abs(z[:n] - data.targets))


def _leaps(
    network: MLP, params: Params, data: PairData, _steps: int, _gradient: Callable[..., Any]
) -> tuple[Array, Array]:
    """Ĥ⁻¹ at the start (∞.71), then Θ̃⁻¹ at the new place (∞.77)."""
    n, outputs = data.targets.shape
    H = network_ntk(network, params, data.inputs[:n]).transpose(0, 2, 1, 3).reshape(n * outputs, -1)

    def own(z: Array) -> Array:
        return jnp.linalg.solve(H, (z - data.targets).reshape(-1)).reshape(n, outputs)

    one = jnp.asarray(1.0)
    way, _ = _pulled(network, params, data, own)
    params = _moved(network, params, way, one)
    mean = data.kernel[:n]
    way, _ = _pulled(network, params, data, lambda z: jnp.linalg.solve(mean, z - data.targets))
    params = _moved(network, params, way, one)
    error = jnp.max(jnp.abs(network.apply(params, data.inputs[:n]) - data.targets))
    return network.apply(params, data.inputs[n:]), error
