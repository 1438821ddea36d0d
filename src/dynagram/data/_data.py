"""A training problem: inputs with targets, and the inputs to be asked about.

Repeated training inputs can be merged: on a squared error an input that comes w times trains as
one with weight w and the mean of its targets; where these differ the loss cannot vanish, and a
note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    ArrayLike = Any
    Structure = Any
else:
    ArrayLike = Structure = object  # checked by the constructor, with clearer messages


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Data:
    """Training inputs and targets, and test inputs with or without targets; float64, finite.

    **Arguments:**

    - `x`: training inputs (N_A, n_0), one per row.
    - `y`: targets (N_A, n_L); one number per sample is fine for one output. For classes see
        `Data.of_classes`.
    - `test_x`: inputs to predict for, (N_B, n_0); None for none.
    - `test_y`: their targets, if known.

    `classes` are the labels that the columns of `y` stand for, None for real targets.

    >>> Data([[1.0], [2.0]], [0.0, 1.0], test_x=[[3.0]])
    Data(2 training samples, 1 test sample, 1 input, 1 output)
    """

    x: Float[np.ndarray, "train n_0"]
    y: Float[np.ndarray, "train outputs"]
    test_x: Float[np.ndarray, "test n_0"]
    test_y: Float[np.ndarray, "test outputs"] | None
    classes: Int[np.ndarray, " classes"] | None

    def __init__(
        self, x: ArrayLike, y: ArrayLike, test_x: ArrayLike = None, test_y: ArrayLike = None
    ):
        inputs = check_inputs(x)
        targets = check_targets(y, inputs.shape[0])
        tests = inputs[:0] if test_x is None else check_inputs(test_x, inputs.shape[1], "test_x")
        test_targets = None
        if test_y is not None:
            if test_x is None:
                raise InvalidValueError("test_x", None, "needed where test_y is given")
            test_targets = check_targets(test_y, tests.shape[0], targets.shape[1], "test_y")
        for name, value in zip(
            ("x", "y", "test_x", "test_y"), (inputs, targets, tests, test_targets), strict=True
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "classes", None)

    @classmethod
    def of_classes(
        cls,
        x: ArrayLike,
        labels: ArrayLike,
        test_x: ArrayLike = None,
        test_labels: ArrayLike = None,
        *,
        outputs: int | None = None,
        smoothing: float = 0.0,
    ) -> Data:
        """Integer labels as one-hot targets.

        **Arguments:**

        - `x`, `test_x`: as for `Data`.
        - `labels`, `test_labels`: one integer per sample.
        - `outputs`: n_L of a network whose output c stands for the label c; 1 for a single output
            that is 1 for the label 1 and 0 for 0. None: column c is the c-th label that occurs.
        - `smoothing`: ε, which leaves 1 − ε for the label and shares ε among the other classes, in
            training targets only: a cross-entropy then has its minimum at finite outputs.

        >>> Data.of_classes([[1.0], [2.0], [3.0]], [7, 3, 7]).y.tolist()
        [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> Data.of_classes([[1.0], [2.0]], [0, 2], outputs=3).y.tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        >>> Data.of_classes([[1.0], [2.0]], [0, 2], outputs=3, smoothing=0.2).y.tolist()
        [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
        """
        numbers = _check_labels(labels, "labels")
        classes = np.unique(numbers) if outputs is None else np.arange(max(outputs, 2))
        test = None if test_labels is None else _check_labels(test_labels, "test_labels")
        for name, some in (("labels", numbers), ("test_labels", test)):
            if some is not None and (strange := np.setdiff1d(some, classes)).size:
                allowed = f"the training classes are {classes.tolist()}"
                if outputs is not None:
                    allowed = f"{_count(outputs, 'output')}: for labels 0 to {classes[-1]}"
                raise InvalidValueError(name, strange.tolist(), allowed)
        hot, test_hot = (
            None if some is None else (some[:, None] == classes[None, :]).astype(np.float64)
            for some in (numbers, test)
        )
        if not 0.0 <= smoothing < 1.0:
            raise InvalidValueError("smoothing", smoothing, "expected 0 ≤ smoothing < 1")
        if smoothing and classes.size > 1:
            assert hot is not None
            share = smoothing / (classes.size - 1)
            hot = np.where(hot > 0.0, 1.0 - smoothing, share)
        if outputs == 1:
            hot, test_hot = (None if some is None else some[:, 1:] for some in (hot, test_hot))
        data = cls(x, hot, test_x, test_hot)
        object.__setattr__(data, "classes", classes)
        return data

    @property
    def inputs(self) -> Float[np.ndarray, "sample n_0"]:
        """Training inputs, then test inputs."""
        return np.concatenate([self.x, self.test_x])

    @property
    def outputs(self) -> int:
        """n_L, the number of targets of a sample."""
        return self.y.shape[1]

    @cached_property
    def merged(self) -> Merged:
        """The distinct training inputs, in order of appearance, with weights and notes."""
        return _merge(self.x, self.y)

    def check(self, network: Structure) -> Data:
        """Itself, refused when it does not fit the inputs and outputs of `network`."""
        for name, values, size in (
            ("x", self.x, network.input_size), ("y", self.y, network.output_size),
        ):  # fmt: skip
            if values.shape[1] != size:
                allowed = f"expected {(values.shape[0], size)}: the network is {network.summary}"
                raise InvalidValueError(f"shape of {name}", values.shape, allowed)
        return self

    def __repr__(self) -> str:
        parts = (
            _count(self.x.shape[0], "training sample"), _count(self.test_x.shape[0], "test sample"),
            _count(self.x.shape[1], "input"), _count(self.outputs, "output"),
        )  # fmt: skip
        return f"Data({', '.join(parts)})"


class Merged(NamedTuple):
    """Distinct training inputs, their mean targets and multiplicities.

    **Arguments:**

    - `x`, `y`: distinct inputs, and the mean of their targets.
    - `weights`: how often each comes.
    - `place`: the row here of every training sample.
    - `notes`: what repeats, in words.
    """

    x: Float[np.ndarray, "distinct n_0"]
    y: Float[np.ndarray, "distinct outputs"]
    weights: Float[np.ndarray, " distinct"]
    place: Int[np.ndarray, " train"]
    notes: tuple[str, ...]


def find_distinct(
    x: Float[np.ndarray, "samples n_0"],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " samples"]]:
    """Rows of the distinct inputs in order of appearance, and each input's place among them.

    >>> [part.tolist() for part in find_distinct(np.array([[2.0], [1.0], [2.0]]))]
    [[0, 1], [0, 1, 0]]
    """
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse.reshape(-1)]


def check_inputs(
    x: object, n_0: int | None = None, name: str = "x"
) -> Float[np.ndarray, "samples n_0"]:
    """`x` as float64 (N, n_0), refused when empty, of another shape, or not finite.

    **Arguments:**

    - `x`: the inputs, one per row.
    - `n_0`: the number of components; any by default.
    - `name`: what the inputs are called in messages.

    **Returns:** the inputs as a NumPy array (N, n_0).

    >>> check_inputs([[1, 2], [3, 4]], 2)
    array([[1., 2.], [3., 4.]])
    """
    inputs = _as_reals(x, name)
    if inputs.ndim != 2 or n_0 not in (None, inputs.shape[1]) or 0 in inputs.shape:
        allowed = f"expected (samples, {'n_0' if n_0 is None else n_0}) with at least one sample, "
        raise InvalidValueError(f"shape of {name}", inputs.shape, allowed + "one per row")
    _require_finite(inputs, name)
    return inputs


def check_targets(
    y: object, samples: int, outputs: int | None = None, name: str = "y"
) -> Float[np.ndarray, "samples outputs"]:
    """`y` as finite float64 (samples, outputs); one number per sample is fine for one output.

    >>> check_targets([1, 2], 2, 1)
    array([[1.], [2.]])
    """
    targets = _as_reals(y, name)
    if targets.ndim == 1 and outputs in (None, 1):
        targets = targets[:, None]
    width = targets.shape[-1] if outputs is None and targets.ndim == 2 else outputs
    if targets.shape != (samples, width) or width == 0:
        expected = (samples, "n_L") if width is None else (samples, width)
        allowed = f"expected ({expected[0]}, {expected[1]}): a row per input, a column per output"
        raise InvalidValueError(f"shape of {name}", targets.shape, allowed)
    _require_finite(targets, name)
    return targets


def as_numpy(values: Any) -> np.ndarray:
    """An array of NumPy from what people have: lists, JAX, pandas, or tensors of PyTorch.

    Tensors are taken without their gradient, from any device and in any precision.

    >>> as_numpy([[1, 2]]).shape
    (1, 2)
    """
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # a tensor; torch is not imported
        tensor = values.detach().cpu()
        is_short = str(tensor.dtype) in ("torch.bfloat16", "torch.float16")
        return np.asarray(tensor.float() if is_short else tensor)
    array = np.asarray(values)
    if array.dtype == object and hasattr(values, "to_numpy"):  # pandas with its own kinds
        return values.to_numpy(dtype=np.float64)
    return array


def is_one_hot(y: Float[np.ndarray, "samples outputs"]) -> bool:
    """Whether every row is 1 in one of several columns and 0 in the others.

    >>> is_one_hot(np.eye(3)), is_one_hot(np.ones((2, 1))), is_one_hot(np.array([[0.2, 0.8]]))
    (True, False, False)
    """
    return y.shape[1] > 1 and bool(np.all((y == 0.0) | (y == 1.0)) and np.all(y.sum(axis=1) == 1))


def _as_reals(values: object, name: str) -> np.ndarray:
    try:
        raw = as_numpy(values)
        numbers = raw.astype(np.float64) if raw.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        text = repr(values)
        text = text if len(text) <= 60 else text[:57] + "…"
        raise InvalidTypeError(name, text, "expected a rectangular array of reals")
    return numbers


def _require_finite(values: np.ndarray, name: str) -> None:
    finite = np.isfinite(values)
    if not np.all(finite):
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        number = float(values[row, column])
        raise InvalidValueError(f"{name}[{row}, {column}]", number, "not finite")


def _check_labels(labels: object, name: str) -> np.ndarray:
    raw = as_numpy(labels)
    if raw.ndim != 1 or raw.dtype.kind not in "iu":
        allowed = "expected one integer per sample"
        raise InvalidTypeError(name, f"{raw.dtype} {raw.shape}", allowed)
    return raw


def _merge(x: np.ndarray, y: np.ndarray) -> Merged:
    first, place = find_distinct(x)
    weights = np.bincount(place).astype(np.float64)
    targets = np.zeros((first.size, y.shape[1]))
    np.add.at(targets, place, y)
    targets /= weights[:, None]
    return Merged(x[first], targets, weights, place, _describe_repeats(y, first, place))


def _describe_repeats(y: np.ndarray, first: np.ndarray, place: np.ndarray) -> tuple[str, ...]:
    notes = []
    for row in range(y.shape[0]):
        original = int(first[place[row]])
        if original == row:
            continue
        if np.array_equal(y[original], y[row]):
            notes.append(
                f"x repeats row {original} as row {row}, which trains with twice its weight"
            )
        else:
            notes.append(
                f"x repeats row {original} as row {row} with another target: training ends at "
                "their mean, and the training loss does not vanish"
            )
    if len(notes) > 3:
        notes = [*notes[:2], f"and {len(notes) - 2} more repeated rows of x"]
    return tuple(notes)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
