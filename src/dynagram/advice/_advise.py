"""How to set up and train one network on its data: in ten lines, each with its source."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram._memory import require_memory
from dynagram.advice._initialise import initialise, layer_point
from dynagram.advice._others import Start, compare_starts
from dynagram.advice._rates import Rates, advise_rates
from dynagram.advice._sentences import Sentence, advice_sentences
from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Model
from dynagram.networks._checks import checked_integer
from dynagram.networks._mlp import Architecture
from dynagram.results._table import Grid
from dynagram.theory.criticality._operating_point import OperatingPoint

if TYPE_CHECKING:
    from rich.table import Table
else:
    Table = object  # imported when a table is shown

# What the numbers of `Advice.starts` are.
ONE_DRAW = "Measured on one draw of the weights each; another draw gives other digits."

_STAND_IN = 256  # samples where no data are given
_LARGEST = 2048  # samples that are measured on


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
    """How to set up and train one network.

    `model` is set up already; `rates` are those of its layers; `point` where its layers work;
    `starts` what usual initialisations do beside it; `sentences` all of it in words, each with its
    source. `is_stand_in`: no data were given, and random ones took their place.
    """

    model: Model
    rates: Rates
    point: OperatingPoint
    starts: tuple[Start, ...]
    sentences: tuple[Sentence, ...]
    is_stand_in: bool

    def summary(self) -> Grid:
        """Ours and the usual initialisations of the same network, on the same data."""
        rows = tuple(
            (start.name, f"{start.signal:.3g}", f"{start.gradient:.3g}", f"{start.loss:.3g}")
            for start in self.starts
        )
        headings = ("initialisation", "signal, last/first", "gradient², first/last", "loss")
        return Grid(headings, rows, (ONE_DRAW, *(str(sentence) for sentence in self.sentences)))

    def table(self) -> Table:
        """A rich table of `summary`."""
        return self.summary().rich()

    def to_dict(self) -> dict[str, Any]:
        """Numbers and words in the types of JSON."""
        network = self.model.network
        return {
            "network": network.to_toml(),
            "optimizer": self.rates.optimizer,
            "loss": self.rates.loss,
            "momentum": self.rates.momentum,
            "rates": list(self.rates.layers),
            "bias_rates": list(self.rates.biases),
            "point": vars(self.point) | {},
            "curvature": vars(self.rates.curvature) | {},
            "starts": [vars(start) | {} for start in self.starts],
            "sentences": [vars(sentence) | {} for sentence in self.sentences],
            "is_stand_in": self.is_stand_in,
        }

    @property
    def references(self) -> tuple[str, ...]:
        """Where its sentences come from."""
        return tuple(dict.fromkeys(sentence.source for sentence in self.sentences))

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))

    def __repr__(self) -> str:
        network, first, last = self.model.network, self.rates.biases[0], self.rates.biases[-1]
        rate = f"{last:.3g}" if first == last else f"{first:.3g} to {last:.3g}"
        return (
            f"Advice({network.activation.name}, {network.depth} layers: {self.rates.optimizer}, "
            f"rate {rate})"
        )


def advise(
    network: Any,
    data: Data | None = None,
    *,
    loss: str = "mean",
    optimizer: str = "sgd",
    batch: int | None = None,
    seed: int = 0,
) -> Advice:
    """Set up a network on its data, measure its learning rates, and say why.

    **Arguments:**

    - `network`: an `MLP` or `Architecture`, of which widths, activation and skips are used; a
        `Model`; or a PyTorch module that is one (it stays as it is: `init_` of
        `dynagram.integrations.torch` sets it up).
    - `data`: what is trained on. Left out, 256 random inputs and targets stand in for it.
    - `loss`: "mean", "cross-entropy", or another name of `dynagram.training.LOSSES`.
    - `optimizer`: "sgd", "momentum" (0.9), "adam" or "adamw".
    - `batch`: samples in a step; all by default.
    - `seed`: of the weights, and of what stands in for data.

    **Returns:** `Advice`. Measured on at most 2048 samples. Cost: about 60 gradients, and memory
    of three numbers per unit and sample.

    >>> from dynagram.networks import MLP
    >>> advice = advise(MLP([8, *[32] * 11, 3], "relu", C_b=0.0, C_W=2.0), loss="cross-entropy")
    >>> round(advice.point.mean, 2), advice.rates.optimizer, advice.is_stand_in
    (0.14, 'sgd', True)
    >>> print(advice.sentences[0].text[:57])
    Initialise: orthogonal weights, scaled and shifted on the
    """
    checked_integer("seed", seed, 0)
    if data is not None and not isinstance(data, Data):
        raise InvalidTypeError("data", data, "expected a dynagram.Data(x, y)")
    structure = _structure(network, data)
    if structure.depth < 2:
        raise InvalidValueError("network", structure, "at least two layers needed")
    weights = sum(m * n for m, n in itertools.pairwise(structure.widths))
    require_memory("widths", max(structure.widths), 64.0 * weights, "it has too many weights")
    stand_in = 24.0 * _STAND_IN * (structure.widths[0] + structure.widths[-1])
    require_memory("widths", max(structure.widths), stand_in, "too many inputs and outputs")
    is_stand_in = data is None
    problem = _stand_in(structure, loss, seed) if data is None else data
    if problem.y.shape[1] != structure.widths[-1]:
        allowed = f"this network has {structure.widths[-1]} outputs"
        raise InvalidValueError("data", f"{problem.y.shape[1]} targets", allowed)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(problem.x))[:_LARGEST])
    problem = Data(problem.x[chosen], problem.y[chosen])
    model = initialise(structure, problem.x, seed=seed)
    rates = advise_rates(model, problem, loss=loss, optimizer=optimizer, batch=batch)
    starts = compare_starts(model, problem, rates.loss, seed) if structure.depth > 2 else ()
    sentences = advice_sentences(
        structure, layer_point(structure), rates, starts, problem.x,
        is_stand_in=is_stand_in, is_noisy=batch is not None and batch < len(problem.x),
    )  # fmt: skip
    return Advice(model, rates, layer_point(structure), starts, sentences, is_stand_in)


def _structure(network: Any, data: Data | None) -> Architecture:
    if isinstance(network, Model):
        network = network.network
    if isinstance(network, Architecture):
        return network
    if any(kind.__module__.startswith("torch") for kind in type(network).__mro__):
        from dynagram.integrations.torch import architecture_of

        if data is None:
            raise InvalidValueError("data", None, "needed to run a PyTorch module")
        return architecture_of(network, data.x)
    allowed = "expected an MLP, an Architecture, a Model or a PyTorch module"
    raise InvalidTypeError("network", network, allowed)


def _stand_in(network: Architecture, loss: str, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    inputs, outputs = network.widths[0], network.widths[-1]
    x = rng.normal(size=(_STAND_IN, inputs))
    labels = rng.integers(max(outputs, 2), size=_STAND_IN)
    if loss == "cross-entropy":
        if outputs < 2:
            raise InvalidValueError("outputs", outputs, "cross-entropy needs at least two classes")
        return Data(x, (labels[:, None] == np.arange(outputs)).astype(float))
    if loss == "logistic":
        return Data(x, rng.choice([-1.0, 1.0], size=(_STAND_IN, outputs)))
    return Data(x, rng.normal(size=(_STAND_IN, outputs)))
