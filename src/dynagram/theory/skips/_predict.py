"""K, Θ, V and G^{1} of a residual network in one call; the result names its vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.networks import ResidualMLP, check_inputs
from dynagram.results._regime import Judge, Regime
from dynagram.theory._recursions import written_out
from dynagram.theory.skips._flow import Vertex, checked_vertex
from dynagram.theory.skips._frozen import residual_kernels
from dynagram.theory.skips._vertex import residual_tensors

TENSORS = ("K", "Theta", "V", "G1")


@dataclass(frozen=True, eq=False)
class TensorTable:
    """Tensors by letter, layers first (index 0 ↔ ℓ = 1), samples in the printed order.

    K and Θ are exact at infinite width (order "∞"); the others are of order "1/n" and multiply
    1/n_{ℓ−1}. `errors` holds numerical standard errors of the order-1/n tensors, zero where the
    averages behind them are exact.
    """

    network: ResidualMLP
    values: dict[str, Float[np.ndarray, "layer ..."]]
    errors: dict[str, Float[np.ndarray, "layer ..."]]
    regime: Regime

    def __getitem__(self, name: str) -> Float[np.ndarray, "layer ..."]:
        if name not in self.values:
            have = ", ".join(self.values)
            raise InvalidValueError("tensor", name, f"this prediction holds {have}")
        return self.values[name]

    @staticmethod
    def order_of(name: str) -> str:
        """ "∞" or "1/n"."""
        return "∞" if name in ("K", "Theta") else "1/n"

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n_{ℓ−1} to order 1/n (4.104)."""
        return self["K"] + self["G1"] / self._fan_in

    @property
    def _fan_in(self) -> np.ndarray:
        return np.array([np.inf, *self.network.widths[1:-1]])[:, None, None]


@dataclass(frozen=True, eq=False)
class ResidualPrediction(TensorTable):
    """The tensors of a residual network by letter, layers first; V comes from `vertex`.

    See `TensorTable` for orders and errors.
    """

    network: ResidualMLP
    vertex: Vertex


def predict_residual(
    network: ResidualMLP,
    x: object,
    tensors: Sequence[str] = ("K", "V", "G1"),
    *,
    vertex: str = "corrected",
    accuracy: float = 1e-4,
    seed: int = 0,
) -> ResidualPrediction:
    """The requested `tensors` of every layer, some of K, Theta, V, G1, for the rows of `x`.

    `vertex="published"` is (B.25) as printed, which is wrong at leading order unless σ² is an even
    quadratic function (see docs/errata.md); the book has no G^{1} of residual networks. `accuracy`
    is the numerical error allowed, relative to a layer's largest entry; `seed` draws the nodes.
    One input is exact to rounding. Cost for several: 2¹⁴ to 2¹⁸ paths through all layers, a few
    tenths of a second for two inputs and five layers.

    >>> net = ResidualMLP.critical([1, 50, 50, 50, 50, 1], "relu", skip=0.5)
    >>> x = np.array([[1.0]])
    >>> for vertex in ("corrected", "published"):
    ...     predict_residual(net, x, ("V",), vertex=vertex)["V"].ravel().round(4)
    array([ 0.    , 14.25  , 34.4715, 57.5877, 91.3241])
    array([ 0.  , 14.25, 28.5 , 42.75, 62.75])
    """
    kept = checked_vertex(vertex)
    wanted = _checked(network, tensors, kept)
    inputs = check_inputs(x, network.widths[0])
    frozen = residual_kernels(network, inputs)
    found = {"K": frozen.K, "Theta": frozen.Theta}
    errors: dict[str, np.ndarray] = {}
    if {"V", "G1"}.intersection(wanted):
        first, inverse = find_distinct(inputs)
        K = frozen.K[:, first][:, :, first]
        made = residual_tensors(
            network, K, vertex=kept, metric="G1" in wanted, accuracy=accuracy, seed=seed
        )
        for name, modes in (("V", made.V), ("G1", made.G1)):
            if modes is not None and name in wanted:
                full = written_out(name, modes, inverse)
                found[name] = full[:, 0]
                errors[name] = np.sqrt(np.sum(full[:, 1:] ** 2, axis=1))
    asked = {name: found[name] for name in TENSORS if name in wanted}
    regime = _regime(network, frozen.K, asked, errors)
    return ResidualPrediction(network, asked, errors, regime, kept)


def _checked(network: ResidualMLP, tensors: Sequence[str], vertex: str) -> list[str]:
    names, sigma = list(tensors), network.activation
    unknown = [name for name in names if name not in TENSORS]
    if unknown or not names:
        allowed = f"of a residual network expected some of {', '.join(TENSORS)}"
        raise InvalidValueError("tensors", ",".join(names), allowed)
    if vertex == "published" and "G1" in names:
        allowed = (
            "the book has no G1 of residual networks: leave it out or use the corrected vertex"
        )
        raise InvalidValueError("tensors", ",".join(names), allowed)
    if sigma.jumps and set(names) - {"K"}:
        raise InvalidValueError(
            "tensors", ",".join(names), f"{sigma.name} jumps, so σ' is a delta: only K exists"
        )
    return names


def _regime(
    network: ResidualMLP,
    K: np.ndarray,
    tensors: dict[str, np.ndarray],
    errors: dict[str, np.ndarray],
) -> Regime:
    """Sizes of the 1/n effects at the output, and what they say about what is left out."""
    judge, last, n = Judge(), np.diagonal(K[-1]), network.widths[-2]
    judge.numbers["depth_over_width"] = float(sum(1.0 / width for width in network.widths[1:-1]))
    alive = np.diagonal(K[0]) > 0.0
    growth = np.log10(np.maximum(last[alive], 1e-290) / np.diagonal(K[0])[alive])
    judge.measure(
        "kernel_growth_decades", np.max(np.abs(growth), initial=0.0),
        0.18 * (network.depth - 1) + 2, np.inf,
        "off critical: the kernel changes by 10^{value:.1f}; ResidualMLP.critical keeps it",
    )  # fmt: skip
    if "V" in tensors and np.any(alive):
        vertex = np.einsum("aaaa->a", tensors["V"][-1])[alive]
        relative = float(np.max(vertex / (n * last[alive] ** 2)))
        judge.numbers["relative_variance"] = relative
        # Exactly scale-invariant networks have (e^{x} − 1): the next order is x/2 of this one.
        judge.measure(
            "next_order_of_V", 0.5 * relative, 0.1, 0.5,
            "the next order changes V by about {value:.2g} of itself at the output: the network "
            "is too deep for its width and skips; simulate, or widen it",
        )  # fmt: skip
    for name, error in errors.items():
        size = float(np.max(np.abs(tensors[name][-1])))
        judge.measure(
            f"numerical_error_of_{name}",
            float(np.max(error[-1])) / size if size > 0.0 else 0.0, 1e-2, np.inf,
            name + " carries a numerical error of {value:.1g} of itself",
        )  # fmt: skip
    if errors:
        return judge.regime("1/n", "the 1/n effects are small at this depth and width")
    return judge.regime(
        "∞", "infinite-width result; ask for V to see how large the 1/n effects are"
    )
