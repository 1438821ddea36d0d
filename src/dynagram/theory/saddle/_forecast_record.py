"""What `forecast` says of one network: a record that shows itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dynagram.results._regime import Regime
from dynagram.results._table import Grid, short

if TYPE_CHECKING:
    from rich.table import Table
else:
    Table = object  # imported when a table is shown


@dataclass(frozen=True)
class Counterfactual:
    """The forecast if the weights of one layer were multiplied by a factor.

    **Arguments:**

    - `layer`, `factor`: which layer, from 1, and by what.
    - `escape_step`: when the network would leave.
    """

    layer: int
    factor: float
    escape_step: float


@dataclass(frozen=True)
class LaterStage:
    """A stage after the first one.

    **Arguments:**

    - `stage`: its number; the first escape is 1.
    - `step`: when half of its fall is done.
    - `interval`: contains it with 90 % probability.
    - `loss`: the loss then.
    """

    stage: int
    step: float
    interval: tuple[float, float]
    loss: float


@dataclass(frozen=True)
class Bounds:
    """Bounds of the escape in steps (Theorem 11, Proposition 22), for the weights as they are.

    **Arguments:**

    - `lower`: from the spectral norms of the layers.
    - `upper`: from the signal energy; inf where the signal points the wrong way at the start.
    """

    lower: float
    upper: float


@dataclass(frozen=True)
class Forecast:
    """Whether a network sits on a small-signal plateau, and when it will leave it.

    **Arguments:**

    - `regime`: "do not use" where there is no such plateau; its reasons say what the verdict
        rests on.
    - `escape_step`: in steps from the given weights; None without a plateau, inf if no descent is
        possible.
    - `interval`: contains it with 90 % probability.
    - `loss`, `plateau_loss`, `escape_loss`: the loss that `Training` names, now, on the plateau,
        and at the escape. The first two differ where the mean of the targets is still to be learnt.
    - `plateau_step`: when that is done and the plateau begins, 0 if it has.
    - `names`: what the weight matrices are called.
    - `bottleneck`: the small layers, from 1.
    - `scales`, `nonlinearity`: as in `LayerSignals`.
    - `stages`: the number of separate escapes a linear network would make, one per singular value
        of Σ^{−1/2}E[xyᵀ] above the noise of the batch. `escape_step` is about the first of them.
    - `later`: the next ones, as far as the surrogate can follow them.
    - `bounds`: what the theorem says, None where a mean is learnt beside.
    - `bootstrap_step`: until here the small layers are below m_0, which an escape needs (50);
        None without bounds, or where m_0 does not tell.
    - `counterfactuals`: the forecast with each layer in turn rescaled.
    """

    regime: Regime
    escape_step: float | None
    interval: tuple[float, float] | None
    loss: float
    plateau_loss: float
    plateau_step: float
    escape_loss: float
    names: tuple[str, ...]
    bottleneck: tuple[int, ...]
    scales: tuple[float, ...]
    nonlinearity: tuple[float, ...]
    stages: int
    later: tuple[LaterStage, ...]
    bounds: Bounds | None
    bootstrap_step: float | None
    counterfactuals: tuple[Counterfactual, ...]

    @property
    def plateau(self) -> bool:
        """Whether the network sits on a small-signal plateau."""
        return self.escape_step is not None

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the verdict rests on, in words."""
        return self.regime.reasons

    @property
    def r(self) -> int:
        """The number of small layers: the plateau lasts Θ(ε^{−(r−2)}) for r ≥ 3."""
        return len(self.bottleneck)

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        plain = {"plateau": self.plateau, "reasons": self.reasons, "r": self.r} | asdict(self)
        return plain | {"regime": self.regime.to_dict()}

    def summary(self) -> Grid:
        """The layers, with what rescaling each of them would do."""
        rows = []
        for index, scale in enumerate(self.scales):
            is_hidden = index < len(self.nonlinearity)
            other = self.counterfactuals[index] if self.counterfactuals else None
            rows.append(
                (
                    str(index + 1),
                    self.names[index],
                    short(scale, 3),
                    "yes" if index + 1 in self.bottleneck else "",
                    f"{self.nonlinearity[index]:.1%}" if is_hidden else "–",
                    "" if other is None else f"{other.escape_step:.0f} (× {other.factor:g})",
                )
            )
        headings = ("layer", "name", "scale", "bottleneck", "nonlinear", "escape if scaled")
        return Grid(headings, tuple(rows), self.reasons)

    def table(self) -> Table:
        """A rich table of the layers."""
        return self.summary().rich()

    def plot(self) -> Any:
        """The steps until escape, as it is and with each layer rescaled (extra `report`)."""
        from dynagram.report._forecast_chart import forecast_chart

        return forecast_chart(self)

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))

    def __repr__(self) -> str:
        if self.escape_step is None:
            return f"Forecast(no plateau: {self.reasons[0]})"
        return f"Forecast(escape in {self.escape_step:.0f} steps, bottleneck {self.bottleneck})"
