"""One network near its parameters: outputs, J v and Jᵀu, without forming J = ∂z/∂θ.

With z^(ℓ) = b + W h^(ℓ−1) + γ z^(ℓ−1), h = σ(z), a change (δb, δW) of the parameters moves

    δz^(ℓ) = δb + δW h^(ℓ−1) + (W σ'^(ℓ−1) + γ) δz^(ℓ−1),

and the transpose goes the same way back. Plain NumPy: a handful of matrix products a layer, and
nothing to compile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram.networks import Model

# (b, W) of every layer, in the shapes of the parameters.
Change = list[tuple[Float[np.ndarray, " _"], Float[np.ndarray, "_ _"]]]


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A network at its parameters on some inputs; every layer's in units of √`factors`.

    `preactivations` and `signals`: z^(ℓ) and what enters layer ℓ; `slopes`: σ'(z^(ℓ)); `roots`:
    the units of biases and of weights.
    """

    preactivations: list[Float[np.ndarray, "samples _"]]
    signals: list[Float[np.ndarray, "samples _"]]
    slopes: list[Float[np.ndarray, "samples _"]]
    weights: list[Float[np.ndarray, "_ _"]]
    skips: tuple[float, ...]
    roots: list[tuple[float, float]]

    @property
    def outputs(self) -> Float[np.ndarray, "samples n_L"]:
        """z^(L)."""
        return self.preactivations[-1]

    def push(self, change: Change) -> Float[np.ndarray, "samples n_L"]:
        """J v: how the outputs change."""
        moved = np.zeros(())
        for index, (b, W) in enumerate(change):
            b_root, W_root = self.roots[index]
            new = W_root * (self.signals[index] @ W.T) + b_root * b
            if index:
                new += (self.slopes[index - 1] * moved) @ self.weights[index].T
                if self.skips[index]:
                    new += self.skips[index] * moved
            moved = new
        return moved

    def pull(self, covector: Float[np.ndarray, "samples n_L"]) -> Change:
        """Jᵀ u: how outputs depend on the parameters, summed over `covector`."""
        change: Change = []
        for index in reversed(range(len(self.weights))):
            b_root, W_root = self.roots[index]
            slope = covector.T @ self.signals[index]
            change.append((b_root * covector.sum(axis=0), W_root * slope))
            if index:
                below = (covector @ self.weights[index]) * self.slopes[index - 1]
                if self.skips[index]:
                    below += self.skips[index] * covector
                covector = below
        return change[::-1]


def linearise(
    model: Model,
    x: Float[np.ndarray, "samples n_0"],
    factors: Float[np.ndarray, "2 L"] | None = None,
) -> Linearisation:
    """A network at its parameters on inputs.

    **Arguments:**

    - `model`: an MLP with its weights; their precision is kept.
    - `x`: inputs (N, n_0).
    - `factors`: of the biases and of the weights of every layer, which are taken in units of their
        roots. All 1 by default.

    **Returns:** `Linearisation`. Memory: three arrays of N numbers per unit.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "tanh", C_b=0.0, C_W=1.0).init(0)
    >>> here = linearise(model, np.ones((5, 2)))
    >>> u = np.ones((5, 1))
    >>> v = here.pull(u)
    >>> bool(np.isclose(sum(np.sum(part**2) for layer in v for part in layer),
    ...                 np.sum(u * here.push(v))))
    True
    """
    network, sigma = model.network, model.network.activation
    numbers = 3.0 * len(x) * sum(network.widths)
    require_memory("x", len(x), 8.0 * numbers, "give fewer inputs")
    pairs = [(np.asarray(layer.b), np.asarray(layer.W)) for layer in model.params]
    dtype = pairs[0][1].dtype
    signal, z = np.asarray(x, dtype), np.zeros(())
    preactivations, signals, slopes = [], [], []
    for (b, W), skip in zip(pairs, network.skip_of_layers, strict=True):
        signals.append(signal)
        z = signal @ W.T + b + (skip * z if skip else 0.0)
        preactivations.append(z)
        signal = sigma.values(z).astype(dtype)
        slopes.append(sigma.values(z, 1).astype(dtype))
    roots = np.ones((2, len(pairs))) if factors is None else np.sqrt(factors)
    skips, weights = network.skip_of_layers, [W for _, W in pairs]
    return Linearisation(
        preactivations, signals, slopes, weights, skips, list(zip(*roots.tolist(), strict=True))
    )
