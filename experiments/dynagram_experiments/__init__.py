"""Named experiments of the literature, each of which checks what was claimed and says pass or fail.

An experiment is one module of this folder: `fields-closure` is `fields_closure.py`, which holds
`EXPERIMENT`. Running it returns statements with the measured numbers, tables and figures;
`dynagram reproduce` prints the first and writes the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.report._export import Chart
else:
    Chart = Any  # the figures need an extra, the statements do not


@dataclass(frozen=True)
class Settings:
    """What a user may choose: the seed, the published size, local data, a folder for checkpoints.

    `data` is a folder with the files of a public data set; without it experiments use what the
    package can make or load by itself. `folder` receives checkpoints of long runs.
    """

    seed: int = 0
    full: bool = False
    data: Path | None = None
    folder: Path | None = None


@dataclass(frozen=True)
class Statement:
    """One claim, whether it held, and the numbers (with error bars) that decided it."""

    claim: str
    passed: bool
    measured: str


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    `tables` maps a file name to its columns, `figures` a file name to its chart; `notes` are
    sentences about what was seen that no statement covers.
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

    One that `continues` keeps finished parts in the folder of its settings: stopped and run again
    with the same settings, it goes on from there.
    """

    name: str
    summary: str
    source: str
    run: Callable[[Settings], Result]
    continues: bool = False


def experiment_names() -> list[str]:
    """The names `dynagram reproduce` knows, in alphabetical order.

    >>> "fields-closure" in experiment_names()
    True
    """
    modules = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(path.stem.replace("_", "-") for path in modules)


def experiment(name: str) -> Experiment:
    """The experiment called `name`; the modules of the others are not imported.

    >>> experiment("fields-closure").name
    'fields-closure'
    """
    names = experiment_names()
    if name not in names:
        raise InvalidValueError("experiment", name, f"expected one of {', '.join(names)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return module.EXPERIMENT
