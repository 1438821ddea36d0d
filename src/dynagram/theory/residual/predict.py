"""K, Θ, V and G^{1} of a residual network in one call; the result names its vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import ResidualMLP, check_inputs
from dynagram.pairs import pair_numbers
from dynagram.theory.regime import Regime, Verdict
from dynagram.theory.residual.flow import Vertex, checked_vertex
from dynagram.theory.residual.frozen import residual_kernels
from dynagram.theory.residual.vertex import residual_tensors

TENSORS = ("K", "Theta", "V", "G1")
_INFINITE = ("K", "Theta")
_LEVELS: tuple[Verdict, ...] = ("trust", "careful", "do not use")


@dataclass(frozen=True, eq=False)
class ResidualPrediction:
    """Tensors by letter, layers first (index 0 ↔ ℓ = 1), samples in the printed order.

    K and Θ are exact at infinite width (order "∞"); V and G^{1} are of order "1/n" and multiply
    1/n_{ℓ−1}. `vertex` is the recursion V comes from. `errors` holds numerical standard errors.
    """

    network: ResidualMLP
    vertex: Vertex
    tensors: dict[str, Float[np.ndarray, "layer ..."]]
    errors: dict[str, Float[np.ndarray, "layer ..."]]
    regime: Regime

    def __getitem__(self, name: str) -> Float[np.ndarray, "layer ..."]:
        if name not in self.tensors:
            have = ", ".join(self.tensors)
            raise InvalidValueError("tensor", name, f"this prediction holds {have}")
        return self.tensors[name]

    @staticmethod
    def order(name: str) -> str:
        """ "∞" or "1/n"."""
        return "∞" if name in _INFINITE else "1/n"

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n_{ℓ−1} to order 1/n."""
        n = np.array([np.inf, *self.network.widths[1:-1]])[:, None, None]
        return self["K"] + self["G1"] / n


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
        _, first, inverse = np.unique(inputs, axis=0, return_index=True, return_inverse=True)
        K = frozen.K[:, first][:, :, first]
        made = residual_tensors(
            network, K, vertex=kept, metric="G1" in wanted, accuracy=accuracy, seed=seed
        )
        number = pair_numbers(first.size)[inverse.reshape(-1)][:, inverse.reshape(-1)]
        for name, modes in (("V", made.V), ("G1", made.G1)):
            if modes is None or name not in wanted:
                continue
            full = modes[..., number] if name == "G1" else modes[:, :, number][..., number]
            found[name] = full[:, 0]
            errors[name] = np.sqrt(np.sum(full[:, 1:] ** 2, axis=1))
    asked = {name: found[name] for name in TENSORS if name in wanted}
    regime = _regime(network, frozen.K, asked, errors)
    return ResidualPrediction(network, kept, asked, errors, regime)


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
    last, n = np.diagonal(K[-1]), network.widths[-2]
    alive = np.diagonal(K[0]) > 0.0
    growth = np.log10(np.maximum(last[alive], 1e-290) / np.diagonal(K[0])[alive])
    numbers = {
        "depth_over_width": float(sum(1.0 / width for width in network.widths[1:-1])),
        "kernel_growth_decades": float(np.max(np.abs(growth), initial=0.0)),
    }
    level, reasons = 0, []
    if numbers["kernel_growth_decades"] > 0.18 * (network.depth - 1) + 2:
        level = 1
        reasons.append(
            "off critical: the kernel changes by "
            f"10^{numbers['kernel_growth_decades']:.1f}; ResidualMLP.critical keeps it"
        )
    if "V" in tensors and np.any(alive):
        vertex = np.einsum("aaaa->a", tensors["V"][-1])[alive]
        numbers["relative_variance"] = float(np.max(vertex / (n * last[alive] ** 2)))
        # Exactly scale-invariant networks have (e^{x} − 1): the next order is x/2 of this one.
        follows = 0.5 * numbers["relative_variance"]
        level = max(level, 2 if follows > 0.5 else 1 if follows > 0.1 else 0)
        if follows > 0.1:
            reasons.append(
                f"the next order changes V by about {follows:.2g} of itself at the output: the "
                "network is too deep for its width and skips; simulate, or widen it"
            )
    for name, error in errors.items():
        size = float(np.max(np.abs(tensors[name][-1])))
        relative = float(np.max(error[-1])) / size if size > 0.0 else 0.0
        numbers[f"numerical_error_of_{name}"] = relative
        if relative > 1e-2:
            level = max(level, 1)
            reasons.append(f"{name} carries a numerical error of {relative:.1g} of itself")
    order = "1/n" if errors else "∞"
    good = {
        "∞": "infinite-width result; ask for V to see how large the 1/n effects are",
        "1/n": "the 1/n effects are small at this depth and width",
    }[order]
    return Regime(order, _LEVELS[level], tuple(reasons or [good]), numbers)
