"""What `measure` says of one network, layer by layer: a record that shows itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynagram.observables._collapse import Collapse
from dynagram.observables._nulls import Alignment, Null
from dynagram.observables.gram._linearity import Linearity
from dynagram.observables.spectra._spectra import WeightSpectrum
from dynagram.results._table import Grid, short

if TYPE_CHECKING:
    from rich.table import Table
else:
    Table = object  # imported when a table is shown


@dataclass(frozen=True, eq=False)
class LayerMeasurement:
    """Layer ℓ of a measured network.

    **Arguments:**

    - `layer`, `name`, `shape`: ℓ, what its weight matrix is called, (n_ℓ, n_{ℓ-1}).
    - `norm`: ‖W^(ℓ)‖².
    - `kernel_share`: of its parameters in the trace of the tangent kernel at equal learning rates;
        nan where no gradient reaches any layer.
    - `linearity`: that of the features after the layer, σ(z^(ℓ)) or z^(L).
    - `alignment`: `stationarity`; None where the gradient is exactly zero.
    - `spectrum`: of W^(ℓ)ᵀW^(ℓ).
    - `imbalance`: ‖W^(ℓ+1)‖² − ‖W^(ℓ)‖²; None for the last layer.
    - `dead`: the number of units constant on the batch.
    """

    layer: int
    name: str
    shape: tuple[int, int]
    norm: float
    kernel_share: float
    linearity: Linearity
    alignment: Alignment | None
    spectrum: WeightSpectrum
    imbalance: float | None
    dead: int

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        spectrum, push = self.spectrum, self.alignment
        return {
            "layer": self.layer,
            "name": self.name,
            "shape": self.shape,
            "kernel_share": self.kernel_share,
            "target_linearity": _linearity(self.linearity),
            "gram_alignment": push and {"value": push.value, "null": vars(push.null)},
            "effective_rank": spectrum.effective_rank,
            "spectrum": {
                "verdict": spectrum.verdict,
                "words": spectrum.sentence,
                "spikes": spectrum.spikes,
                "distance": spectrum.distance,
                "distance_null": spectrum.distance_null and vars(spectrum.distance_null),
                "tail": spectrum.tail and vars(spectrum.tail),
                "random_exponent": spectrum.random_exponent,
            },
            "squared_norm": self.norm,
            "imbalance_to_next": self.imbalance,
            "dead_units": self.dead,
        }


@dataclass(frozen=True, eq=False)
class Measurement:
    """A whole network on a batch.

    **Arguments:**

    - `layers`: one `LayerMeasurement` for each ℓ = 1..L.
    - `input_linearity`: the target linearity of the inputs themselves.
    - `loss_name`, `loss`: which loss, and its value on the batch.
    - `accuracy`: the share of right decisions; None for regression.
    - `samples`: how many were measured.
    - `collapse`: neural collapse of the features after each hidden layer, () without classes; the
        last one with NC3 and NC4, which belong to the classifier.
    - `notes`: what was guessed about the weights, or left out.
    """

    layers: tuple[LayerMeasurement, ...]
    input_linearity: Linearity
    loss_name: str
    loss: float
    accuracy: float | None
    samples: int
    collapse: tuple[Collapse, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON; eigenvalues are left out."""
        return {
            "samples": self.samples,
            "loss": {self.loss_name: self.loss},
            "accuracy": self.accuracy,
            "input": {"target_linearity": _linearity(self.input_linearity)},
            "layers": [layer.to_dict() for layer in self.layers],
            "neural_collapse": [
                {"layer": index} | {n: _plain(v) for n, v in vars(collapse).items()}
                for index, collapse in enumerate(self.collapse, start=1)
            ],
            "notes": self.notes,
        }

    def summary(self) -> Grid:
        """With the data: tangent kernel, features after the layer, Gram of the layer."""
        rows: list[tuple[str, ...]] = [("input", "", "", *_score(self.input_linearity), "", "", "")]
        for layer in self.layers:
            push = ("–", "–", "–") if layer.alignment is None else _cosine(layer.alignment)
            shape = f"{layer.shape[0]}×{layer.shape[1]}"
            share = "–" if math.isnan(layer.kernel_share) else f"{100 * layer.kernel_share:.1f} %"
            rows.append((str(layer.layer), shape, share, *_score(layer.linearity), *push))
        headings = (
            "layer", "shape", "kernel", "target linearity", "null", "spread", "Gram/VC", "null",
            "spread",
        )  # fmt: skip
        return Grid(headings, tuple(rows), self.notes)

    def weight_summary(self) -> Grid:
        """In the weights: spectrum of WᵀW, and norms."""
        rows = []
        for layer in self.layers:
            spectrum, tail = layer.spectrum, layer.spectrum.tail
            has_spikes = spectrum.verdict == "spikes"
            rows.append(
                (
                    str(layer.layer),
                    f"{spectrum.effective_rank:.1f} of {len(spectrum.eigenvalues)}",
                    "–" if tail is None else f"{tail.exponent:.1f} ± {tail.error:.1f}",
                    short(spectrum.random_exponent, 2),
                    f"{spectrum.spikes} spikes" if has_spikes else spectrum.verdict,
                    f"{layer.norm:.1f}",
                    "" if layer.imbalance is None else f"{layer.imbalance:+.1f}",
                )
            )
        headings = (
            "layer", "effective rank", "tail α", "random α", "verdict", "norm²", "next − this",
        )  # fmt: skip
        return Grid(headings, tuple(rows))

    def collapse_summary(self) -> Grid:
        """Neural collapse of the hidden layers, each number beside that of shuffled labels."""
        rows = []
        for index, measures in enumerate(self.collapse, start=1):
            cells = []
            for name in ("within", "norms", "angles", "duality", "disagreement"):
                value, null = getattr(measures, name), getattr(measures, f"{name}_null")
                cells.append("–" if value is None else f"{value:.3g} ({null.mean:.3g})")
            rows.append((str(index), *cells))
        headings = ("layer", "NC1 within", "NC2 norms", "NC2 angles", "NC3 duality", "NC4 centre")
        return Grid(headings, tuple(rows), ("In brackets: shuffled labels. 0 is full collapse.",))

    def table(self) -> Table:
        """A rich table of `summary`."""
        return self.summary().rich()

    def plot(self) -> Any:
        """Target linearity, share of the kernel and effective rank by layer (extra `report`)."""
        from dynagram.report._measurement_chart import measurement_chart

        return measurement_chart(self)

    def _repr_html_(self) -> str:
        collapse = self.collapse_summary().html() if self.collapse else ""
        return self.summary().html(repr(self)) + self.weight_summary().html() + collapse

    def __repr__(self) -> str:
        result = f"{self.loss_name} {self.loss:.4g}"
        result += "" if self.accuracy is None else f", accuracy {self.accuracy:.3f}"
        return f"Measurement({len(self.layers)} layers on {self.samples} samples, {result})"


def _plain(value: object) -> object:
    """A null as its two numbers."""
    return vars(value) if isinstance(value, Null) else value


def _linearity(linearity: Linearity) -> dict[str, Any]:
    return {
        "score": linearity.score,
        "null": vars(linearity.null),
        "rank": linearity.rank,
        "fitted": linearity.samples,
        "scored": linearity.scored,
    }


def _score(linearity: Linearity) -> tuple[str, str, str]:
    null = linearity.null
    return f"{linearity.score:.3f}", f"{null.mean:.3f}", f"{null.deviation:.3f}"


def _cosine(alignment: Alignment) -> tuple[str, str, str]:
    null = alignment.null
    return f"{alignment.value:.2f}", f"{null.mean:.0f}", f"{null.deviation:.2f}"
