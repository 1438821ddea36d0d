"""A concrete network: a specification or architecture together with its weights."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram._precision import own_precision
from dynagram.data._data import as_numpy
from dynagram.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    from dynagram.networks._checks import ActivationLike, PerLayer
    from dynagram.networks._layers import Architecture, Params

    Matrices = Sequence[np.ndarray | Array]
    Biases = Sequence[np.ndarray | Array | None] | None
else:
    # checked by hand, with clearer messages
    Architecture = Params = Matrices = Biases = ActivationLike = PerLayer = Any


P = ParamSpec("P")
T = TypeVar("T")


class Model(eqx.Module):
    """One network with its weights: drawn by `MLP.init`, loaded by `load_weights`, or trained.

    A pytree whose leaves are the parameters: `jax.jit`, `jax.grad` and `jax.vmap` go through it.

    **Arguments:**

    - `network`: the `MLP` it was drawn from, or the `Architecture` of weights whose initialisation
        is not known.
    - `params`: one layer (b, W) for each ℓ = 1..L.
    - `names`: what the weight matrices are called where they come from; empty for no names.
    - `notes`: what had to be guessed when the weights were read.

    >>> from dynagram.networks import MLP
    >>> import jax.numpy as jnp
    >>> model = MLP([2, 3, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=1)
    >>> model
    Model(MLP((2, 3, 1), 'tanh', C_b=0.0, C_W=1.0, lambda_b=1.0, lambda_W=1.0), 13 parameters)
    >>> model(jnp.zeros((4, 2))).shape
    (4, 1)
    """

    network: Architecture = eqx.field(static=True)
    params: Params
    names: tuple[str, ...] = eqx.field(static=True, default=())
    notes: tuple[str, ...] = eqx.field(static=True, default=())

    @classmethod
    def of_matrices(
        cls,
        weights: Matrices,
        activation: ActivationLike,
        *,
        biases: Biases = None,
        skip: PerLayer = 0.0,
        names: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Model:
        """A network made of weight matrices in order; every parameter has the learning rate 1.

        **Arguments:**

        - `weights`: W^(ℓ) of shape (n_ℓ, n_{ℓ-1}), ℓ = 1..L.
        - `activation`: σ of the hidden layers, a name, a callable or an `Activation`.
        - `biases`: b^(ℓ) of shape (n_ℓ,), or None for a layer without; None for no biases at all.
            What is not there is zero and does not learn (λ_b = 0).
        - `skip`: γ of the blocks ℓ = 2..L−1, as for an `MLP`.
        - `names`, `notes`: as for `Model`.

        **Returns:** a `Model` of NumPy arrays, float32 if all matrices are, else float64.

        >>> model = Model.of_matrices([np.ones((3, 2)), np.ones((1, 3))], "relu")
        >>> model.network
        Architecture((2, 3, 1), 'relu', lambda_b=0.0, lambda_W=[2.0, 3.0])
        >>> model(np.array([[1.0, 1.0]])).tolist()
        [[6.0]]
        """
        from dynagram.networks._layers import Architecture, Layer

        listed = enumerate(_listed("weights", weights))
        matrices = [as_reals(f"weights[{index}]", W, 2) for index, W in listed]
        if not matrices:
            raise InvalidValueError("weights", [], "at least one matrix needed")
        for index, (below, above) in enumerate(itertools.pairwise(matrices), start=1):
            if above.shape[1] != below.shape[0]:
                size = below.shape[0]
                allowed = f"expected (…, {size}): weights[{index - 1}] gives {size} numbers"
                raise InvalidValueError(f"shape of weights[{index}]", above.shape, allowed)
        vectors = _biases(biases, [W.shape[0] for W in matrices])
        network = Architecture(
            [matrices[0].shape[1], *(W.shape[0] for W in matrices)],
            activation,
            skip=skip,
            lambda_b=[float(b is not None) for b in vectors],
        )
        dtype, layers = np.result_type(*matrices), []
        for W, vector in zip(matrices, vectors, strict=True):
            b = np.zeros(len(W), dtype) if vector is None else vector.astype(dtype)
            layers.append(Layer(b, np.ascontiguousarray(W, dtype)))  # pyright: ignore[reportArgumentType]
        return cls(network, tuple(layers), tuple(names), tuple(notes))

    @classmethod
    def of(cls, model: Any, x: Any = None, *, params: Any = None) -> Model:
        """A live model of PyTorch, JAX or equinox as one of ours, found by tracing it.

        What is read is verified: the result gives the outputs of the model, or the model is refused
        in one line that says why. Weights used twice, norms with trained gains, batch norms, max
        pooling and biases in attention are refused; `dynagram.check` measures those all the same.

        **Arguments:**

        - `model`: a `torch.nn.Module`, a function of (params, x) in JAX, or a module of equinox or
            flax.
        - `x`: a batch as the model takes it; not needed where the first layer of a PyTorch module
            is linear or an embedding.
        - `params`: the parameters of a JAX function, or the variables of a linen module of flax.

        **Returns:** a `Model` in float64: of an `Architecture` where it is an MLP, with or without
        skips, else of a `Chain`.

        >>> import jax.numpy as jnp
        >>> params = {"first": np.ones((2, 3)), "last": np.ones((3, 1))}
        >>> net = lambda p, x: jnp.tanh(x @ p["first"]) @ p["last"]
        >>> Model.of(net, np.random.default_rng(0).normal(size=(5, 2)), params=params).network
        Architecture((2, 3, 1), 'tanh', lambda_b=0.0, lambda_W=[2.0, 3.0])
        """
        from dynagram.live._models import model_of

        return model_of(model, x, params=params)

    @own_precision
    def __call__(self, x: ArrayLike) -> Float[Array, "samples n_L"]:
        """The outputs z^(L), (N, n_L), for the samples in the rows of `x` (N, n_0)."""
        return self.network.apply(self.params, x)

    @own_precision
    def preactivations(self, x: ArrayLike) -> tuple[Float[Array, "samples _"], ...]:
        """z^(1), …, z^(L) for the samples in the rows of `x`."""
        return self.network.preactivations(self.params, x)

    def in_float64(self) -> Model:
        """The same network, its parameters as NumPy arrays of float64."""
        return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), self)

    def with_params(self, params: Params) -> Model:
        """The same network with other parameters."""
        return Model(self.network, params, self.names, self.notes)

    def name_of(self, layer: int) -> str:
        """What the weight matrix of layer ℓ = 1..L is called."""
        return self.names[layer - 1] if self.names else f"layer {layer}"

    def __repr__(self) -> str:
        return f"Model({self.network}, {self.network.number_of_parameters} parameters)"


def takes_model(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Model, P], T]:
    """For a function of a `Model`: refuse anything else; run in the precision of its weights."""
    precise = own_precision(function)

    @functools.wraps(function)
    def wrapped(model: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        if not isinstance(model, Model):
            allowed = (
                "expected a Model: network.init(seed), load_weights(path, activation), or of a "
                "module of PyTorch or JAX Model.of(module, x)"
            )
            raise InvalidTypeError("model", type(model).__name__, allowed)
        return precise(model, *args, **kwargs)

    return wrapped


def _listed(name: str, values: object) -> list[object]:
    if not isinstance(values, list | tuple):
        raise InvalidTypeError(name, type(values).__name__, "expected a list of arrays")
    return list(values)


def as_reals(name: str, values: object, rank: int) -> np.ndarray:
    """`values` as an array of this rank, float32 or float64, refused when not finite."""
    array = as_numpy(values)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(name, type(values).__name__, "expected an array of real numbers")
    if array.ndim != rank or array.size == 0:
        allowed = "expected (n_out, n_in)" if rank == 2 else "expected a vector"
        raise InvalidValueError(f"shape of {name}", array.shape, allowed)
    if not np.all(np.isfinite(array)):
        raise InvalidValueError(name, "nan or inf", "every entry must be finite")
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _biases(biases: object, sizes: Sequence[int]) -> list[np.ndarray | None]:
    if biases is None:
        return [None] * len(sizes)
    listed = _listed("biases", biases)
    if len(listed) != len(sizes):
        raise InvalidValueError("number of biases", len(listed), f"expected {len(sizes)}")
    vectors = [None if b is None else as_reals(f"biases[{i}]", b, 1) for i, b in enumerate(listed)]
    for index, (vector, size) in enumerate(zip(vectors, sizes, strict=True)):
        if vector is not None and vector.shape != (size,):
            allowed = f"expected ({size},)"
            raise InvalidValueError(f"shape of biases[{index}]", vector.shape, allowed)
    return vectors
