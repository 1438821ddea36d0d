"""What is to be learned: a network, training inputs with targets, and the inputs to predict for.

Repeated training inputs are merged. On L = ½ Σ (z − y)² an input that comes w times trains as one
with weight w and the mean of its targets; where these differ the loss cannot vanish, and a note
says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, check_inputs


@dataclass(frozen=True, eq=False)
class Problem:
    """Distinct training inputs, their mean targets and multiplicities, and the test inputs."""

    network: MLP
    train_x: Float[np.ndarray, "train n_0"]
    train_y: Float[np.ndarray, "train outputs"]
    weights: Float[np.ndarray, " train"]
    test_x: Float[np.ndarray, "test n_0"]
    notes: tuple[str, ...]

    @classmethod
    def checked(
        cls, network: MLP, train_x: object, train_y: object, test_x: object = None
    ) -> Problem:
        """Check shapes and finiteness, and merge repeated training inputs; None: no test inputs.

        >>> net = MLP([1, 4, 1], "tanh", C_b=0.0, C_W=1.0)
        >>> found = Problem.checked(net, [[1.0], [2.0], [1.0]], [[0.0], [1.0], [1.0]], [[3.0]])
        >>> found.train_y.ravel(), found.weights
        (array([0.5, 1. ]), array([2., 1.]))
        >>> found.notes[0]
        'train_x repeats row 0 as row 2 with another target: training ends at their mean, and the
        training loss does not vanish'
        """
        x = check_inputs(train_x, network.widths[0], "train_x")
        y = check_targets(train_y, x.shape[0], network.widths[-1])
        test = x[:0] if test_x is None else check_inputs(test_x, network.widths[0], "test_x")
        _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        place = rank[inverse]
        weights = np.bincount(place).astype(np.float64)
        targets = np.zeros((order.size, y.shape[1]))
        np.add.at(targets, place, y)
        targets /= weights[:, None]
        notes = _notes(x, y, first[order], place)
        return cls(network, x[first[order]], targets, weights, test, notes)

    @property
    def inputs(self) -> Float[np.ndarray, "sample n_0"]:
        """Training inputs, then test inputs."""
        return np.concatenate([self.train_x, self.test_x])


def check_targets(
    y: object, samples: int, outputs: int, name: str = "train_y"
) -> Float[np.ndarray, "samples outputs"]:
    """`y` as finite float64 (samples, outputs); one number per sample is fine for one output.

    >>> check_targets([1, 2], 2, 1)
    array([[1.], [2.]])
    """
    try:
        raw = np.asarray(y)
        values = raw.astype(np.float64) if raw.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        values = None
    if values is None:
        raise InvalidTypeError(name, type(y).__name__, "expected a rectangular array of reals")
    if values.ndim == 1 and outputs == 1:
        values = values[:, None]
    if values.shape != (samples, outputs):
        allowed = f"expected {(samples, outputs)}: a row per input, a column per output"
        raise InvalidValueError(f"shape of {name}", values.shape, allowed)
    if not np.all(np.isfinite(values)):
        row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InvalidValueError(
            f"{name}[{row}, {column}]", float(values[row, column]), "not finite"
        )
    return values


def _notes(x: np.ndarray, y: np.ndarray, kept: np.ndarray, place: np.ndarray) -> tuple[str, ...]:
    notes = []
    for row in range(x.shape[0]):
        first = int(kept[place[row]])
        if first == row:
            continue
        if np.array_equal(y[first], y[row]):
            notes.append(
                f"train_x repeats row {first} as row {row}, which trains with twice its weight"
            )
        else:
            notes.append(
                f"train_x repeats row {first} as row {row} with another target: training ends at "
                "their mean, and the training loss does not vanish"
            )
    if len(notes) > 3:
        notes = [*notes[:2], f"and {len(notes) - 2} more repeated rows of train_x"]
    return tuple(notes)
