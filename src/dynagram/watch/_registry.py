"""The quantities that are recorded: a row and a function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dynagram.watch import _layer_quantities as layer
from dynagram.watch import _run_quantities as run


@dataclass(frozen=True)
class Quantity:
    """A number that is recorded.

    **Arguments:**

    - `name`: what it is called in records and trackers.
    - `plain`: what it is, in words.
    - `function`: computes it; returns the value and a band, or None where it does not exist.
    - `of_layer`: whether there is one for every layer.
    - `turn`: 0 for what every record holds; dear quantities come by turns, those of turn 1, 2 and 3
        in every third record, and for one layer after another.
    - `above`, `below`: what it means when it leaves its band on that side, in words; of a number
        held against other draws of the model a comparison, to which the alert adds with what.
    """

    name: str
    plain: str
    function: Callable[..., layer.Reading]
    of_layer: bool = True
    turn: int = 0
    above: str = ""
    below: str = ""


_UNBALANCED = "steps are too large for the balance of layers that the flow conserves"

_ROWS = (
    Quantity("loss", "loss on the probe", run.loss, False),
    Quantity("rate", "learning rate", run.rate, False),
    Quantity(
        "top_eigenvalue", "top eigenvalue of the tangent kernel", run.top_eigenvalue, False, 1,
        above="steps of this size overshoot along its direction: the loss falls no further "
        "there, or grows; a rate below 2/λ is stable",
    ),
    Quantity("kernel_drift", "change of the tangent kernel since the start", run.kernel_drift,
             False, above="features are learnt faster than by draws like this one",
             below="features are learnt slower than by draws like this one"),
    Quantity("plateau", "state of the loss", run.plateau, False),
    Quantity("escape", "step at which it leaves the plateau", run.escape, False),
    Quantity("weight_norm", "norm of the weights", layer.weight_norm,
             above="these weights are larger", below="these weights are smaller"),
    Quantity("update_norm", "norm of the last update", layer.update_norm),
    Quantity("activation", "mean square of the outputs", layer.activation,
             above="signals of this layer are larger", below="signals of this layer are smaller"),
    Quantity("gradient", "mean square of the gradient by the outputs", layer.gradient,
             above="gradients that reach this layer are larger",
             below="gradients that reach this layer are smaller"),
    Quantity("similarity", "cosine of tokens, or of samples", layer.similarity,
             above="they are more alike here", below="they are less alike here"),
    Quantity("kernel_share", "part of the tangent kernel", layer.kernel_share,
             above="this layer's part in how the output changes is larger",
             below="this layer's part in how the output changes is smaller"),
    Quantity("dead", "part of units that pass nothing on", layer.dead,
             above="more units are silent on the whole probe",
             below="fewer units are silent on the whole probe"),
    Quantity("imbalance", "squared norm of the next layer minus this one's", layer.imbalance,
             above=_UNBALANCED, below=_UNBALANCED),
    Quantity("gram_explained", "change of the Gram along the push of the loss",
             layer.gram_explained),
    Quantity("linearity", "held-out linear read-out of the targets", layer.linearity, turn=2),
    Quantity("effective_rank", "effective rank of the weights", layer.rank, turn=3),
    Quantity("tail", "index of the spectral tail", layer.tail, turn=3),
)  # fmt: skip

TURNS = 3
QUANTITIES: dict[str, Quantity] = {row.name: row for row in _ROWS}
