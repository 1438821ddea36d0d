"""Looks at a JAX function of parameters on a probe batch.

The function is traced once. In its jaxpr, wherever a leaf of the parameters with two or more
dimensions is one side of a product, the other side is what enters that layer and the result what
leaves it. The jaxpr is then evaluated with a zero added to each such result: the derivatives by
these zeros are the gradients by the outputs of the layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Model
from dynagram.watch import _jax_passes as passes
from dynagram.watch._jax_products import Use, trace
from dynagram.watch._look import LayerLook, Look, Task
from dynagram.watch._measure import one_line
from dynagram.watch._mixing import first_direction, mixing_signs
from dynagram.watch._named_loss import loss_name
from dynagram.watch._settings import FIRST_ITERATIONS, ITERATIONS, other_samples, sample_counts
from dynagram.watch._targets import readable_targets

Function = Callable[[Any, Any], Any]
Loss = Callable[[Any, Any], Any]


class JaxRecorder:
    """Makes `Look`s of a function of parameters.

    **Arguments:**

    - `function`: f(params, x), outputs with the samples first.
    - `params`: a pytree of arrays, of which those of two and more dimensions are weights.
    - `probe`: x or (x, y).
    - `loss`: loss(outputs, y); None: by the kind of y.
    - `samples`: how many of the probe are used for gradients.
    """

    framework = "jax"

    def __init__(
        self, function: Function, params: Any, probe: Any, loss: Loss | None, samples: int
    ):
        x, y = probe if isinstance(probe, tuple) and len(probe) == 2 else (probe, None)
        self._x = _numbers(x, probe)
        self._y = None if y is None else _numbers(y, probe)
        self._count = len(self._x) if self._x.ndim else 0
        if self._count < 2:
            raise InvalidValueError("probe", self._count, "at least 2 samples")
        pairs = jax.tree_util.tree_leaves_with_path(params)
        self._paths = [_name(path) for path, _ in pairs]
        for path, leaf in zip(self._paths, (leaf for _, leaf in pairs), strict=True):
            if not jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), np.number):
                kind = str(getattr(leaf, "dtype", type(leaf).__name__))
                allowed = f"'{path}' is no array of numbers: leave it out of params"
                raise InvalidTypeError("params", kind, allowed)
        weights = [i for i, (_, leaf) in enumerate(pairs) if jnp.ndim(leaf) >= 2]
        if not weights:
            raise InvalidValueError("params", self._paths, "no leaf with two or more dimensions")
        self.loss = loss or passes.usual_loss
        self._loss_name = loss_name(loss, self._y)
        self.function = function
        try:
            z, _ = trace(function, params, self._x[:2])
        except Exception as error:  # before training begins the user can mend it
            allowed = f"the model does not take it: {one_line(error)}"
            raise InvalidValueError("probe", self._x.shape, allowed) from error
        if z is None or len(z.shape) < 2 or z.shape[0] != 2:
            got = None if z is None else z.shape
            raise InvalidTypeError("output of the model", got, "expected one array, samples first")
        tokens = max(1, int(np.prod(z.shape[1:-1])))
        self._samples, self._feature_samples = sample_counts(self._count, samples, tokens)
        _, self._uses = trace(function, params, self._x[: self._samples])
        used = list(dict.fromkeys(use.leaf for use in self._uses))
        self._order = used + [leaf for leaf in weights if leaf not in used]
        self._direction: np.ndarray | None = None

    @property
    def x(self) -> np.ndarray:
        """The inputs of the probe."""
        return self._x

    @property
    def names(self) -> list[str]:
        """Of the layers, in the order in which they are used."""
        return [self._paths[leaf] for leaf in self._order]

    def look(self, params: Any, before: Any = None) -> Look:
        """Everything that quantities are measured on; `before`: the parameters a step ago."""
        x = self._x[: self._samples]
        y = None if self._y is None else self._y[: self._samples]
        signs = mixing_signs(self._output_shape(params, x))
        signals = jax.tree.map(np.asarray, passes.signals(params, self, x, y, signs))
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
        earlier = None if before is None else jax.tree.leaves(before)
        layers = []
        for leaf in self._order:
            layer = LayerLook(self._paths[leaf], "other", _real(leaves[leaf]))
            if earlier is not None:
                layer.step = layer.weight - _real(np.asarray(earlier[leaf]))
            numbers = [i for i, use in enumerate(self._uses) if use.leaf == leaf]
            _fill(layer, [self._uses[i] for i in numbers], [
                {name: None if parts is None else parts[i] for name, parts in signals.items()
                 if name != "loss"} for i in numbers
            ], self._samples)  # fmt: skip
            biases = [bias for i in numbers if (bias := self._uses[i].bias) is not None]
            layer.bias = _real(leaves[biases[0]]) if biases else None
            if biases and earlier is not None:
                layer.bias_step = layer.bias - _real(np.asarray(earlier[biases[0]]))
            layers.append(layer)
        return Look(
            layers,
            loss=None if y is None else float(signals["loss"]),
            curvature=None if y is None else functools.partial(self._curvature, params, x, y),
            elsewhere=None
            if y is None or not other_samples(self._count, self._samples)
            else functools.partial(self._elsewhere, params, x),
            task=self._task(params),
            features=None if self._y is None else self._features(params, signals["outputs"]),
        )

    def _task(self, params: Any) -> Task | None:
        if self._y is None:
            return None
        read = functools.partial(Model.of, self.function, self._x, params=params)
        return Task(read, self._x, self._y, self._loss_name)

    def updates(self, params: Any, before: Any) -> dict[int, float]:
        """The squared norms of the last update, by the number of the layer."""
        pairs = list(zip(jax.tree.leaves(params), jax.tree.leaves(before), strict=True))
        moved = [np.asarray(pairs[leaf][0]) - np.asarray(pairs[leaf][1]) for leaf in self._order]
        return {number: float(np.sum(_real(step) ** 2)) for number, step in enumerate(moved)}

    def _output_shape(self, params: Any, x: np.ndarray) -> tuple[int, ...]:
        z, _ = trace(self.function, params, x)
        assert z is not None
        return z.shape

    def _curvature(self, params: Any, x: np.ndarray, y: np.ndarray) -> float:
        """λ_max of JᵀL''J by the power method, from where it was at the last record."""
        start, iterations = self._direction, ITERATIONS
        if start is None:
            start = first_direction(self._output_shape(params, x))
            iterations = FIRST_ITERATIONS
        value, direction = passes.largest(params, self, x, y, start, iterations)
        if np.all(np.isfinite(direction)):
            self._direction = np.asarray(direction)
        return float(value)

    def _elsewhere(self, params: Any, x: np.ndarray) -> float:
        """The curvature of other samples along the direction that the power method has found."""
        assert self._y is not None
        assert self._direction is not None
        rows = slice(self._samples, self._samples + other_samples(self._count, self._samples))
        others = self._x[rows], self._y[rows]
        return float(passes.along(params, self, x, *others, self._direction))

    def _features(
        self, params: Any, seen: Any
    ) -> Callable[[int], tuple[np.ndarray, np.ndarray] | None]:
        samples = self._feature_samples
        x, y = self._x[:samples], self._y
        assert y is not None
        # Where gradients are taken of as many samples, their outputs are there already.
        made: list[Any] = [seen] if samples == self._samples else []

        def features(index: int) -> tuple[np.ndarray, np.ndarray] | None:
            if not made:
                made.append(passes.outputs(params, self, x))
            numbers = [i for i, use in enumerate(self._uses) if use.leaf == self._order[index]]
            if not numbers:
                return None
            use = self._uses[numbers[0]]
            z = _as_signal(np.asarray(made[0][numbers[0]]), use.output_axis, samples)
            return None if z is None else readable_targets(z, y[:samples])

        return features

    # Recorders are compared by identity: compiled functions belong to one of them.
    __hash__ = object.__hash__


def _numbers(values: Any, probe: Any) -> np.ndarray:
    """A part of the probe as an array; refused where it is none."""
    try:
        array = np.asarray(values)
    except Exception:  # ragged, or of a kind that only its library knows
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "OUSMmV" and array.dtype.name != "bfloat16":
        kinds = type(probe).__name__
        if isinstance(probe, tuple):
            kinds = [type(part).__name__ for part in probe]
        raise InvalidTypeError("probe", kinds, "expected arrays: a batch x, or a pair (x, y)")
    return array


def _name(path: Any) -> str:
    """A path in a pytree, its parts with dots between them."""
    parts = []
    for entry in path:
        part = getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", None)))
        parts.append(str(entry if part is None else part))
    return ".".join(parts) or "weight"


def _fill(layer: LayerLook, uses: list[Use], signals: list[dict[str, Any]], samples: int) -> None:
    """Put the signals of all products with one weight into the look at it."""
    if not uses:
        return
    axis = uses[0].axis
    outputs = [
        _as_signal(part["outputs"], use.output_axis, samples)
        for use, part in zip(uses, signals, strict=True)
    ]
    if any(z is None for z in outputs):
        return
    layer.outputs = np.concatenate([z for z in outputs if z is not None], axis=1)
    for name in ("response", "errors"):
        parts = [part[name] for part in signals]
        if all(part is not None for part in parts):
            rows = [_as_signal(part, axis, samples) for part in parts]
            joined = np.concatenate([row for row in rows if row is not None], axis=1)
            setattr(layer, name, samples * joined if name == "errors" else joined)
    if layer.weight.ndim == 2 and all(use.is_dense for use in uses):
        layer.kind = "linear"
        if uses[0].inputs_first:
            layer.weight = layer.weight.T
            layer.step = None if layer.step is None else layer.step.T
        inputs = [_as_signal(part["inputs"], -1, samples) for part in signals]
        if all(h is not None for h in inputs):
            layer.inputs = np.concatenate([h for h in inputs if h is not None], axis=1)


def _as_signal(values: np.ndarray, axis: int, samples: int) -> np.ndarray | None:
    """(samples, tokens, channels), the channels from `axis`; None where no axis has the samples."""
    moved = np.moveaxis(_real(values), axis, -1)
    places = [i for i, size in enumerate(moved.shape[:-1]) if size == samples]
    if not places:
        return None
    first = np.moveaxis(moved, places[0], 0)
    return first.reshape(samples, -1, first.shape[-1])


def _real(values: np.ndarray) -> np.ndarray:
    """At least float32: half precision is too coarse for sums of squares."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
