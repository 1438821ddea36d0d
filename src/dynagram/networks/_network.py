"""What every architecture offers: the protocol that predict, simulate, train and files rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dynagram._toml import read_toml
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks._mlp import MLP
from dynagram.networks._model import Model


@runtime_checkable
class Network(Protocol):
    """A specification of networks: architecture, initialisation, learning rates.

    Frozen, hashable, validated when made, written to TOML and read back exactly. `width` is what
    the finite-width tensors of the output are divided by, `positions` how many outputs of the same
    kind a sample has (the tokens of a sequence), output_size = positions × outputs. `rates` are
    those of the parameters, a pytree of numbers like that of `draw`. `draw` makes parameters, any
    pytree, and `apply` maps them and inputs, samples first, to outputs (samples, output_size); both
    are traceable. What a theory predicts depends on the class: an entrance that cannot take one
    says so in one line.
    """

    @property
    def depth(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    @property
    def positions(self) -> int: ...

    @property
    def summary(self) -> str: ...

    @property
    def number_of_parameters(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    def activations(self) -> tuple[Activation, ...]: ...

    @property
    def depth_over_width(self) -> float: ...

    @property
    def neurons(self) -> int: ...

    @property
    def has_skips(self) -> bool: ...

    def fan_in(self, layer: int) -> int: ...

    def with_fixed(self, layers: Sequence[int]) -> Network: ...

    def rates(self) -> Any: ...

    def draw(self, key: Array, dtype: DTypeLike | None = None) -> Any: ...

    def init(self, seed: int | Array = 0, *, dtype: DTypeLike | None = None) -> Model: ...

    def apply(self, params: Any, x: ArrayLike) -> Float[Array, "samples outputs"]: ...

    def output_metric(self, params: Any, x: ArrayLike) -> Float[Array, "indices indices"]: ...

    def to_toml(self) -> str: ...


# The classes that a [network] table may name by its key `kind`; the first is the default.
_KINDS: dict[str, Any] = {"mlp": MLP, "chain": Chain}


def network_from_toml(text: str) -> Any:
    """The network of a `[network]` table.

    **Arguments:**

    - `text`: TOML with the table `[network]`; its key `kind` says which class, "mlp" by default.

    **Returns:** the network.

    >>> network_from_toml('[network]\\nwidths = [2, 1]\\nactivation = "relu"\\nC_b = 0\\nC_W = 2')
    MLP((2, 1), 'relu', C_b=0.0, C_W=2.0, lambda_b=1.0, lambda_W=1.0)
    """
    table = read_toml(text).get("network")
    kind = table.get("kind", "mlp") if isinstance(table, dict) else "mlp"
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidValueError("[network] kind", kind, f"expected one of {', '.join(_KINDS)}")
    return _KINDS[kind].from_toml(text)
