"""What quantities share at one record: what is worked out once, what is remembered from before."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dynagram.watch._look import (
    Array,
    LayerLook,
    Look,
    as_matrix,
    some_columns,
    thinned,
    to_numpy,
)
from dynagram.watch._plateau_state import State, plateau_state

if TYPE_CHECKING:
    from dynagram.watch._drift_band import DriftBand
    from dynagram.watch._escape import Escape
else:
    DriftBand = Escape = object

# What keeps a record cheap: samples of a tangent kernel, numbers in their gradients, rows of a
# spectrum, columns of a Gram matrix.
KERNEL_SAMPLES = 8
_NUMBERS = 2**26
SPECTRUM_ROWS = 256
GRAM_COLUMNS = 128


@dataclass(eq=False)
class Memory:
    """What outlives a record: the beginning of the run, and the last record of every layer.

    **Arguments:**

    - `kernel`: the tangent kernel at the beginning.
    - `pushes`, `grams`: per layer, the push on its Gram matrix and that matrix, at the last record.
    - `imbalances`: per layer, its imbalance at the beginning.
    - `wander`: per layer, by how much steps of finite size may have moved it since.
    - `unbalanced`: layers whose imbalance is known not to be conserved by what trains them.
    - `updates`: per layer, the squared norm of the last update that was seen.
    - `steps`, `losses`: of all records.
    - `flow_time`: the time of gradient flow that the steps so far make; None where they are not
        those of gradient descent with a known rate.
    - `rate`: at the last record.
    - `drift`: what the kernel's drift is held against.
    - `escape`: the forecast of the present plateau.
    - `began`, `spent`: when the run began, and how many seconds forecasts have taken, or the first
        is reckoned to take where it has to wait.
    - `notes`: sentences for the next record.
    """

    kernel: np.ndarray | None = None
    pushes: dict[int, np.ndarray] = field(default_factory=dict)
    grams: dict[int, np.ndarray] = field(default_factory=dict)
    imbalances: dict[int, float] = field(default_factory=dict)
    wander: dict[int, float] = field(default_factory=dict)
    unbalanced: set[int] = field(default_factory=set)
    updates: dict[int, float] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    flow_time: float | None = 0.0
    rate: float | None = None
    drift: DriftBand | None = None
    escape: Escape | None = None
    began: float = field(default_factory=time.perf_counter)
    spent: float = 0.0
    notes: list[str] = field(default_factory=list)

    def advance(self, look: Look, since: int) -> None:
        """Add some steps to the time of gradient flow: η/(1 − β) each, η changing evenly."""
        if since and self.flow_time is not None:
            if look.eta is None or look.momentum is None or look.weight_decay != 0.0:
                self.flow_time = None
            else:
                before = look.eta if self.rate is None else self.rate
                self.flow_time += since * (look.eta + before) / 2 / (1.0 - look.momentum)
        self.rate = look.eta


class Context:
    """One look, with what several quantities need of it."""

    def __init__(self, look: Look, memory: Memory, since: int):
        self.look = look
        self.memory = memory
        self.since = since  # steps since the last record
        self._eigenvalues: dict[int, tuple[np.ndarray, tuple[int, int]]] = {}

    @functools.cached_property
    def state(self) -> State | None:
        """What the loss does now."""
        return plateau_state(self.memory.steps, self.memory.losses)

    @functools.cached_property
    def kernels(self) -> list[np.ndarray | None]:
        """Per layer its part of the tangent kernel of f on some samples, frozen layers as well."""
        largest = max((_size(layer) for layer in self.look.layers), default=1)
        samples = max(2, min(KERNEL_SAMPLES, _NUMBERS // max(largest, 1)))
        return [_kernel(layer, samples) for layer in self.look.layers]

    @functools.cached_property
    def kernel(self) -> np.ndarray | None:
        """The sum over the layers that learn."""
        parts = [
            part
            for part, layer in zip(self.kernels, self.look.layers, strict=True)
            if part is not None and layer.learns
        ]
        return np.sum(parts, axis=0) if parts else None

    @functools.cached_property
    def trace(self) -> float:
        """The trace of that sum."""
        return 0.0 if self.kernel is None else float(np.trace(self.kernel))

    def eigenvalues(self, index: int) -> tuple[np.ndarray, tuple[int, int]]:
        """Of WWᵀ for at most 256 rows of a layer, ascending, with the shape of those rows."""
        if index not in self._eigenvalues:
            W = spectrum_rows(self.look.layers[index])
            if W.shape[1] < W.shape[0]:
                W = W.T
            gram = to_numpy(W @ W.T)
            finite = bool(np.all(np.isfinite(gram)))
            values = np.linalg.eigvalsh(gram) if finite else np.full(len(gram), np.nan)
            sizes = int(W.shape[0]), int(W.shape[1])
            self._eigenvalues[index] = np.maximum(values, 0.0), sizes
        return self._eigenvalues[index]


def spectrum_rows(layer: LayerLook) -> Array:
    """At most 256 rows of the weights, at equal distances."""
    W = as_matrix(layer.weight)
    return W[:: thinned(W.shape[0], SPECTRUM_ROWS)]


def _size(layer: LayerLook) -> int:
    return 1 if layer.weight is None else int(np.prod(layer.weight.shape))


def _kernel(layer: LayerLook, samples: int) -> np.ndarray | None:
    """⟨∂f_a/∂θ, ∂f_b/∂θ⟩ over weights and bias of one layer, for the first samples.

    With tokens, either by the products of all pairs of them, or by the gradients themselves:
    whichever takes fewer multiplications.
    """
    if layer.inputs is None or layer.response is None:
        return None
    r, h = layer.response[:samples], layer.inputs[:samples]
    samples, tokens, n_out = r.shape
    if layer.kind != "embedding" and h.shape[2] * n_out < samples * tokens * (h.shape[2] + n_out):
        gradients = (r.swapaxes(1, 2) @ h).reshape(samples, -1)
        kernel = gradients @ gradients.T
        if layer.bias is not None:
            total = r.sum(axis=1)
            kernel = kernel + total @ total.T
        return to_numpy(kernel)
    rows = r.reshape(-1, n_out)
    if layer.kind == "embedding":
        flat = h.reshape(-1)
        overlaps: Array = (flat[:, None] == flat[None, :]) * 1.0
    else:
        features = h.reshape(-1, h.shape[2])
        overlaps = features @ features.T
    if layer.bias is not None:
        overlaps = overlaps + 1.0
    blocks = ((rows @ rows.T) * overlaps).reshape(samples, tokens, samples, tokens)
    return to_numpy(blocks.sum(axis=(1, 3)))


def gram_and_push(layer: LayerLook) -> tuple[np.ndarray, np.ndarray] | None:
    """WᵀW on at most 128 of the inputs, and −(gᵀH + Hᵀg), g = δW: where the loss pushes it.

    None where the inputs or the gradients are not known.
    """
    if layer.errors is None or layer.inputs is None:
        return None
    stride = thinned(layer.weight.shape[1], GRAM_COLUMNS)
    W = some_columns(layer.weight, stride)
    h = some_columns(layer.inputs.reshape(-1, layer.inputs.shape[2]), stride)
    g = layer.errors.reshape(-1, layer.errors.shape[2]) @ W
    mixed = to_numpy(g.T @ h)
    return to_numpy(W.T @ W), -(mixed + mixed.T)
