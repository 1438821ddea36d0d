"""Two results against each other: z-scores, worst entry, fraction within 3σ, χ² per entry.

`compare` takes two `Tensors`, two `Outputs`, or numbers and an `Estimate`.
"""

from __future__ import annotations

import math
import tomllib
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.results._agreement import Agreement, Comparison, Row
from dynagram.results._estimate import Estimate
from dynagram.results._next_order import left_out
from dynagram.results._outputs import Outputs
from dynagram.results._tensors import CORRECTIONS, Tensors

# Two numbers without error bars agree when they do to this relative accuracy.
EXACT_AGREEMENT = 1e-9
# Errors and differences below this fraction of the numbers are rounding, not statistics.
_ROUNDING = 1e-14


@overload
def compare(first: Tensors, second: Tensors) -> Agreement: ...
@overload
def compare(first: Outputs, second: Outputs) -> Agreement: ...
@overload
def compare(
    first: Float[np.ndarray, "*shape"] | float | Estimate,
    second: Estimate,
    *,
    prediction_error: Float[np.ndarray, "*shape"] | float = 0.0,
    name: str = "",
) -> Comparison: ...
def compare(
    first: Any, second: Any, *, prediction_error: Any = 0.0, name: str = ""
) -> Agreement | Comparison:
    """z = (second − first)/error entrywise, the errors of both added in squares.

    A measured mean holds all orders in 1/n: where one of two `Tensors` is a prediction and the
    other measured, K and Θ are completed by G1/n and H1/n as far as they are known. Symmetric
    duplicates of an entry count as entries.

    **Arguments:**

    - `first`, `second`: two `Tensors` or two `Outputs` of the same network and inputs; or an
        array (or an `Estimate`) and an `Estimate`.
    - `prediction_error`: errors of `first` where it is an array.
    - `name`: a label where arrays are compared.

    **Returns:** an `Agreement` of records, or a `Comparison` of arrays.

    >>> measured = Estimate(np.array([1.02, 0.49, 2.0]), np.array([0.01, 0.01, 0.0]), 1000)
    >>> result = compare(np.array([1.0, 0.5, 2.0]), measured, name="K")
    >>> print(result)
    K: 2 entries, worst z = +2.00 at (0,), 100 % within 3σ, χ²/entry = 2.50;
    1 of 1 entries without error bar agree
    >>> result.ok()
    True
    """
    if isinstance(first, Tensors) and isinstance(second, Tensors):
        return _compare_tensors(first, second)
    if isinstance(first, Outputs) and isinstance(second, Outputs):
        return _compare_outputs(first, second)
    if not isinstance(second, Estimate):
        kinds = f"{type(first).__name__} and {type(second).__name__}"
        allowed = "expected two Tensors, two Outputs, or an array and an Estimate"
        raise InvalidTypeError("arguments of compare", kinds, allowed)
    if isinstance(first, Estimate):
        first, prediction_error = first.value, first.standard_error
    return _compare_arrays(first, second, prediction_error, name)


def _compare_arrays(
    prediction: Any, estimate: Estimate, prediction_error: Any, name: str
) -> Comparison:
    predicted = np.asarray(prediction, dtype=np.float64)
    predicted_error = np.asarray(prediction_error, dtype=np.float64)
    value = np.asarray(estimate.value, dtype=np.float64)
    _check(predicted, predicted_error, value, estimate.standard_error)
    difference = value - predicted
    error = np.hypot(estimate.standard_error, predicted_error)
    size = np.maximum(np.abs(value), np.abs(predicted))
    exact = np.asarray(error <= _ROUNDING * size)
    # Entries that vanish by symmetry are left with the rounding of their neighbours' size.
    agree = np.abs(difference) <= EXACT_AGREEMENT * size + _ROUNDING * np.max(size)
    verdict = np.where(agree, 0.0, np.copysign(np.inf, difference))
    z = np.asarray(np.where(exact, verdict, difference / np.where(exact, 1.0, error)))
    # Entries that symmetry makes equal differ by rounding: the first of them is named.
    strength = np.abs(z)
    worst = np.unravel_index(np.argmax(strength >= strength.max() * (1.0 - 1e-9)), z.shape)
    noisy = z[~exact]
    return Comparison(
        name=name,
        z=z,
        exact=exact,
        worst_index=tuple(int(i) for i in worst),
        worst_z=float(z[worst]),
        fraction_within_3=float(np.mean(np.abs(noisy) <= 3.0)) if noisy.size else 1.0,
        chi2_per_entry=float(np.mean(noisy**2)) if noisy.size else 0.0,
        exact_mismatches=int(np.sum(exact & ~agree)),
    )


def _check(
    predicted: np.ndarray, predicted_error: np.ndarray, value: np.ndarray, error: np.ndarray
) -> None:
    if predicted.shape != value.shape:
        allowed = f"the estimate has shape {value.shape}"
        raise InvalidValueError("shape of prediction", predicted.shape, allowed)
    if predicted_error.shape not in ((), value.shape):
        allowed = f"expected a number or the shape {value.shape}"
        raise InvalidValueError("shape of prediction_error", predicted_error.shape, allowed)
    if value.size == 0:
        raise InvalidValueError("shape of estimate", value.shape, "at least one entry needed")
    named = {
        "prediction": predicted,
        "prediction_error": predicted_error,
        "estimate.value": value,
        "estimate.standard_error": error,
    }
    for label, numbers in named.items():
        if not np.all(np.isfinite(numbers)):
            bad = numbers[~np.isfinite(numbers)].ravel()[0]
            raise InvalidValueError(label, float(bad), "every entry must be finite")
        if label.endswith("error") and np.any(numbers < 0.0):
            raise InvalidValueError(label, float(np.min(numbers)), "an error must be ≥ 0")


# --- records ----------------------------------------------------------------------------------


def _compare_tensors(one: Tensors, two: Tensors) -> Agreement:
    _require_the_same(one, two)
    rows = []
    mixed = (one.order == "measured") != (two.order == "measured")
    for name in (name for name in one if name in two):
        layers = tuple(layer for layer in one.layers[name] if layer in two.layers[name])
        if not layers:
            continue
        label, sides = name, []
        for side in (one, two):
            value, error = side[name], side.error(name)
            if mixed and side.order != "measured":
                label, value, error = side.completed(name)
            where = [side.layers[name].index(layer) for layer in layers]
            sides.append((value[where], error[where]))
        left_out = np.zeros_like(sides[0][0])
        if mixed:
            predicted = two if one.order == "measured" else one
            where = [predicted.layers[name].index(layer) for layer in layers]
            left_out = _next_order(predicted, name, label)[where]
        rows.append(_row(label, layers, sides, left_out))
    if not rows:
        have = " and ".join(",".join(side.values) for side in (one, two))
        raise InvalidValueError("tensors", have, "no tensor of the same layer in both")
    return Agreement(tuple(rows), tuple(_notes(one, two, [row.label for row in rows])))


def _compare_outputs(one: Outputs, two: Outputs) -> Agreement:
    if one.network != two.network:
        raise InvalidValueError("networks", (one.network, two.network), "two different networks")
    if one.inputs.shape != two.inputs.shape or not np.array_equal(one.inputs, two.inputs):
        raise InvalidValueError("inputs", "of both", "the samples of the two results differ")
    if not math.isclose(one.time, two.time, rel_tol=1e-9):
        raise InvalidValueError("times", (one.time, two.time), "two different moments")
    rows = [_row("mean", (), [(one.mean, one.error), (two.mean, two.error)])]
    known = [side for side in (one, two) if side.covariance_errors is not None]
    if any(side.order == "measured" for side in known):
        sides = [(side.covariance, side.covariance_error) for side in (one, two)]
        rows.append(_row("covariance", (), sides))
    return Agreement(tuple(rows), ())


def _row(
    label: str,
    layers: tuple[int, ...],
    sides: list[tuple[np.ndarray, np.ndarray]],
    left_out: np.ndarray | float = 0.0,
) -> Row:
    (a, a_error), (b, b_error) = sides
    result = _compare_arrays(a, Estimate(b, b_error, 1), a_error, label)
    size = float(np.linalg.norm(a))
    relative = float(np.linalg.norm(b - a)) / size if size > 0 else 0.0
    error = np.hypot(a_error, b_error)
    rest = np.maximum(np.abs(b - a) - left_out, 0.0)
    beyond = np.where(result.exact, result.z, rest / np.where(result.exact, 1.0, error))
    return Row(label, layers, result, relative, beyond)


def _next_order(predicted: Tensors, name: str, label: str) -> np.ndarray:
    """What the next order is expected to change in every entry, as far as the regime knows."""
    numbers = {} if predicted.regime is None else predicted.regime.numbers
    if name == "K" and not label.startswith("K +"):
        return np.zeros_like(predicted[name])
    fan_in = predicted.fan_in(name).reshape(-1)
    return left_out(name, predicted[name], predicted.values.get("K"), fan_in, numbers)


def _require_the_same(one: Tensors, two: Tensors) -> None:
    if one.network != two.network:
        texts = (side.network.to_toml() for side in (one, two))
        left, right = (tomllib.loads(text)["network"] for text in texts)
        keys = [k for k in {**left, **right} if left.get(k) != right.get(k)]
        differences = ", ".join(f"{k} {left.get(k)} and {right.get(k)}" for k in keys)
        allowed = "two different networks cannot be compared"
        raise InvalidValueError("networks", differences, allowed)
    if one.x.shape != two.x.shape:
        raise InvalidValueError("inputs", (one.x.shape, two.x.shape), "of different shape")
    if not np.array_equal(one.x, two.x):
        row = int(np.argwhere(one.x != two.x)[0][0])
        raise InvalidValueError("inputs", f"sample {row}", "the inputs of the two differ")


def _notes(one: Tensors, two: Tensors, labels: list[str]) -> list[str]:
    """What a prediction leaves out, where it is compared with a measurement."""
    if (one.order == "measured") == (two.order == "measured"):
        return []
    predicted, measured = (two, one) if one.order == "measured" else (one, two)
    notes = [
        f"the simulation ({measured.members} networks) contains all orders in "
        "1/n: at small width a residual of the next order is expected, and it halves when the "
        "widths double"
    ]
    if frozen := [name for name in CORRECTIONS if name in labels]:
        asked = ", ".join(CORRECTIONS[name] for name in frozen)
        notes.append(f"{', '.join(frozen)}: order ∞; predict {asked} as well to reach order 1/n")
    if finite := [label for label in labels if label not in CORRECTIONS]:
        notes.append(f"{', '.join(finite)}: order 1/n")
    numbers = {} if predicted.regime is None else predicted.regime.numbers
    sizes = {
        "leading_correction": "the 1/n correction of the kernel at the output is {} of it",
        "next_order_of_V": "expected residual for one input at the output: {} of V",
        "next_order_of_G": "expected residual of the mean metric: {} of K",
    }
    notes += [
        words.format(f"{100 * numbers[name]:.2g} %")
        for name, words in sizes.items()
        if name in numbers
    ]
    if (fluctuation := numbers.get("ntk_fluctuation")) is not None:
        notes.append(
            f"the NTK fluctuates by {100 * fluctuation:.2g} % between draws: expect residuals of "
            f"about its square, {100 * fluctuation**2:.2g} %, in Theta to U, more in small entries"
        )
    return notes
