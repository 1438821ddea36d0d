"""The fields u, v, a, b of one network, from one forward and one backward pass (Nordio (6)-(10)).

L hidden layers carry v_ℓ = W^(ℓ) u_{ℓ-1}, u_ℓ = σ(v_ℓ) and a_ℓ = σ'(v_ℓ), for ReLU the mask
1(v_ℓ > 0); the output is Ŷ = (1/N) Σ_i c_i u_{L,i}, with N = n_L and a fixed readout c, in the
source c = 1. The conjugate field is b_L = c, b_ℓ = W^(ℓ+1)ᵀ(a_{ℓ+1} ⊙ b_{ℓ+1}) (151), (157): N
times the derivative of Ŷ with respect to u_ℓ. Numbers are those of arXiv:2606.09744v3.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Layer, Params, check_inputs
from dynagram.observables.tangents._signals import Signals, check_differentiable, signals

# At run time the arguments are validated by hand, with clearer messages.
if TYPE_CHECKING:
    Matrices = Sequence[np.ndarray | Array]
    Readout = np.ndarray | Array | Sequence[float] | None
else:
    Matrices = Readout = object


class Network(NamedTuple):
    """A specification and its parameters: what `fields` and the laws take as two arguments."""

    network: MLP
    params: Params


@dataclass(frozen=True, eq=False)
class Fields:
    """The fields of M samples. `u[ℓ]` holds u_ℓ, ℓ = 0..L; `v`, `a`, `b` hold ℓ = 1..L at ℓ-1.

    Each array is (M, n_ℓ); `output` is Ŷ, of shape (M,).
    """

    network: MLP
    params: Params
    u: tuple[Float[np.ndarray, "samples _"], ...]
    v: tuple[Float[np.ndarray, "samples _"], ...]
    a: tuple[Float[np.ndarray, "samples _"], ...]
    b: tuple[Float[np.ndarray, "samples _"], ...]
    output: Float[np.ndarray, " samples"]

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
        return np.asarray(self.params[layer - 1].W)

    def rate(self, layer: int) -> float:
        """λ_W/n_{ℓ-1}, what η is multiplied by for the weights of layer ℓ; 1 in the source."""
        return self.network.lambda_W[layer - 1] / self.network.widths[layer - 1]


@float64
def fields(network: MLP, params: Params, x: object) -> Fields:
    """The fields of a network with one output on the rows of `x`, in the params' dtype.

    The last layer of `network` is the readout: c = N W^(L+1). `fixed_readout` makes network and
    params from a list of matrices. Any activation without jumps will do; where a law needs more
    it says so. Cost: one forward and one backward pass; memory 4 M Σ n_ℓ numbers.

    >>> W = [np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([[1.0, 1.0], [-1.0, 2.0]])]
    >>> found = fields(*fixed_readout(W), np.array([[2.0, 3.0]]))
    >>> found.v[0].tolist(), found.a[1].tolist(), found.b[0].tolist(), found.output.tolist()
    ([[2.0, -3.0]], [[1.0, 0.0]], [[1.0, 1.0]], [1.0])
    """
    if network.widths[-1] != 1:
        allowed = "the fields are those of one output: keep one row of the last layer"
        raise InvalidValueError("n_L of widths", network.widths[-1], allowed)
    if network.depth < 2:
        raise InvalidValueError("depth", network.depth, "at least one hidden layer needed")
    check_differentiable(network, 1, "a conjugate field")
    inputs = check_inputs(x, network.widths[0])
    found = jax.tree.map(np.asarray, _signals(network, params, inputs))
    N = network.widths[-2]
    state = Fields(
        network,
        tuple(Layer(np.asarray(layer.b), np.asarray(layer.W)) for layer in params),  # pyright: ignore[reportArgumentType]
        u=found.u,
        v=found.z[:-1],
        a=found.slopes,
        b=tuple(N * B[:, 0, :] for B in found.B),
        output=found.z[-1][:, 0],
    )
    _check_finite(state)
    return state


def fixed_readout(
    weights: Matrices,
    activation: object = "relu",
    *,
    biases: Matrices | None = None,
    readout: Readout = None,
) -> Network:
    """A network from its hidden weight matrices W^(ℓ) (n_ℓ, n_{ℓ-1}), and a readout that is fixed.

    `readout` is c, of shape (n_L,); without it c = 1 and Ŷ is the mean of the last layer (9).
    Gradient descent moves every weight (and bias, where given) with the same η (12): in the
    convention of `MLP`, λ_W^(ℓ) = n_{ℓ-1}, and 0 for the readout. C_W and C_b are of no use here.

    >>> network, params = fixed_readout([np.ones((4, 3)), np.ones((5, 4))], "relu")
    >>> network.widths, network.lambda_W, params[-1].W.tolist()
    ((3, 4, 5, 1), (3.0, 4.0, 0.0), [[0.2, 0.2, 0.2, 0.2, 0.2]])
    """
    matrices = [_matrix(f"weights[{i}]", W, 2) for i, W in enumerate(_listed("weights", weights))]
    if not matrices:
        raise InvalidValueError("weights", [], "at least one matrix needed")
    shapes = [W.shape for W in matrices]
    for index, (below, above) in enumerate(itertools.pairwise(shapes), start=1):
        if above[1] != below[0]:
            allowed = f"expected (…, {below[0]}): weights[{index - 1}] gives {below[0]} numbers"
            raise InvalidValueError(f"shape of weights[{index}]", above, allowed)
    trained = biases is not None
    offsets = _biases(biases, shapes) if trained else [np.zeros(n) for n, _ in shapes]
    N = shapes[-1][0]
    c = np.ones(N) if readout is None else _matrix("readout", readout, 1)
    if c.shape != (N,):
        raise InvalidValueError("shape of readout", c.shape, f"expected ({N},)")
    widths = [shapes[0][1], *(n for n, _ in shapes), 1]
    network = MLP(
        widths,
        activation,  # pyright: ignore[reportArgumentType]
        C_b=0.0,
        C_W=1.0,
        lambda_b=[*[float(trained)] * len(shapes), 0.0],
        lambda_W=[*map(float, widths[:-2]), 0.0],
    )
    dtype = np.result_type(*matrices)
    layers = [*zip(offsets, matrices, strict=True), (np.zeros(1), c[None, :] / N)]
    params = tuple(Layer(b.astype(dtype), W.astype(dtype)) for b, W in layers)  # pyright: ignore[reportArgumentType]
    return Network(network, params)


def check_fixed_readout(network: MLP, what: str) -> None:
    """Refuse a network whose readout is trained: b_L would move, too."""
    if network.lambda_W[-1] != 0.0 or network.lambda_b[-1] != 0.0:
        rates = (network.lambda_b[-1], network.lambda_W[-1])
        allowed = f"{what} needs a fixed readout: both must be 0"
        raise InvalidValueError("lambda_b, lambda_W of the last layer", rates, allowed)


def check_piecewise_linear(network: MLP, what: str) -> None:
    """Refuse an activation whose slopes change while its mask does not."""
    if not network.activation.is_scale_invariant:
        allowed = f"{what} needs σ(v) = σ'(v) v: linear, ReLU, leaky ReLU or abs"
        raise InvalidValueError("activation", network.activation.name, allowed)


@functools.partial(jax.jit, static_argnums=0)
def _signals(network: MLP, params: Params, x: Array) -> Signals:
    return signals(network, params, x)


def _check_finite(state: Fields) -> None:
    for name in ("v", "b"):
        for layer, values in enumerate(getattr(state, name), start=1):
            if not np.all(np.isfinite(values)):
                raise NonFiniteError(
                    f"the field {name} of layer {layer} is not finite: "
                    "the weights hold nan or are too large, as after training with too large an η"
                )


def _listed(name: str, values: object) -> list[object]:
    if not isinstance(values, list | tuple):
        raise InvalidTypeError(name, type(values).__name__, "expected a list of arrays")
    return list(values)


def _matrix(name: str, values: object, rank: int) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(name, type(values).__name__, "expected an array of real numbers")
    if array.ndim != rank or array.size == 0:
        allowed = "expected (n_out, n_in)" if rank == 2 else "expected a vector"
        raise InvalidValueError(f"shape of {name}", array.shape, allowed)
    if not np.all(np.isfinite(array)):
        raise InvalidValueError(name, "nan or inf", "every entry must be finite")
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _biases(biases: object, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    listed = _listed("biases", biases)
    if len(listed) != len(shapes):
        raise InvalidValueError("number of biases", len(listed), f"expected {len(shapes)}")
    found = [_matrix(f"biases[{i}]", b, 1) for i, b in enumerate(listed)]
    for index, (b, shape) in enumerate(zip(found, shapes, strict=True)):
        if b.shape != shape[:1]:
            allowed = f"expected ({shape[0]},)"
            raise InvalidValueError(f"shape of biases[{index}]", b.shape, allowed)
    return found
