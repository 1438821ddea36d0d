"""A network whose activations are straight lines: what the surrogate flow moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dynagram.networks import Model

Weights = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """A network whose activations are straight lines, h_l = a_l + g_l (W_l h_{l−1} + b_l).

    **Arguments:**

    - `weights`, `biases`: W_l, (n_l, n_{l−1}), and b_l, (n_l,), of all L layers.
    - `gains`, `offsets`: g_l and a_l, (n_l,), of the L−1 hidden layers.
    - `rates`, `bias_rates`: learning rates ρ_l of weights and biases relative to the common one.

    >>> chain = Chain.linear([np.eye(2), np.ones((1, 2))], gain=0.5)
    >>> chain.affine_map[0].tolist(), chain.learns_constants
    ([[0.5, 0.5]], False)
    """

    weights: Weights
    biases: Weights
    gains: Weights
    offsets: Weights
    rates: tuple[float, ...]
    bias_rates: tuple[float, ...]

    @classmethod
    def linear(
        cls,
        weights: Sequence[np.ndarray],
        *,
        gain: float = 1.0,
        rates: Sequence[float] | None = None,
    ) -> Chain:
        """Without biases and offsets; `gain` is the product of all slopes."""
        arrays = tuple(np.asarray(W, dtype=np.float64) for W in weights)
        ones = [np.ones(W.shape[0]) for W in arrays]
        return cls(
            arrays,
            tuple(0.0 * one for one in ones),
            tuple(gain * one if index == 0 else one for index, one in enumerate(ones[:-1])),
            tuple(0.0 * one for one in ones[:-1]),
            tuple([1.0] * len(arrays) if rates is None else rates),
            (0.0,) * len(arrays),
        )

    @property
    def is_affine(self) -> bool:
        """Whether a constant can come out."""
        parts = (*self.biases, *self.offsets)
        return any(self.bias_rates) or any(bool(np.any(part)) for part in parts)

    @property
    def learns_constants(self) -> bool:
        """Whether the output can change by a constant while all weights are small."""
        offsets = self.offsets[-1] if self.offsets else np.zeros(1)
        return self.bias_rates[-1] > 0.0 or (self.rates[-1] > 0.0 and bool(np.any(offsets)))

    @property
    def affine_map(self) -> tuple[np.ndarray, np.ndarray]:
        """P and c of the outputs Px + c."""
        return ahead(self, self.joined)[1:]

    @property
    def joined(self) -> list[np.ndarray]:
        """[W_l b_l] of every layer."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [np.column_stack([W, b]).astype(np.float64) for W, b in pairs]

    def with_layers(self, joined: Sequence[np.ndarray]) -> Chain:
        """The same chain with other [W_l b_l]."""
        weights = tuple(layer[:, :-1] for layer in joined)
        return replace(self, weights=weights, biases=tuple(layer[:, -1] for layer in joined))


def chain_of(model: Model, x: np.ndarray, rates: Sequence[tuple[float, float]]) -> Chain:
    """Every neuron's best straight line on the rows of `x`, E[σ'(z)] its slope (Stein's lemma).

    `rates` are those of biases and weights, layer by layer.
    """
    sigma, gains, offsets = model.network.activation, [], []
    for values in model.preactivations(x)[:-1]:
        z = np.asarray(values, dtype=np.float64)
        gains.append(sigma.values(z, 1).mean(axis=0))
        offsets.append(sigma.values(z).mean(axis=0) - gains[-1] * z.mean(axis=0))
    return Chain(
        tuple(np.asarray(layer.W) for layer in model.params),
        tuple(np.asarray(layer.b) for layer in model.params),
        tuple(gains),
        tuple(offsets),
        tuple(weight for _, weight in rates),
        tuple(bias for bias, _ in rates),
    )


class Change(NamedTuple):
    """left[l]ᵀ right[l] for every layer, with as many rows as the rank."""

    left: list[np.ndarray]
    right: list[np.ndarray]

    def sizes(self) -> list[float]:
        """Frobenius norms, from the small Gram matrices of the factors."""
        return [
            math.sqrt(max(float(np.sum((a @ a.T) * (b @ b.T))), 0.0))
            for a, b in zip(self.left, self.right, strict=True)
        ]


class Arrays(tuple[np.ndarray, ...]):
    """A change of every layer as an array of its shape."""

    def sizes(self) -> list[float]:
        """Frobenius norms."""
        return [float(np.linalg.norm(layer)) for layer in self]


Movement = Change | Arrays


def ahead(
    chain: Chain, layers: Sequence[np.ndarray], change: Change | None = None
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """A_l = ∂f/∂z_l of every layer, P and c, at the layers [W_l b_l] + `change`."""
    rows = np.eye(layers[-1].shape[0])
    above, constant = [rows], np.zeros(rows.shape[0])
    for index in range(len(layers) - 1, -1, -1):
        product = rows @ layers[index]
        if change is not None:
            product = product + (rows @ change.left[index].T) @ change.right[index]
        rows, constant = product[:, :-1], constant + product[:, -1]
        if index:
            constant = constant + rows @ chain.offsets[index - 1]
            rows = rows * chain.gains[index - 1]
            above.append(rows)
    return above[::-1], rows, constant
