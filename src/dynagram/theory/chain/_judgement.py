"""A network that was drawn, held against what it should be at birth, and what is wrong with it.

Every measured number has a band. Where the stream leaves its own, what each branch adds to it says
which block is to blame: given the stream before, a branch adds its share up to about √(1/n).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks.blocks._composite import Residual
from dynagram.networks.blocks._nonlinear import RMSNorm
from dynagram.results._table import Grid, short
from dynagram.theory.chain._birth import Birth, Stage
from dynagram.theory.chain._scalings import count_layers

# A mean square over fewer channels than this is far from normal: no band is held against it.
_FEWEST = 16
_ALIKE = 1.5  # factors this close to each other are one
_THRESHOLD = 4.0
_SYSTEMATIC = 0.05  # of what a branch adds, by how alike the tokens of this network are

Measured = Mapping[int, float] | Sequence[float | None]


@dataclass(frozen=True)
class Reading:
    """One measured number beside its band.

    **Arguments:**

    - `number`, `name`: of the stage, counted from 0.
    - `quantity`: "mean square", "token similarity" or "squared gradient".
    - `measured`, `expected`, `std`: the value, its mean and standard deviation between networks.
    """

    number: int
    name: str
    quantity: str
    measured: float
    expected: float
    std: float

    @property
    def z(self) -> float:
        """How many standard deviations it is off."""
        gap = self.measured - self.expected
        return gap / self.std if self.std > 0 else float(np.sign(gap)) * np.inf if gap else 0.0


@dataclass(frozen=True)
class Judgement:
    """Readings, those outside their band, and in words what is wrong; by `judge_birth`."""

    readings: tuple[Reading, ...]
    threshold: float
    messages: tuple[str, ...]

    @property
    def outside(self) -> tuple[Reading, ...]:
        """The readings that are further off than the threshold."""
        return tuple(reading for reading in self.readings if abs(reading.z) > self.threshold)

    @property
    def is_inside(self) -> bool:
        """Whether all are in their bands, and no branch adds what it should not."""
        return not self.outside and not self.messages

    def summary(self) -> Grid:
        """A row for every reading."""
        rows = tuple(
            (
                str(r.number + 1), r.name, r.quantity, f"{r.measured:.4g}",
                f"{r.expected:.4g} ± {short(r.std, 2)}", f"{r.z:+.1f}",
            )
            for r in self.readings
        )  # fmt: skip
        headings = ("", "after", "quantity", "measured", "expected", "z")
        return Grid(headings, rows, self.messages, keys=2)

    def table(self) -> Any:
        """A rich table."""
        return self.summary().rich()

    def __repr__(self) -> str:
        words = "inside" if self.is_inside else f"{len(self.outside)} outside their bands"
        return f"Judgement({len(self.readings)} readings, {words})"

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))


def judge_birth(
    birth: Birth,
    mean_squares: Measured,
    *,
    similarities: Measured | None = None,
    gradients: Mapping[int, Mapping[str, float]] | None = None,
    threshold: float = _THRESHOLD,
) -> Judgement:
    """Whether a network that was drawn is what it should be, and if not, what is wrong with it.

    **Arguments:**

    - `birth`: what it should be, of `trace_birth` for the same inputs.
    - `mean_squares`: of the signal after each block, averaged over channels, tokens and inputs; one
        for every stage, None where it was not measured, or by the number of the stage from 0.
    - `similarities`: of tokens, likewise.
    - `gradients`: squared gradients of weights by name, as in `Stage.weights`, by the number of the
        stage; they tell which matrix of a block is to blame. Where `birth` has the spread of the
        gradient of that block, their sum is judged too.
    - `threshold`: standard deviations beyond which a reading is outside.

    **Returns:** `Judgement`. Single channels and sums of few are not judged: they are not normal.

    >>> from dynagram.networks import Chain
    >>> from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
    >>> from dynagram.theory.chain import trace_birth
    >>> block = Residual([RMSNorm(), Dense(512), Activate("relu"), Dense(512, C_W=2.0)])
    >>> net = Chain([Dense(512), *[block] * 4, RMSNorm(), Dense(1)], inputs=3)
    >>> birth = trace_birth(net, np.ones((1, 3)))
    >>> judge_birth(birth, [1.0, 2.1, 2.9, 3.9, 5.1]).is_inside
    True
    >>> judge_birth(birth, [1.0, 2.1, 6.0, 7.1, 8.0]).messages[0].partition(":")[0]
    'block 3, residual (mlp), adds 3.9 times what it should'
    """
    squares = _by_number("mean_squares", mean_squares, birth)
    alike = {} if similarities is None else _by_number("similarities", similarities, birth)
    weights = gradients or {}
    readings = []
    for number, stage in enumerate(birth.stages):
        if stage.width < _FEWEST:
            continue
        if number in squares and stage.mean_square_std > 1e-4 * stage.mean_square:
            readings.append(
                Reading(number, stage.name, "mean square", squares[number], stage.mean_square,
                        float(np.hypot(stage.mean_square_std, stage.error)))
            )  # fmt: skip
        if number in alike and stage.similarity is not None and stage.similarity_std is not None:
            readings.append(
                Reading(number, stage.name, "token similarity", alike[number], stage.similarity,
                        stage.similarity_std)
            )  # fmt: skip
        if number in weights and stage.gradient_std is not None:
            total = float(sum(weights[number].values()))
            readings.append(
                Reading(number, stage.name, "squared gradient", total, stage.gradient,
                        stage.gradient_std)
            )  # fmt: skip
    judged = Judgement(tuple(readings), threshold, ())
    causes = _causes(birth, squares, weights, threshold)
    if judged.is_inside and not causes:
        return judged
    if not causes:
        first = judged.outside[0]
        causes = [
            f"{_block(first.number, birth.stages[first.number])} is the first outside: its "
            f"{first.quantity} is {first.measured:.3g}, {first.expected:.3g} ± "
            f"{short(first.std, 2)} expected"
        ]
    return Judgement(tuple(readings), threshold, tuple(causes))


def _by_number(name: str, measured: Measured, birth: Birth) -> dict[int, float]:
    if isinstance(measured, Mapping):
        numbers: dict[int, float] = dict(measured)
    else:
        numbers = {i: float(v) for i, v in enumerate(measured) if v is not None}
    if wrong := [i for i in numbers if not 0 <= i < len(birth.stages)]:
        allowed = f"the network has stages 0 to {len(birth.stages) - 1}"
        raise InvalidValueError(name, wrong[0], allowed)
    return numbers


def _causes(
    birth: Birth,
    squares: Mapping[int, float],
    weights: Mapping[int, Mapping[str, float]],
    threshold: float,
) -> list[str]:
    """What is wrong with the stream, from what every branch adds to it."""
    causes, first = [], _first_stream(birth)
    if first in squares and first is not None:
        stage = birth.stages[first]
        if abs(squares[first] - stage.mean_square) > threshold * stage.mean_square_std:
            ratio = squares[first] / stage.mean_square
            causes.append(
                f"{_block(first, stage)}: its mean square is {short(ratio, 2)} times what it should"
                " be, before any branch"
            )
    factors = _factors(birth, squares)
    if not factors:
        return causes
    common = float(np.exp(np.median(np.log([max(f, 1e-300) for f, _ in factors.values()]))))
    shared = [f for f, _ in factors.values() if 1 / _ALIKE < f / common < _ALIKE]
    # Given the streams, branches vary independently of each other: together they say more.
    joint = np.sqrt(np.mean([s**2 for _, s in factors.values()]) / len(factors) + _SYSTEMATIC**2)
    is_common = len(factors) > 2 and len(shared) > 0.7 * len(factors)
    if is_common and abs(common - 1.0) > threshold * joint:
        return [*causes, _of_all(common, count_layers(birth.network)[1])]
    wrong = {n: f for n, (f, spread) in factors.items() if abs(f - 1.0) > threshold * spread}
    for number, factor in wrong.items():
        stage = birth.stages[number]
        names = _to_blame(number, stage, weights, set(wrong), birth)
        causes.append(
            f"{_block(number, stage)}, adds {short(factor, 2)} times what it should: the variance "
            f"of {names} is off by about that factor"
        )
    return causes


def _of_all(common: float, branches: int) -> str:
    root, start = f"√{branches} = {branches**0.5:.3g}", f"every branch adds {short(common, 2)}"
    start += " times what it should"
    if 1 / _ALIKE < common / branches < _ALIKE:
        return (
            f"{start}: the output matrices of the branches are not divided by {root}, the scaling "
            "with depth 1/√(2L) is left out"
        )
    if 1 / _ALIKE < common * branches < _ALIKE:
        return (
            f"{start}: the output matrices of the branches are divided by {root}, a scaling with "
            "depth that is not meant here"
        )
    return f"{start}: the matrices of all branches are {short(common**0.5, 2)} times too large"


def _first_stream(birth: Birth) -> int | None:
    blocks = birth.network.blocks
    residual = [i for i, block in enumerate(blocks) if isinstance(block, Residual)]
    return residual[0] - 1 if residual and residual[0] else None


def _factors(birth: Birth, squares: Mapping[int, float]) -> dict[int, tuple[float, float]]:
    """For every branch on a pre-norm stream: measured over expected increment, and its spread."""
    factors = {}
    for number, block in enumerate(birth.network.blocks):
        if not isinstance(block, Residual) or number == 0 or block.skip == 0.0:
            continue
        if {number, number - 1} - set(squares) or not _is_normed(block):
            continue
        before, after = birth.stages[number - 1], birth.stages[number]
        expected = after.mean_square - block.skip**2 * before.mean_square
        added = squares[number] - block.skip**2 * squares[number - 1]
        # Given the stream K before, x + u has the variance (4 K e + 2 e²)/n for each token, and e
        # itself varies with features and heads, and with how alike tokens are.
        stream = block.skip**2 * squares[number - 1]
        variance = (4.0 * stream * expected + 12.0 * expected**2) / after.width
        spread = np.sqrt(variance + (_SYSTEMATIC * expected) ** 2) / expected
        factors[number] = added / expected, float(spread)
    return factors


def _is_normed(block: Residual) -> bool:
    return all(isinstance(branch[0], RMSNorm) for branch in block.branches)


def _to_blame(
    number: int,
    stage: Stage,
    weights: Mapping[int, Mapping[str, float]],
    wrong: set[int],
    birth: Birth,
) -> str:
    """The matrix whose own gradient is as expected where those of its neighbours are not."""
    names = [name for name in stage.weights if not name.startswith("b")]
    listed = ", ".join(sorted(names))
    known = weights.get(number, {})
    if len(names) < 2 or not set(names) <= set(known):
        return f"one of {listed}" if len(names) > 1 else listed
    others = [
        weights[n][name] / value
        for n in weights
        if n not in wrong and birth.stages[n].name.startswith("residual")
        for name, value in birth.stages[n].weights.items()
        if value > 0 and name in weights[n]
    ]
    usual = float(np.median(others)) if others else 1.0
    ratios = {name: known[name] / (usual * stage.weights[name]) for name in names}
    return min(names, key=lambda name: abs(np.log(max(ratios[name], 1e-300))))


def _block(number: int, stage: Stage) -> str:
    return f"block {number + 1}, {stage.name}"
