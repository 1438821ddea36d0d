"""Newton's method for a network: steps θ → θ − λ Jᵀ κ (z − y) with a tensor κ over samples (10.18).

κ = Θ⁻¹ trains a network of infinite width in one step (10.26), (10.30). At finite width it leaves
errors of order 1/√n (∞.64); κ_ij = (Ĥ⁻¹)_ij, with the network's own NTK, errors of order 1/n
(∞.71), (∞.73); and κ_ij with terms in dNTK and ddNTK, the one-step variant (∞.80), smaller ones.
Rows of κ are (sample, output) pairs, numbered sample·n_L + output.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.networks._checks import checked_choice
from dynagram.observables.tangents._ddntk import ddntk
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._one_network import flattened

NEWTON_TENSORS = ("frozen", "own", "one-step")
_SINGULAR = 1e-12


@float64
def newton_tensor(model: Model, data: Data, kind: str = "own") -> Float[np.ndarray, "row row"]:
    """ηκ_ij of a network for the training samples of `data` and the loss ½Σ(z − y)².

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `data`: training inputs, no two the same, and targets.
    - `kind`: "frozen", the inverse NTK of infinite width (10.26) on each output by itself; "own",
        the inverse of the network's own NTK (∞.71); "one-step", which adds ½ H⁻¹H⁻¹H⁻¹ dH ε −
        ⅙ H⁻¹H⁻¹H⁻¹H⁻¹ ddH_I ε ε (∞.80), is not symmetric, and needs a smooth activation.

    **Returns:** ηκ, one row for each (sample, output). Cost: `ntk` and (N_A n_L)³; "one-step" also
    takes `ddntk` and keeps (N_A n_L)⁴ numbers.

    >>> network = MLP([2, 40, 1], "tanh", C_b=0.1, C_W=1.0)
    >>> data = Data([[1.0, 0.3], [-0.4, 1.1]], [0.5, -0.2])
    >>> drawn = network.init(seed=1, dtype="float32")
    >>> newton_tensor(drawn, data, "frozen").round(3)[0], newton_tensor(drawn, data).round(3)[0]
    (array([ 0.837, -0.553]), array([ 0.753, -0.468]))
    """
    checked_choice("kind", kind, NEWTON_TENSORS)
    data.check(model.network)
    if kind == "frozen":
        if not isinstance(model.network, MLP):
            allowed = "infinite width needs C_b and C_W: expected a network drawn from an MLP"
            raise InvalidTypeError("network of model", model.network, allowed)
        Theta = frozen_kernels(model.network, data.x, layers="last").Theta[-1]
        return np.kron(_inverse(Theta), np.eye(data.outputs))
    exact = model.in_float64()
    inverse = _inverse(flattened(np.asarray(ntk(exact, data.x))))
    if kind == "own":
        return inverse
    check_differentiable(model.network, 3, "the one-step Newton tensor")
    error = (np.asarray(exact(data.x)) - data.y).reshape(-1)
    lifted = inverse @ error
    dH = flattened(np.asarray(dntk(exact, data.x)))
    ddH = flattened(np.asarray(ddntk(exact, data.x).first))
    bent = 0.5 * dH @ lifted - np.einsum("abcd,c,d->ab", ddH, lifted, lifted) / 6.0
    return inverse + inverse @ bent @ inverse


@float64
def newton_step(model: Model, data: Data, kappa: Float[np.ndarray, "row row"]) -> Model:
    """The network after one step of the generalised update θ − λ Jᵀ ηκ (z − y) (∞.68), (10.30).

    **Arguments:**

    - `model`: the network, with its learning rates λ, and its weights.
    - `data`: training inputs and targets.
    - `kappa`: ηκ, from `newton_tensor`, or any matrix over (sample, output) pairs; η times the
        identity is a step of gradient descent.

    **Returns:** a `Model` in float64. Cost: one gradient.

    >>> network = MLP([2, 40, 1], "tanh", C_b=0.1, C_W=1.0)
    >>> data = Data([[1.0, 0.3], [-0.4, 1.1]], [0.5, -0.2])
    >>> start = network.init(seed=1, dtype="float32")
    >>> for kind in NEWTON_TENSORS:
    ...     after = newton_step(start, data, newton_tensor(start, data, kind))
    ...     float(np.abs(np.asarray(after(data.x)) - data.y).max().round(4))
    0.1486
    0.0022
    0.0009
    """
    data.check(model.network)
    rows = data.y.size
    if kappa.shape != (rows, rows):
        allowed = f"expected {(rows, rows)}: one row for each sample and output"
        raise InvalidValueError("shape of kappa", kappa.shape, allowed)
    exact = model.in_float64()
    outputs, pull = jax.vjp(
        lambda params: model.network.apply(params, jnp.asarray(data.x)), exact.params
    )
    error = (np.asarray(outputs) - data.y).reshape(-1)
    (gradient,) = pull(jnp.asarray((kappa @ error).reshape(data.y.shape)))
    network, layers = model.network, []
    for index, (layer, slope) in enumerate(zip(exact.params, gradient, strict=True)):
        rate_W = network.lambda_W[index] / network.widths[index]
        layers.append(
            Layer(layer.b - network.lambda_b[index] * slope.b, layer.W - rate_W * slope.W)
        )
    return exact.with_params(tuple(layers))


def _inverse(kernel: np.ndarray) -> np.ndarray:
    values = np.linalg.eigvalsh(kernel)
    if not values[0] > _SINGULAR * values[-1]:
        raise InvalidValueError(
            "smallest over largest eigenvalue of the training NTK",
            float(values[0] / values[-1]) if values[-1] > 0 else 0.0,
            "singular: training inputs repeat or are nearly collinear",
        )
    return np.linalg.inv(kernel)
