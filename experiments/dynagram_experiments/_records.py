"""The records of an experiment: what is asked for, what was found, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import MissingExtraError

if TYPE_CHECKING:
    from dynagram.report._export import Chart
else:
    Chart = Any  # the figures need an extra, the statements do not


@dataclass(frozen=True)
class Settings:
    """What a user may choose, and where an experiment says how far it is.

    **Arguments:**

    - `seed`: of networks and data.
    - `full`: the published size.
    - `data`: a folder with the files of a public data set; without it experiments use what the
        package can make or load by itself.
    - `folder`: receives finished parts and stored ensembles; stopped and run again with the same
        settings, an experiment goes on from there. None: nothing is kept.
    - `progress`: called with a `Progress` of the parts done.
    """

    seed: int = 0
    full: bool = False
    data: Path | None = None
    folder: Path | None = None
    progress: Callable[[Progress], object] | None = None


@dataclass(frozen=True)
class Statement:
    """One claim, whether it held, and the numbers (with error bars) that decided it."""

    claim: str
    passed: bool
    measured: str


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    **Arguments:**

    - `statements`: the claims, judged.
    - `tables`: columns by the name of their file.
    - `figures`: charts by the name of their file.
    - `notes`: sentences about what was seen that no statement covers.
    """

    statements: tuple[Statement, ...]
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    figures: Mapping[str, Chart] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every statement held."""
        return all(statement.passed for statement in self.statements)


@dataclass(frozen=True)
class Experiment:
    """A named experiment: what it shows, where the claim was published, and how to run it.

    **Arguments:**

    - `name`: as `dynagram reproduce` takes it.
    - `summary`: what is checked, in a line.
    - `source`: where it was claimed.
    - `run`: the experiment itself.
    """

    name: str
    summary: str
    source: str
    run: Callable[[Settings], Result]

    def reproduce(self, **settings: Any) -> Result:
        """Run it with the fields of `Settings` as options."""
        return self.run(Settings(**settings))


def draw_if_possible(make: Callable[[], Mapping[str, Chart]]) -> Mapping[str, Chart]:
    """The figures of `make`, or none where the extra `report` is not installed."""
    try:
        return make()
    except MissingExtraError:
        return {}
