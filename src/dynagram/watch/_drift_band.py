"""How far the tangent kernel should have drifted: that of the same MLP drawn and trained again.

The mean drift at order 1/n is known in closed form, its spread between networks is not, and both
are of the same size. So the network is drawn again some times and every draw is followed along
gradient flow on the probe, in few steps (`kernel_path`): its own dNTK and ddNTKs do the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student

from dynagram.errors import DynagramError
from dynagram.live._redraw import redrawn
from dynagram.networks import Model
from dynagram.networks._mlp import Architecture, Layer
from dynagram.observables.tangents._kernel_path import kernel_path
from dynagram.observables.tangents._ntk import ntk
from dynagram.watch._band import FAMILY, Band
from dynagram.watch._context import KERNEL_SAMPLES, Context, Memory
from dynagram.watch._look import Look, to_numpy
from dynagram.watch._mixing import mixing_signs

DRAWS, FEWER_DRAWS = 16, 8
_LARGE = 100_000  # parameters, from where on fewer are drawn
_NODES_PER_DECADE, _FIRST, _DECADES = 5, 0.03, 4.5  # of times, in units of the fastest rate
_MOST_ROWS = 160  # samples times outputs
_MOST_PARAMETERS = 2_000_000
LARGEST_DEPARTURE = 0.1  # beyond it intervals were too long for what the kernel did
_LIKE = 1e-3


@dataclass(frozen=True, eq=False)
class DriftBand:
    """The drift of drawn networks over the time of gradient flow.

    **Arguments:**

    - `times`: τ, the sum of the learning rates, as far as it can be said.
    - `drifts`: ‖Θ_τ − Θ_0‖/‖Θ_0‖ of every draw.
    """

    times: Float[np.ndarray, " time"]
    drifts: Float[np.ndarray, "draw time"]

    def at(self, time: float) -> np.ndarray | None:
        """The drift of every draw; None before anything has moved and after the last time."""
        if not 0.0 < time <= self.times[-1]:
            return None
        logs = np.log(np.maximum(self.drifts, 1e-300))
        inside = max(time, float(self.times[0]))
        places = np.log(self.times)
        drawn = np.array([np.interp(math.log(inside), places, row) for row in logs])
        return np.exp(drawn) * (time / inside)  # at first it grows as τ

    def band(self, time: float) -> Band | None:
        """The 95 % range of one more network, whose logarithm is taken as normal."""
        drawn = self.at(time)
        if drawn is None:
            return None
        seen, count = np.log(drawn), len(drawn)
        middle = float(np.mean(seen))
        spread = float(np.std(seen, ddof=1)) * math.sqrt(1.0 + 1.0 / count)
        tails = (float(student.ppf(p, count - 1)) for p in (0.975, 1.0 - FAMILY / 2))
        ends = [math.exp(middle + sign * t * spread) for t in tails for sign in (-1.0, 1.0)]
        return Band(float(np.mean(drawn)), ends[0], ends[1], "retrained", (ends[2], ends[3]))


def predict_drift(
    model: Model, x: np.ndarray, y: np.ndarray, loss: str, *, draws: int = DRAWS, seed: int = 0
) -> DriftBand:
    """The drift of `draws` networks with weights of the same sizes, trained on a batch.

    **Arguments:**

    - `model`: an MLP as it is before training.
    - `x`, `y`: the batch, a row a sample; probabilities for a cross-entropy.
    - `loss`: "mean" or "cross-entropy".
    - `draws`, `seed`: how many, and of which random numbers.

    **Returns:** `DriftBand`. Cost: for every draw 23 intervals of `kernel_path` or more.
    """
    n_L = model.network.output_size
    samples = min(len(x), max(2, _MOST_ROWS // n_L))
    x, y = x[:samples].astype(np.float32), y[:samples]
    times = _times(model, x, loss)
    signs = mixing_signs((samples, n_L)) / math.sqrt(n_L)
    rng, drifts, departures = np.random.default_rng(seed), [], []
    for _ in range(draws):
        drawn = _drawn(model, rng)
        path = kernel_path(drawn, x, y, times, loss=loss, probe=x[:KERNEL_SAMPLES])
        before, after = (
            np.einsum("...abij,i,j->...ab", K, signs, signs) for K in (path.start, path.kernels)
        )
        change = np.linalg.norm(after - before[None], axis=(1, 2))
        drifts.append(change / np.linalg.norm(before))
        departures.append(path.departure)
    good = np.median(departures, axis=0) <= LARGEST_DEPARTURE
    good &= np.all(np.isfinite(drifts), axis=0) & np.all(np.array(drifts) > 0.0, axis=0)
    last = len(times) if np.all(good) else int(np.argmin(good))
    if last < 2:
        raise DynagramError("the kernel changes too fast at the beginning to be followed")
    return DriftBand(times[:last], np.array(drifts)[:, :last])


def expect_drift(look: Look) -> DriftBand | str:
    """The drift that a watched model should show, or why nothing is said about it."""
    task = look.task
    if task is None or task.loss is None:
        return "the loss is not known as a mean squared error or cross-entropy"
    try:
        read = task.read()
    except DynagramError as error:
        return str(error)
    network = read.network
    if not isinstance(network, Architecture):
        return "only the drift of MLPs is predicted"
    if not all(layer.learns for layer in look.layers):
        return "some layers are frozen"
    if network.number_of_parameters > _MOST_PARAMETERS:
        return f"{network.number_of_parameters} parameters are too many to be drawn again"
    rows, y = to_numpy(task.x).reshape(len(task.x), -1), task.y
    measured = Context(look, Memory(), 0).kernel
    signs = mixing_signs((2, network.output_size)) / math.sqrt(network.output_size)
    if measured is None:
        return "the tangent kernel is not measured"
    own = np.asarray(ntk(read, rows[: len(measured)]), dtype=np.float64)
    own = np.einsum("abij,i,j->ab", own, signs, signs)
    if np.linalg.norm(own - measured) > _LIKE * np.linalg.norm(own):
        return "the tangent kernel is not that of the network that was read"
    targets = (
        y.reshape(len(y), -1) if task.loss == "mean" else np.eye(network.output_size)[y.ravel()]
    )
    if targets.shape != (len(rows), network.output_size):
        return f"targets of shape {y.shape} do not fit the outputs"
    draws = DRAWS if network.number_of_parameters <= _LARGE else FEWER_DRAWS
    return predict_drift(read, rows, targets, task.loss, draws=draws)


def _drawn(model: Model, rng: np.random.Generator) -> Model:
    arrays = {f"{i}{name}": np.asarray(values, np.float64)
              for i, layer in enumerate(model.params)
              for name, values in (("b", layer.b), ("W", layer.W))}  # fmt: skip
    made = redrawn(arrays, rng)
    layers = [
        Layer(made[f"{i}b"].astype(np.float32), made[f"{i}W"].astype(np.float32))  # pyright: ignore[reportArgumentType]
        for i in range(len(model.params))
    ]
    return model.with_params(tuple(layers))


def _times(model: Model, x: np.ndarray, loss: str) -> np.ndarray:
    """From a small part of the fastest time on, at equal ratios."""
    H = np.asarray(ntk(model, x), dtype=np.float64)
    size, n_L = len(x) * H.shape[2], H.shape[2]
    top = float(np.linalg.eigvalsh(H.transpose(0, 2, 1, 3).reshape(size, size))[-1])
    curvature = 2.0 / size if loss == "mean" else 1.0 / (len(x) * n_L)
    first = _FIRST / (curvature * top)
    return first * np.logspace(0.0, _DECADES, int(_DECADES * _NODES_PER_DECADE) + 1)
