"""The gradient flow of a network itself on a few samples, by the solver of the surrogate.

What the surrogate leaves out, the curvature of the activations, is in it; its cost is that of a
forward and a backward pass in place of a few products with k vectors. The forecast uses the ratio
of the two times. Derivation: docs/derivations/surrogate-flow.md (D4.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynagram.activations import Activation
from dynagram.theory.saddle._chain import Arrays, Chain, Movement
from dynagram.theory.saddle._surrogate import Flow, SurrogateEscape, follow
from dynagram.theory.saddle._tasks import SampleTask, output_gradient, output_loss


def network_escape(
    activation: Activation,
    loss: str,
    x: np.ndarray,
    y: np.ndarray,
    chain: Chain,
    levels: Sequence[float],
    *,
    rtol: float,
    slowness: float = 1.0,
) -> SurrogateEscape:
    """As `surrogate_escape`, with the activations as they are; `chain` has layers and rates.

    Cost: 10 to 50 steps of seven forward and backward passes over the samples. Memory: the
    activations of all layers, and ten copies of the weights.
    """
    flow = _NetworkFlow(_Samples(x, y, loss), chain, slowness, None, activation)
    return follow(flow, levels, rtol)


@dataclass(frozen=True, eq=False)
class _Samples(SampleTask):
    """The samples with any loss."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class _NetworkFlow(Flow):
    """dθ/dt = −ρ ∂(loss)/∂θ by a forward and a backward pass."""

    task: _Samples
    activation: Activation = None  # pyright: ignore[reportAssignmentType]

    @property
    def least(self) -> float:
        return 0.0

    def value(self, layers: Sequence[np.ndarray]) -> float:
        h = self.task.x
        for index, layer in enumerate(layers):
            z = h @ layer[:, :-1].T + layer[:, -1]
            h = self.activation.values(z) if index + 1 < len(layers) else z
        return output_loss(self.task.name, h, self.task.y)

    def velocity(self, layers: Sequence[np.ndarray], change: Movement | None = None) -> Arrays:
        if change is not None:
            layers = self.moved(layers, change)
        signals, slopes = [self.task.x], []
        for layer in layers[:-1]:
            z = signals[-1] @ layer[:, :-1].T + layer[:, -1]
            signals.append(self.activation.values(z))
            slopes.append(self.activation.values(z, 1))
        outputs = signals[-1] @ layers[-1][:, :-1].T + layers[-1][:, -1]
        back = output_gradient(self.task.name, outputs, self.task.y)
        back = (back - (1.0 - self.slowness) * back.mean(axis=0)) / len(back)
        result: list[np.ndarray] = []
        for index in range(len(layers) - 1, -1, -1):
            weights = -self.chain.rates[index] * (back.T @ signals[index])
            biases = -self.chain.bias_rates[index] * back.sum(axis=0)
            result.append(np.column_stack([weights, biases]))
            if index:
                back = (back @ layers[index][:, :-1]) * slopes[index - 1]
        return Arrays(result[::-1])

    def moved(self, layers: Sequence[np.ndarray], change: Movement) -> list[np.ndarray]:
        return [layer + part for layer, part in zip(layers, change, strict=True)]

    def combined(
        self, stages: Sequence[Movement], factors: Sequence[float], step: float
    ) -> Movement:
        used = [(step * c, stage) for c, stage in zip(factors, stages, strict=True) if c != 0.0]
        numbers = range(len(self.chain.weights))
        return Arrays(sum(c * stage[index] for c, stage in used) for index in numbers)  # pyright: ignore
