"""What would explain weights of another size than expected, by name, and code that mends it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynagram.live._walk import Matrix
from dynagram.results._table import short

TOLERANCE = 0.1  # a variance this close to what is expected is not worth a word
_NEAR = 0.08
_GAINS = (2.0, 25 / 9, 9 / 16)  # squares of those of ReLU, tanh and SELU


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong.

    **Arguments:**

    - `name`: in two or three words, such as "gain missing".
    - `message`: what is seen and what would explain it.
    - `parameters`: names of the parameters concerned.
    - `fix`: Python code that mends it, "" where none is known.
    """

    name: str
    message: str
    parameters: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class WeightReading:
    """An array of parameters beside the variance that it should have.

    **Arguments:**

    - `name`: in the model, with the letter of its part where a matrix holds several.
    - `matrix`: where it stands, and the expected variance of an entry.
    - `measured`: the mean square of its entries.
    - `error`: the standard deviation of that, relative to the expected, between draws.
    """

    name: str
    matrix: Matrix
    measured: float
    error: float

    @property
    def ratio(self) -> float:
        """Measured over expected variance."""
        if self.matrix.variance == 0.0:
            return 1.0 if self.measured == 0.0 else float("inf")
        return self.measured / self.matrix.variance

    @property
    def z(self) -> float:
        """How many standard deviations it is off."""
        if not np.isfinite(self.ratio):
            return float("inf")
        return (self.ratio - 1.0) / self.error

    @property
    def parameter(self) -> str:
        """The parameter's name alone."""
        return self.name.partition(" (")[0]


def explain_weights(
    readings: Sequence[WeightReading], branches: int, threshold: float, *, declared: bool
) -> list[Cause]:
    """The causes of all weights outside, those with one cause together.

    Where nothing is declared a matrix stands against others of its role: a gain or a fan that is
    wrong would be wrong in all of them.
    """
    off = [r for r in readings if abs(r.z) > threshold and abs(r.ratio - 1.0) > TOLERANCE]
    causes: list[Cause] = []
    off = _take(off, causes, _depth_scaling(off, readings, branches))
    if biases := [r for r in off if not r.matrix.is_weight]:
        off = [r for r in off if r.matrix.is_weight]
        causes.append(_cause("biases", biases, "biases are drawn otherwise than expected"))
    groups = _grouped(off, declared)
    weights = [r for r in readings if r.matrix.is_weight]
    ratios = [r.ratio for r in off]
    if len(off) == len(weights) > 1 and max(ratios) < 1.3 * min(ratios):
        # One factor in all: a fan that happens to be that factor explains one of them only.
        others = [name for name in groups if name != "wrong fan"] or list(groups)
        groups = {max(others, key=lambda name: len(groups[name])): off}
    for name, members in groups.items():
        everywhere = len(members) == len(weights) > 1
        causes.append(_cause(name, members, _WORDS[name], everywhere=everywhere))
    return causes


_WORDS = {
    "weights are zero": "all their entries are 0: nothing passes",
    "never initialised": "they have PyTorch's own variance, 1/(3·fan-in), or 1 for a table of "
    "vectors: the initialisation did not reach them",
    "gain missing": "they have 1/fan-in: the gain of the activation is missing",
    "gain applied twice": "the gain of the activation is in them twice",
    "wrong fan": "they are drawn with another fan, that of the output in place of the input or the "
    "reverse, or of a convolution without its taps",
    "doubled init": "they are drawn twice and added, or their standard deviation is doubled",
    "gain of another activation": "they have the gain of another activation: √2 is that of ReLU, "
    "5/3 that of tanh, 3/4 that of SELU",
    "std and variance mixed up": "their standard deviation is the variance that is expected, or "
    "the reverse",
    "wrong variance": "their variance is another one",
}


def _grouped(off: Sequence[WeightReading], declared: bool) -> dict[str, list[WeightReading]]:
    """Readings by the name of what explains them; what explains most of them comes first."""
    names: dict[str, list[str]] = {}
    for reading in off:  # a table that also reads out is off for one reason
        names.setdefault(reading.parameter, _names(reading, declared))
    groups: dict[str, list[WeightReading]] = {}
    while names:
        counts: dict[str, int] = {}
        for some in names.values():
            for name in some:
                counts[name] = counts.get(name, 0) + 1
        best = max(sorted(counts, key=_ORDER.index), key=lambda name: counts[name])
        if counts[best] < 2:  # nothing in common: each by the first that fits it
            best = next(iter(names.values()))[0]
        taken = {parameter for parameter, some in names.items() if best in some}
        groups.setdefault(best, []).extend(r for r in off if r.parameter in taken)
        names = {parameter: some for parameter, some in names.items() if parameter not in taken}
    return groups


_ORDER = [*_WORDS]


def _names(reading: WeightReading, declared: bool) -> list[str]:
    """Everything that would explain the size of a matrix, the most special first."""
    matrix, measured, ratio = reading.matrix, reading.measured, reading.ratio
    slack = max(_NEAR, 4.0 * reading.error)

    def is_near(value: float) -> bool:
        return abs(value - 1.0) < slack

    C, meant = measured * matrix.fan_in, matrix.variance * matrix.fan_in
    if measured == 0.0:
        return ["weights are zero"]
    names = []
    if (matrix.fan_in > 1 and is_near(3.0 * C)) or (
        matrix.key in ("token", "position") and is_near(measured)
    ):
        names.append("never initialised")
    if matrix.fan_in > 1 and declared:
        if is_near(C) and meant > 1.0 + 2 * slack:
            names.append("gain missing")
        if meant > 1.0 + 2 * slack and is_near(C / meant**2):
            names.append("gain applied twice")
        fans = matrix.fan_in / matrix.fan_out
        if abs(fans - 1.0) > 2 * slack and (is_near(ratio / fans) or is_near(ratio * fans)):
            names.append("wrong fan")
        if matrix.taps > 1 and (is_near(ratio / matrix.taps) or is_near(ratio * matrix.taps)):
            names.append("wrong fan")
    if is_near(ratio / 4.0) or is_near(ratio / 2.0):
        names.append("doubled init")
    if matrix.fan_in > 1 and declared and any(is_near(C / g) or is_near(ratio / g) for g in _GAINS):
        names.append("gain of another activation")
    if is_near(measured / matrix.variance**2) or is_near(measured**2 / matrix.variance):
        names.append("std and variance mixed up")
    return names or ["wrong variance"]


def _depth_scaling(
    off: Sequence[WeightReading], readings: Sequence[WeightReading], branches: int
) -> Cause | None:
    """Ends of branches that lack a factor 1/√branches, or others that have it in their place."""
    if branches < 2:
        return None
    ends = [r for r in readings if r.matrix.is_branch_end and r.matrix.is_weight]
    root = f"√{branches} = {branches**0.5:.3g}"

    def near(r: WeightReading, factor: float | int) -> bool:
        return abs(r.ratio / factor - 1.0) < max(0.15, 4.0 * r.error)

    large = [r for r in off if r in ends and near(r, branches)]
    small = [r for r in off if r not in ends and near(r, 1.0 / branches)]
    shrunk = [r for r in off if r in ends and near(r, 1.0 / branches)]
    if large and small:
        return _cause(
            "wrong matrix scaled", [*large, *small],
            f"{_list(small)} are divided by {root} in place of {_list(large)}, the last matrices "
            "of the branches",
        )  # fmt: skip
    if large and (len(large) > 1 or len(ends) == 1):
        every = "every branch" if len(large) == len(ends) else _list(large)
        return _cause(
            "depth scaling absent", large,
            f"{every} adds {branches} times what it should: the last matrices of the branches are "
            f"not divided by {root}, the scaling with depth is left out",
        )  # fmt: skip
    if shrunk and len(shrunk) > 1:
        return _cause(
            "depth scaling not meant",
            shrunk,
            f"the last matrices of the branches are divided by {root}, which is not expected here",
        )
    return None


def _take(
    off: list[WeightReading], causes: list[Cause], cause: Cause | None
) -> list[WeightReading]:
    if cause is None:
        return off
    causes.append(cause)
    return [r for r in off if r.parameter not in cause.parameters]


def _cause(
    name: str, members: Sequence[WeightReading], words: str, *, everywhere: bool = False
) -> Cause:
    ratios = [r.ratio for r in members]
    size = short(float(np.median(ratios)), 3)
    where = "all weights" if everywhere else _list(members)
    if name.startswith(("depth", "wrong matrix")):
        message = words
    else:
        message = f"{where} have {size} times the variance expected: {words}"
    names = tuple(dict.fromkeys(r.parameter for r in members))
    return Cause(name, f"{name}: {message}", names, fix_of(members))


def _list(members: Sequence[WeightReading]) -> str:
    """Names without repeating what differs in numbers only."""
    patterns = dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", r.name) for r in members)
    if len(members) == 1 or len(patterns) == len(members):
        names = [r.name for r in members]
    else:
        names = list(patterns)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def fix_of(members: Sequence[WeightReading]) -> str:
    """PyTorch code that draws these parameters as expected."""
    by_std: dict[str, list[str]] = {}
    for reading in members:
        std = f"{reading.matrix.variance**0.5:.4g}"
        by_std.setdefault(std, [])
        if reading.parameter not in by_std[std]:
            by_std[std].append(reading.parameter)
    lines = []
    for std, names in by_std.items():
        draw = (
            f"normal_(model.get_parameter(name), std={std})"
            if std != "0"
            else ("zeros_(model.get_parameter(name))")
        )
        lines.append(f"for name in {names!r}:\n    torch.nn.init.{draw}")
    return "\n".join(lines)
