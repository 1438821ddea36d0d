"""Predicted tensors by letter: layers first, with orders and errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._regime import Regime

INFINITE = ("K", "Theta")


@dataclass(frozen=True, eq=False)
class TensorTable:
    """Tensors by letter, layers first (index 0 ↔ ℓ = 1), samples in the printed order.

    K and Θ are exact at infinite width (order "∞"); the others are of order "1/n" and multiply
    1/n_{ℓ−1}. `errors` holds numerical standard errors of the order-1/n tensors, zero where the
    averages behind them are exact.
    """

    network: MLP
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
        return "∞" if name in INFINITE else "1/n"

    @property
    def metric(self) -> Float[np.ndarray, "layer a b"]:
        """E[z_a z_b] = K + G^{1}/n_{ℓ−1} to order 1/n (4.104)."""
        return self["K"] + self["G1"] / self._fan_in

    @property
    def _fan_in(self) -> np.ndarray:
        return np.array([np.inf, *self.network.widths[1:-1]])[:, None, None]
