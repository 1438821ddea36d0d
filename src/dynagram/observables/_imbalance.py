"""Layer imbalance and its exact drift: scalar, per neuron and matrix forms (Theorem 1, A.2, A.3).

φ_σ(z) = zσ'(z) − σ(z) (1) measures how far σ is from being homogeneous. For gradient flow on any
differentiable loss the norms of neighbouring layers keep their distance up to φ_σ:
d/dt(‖W_{ℓ+1}‖² − ‖W_ℓ‖²) = 2E⟨W_{ℓ+1}ᵀ∇_{z_{ℓ+1}}loss, φ_σ(z_ℓ)⟩ (2), neuron by neuron, with the
learning rates divided out. The bias of a neuron counts as one more incoming weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Model, Params
from dynagram.networks._checks import require_plain
from dynagram.networks._model import takes_model

Loss = Callable[[Array, Array], Array]


class StepTerms(NamedTuple):
    """What one step of gradient descent does to the imbalance, one array per pair of layers.

    **Arguments:**

    - `flow`: η times the drift (2).
    - `discretisation`: quadratic in the step.
    - `weight_decay`: what decay alone takes away.

    Their sum is the change of the imbalance, exactly.
    """

    flow: tuple[Array, ...]
    discretisation: tuple[Array, ...]
    weight_decay: tuple[Array, ...]


def half_squared_error(output: Array, target: Array) -> Array:
    """½|f − y|² of one sample."""
    return 0.5 * jnp.sum((output - target) ** 2)


def homogeneity_deficit(activation: Activation, z: ArrayLike) -> Array:
    """φ_σ(z) = zσ'(z) − σ(z) elementwise (1); zero for linear, ReLU and their like.

    **Arguments:**

    - `activation`: σ.
    - `z`: any array.

    **Returns:** an array of the same shape.

    >>> from dynagram.activations import activation
    >>> [round(float(homogeneity_deficit(activation(name), 1.0)), 4) for name in ("relu", "tanh")]
    [0.0, -0.3416]
    """
    z = jnp.asarray(z)
    return z * activation.derivative(1)(z) - activation(z)


@takes_model
def imbalance(model: Model) -> tuple[Float[Array, " neuron"], ...]:
    """Outgoing minus incoming squared weights of every hidden neuron, rates divided out (A.2).

    **Arguments:**

    - `model`: the network, with its learning rates, and its weights. Plain gradient descent, one
        rate for all weights, has λ_W = n_{ℓ−1}, as loaded weights have.

    **Returns:** entry ℓ − 1 holds ‖W_{ℓ+1}[:, i]‖²/ρ_{ℓ+1} − ‖W_ℓ[i, :]‖²/ρ_ℓ − b_ℓ[i]²/λ_b for the
    neurons i of layer ℓ, with ρ_ℓ = λ_W/n_{ℓ−1}; its sum is the scalar Δ_ℓ. A bias with rate 0 is
    left out.

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 3, 1], "relu", C_b=0.0, C_W=2.0, lambda_b=0.0, lambda_W=[2.0, 3.0])
    >>> [neurons.shape for neurons in imbalance(net.init(seed=0))]
    [(3,)]
    """
    return _imbalance(model.network, model.params)


@takes_model
def imbalance_matrix(model: Model) -> tuple[Float[Array, "neuron neuron"], ...]:
    """W_{ℓ+1}ᵀW_{ℓ+1}/ρ_{ℓ+1} − W_ℓW_ℓᵀ/ρ_ℓ − b_ℓb_ℓᵀ/λ_b of every hidden layer (A.3).

    **Arguments:**

    - `model`: as for `imbalance`.

    **Returns:** a matrix per hidden layer, whose diagonal is `imbalance`. Conserved by the flow of
    a linear network.

    >>> from dynagram.networks import MLP
    >>> [matrix.shape for matrix in imbalance_matrix(MLP([2, 3, 1], "relu", 0.0, 2.0).init(seed=0))]
    [(3, 3)]
    """
    matrices = []
    for b, W, out, rate_b, rate_in, rate_out in _pairs(model.network, model.params):
        value = out.T @ out / rate_out - W @ W.T / rate_in
        matrices.append(value - b[:, None] * b[None, :] / rate_b if rate_b else value)
    return tuple(matrices)


@takes_model
def imbalance_drift(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    loss: Loss = half_squared_error,
    weights: ArrayLike | None = None,
) -> tuple[Float[Array, " neuron"], ...]:
    """d/dt of `imbalance` under gradient flow: 2E[(W_{ℓ+1}ᵀ∇_{z_{ℓ+1}}loss)_i φ_σ(z_ℓ,i)] (2).

    **Arguments:**

    - `model`: the network, with its learning rates, and its weights; without skips.
    - `x`, `y`: inputs (samples, n_0) and targets, a row each.
    - `loss`: loss(output, target) of one sample; the flow is of its mean over the rows of `x`.
    - `weights`: those of the samples in place of 1/samples, such as the nodes of a quadrature rule:
        the population flow.

    **Returns:** one array per hidden layer; its sum is the scalar form. Cost: one forward and one
    backward pass.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "relu", C_b=0.0, C_W=2.0).init(seed=0)
    >>> (drift,) = imbalance_drift(model, jnp.ones((4, 2)), jnp.ones((4, 1)))
    >>> float(jnp.abs(drift).max()) < 1e-7                # class A: conserved
    True
    """
    return _drift(model, _signals(model, x, y, loss, weights))


@takes_model
def imbalance_matrix_drift(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    loss: Loss = half_squared_error,
    weights: ArrayLike | None = None,
) -> tuple[Float[Array, "neuron neuron"], ...]:
    """d/dt of `imbalance_matrix`: A + Aᵀ, A = E[(back ⊙ σ'(z)) zᵀ − back σ(z)ᵀ].

    back = W_{ℓ+1}ᵀ∇_{z_{ℓ+1}}loss. The published form E[back φᵀ + φ backᵀ] agrees with it on the
    diagonal only.

    **Arguments:**

    - `model`, `x`, `y`, `loss`, `weights`: as for `imbalance_drift`.

    **Returns:** one matrix per hidden layer. Cost: one forward and backward pass and a product of
    (n, samples, n) a layer.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "linear", C_b=0.0, C_W=2.0).init(seed=0)
    >>> (drift,) = imbalance_matrix_drift(model, jnp.ones((4, 2)), jnp.ones((4, 1)))
    >>> float(jnp.abs(drift).max()) < 1e-6
    True
    """
    network, params = model.network, model.params
    passes = _signals(model, x, y, loss, weights)
    drifts = []
    for index, (z, back) in enumerate(zip(passes.z[:-1], passes.back, strict=True)):
        A = passes.delta[index].T @ z - back.T @ network.activation(z)
        if network.lambda_b[index] == 0.0:
            total = jnp.sum(passes.delta[index], axis=0)
            A = A - total[:, None] * params[index].b[None, :]
        drifts.append(A + A.T)
    return tuple(drifts)


@takes_model
def imbalance_step(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    eta: ArrayLike,
    weight_decay: ArrayLike = 0.0,
    loss: Loss = half_squared_error,
    weights: ArrayLike | None = None,
) -> StepTerms:
    """The change of `imbalance` in one step of gradient descent, taken apart; exact.

    The step is θ ← θ − η(ρ∇ + weight_decay·θ) on all parameters that train. Flow: η × (2); weight
    decay: −2ηλ × imbalance; discretisation: η² times the imbalance of the updates themselves.

    **Arguments:**

    - `model`, `x`, `y`, `loss`, `weights`: as for `imbalance_drift`.
    - `eta`: the learning rate η.
    - `weight_decay`: λ.

    **Returns:** `StepTerms`.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "relu", C_b=0.0, C_W=2.0).init(seed=0)
    >>> terms = imbalance_step(model, jnp.ones((4, 2)), jnp.ones((4, 1)), eta=0.1)
    >>> terms.flow[0].shape, float(jnp.abs(terms.weight_decay[0]).max())
    ((3,), 0.0)
    """
    network, params = model.network, model.params
    passes = _signals(model, x, y, loss, weights)
    u = (jnp.asarray(x, params[0].W.dtype), *(network.activation(z) for z in passes.z[:-1]))
    updates = []
    for index, layer in enumerate(params):
        rate = _weight_rate(network, index)
        W = rate * (passes.delta[index].T @ u[index]) + weight_decay * layer.W
        b = network.lambda_b[index] * jnp.sum(passes.delta[index], axis=0) + weight_decay * layer.b
        updates.append(layer._replace(b=b, W=W))
    quadratic = _imbalance(network, tuple(updates))
    eta, decayed = jnp.asarray(eta), _imbalance(network, params)
    return StepTerms(
        flow=tuple(eta * part for part in _drift(model, passes)),
        discretisation=tuple(eta**2 * part for part in quadratic),
        weight_decay=tuple(-2.0 * eta * weight_decay * part for part in decayed),
    )


# --- how --------------------------------------------------------------------------------------


class _Signals(NamedTuple):
    """z_ℓ; weight · ∇_{z_ℓ}loss; and weight · W_{ℓ+1}ᵀ∇_{z_{ℓ+1}}loss of the hidden layers."""

    z: tuple[Array, ...]
    delta: tuple[Array, ...]
    back: tuple[Array, ...]


def _signals(
    model: Model, x: ArrayLike, y: ArrayLike, loss: Loss, weights: ArrayLike | None
) -> _Signals:
    network, params = model.network, model.params
    require_plain(network, "the law of the imbalance")
    z = network.preactivations(params, x)
    samples, dtype = z[-1].shape[0], z[-1].dtype
    target = jnp.asarray(y)
    if target.shape[:1] != (samples,):
        raise InvalidValueError(
            "shape of y", target.shape, f"expected one row per sample, {samples}"
        )
    w = jnp.full(samples, 1.0 / samples, dtype) if weights is None else jnp.asarray(weights, dtype)
    delta = [w[:, None] * jax.vmap(jax.grad(loss))(z[-1], target)]
    back: list[Array] = []
    slope = network.activation.derivative(1)
    for index in range(network.depth - 1, 0, -1):
        back.insert(0, delta[0] @ params[index].W)
        delta.insert(0, back[0] * slope(z[index - 1]))
    return _Signals(z, tuple(delta), tuple(back))


def _imbalance(network: Architecture, params: Params) -> tuple[Array, ...]:
    neurons = []
    for b, W, out, rate_b, rate_in, rate_out in _pairs(network, params):
        value = jnp.sum(out**2, axis=0) / rate_out - jnp.sum(W**2, axis=1) / rate_in
        neurons.append(value - b**2 / rate_b if rate_b else value)
    return tuple(neurons)


def _drift(model: Model, passes: _Signals) -> tuple[Array, ...]:
    drifts = []
    for index, (z, back) in enumerate(zip(passes.z[:-1], passes.back, strict=True)):
        drift = 2.0 * jnp.sum(back * homogeneity_deficit(model.network.activation, z), axis=0)
        drifts.append(drift + 2.0 * _frozen_bias(model, passes, index))
    return tuple(drifts)


def _weight_rate(network: Architecture, index: int) -> float:
    rate = network.lambda_W[index] / network.widths[index]
    if rate == 0.0:
        raise InvalidValueError(
            "lambda_W", network.lambda_W, "a layer that does not learn has no imbalance"
        )
    return rate


class _Pair(NamedTuple):
    """What enters and what leaves a hidden layer, with the learning rates."""

    b: Array
    W: Array
    out: Array
    rate_b: float
    rate_in: float
    rate_out: float


def _pairs(network: Architecture, params: Params) -> list[_Pair]:
    rates = [_weight_rate(network, index) for index in range(network.depth)]
    return [
        _Pair(*params[i], params[i + 1].W, network.lambda_b[i], rates[i], rates[i + 1])
        for i in range(network.depth - 1)
    ]


def _frozen_bias(model: Model, passes: _Signals, index: int) -> Array:
    """E[∇_z loss] b: part of ⟨∇_z loss, z⟩ that no bias norm makes up for when b does not learn."""
    b = model.params[index].b
    if model.network.lambda_b[index] != 0.0:
        return jnp.zeros_like(b)
    return -jnp.sum(passes.delta[index], axis=0) * b
