"""What is measured of one layer at a record: a function each, listed in the registry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dynagram.observables.gram._gram import effective_rank, gram_similarity
from dynagram.observables.gram._linearity import held_out_linearity
from dynagram.observables.spectra._power_law import fit_power_law
from dynagram.observables.spectra._spectra import SMALLEST_SPECTRUM, random_tail_index
from dynagram.watch._band import Band, spread_band
from dynagram.watch._context import Context, gram_and_push, spectrum_rows
from dynagram.watch._look import LayerLook, square_of

Reading = tuple[float, Band | None] | None

_CONSERVED = 1e-4  # of what flows, the rounding of float32 in a sum over units
_LINEARITY_ROWS = 16
_SUMMED = 100.0  # units of rounding in a sum over samples, tokens and units


def weight_norm(context: Context, index: int) -> Reading:
    """‖W‖."""
    return math.sqrt(context.look.layers[index].weight_square), None


def update_norm(context: Context, index: int) -> Reading:
    """‖W_t − W_{t−1}‖ of the last step; of a very large layer from some of its rows."""
    square = context.look.layers[index].step_square
    return None if square is None else (math.sqrt(square), None)


def activation(context: Context, index: int) -> Reading:
    """The mean square of what leaves the layer, over samples, tokens and units."""
    z = context.look.layers[index].outputs
    return None if z is None else (float((z * z).mean()), None)


def gradient(context: Context, index: int) -> Reading:
    """The mean square of samples · ∂loss/∂z."""
    errors = context.look.layers[index].errors
    return None if errors is None else (float((errors * errors).mean()), None)


def similarity(context: Context, index: int) -> Reading:
    """The mean cosine of tokens of one sample; of samples where there is one token."""
    z = context.look.layers[index].outputs
    if z is None:
        return None
    if z.shape[1] == 1:
        z = z.reshape(1, z.shape[0], z.shape[2])
    rows = z.shape[1]
    if rows < 2:
        return None
    lengths = (z * z).sum(axis=2) ** 0.5
    unit = z / (lengths + (lengths == 0) * 1.0)[:, :, None]
    total = unit.sum(axis=1)
    square = float((total * total).sum(axis=1).mean())
    return (square - float((unit * unit).sum(axis=(1, 2)).mean())) / (rows * (rows - 1)), None


def kernel_share(context: Context, index: int) -> Reading:
    """The layer's part of the trace of the tangent kernel, among layers whose inputs are known."""
    part, layers = context.kernels[index], context.look.layers
    if part is None:
        return None
    if not layers[index].learns:
        return 0.0, None
    total = context.trace
    return (float(np.trace(part)) / total, None) if total > 0 else None


def dead(context: Context, index: int) -> Reading:
    """The part of the units through which no sample sends anything on: ∂f/∂z is zero for all."""
    response = context.look.layers[index].response
    if response is None:
        return None
    sizes = abs(response).sum(axis=(0, 1))
    return float(((sizes == 0) * 1.0).mean()), None


def gram_explained(context: Context, index: int) -> Reading:
    """Cosine of the change of WᵀW since the last record with where the loss pushed it."""
    layer, memory = context.look.layers[index], context.memory
    pair = gram_and_push(layer) if layer.kind == "linear" else None
    if pair is None:
        return None
    gram, push = pair
    before, earlier = memory.grams.get(index), memory.pushes.get(index)
    memory.grams[index], memory.pushes[index] = gram, push
    if before is None or earlier is None:
        return None
    change, pushed = gram - before, earlier + push
    if not np.any(change) or not np.any(pushed) or not np.all(np.isfinite(change + pushed)):
        return None
    cosine = gram_similarity(change, pushed)
    return cosine.value, spread_band(cosine.null.mean, cosine.null.deviation, "null")


def imbalance(context: Context, index: int) -> Reading:
    """‖W_{ℓ+1}‖² − ‖W_ℓ‖² − |b_ℓ|² of linear layers that follow each other.

    Where nothing but a homogeneous activation stands between them, every sample leaves it as it is
    (Theorem 1): plain gradient descent moves it only by the squares of its steps. That is expected
    as long as the steps that are seen do so: rates of their own, further losses on what lies
    between, projections or another optimizer move it at first order.
    """
    layers, memory = context.look.layers, context.memory
    if index + 1 >= len(layers):
        return None
    this, after = layers[index], layers[index + 1]
    if {this.kind, after.kind} != {"linear"} or after.weight.shape[1] != this.weight.shape[0]:
        return None
    value = after.weight_square - this.weight_square
    value -= 0.0 if this.bias is None else square_of(this.bias)
    first = memory.imbalances.setdefault(index, value)
    squares = [memory.updates.get(i, 0.0) for i in (index, index + 1)]
    step = _step_of_balance(this, after)
    if step is not None and not step.is_of_the_flow:
        memory.unbalanced.add(index)
    rounding = 0.0 if step is None else step.rounding
    moved = memory.wander.get(index, 0.0) + context.since * (2.0 * sum(squares) + rounding)
    memory.wander[index] = moved
    is_seen = {index, index + 1} <= memory.updates.keys() and math.isfinite(moved)
    look = context.look
    if index in memory.unbalanced or not is_seen or look.is_written:
        return value, None
    if look.momentum != 0.0 or look.weight_decay != 0.0 or not _is_conserved(context, index):
        return value, None
    moved += 1e-4 * (after.weight_square + this.weight_square)  # of float32
    return value, Band(first, first - moved, first + moved)


def linearity(context: Context, index: int) -> Reading:
    """Held-out R² of a linear read-out of the targets from what leaves the layer."""
    if context.look.features is None:
        return None
    pair = context.look.features(index)
    if pair is None or len(pair[0]) < _LINEARITY_ROWS:
        return None
    h, y = pair
    if not np.all(np.isfinite(h)):
        return math.nan, None
    half = (len(h) + 1) // 2
    if np.ptp(y[:half], axis=0).max() == 0.0 or np.ptp(y[half:], axis=0).max() == 0.0:
        return None
    score = held_out_linearity(h[:half], y[:half], h[half:], y[half:])
    return score.score, spread_band(score.null.mean, score.null.deviation, "null")


def rank(context: Context, index: int) -> Reading:
    """(Σλ)²/Σλ² of the eigenvalues of WᵀW, beside that of independent entries.

    With the kurtosis κ of the entries it is mn/(m + n + κ − 2) for them, ± 2/(m + n) of itself.
    """
    values, (m, n) = context.eigenvalues(index)
    if np.isnan(values[0]) or not values[-1] > 0:
        return math.nan, None
    W = spectrum_rows(context.look.layers[index])
    square = W * W
    kurtosis = float((square * square).mean()) / float(square.mean()) ** 2
    random = m * n / (m + n + kurtosis - 2.0)
    return effective_rank(values), spread_band(random, 2.0 * random / (m + n), "null")


def tail(context: Context, index: int) -> Reading:
    """γ = 1/(α − 1) of the power law fitted to the tail of the spectrum: large for heavy tails."""
    values, sizes = context.eigenvalues(index)
    positive = values[values > 1e-12 * values[-1]] if values[-1] > 0 else values[:0]
    if positive.size < SMALLEST_SPECTRUM or positive[0] > 0.999 * positive[-1]:
        return None
    null = random_tail_index(sizes)
    found = fit_power_law(positive, test=False).index
    return found, spread_band(null.mean, null.deviation, "null")


@dataclass(frozen=True)
class _StepOfBalance:
    """What the last step did to an imbalance.

    ‖W + ΔW‖² − ‖W‖² = 2⟨W + ΔW, ΔW⟩ − ‖ΔW‖². What plain gradient descent adds to it on both sides
    is equal at first order in ΔW, so that squares of updates are left.

    **Arguments:**

    - `change`: by how much it moved.
    - `squares`: the squared norms of the updates.
    - `rounding`: of weights and gradients, what may be in `change`.
    - `learns`: whether both layers do.
    """

    change: float
    squares: float
    rounding: float
    learns: bool

    @property
    def is_of_the_flow(self) -> bool:
        """Whether it may be a step along the flow that conserves the imbalance."""
        return self.learns and abs(self.change) <= self.squares + self.rounding


def _step_of_balance(this: LayerLook, after: LayerLook) -> _StepOfBalance | None:
    """None where the last step is not known; of some rows of it nothing is."""
    if this.step is None or after.step is None:
        return None
    learns = this.learns and after.learns
    if max(this.step_stride, after.step_stride) > 1:
        return _StepOfBalance(math.inf, 0.0, 0.0, learns)
    parts = [(after.weight, after.step), (this.weight, this.step)]
    if this.bias is not None and this.bias_step is not None:
        parts.append((this.bias, this.bias_step))
    inner = [2.0 * float((value * step).sum()) for value, step in parts]
    squares = [square_of(step) for _, step in parts]
    grown = [flow - square for flow, square in zip(inner, squares, strict=True)]
    # Every weight is rounded by itself; sums over samples and units are rounded together.
    fourth = math.sqrt(sum(square_of(value * value) for value, _ in parts))
    epsilon = 2.0**-52 if this.weight.dtype.itemsize > 4 else 2.0**-23
    rounding = 4.0 * epsilon * fourth + _SUMMED * epsilon * sum(map(abs, inner))
    return _StepOfBalance(grown[0] - sum(grown[1:]), sum(squares), rounding, learns)


def _is_conserved(context: Context, index: int) -> bool:
    """Whether δ_ℓ·z_ℓ = δ_{ℓ+1}·(z_{ℓ+1} − b_{ℓ+1}) for every sample: φ_σ is zero between them."""
    this, after = context.look.layers[index], context.look.layers[index + 1]
    if this.errors is None or this.outputs is None or after.errors is None or after.outputs is None:
        return False
    if this.outputs.shape[:2] != after.outputs.shape[:2]:
        return False
    into = this.errors * this.outputs
    out = after.errors * (after.outputs if after.bias is None else after.outputs - after.bias)
    before, behind = into.sum(axis=(1, 2)), out.sum(axis=(1, 2))
    scale = abs(into).sum(axis=(1, 2)) + abs(out).sum(axis=(1, 2))
    return float(abs(before - behind).max()) <= _CONSERVED * float(scale.max())
