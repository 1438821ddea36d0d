"""Can this result be trusted here? Sizes of what is left out, and a verdict in words.

Every prediction carries a `Regime`. No threshold hides anything: the numbers behind the verdict
are in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["trust", "careful", "do not use"]
VERDICTS: tuple[Verdict, ...] = ("trust", "careful", "do not use")


@dataclass(frozen=True)
class Regime:
    """A verdict, the reasons for it in plain sentences, and the numbers they rest on."""

    order: str
    verdict: Verdict
    reasons: tuple[str, ...]
    numbers: dict[str, float] = field(hash=False)

    def __str__(self) -> str:
        return f"{self.verdict}: " + "; ".join(self.reasons)

    def _repr_html_(self) -> str:
        """The verdict with its reasons and numbers, for notebooks."""
        from dynagram.results._table import Grid, short

        rows = tuple((name, short(value)) for name, value in self.numbers.items())
        return Grid(("number behind it", "value"), rows, self.reasons).html(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Verdict, reasons and numbers."""
        return {"verdict": self.verdict, "reasons": list(self.reasons), "numbers": self.numbers}


def worst_regime(regimes: Sequence[Regime]) -> Regime:
    """The one with the worst verdict, the last of these."""
    return max(regimes[::-1], key=lambda regime: VERDICTS.index(regime.verdict))


class Judge:
    """Collects findings; the worst one gives the verdict.

    >>> judge = Judge()
    >>> judge.measure("size", 0.2, 0.1, 0.5, "the correction is {value:.1g} of the result")
    >>> print(judge.regime("1/n", "all is small"))
    careful: the correction is 0.2 of the result
    """

    def __init__(self) -> None:
        self.level = 0
        self.reasons: list[str] = []
        self.numbers: dict[str, float] = {}

    def measure(
        self, name: str, value: float, careful: float, refuse: float, sentence: str
    ) -> None:
        """Grade `value`: above `careful` or `refuse` it lowers the verdict and is explained.

        What is not a number is above every limit, although no comparison says so.
        """
        self.numbers[name] = float(value)
        if math.isnan(value):
            words = name.replace("_", " ")
            self.object(2, f"the {words} is not a number: sizes here leave the range of float64")
            return
        level = 2 if value > refuse else 1 if value > careful else 0
        if level:
            self.object(level, sentence.format(value=value))

    def object(self, level: int, sentence: str) -> None:
        """Lower the verdict to `level` (1: careful, 2: do not use) for a reason."""
        self.reasons.append(sentence)
        self.level = max(self.level, level)

    def regime(self, order: str, good: str) -> Regime:
        """The verdict; `good` is its reason when nothing speaks against."""
        reasons = tuple(self.reasons) or (good,)
        return Regime(order, VERDICTS[self.level], reasons, self.numbers)
