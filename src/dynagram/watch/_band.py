"""What a watched number should be, and the sentence that is said when it is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Origin = Literal["theory", "null", "redrawn", "retrained"]
Level = Literal["warning", "note"]

FAMILY = 1e-3  # probability that any number of a healthy model raises an alert

WORDS: dict[Origin, str] = {
    "theory": "by theory",
    "null": "if nothing had been learnt",
    "redrawn": "of the same model drawn again",
    "retrained": "of the same model drawn again and trained on the probe",
}


@dataclass(frozen=True)
class Band:
    """An expected value with the range around it.

    **Arguments:**

    - `expected`: the value; None where theory gives a bound only.
    - `low`, `high`: the ends of the range, 95 % of it unless it is a bound.
    - `origin`: "theory"; "null", what independent data or random weights give; "redrawn", measured
        on the same model drawn again; "retrained", the same after as much training on the probe.
    - `alarm`: the range beyond which an alert is raised; by default the same. Where one network
        has many numbers, some are outside 95 % by chance.

    >>> Band(1.0, 0.9, 1.1).holds(1.05), Band(None, 0.0, 2.0).holds(2.5)
    (True, False)
    """

    expected: float | None
    low: float
    high: float
    origin: Origin = "theory"
    alarm: tuple[float, float] | None = None

    def holds(self, value: float) -> bool:
        """Whether a value is inside; what is no number never is."""
        return self.low <= value <= self.high

    def alarms(self, value: float) -> bool:
        """Whether a value is so far outside that it is no matter of chance."""
        low, high = (self.low, self.high) if self.alarm is None else self.alarm
        return not low <= value <= high

    def to_dict(self) -> dict[str, Any]:
        """By name, for JSON."""
        return asdict(self)


def spread_band(mean: float, std: float, origin: Origin) -> Band:
    """mean ± 1.96 std.

    >>> spread_band(0.0, 1.0, "null").high
    1.96
    """
    return Band(mean, mean - 1.96 * std, mean + 1.96 * std, origin)


@dataclass(frozen=True)
class Alert:
    """A number that has left its band, or is none any more.

    **Arguments:**

    - `step`: when.
    - `level`: "warning", something to act on; "note", something to know.
    - `quantity`, `layer`: which number; the layer is "" for one of the whole run.
    - `sentence`: what happened, in words.
    """

    step: int
    level: Level
    quantity: str
    layer: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """By name, for JSON."""
        return asdict(self)
