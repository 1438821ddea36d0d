"""`Tensors`: a network's tensors by letter, predicted or measured, with errors and a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Network
from dynagram.networks._network import network_from_toml
from dynagram.results._estimate import Estimate
from dynagram.results._letters import LETTERS
from dynagram.results._regime import Regime
from dynagram.results._result import Result, require_xarray
from dynagram.results._table import Grid
from dynagram.results._tensors_table import diagonal, tensors_grid

if TYPE_CHECKING:
    import xarray
else:
    xarray = object  # imported when it is needed

# A measured mean holds all orders: its prediction is completed by the 1/n term where there is one.
CORRECTIONS = {"K": "G1", "Theta": "H1"}
_BOOK = "Roberts, Yaida, Hanin, The Principles of Deep Learning Theory, arXiv:2106.10165"


@dataclass(frozen=True, eq=False, repr=False)
class Tensors(Result):
    """Tensors by letter: `tensors["V"][layer, a, b, c, d]`, layers first, samples as printed.

    `order` is "∞" or "1/n" for a prediction and "measured" for an ensemble of `members` networks,
    which holds all orders in 1/n. Tensors of order 1/n multiply 1/n_{ℓ−1}. `errors` are numerical
    (prediction) or standard errors (ensemble); a letter without errors is exact. `layers` gives ℓ
    of every letter's first axis: ensembles measure some letters in the output layer only. Where
    outputs stand at several positions, sample axes run over (sample, position).

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 8, 1], "linear", C_b=0.0, C_W=1.0)
    >>> K = np.ones((2, 1, 1))
    >>> T = Tensors(net, np.ones((1, 2)), "∞", {"K": K}, {}, {"K": (1, 2)}, None)
    >>> T
    Tensors(K; order ∞; 1 sample; MLP((2, 8, 1), 'linear', …))
    >>> T["K"].ravel()
    array([1., 1.])
    """

    kind = "tensors"

    network: Network
    x: Float[np.ndarray, "samples n_0"]
    order: str
    values: Mapping[str, Float[np.ndarray, "layer ..."]]
    errors: Mapping[str, Float[np.ndarray, "layer ..."]]
    layers: Mapping[str, tuple[int, ...]]
    regime: Regime | None
    members: int | None = None
    seed: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Float[np.ndarray, "layer ..."]:
        """The tensor called `name`."""
        if name not in self.values:
            have = ", ".join(self.values)
            raise InvalidValueError("tensor", name, f"this result holds {have}")
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def error(self, name: str) -> Float[np.ndarray, "layer ..."]:
        """The errors of a tensor, zero where its numbers are exact."""
        return self.errors.get(name, np.zeros_like(self[name]))

    def estimate(self, name: str) -> Estimate:
        """A tensor with its errors."""
        return Estimate(self[name], self.error(name), self.members or 0)

    def order_of(self, name: str) -> str:
        """ "∞", "1/n" or "measured"."""
        return self.order if self.order == "measured" else LETTERS[name].order

    def fan_in(self, name: str) -> Float[np.ndarray, "layer ..."]:
        """n_{ℓ−1} of a tensor's layers, ∞ for ℓ = 1, shaped to divide its array."""
        fan_in = self.network.fan_in
        n = np.array([np.inf if layer == 1 else fan_in(layer) for layer in self.layers[name]])
        return n.reshape(-1, *[1] * (self[name].ndim - 1))

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b]: K + G^{1}/n_{ℓ−1} to order 1/n (4.104), or as measured."""
        return self._at_this_width("K")

    @property
    def mean_ntk(self) -> Float[np.ndarray, "layer a b"]:
        """E[H_ab]: Θ + H^{1}/n_{ℓ−1} to order 1/n (9.3), or as measured."""
        return self._at_this_width("Theta")

    def _at_this_width(self, name: str) -> np.ndarray:
        if self.order != "measured":
            _ = self[CORRECTIONS[name]]  # refused where the 1/n term was not asked for
        return self.completed(name)[1]

    def completed(self, name: str) -> tuple[str, np.ndarray, np.ndarray]:
        """Label, value and error of a letter at this width: K + G1/n and Θ + H1/n where known."""
        extra = CORRECTIONS.get(name)
        if self.order == "measured" or extra is None or extra not in self.values:
            return name, self[name], self.error(name)
        if self.layers[extra] != self.layers[name]:
            return name, self[name], self.error(name)
        n = self.fan_in(name)
        return f"{name} + {extra}/n", self[name] + self[extra] / n, self.error(extra) / n

    def diagonals(self) -> dict[str, Float[np.ndarray, "layer sample"]]:
        """Each tensor with all samples equal, shape (layer, sample)."""
        return {name: diagonal(values) for name, values in self.values.items()}

    def select(self, samples: Sequence[int]) -> Tensors:
        """The same result for some of the samples, in the order given.

        >>> from dynagram.networks import MLP
        >>> net, K = MLP([2, 8, 1], "linear", C_b=0.0, C_W=1.0), np.arange(8.0).reshape(2, 2, 2)
        >>> T = Tensors(net, np.eye(2), "∞", {"K": K}, {}, {"K": (1, 2)}, None)
        >>> T.select([1])["K"].ravel()
        array([3., 7.])
        """
        index = np.asarray(samples, dtype=np.intp)
        if index.ndim != 1 or index.size == 0 or np.any((index < 0) | (index >= len(self.x))):
            allowed = f"expected some of 0 to {len(self.x) - 1}"
            raise InvalidValueError("samples", list(samples), allowed)

        positions = self.network.positions
        places = (index[:, None] * positions + np.arange(positions)).reshape(-1)

        def cut(values: np.ndarray) -> np.ndarray:
            for axis in range(1, values.ndim):
                values = np.take(values, places, axis=axis)
            return values

        values = {name: cut(array) for name, array in self.values.items()}
        errors = {name: cut(array) for name, array in self.errors.items()}
        return dataclasses.replace(self, x=self.x[index], values=values, errors=errors)

    @property
    def references(self) -> tuple[str, ...]:
        """The book and the equations of the letters."""
        equations = (f"{name}: {LETTERS[name].plain}, {LETTERS[name].equation}" for name in self)
        return (_BOOK, *equations)

    def summary(self) -> Grid:
        """Diagonal entries of every layer, averaged over samples, as effects: divided by n."""
        return tensors_grid(self)

    def to_dict(self) -> dict[str, Any]:
        """Network, order, `tensors` with layers, order, values and errors, regime."""
        return self._described() | {"tensors": self._entries(np.asarray)}

    def brief(self) -> dict[str, Any]:
        """`to_dict` with `diagonals`, (layer, sample), in place of whole tensors."""
        return self._described() | {"diagonals": self._entries(diagonal)}

    def _described(self) -> dict[str, Any]:
        return {
            "network": self.network.to_toml(),
            "order": self.order,
            "members": self.members,
            "seed": self.seed,
            **self.about,
            "samples": self.x.shape[0],
            "regime": None if self.regime is None else self.regime.to_dict(),
        }

    def _entries(self, cut: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
        return {
            name: {
                "layers": list(self.layers[name]),
                "order": self.order_of(name),
                "value": cut(values),
                "error": cut(self.errors[name]) if name in self.errors else None,
            }
            for name, values in self.values.items()
        }

    def to_xarray(self) -> xarray.Dataset:
        """Every letter as a variable, `<letter>_error` beside it; layers not known are NaN."""
        xr = require_xarray()
        parts = []
        for name, values in self.values.items():
            dims = ("layer", *LETTERS[name].axes)
            data = {name: (dims, values), f"{name}_error": (dims, self.error(name))}
            parts.append(xr.Dataset(data, coords={"layer": list(self.layers[name])}))
        whole = xr.merge(parts, join="outer", compat="no_conflicts")
        return whole.assign_attrs(network=self.network.to_toml(), order=self.order)

    def plot(self) -> Any:
        """The flow of the tensors through the layers, as an altair chart (extra `report`)."""
        from dynagram.report._tensor_charts import tensor_flow

        return tensor_flow(self)

    def _arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"x": self.x}
        for name, values in self.values.items():
            arrays[name] = values
            arrays[f"layers_{name}"] = np.array(self.layers[name])
        return arrays | {f"{name}_error": values for name, values in self.errors.items()}

    def _about(self) -> dict[str, Any]:
        regime = None if self.regime is None else self.regime.to_dict()
        return {
            "network": self.network.to_toml(),
            "order": self.order,
            "regime": regime,
            "members": self.members,
            "seed": self.seed,
            "about": dict(self.about),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any], path: str | Path
    ) -> Tensors:
        """What `save` wrote, checked."""
        try:
            network, x = network_from_toml(about["network"]), arrays["x"]
            names = [name for name in LETTERS if name in arrays]
            layers = {name: tuple(int(n) for n in arrays[f"layers_{name}"]) for name in names}
            if not names:
                raise ValueError("no tensor in it")
            regime = about["regime"]
            judged = None if regime is None else read_regime(about["order"], regime)
        except (KeyError, TypeError, ValueError) as error:
            message = f"not a result saved by dynagram: {error}"
            raise InvalidValueError("file", str(path), message) from error
        errors = {n: arrays[f"{n}_error"] for n in names if f"{n}_error" in arrays}
        for name in names:
            _check_shapes(name, network, x, layers[name], arrays[name], errors.get(name))
        values = {name: arrays[name] for name in names}
        return cls(
            network, x, about["order"], values, errors, layers, judged, about.get("members"),
            about.get("seed"), about.get("about", {}),
        )  # fmt: skip

    def __repr__(self) -> str:
        samples = f"{self.x.shape[0]} sample{'' if self.x.shape[0] == 1 else 's'}"
        of = "" if self.members is None else f"{self.members} networks; "
        verdict = "" if self.regime is None else f"{self.regime.verdict}; "
        letters, network = ", ".join(self.values), self.network.summary
        return f"Tensors({letters}; order {self.order}; {of}{samples}; {verdict}{network})"


def read_regime(order: str, stored: Mapping[str, Any]) -> Regime:
    """A regime from its dictionary."""
    numbers = {name: np.nan if v is None else float(v) for name, v in stored["numbers"].items()}
    return Regime(order, stored["verdict"], tuple(stored["reasons"]), numbers)


def _check_shapes(
    name: str,
    network: Network,
    x: np.ndarray,
    layers: tuple[int, ...],
    value: np.ndarray,
    error: np.ndarray | None,
) -> None:
    if any(not 1 <= layer <= network.depth for layer in layers):
        raise InvalidValueError(f"layers_{name}", layers, f"expected 1 to {network.depth}")
    indices = x.shape[0] * network.positions
    expected = (len(layers), *[indices] * len(LETTERS[name].axes))
    for array in (value, value if error is None else error):
        if array.shape != expected:
            raise InvalidValueError(f"shape of {name}", array.shape, f"expected {expected}")
