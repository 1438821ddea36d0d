"""The fields u, v, a, b of one network, from one forward and one backward pass (Nordio (6)-(10)).

L hidden layers carry v_ℓ = W^(ℓ) u_{ℓ-1}, u_ℓ = σ(v_ℓ) and a_ℓ = σ'(v_ℓ), for ReLU the mask
1(v_ℓ > 0); the output is Ŷ = (1/N) Σ_i c_i u_{L,i}, with N = n_L and a fixed readout c, in the
source c = 1. The conjugate field is b_L = c, b_ℓ = W^(ℓ+1)ᵀ(a_{ℓ+1} ⊙ b_{ℓ+1}) (151), (157): N
times the derivative of Ŷ with respect to u_ℓ. Numbers are those of arXiv:2606.09744v3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import (
    ActivationLike,
    Architecture,
    Layer,
    Model,
    Params,
    check_inputs,
)
from dynagram.networks._checks import require_plain
from dynagram.networks._model import as_reals, takes_model
from dynagram.observables.tangents._signals import Signals, check_differentiable, network_signals

# At run time the arguments are validated by hand, with clearer messages.
if TYPE_CHECKING:
    Matrices = Sequence[np.ndarray | Array]
    Readout = np.ndarray | Array | Sequence[float] | None
else:
    Matrices = Readout = object


@dataclass(frozen=True, eq=False)
class Fields:
    """The fields of M samples, each array (M, n_ℓ).

    **Arguments:**

    - `model`: the network they were measured on, its weights as NumPy arrays.
    - `u`: u_0, …, u_L.
    - `v`, `a`, `b`: those of ℓ = 1..L, at ℓ-1.
    - `output`: Ŷ, of shape (M,).
    """

    model: Model
    u: tuple[Float[np.ndarray, "samples _"], ...]
    v: tuple[Float[np.ndarray, "samples _"], ...]
    a: tuple[Float[np.ndarray, "samples _"], ...]
    b: tuple[Float[np.ndarray, "samples _"], ...]
    output: Float[np.ndarray, " samples"]

    @property
    def network(self) -> Architecture:
        """The architecture of `model`."""
        return self.model.network

    @property
    def hidden_layers(self) -> int:
        """L."""
        return len(self.v)

    @property
    def samples(self) -> int:
        """M."""
        return self.output.shape[0]

    @property
    def N(self) -> int:
        """The width that divides every overlap: that of the last hidden layer, where Ŷ is read."""
        return self.v[-1].shape[1]

    @property
    def z(self) -> tuple[Float[np.ndarray, "samples _"], ...]:
        """The masked conjugate fields z_ℓ = a_ℓ ⊙ b_ℓ, ℓ = 1..L (176)."""
        return tuple(a * b for a, b in zip(self.a, self.b, strict=True))

    def weights(self, layer: int) -> Float[np.ndarray, "n_out n_in"]:
        """W^(ℓ), ℓ = 1..L+1, the last being the readout c/N."""
        return np.asarray(self.model.params[layer - 1].W)

    def rate(self, layer: int) -> float:
        """λ_W/n_{ℓ-1}, what η is multiplied by for the weights of layer ℓ; 1 in the source."""
        return self.network.lambda_W[layer - 1] / self.network.widths[layer - 1]


@takes_model
@float64
def fields(model: Model, x: object) -> Fields:
    """The fields of a network with one output.

    **Arguments:**

    - `model`: a network with one output and no skips, whose last layer is the readout,
        c = N W^(L+1); `fixed_readout` makes one from a list of matrices. Any activation without
        jumps will do; where a law needs more it says so.
    - `x`: inputs (M, n_0), one per row.

    **Returns:** `Fields`, in the dtype of the parameters. Cost: one forward and one backward pass;
    memory 4 M Σ n_ℓ numbers.

    >>> W = [np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> state = fields(fixed_readout(W), np.array([[2.0, 3.0]]))
    >>> state.v[0].tolist(), state.a[1].tolist(), state.b[0].tolist(), state.output.tolist()
    ([[2.0, -3.0]], [[1.0, 0.0]], [[1.0, 1.0]], [1.0])
    """
    network, params = model.network, model.params
    if network.widths[-1] != 1:
        allowed = "the fields of one output: `output_fields` has those of several"
        raise InvalidValueError("n_L of widths", network.widths[-1], allowed)
    if network.depth < 2:
        raise InvalidValueError("depth", network.depth, "at least one hidden layer needed")
    require_plain(network, "the laws of the fields")
    check_differentiable(network, 1, "a conjugate field")
    inputs = check_inputs(x, network.widths[0])
    passes = network_fields(network, params, inputs)
    N = network.widths[-2]
    state = Fields(
        jax.tree.map(np.asarray, model),
        u=passes.u,
        v=passes.z[:-1],
        a=passes.slopes,
        b=tuple(N * B[:, 0, :] for B in passes.B),
        output=passes.z[-1][:, 0],
    )
    check_finite(state)
    return state


def fixed_readout(
    weights: Matrices,
    activation: ActivationLike = "relu",
    *,
    biases: Matrices | None = None,
    readout: Readout = None,
) -> Model:
    """A network with one output from its hidden weight matrices, and a readout that is fixed.

    Gradient descent moves every weight (and bias, where given) with the same η (12), and the
    readout not at all: λ_W^(ℓ) = n_{ℓ-1}, and 0 for the last layer.

    **Arguments:**

    - `weights`: W^(ℓ) of shape (n_ℓ, n_{ℓ-1}) of the hidden layers, in order.
    - `activation`: a name, a callable or an `Activation`.
    - `biases`: those of the hidden layers; None for none.
    - `readout`: c, of shape (n_L,); without it c = 1 and Ŷ is the mean of the last layer (9).

    **Returns:** a `Model`.

    >>> model = fixed_readout([np.ones((4, 3)), np.ones((5, 4))], "relu")
    >>> model.network.widths, model.network.lambda_W, model.params[-1].W.tolist()
    ((3, 4, 5, 1), (3.0, 4.0, 0.0), [[0.2, 0.2, 0.2, 0.2, 0.2]])
    """
    hidden = Model.of_matrices(weights, activation, biases=biases)
    widths, dtype = hidden.network.widths, hidden.params[0].W.dtype
    N = widths[-1]
    c = np.ones(N) if readout is None else as_reals("readout", readout, 1)
    if c.shape != (N,):
        raise InvalidValueError("shape of readout", c.shape, f"expected ({N},)")
    network = Architecture(
        [*widths, 1],
        hidden.network.activation,
        lambda_b=[*hidden.network.lambda_b, 0.0],
        lambda_W=[*hidden.network.lambda_W, 0.0],
    )
    last = Layer(np.zeros(1, dtype), (c[None, :] / N).astype(dtype))  # pyright: ignore[reportArgumentType]
    return Model(network, (*hidden.params, last))


def check_fixed_readout(network: Architecture, what: str) -> None:
    """Refuse a network whose readout is trained: b_L would move, too."""
    if network.lambda_W[-1] != 0.0 or network.lambda_b[-1] != 0.0:
        rates = (network.lambda_b[-1], network.lambda_W[-1])
        allowed = f"{what} needs a fixed readout: both must be 0"
        raise InvalidValueError("lambda_b, lambda_W of the last layer", rates, allowed)


def check_piecewise_linear(network: Architecture, what: str) -> None:
    """Refuse an activation whose slopes change while its mask does not."""
    if not network.activation.is_scale_invariant:
        allowed = f"{what} needs σ(v) = σ'(v) v: linear, ReLU, leaky ReLU or abs"
        raise InvalidValueError("activation", network.activation.name, allowed)


def network_fields(network: Architecture, params: Params, x: np.ndarray) -> Any:
    """`Signals` of one forward pass and of a backward pass per output, as NumPy arrays."""
    return jax.tree.map(np.asarray, _signals(network, params, x))


@functools.partial(jax.jit, static_argnums=0)
def _signals(network: Architecture, params: Params, x: Array) -> Signals:
    return network_signals(network, params, x)


def check_finite(state: Fields) -> None:
    """Refuse fields with nan or infinities in them."""
    for name in ("v", "b"):
        for layer, values in enumerate(getattr(state, name), start=1):
            if not np.all(np.isfinite(values)):
                raise NonFiniteError(
                    f"the field {name} of layer {layer} is not finite: "
                    "the weights hold nan or are too large, as after training with too large an η"
                )
