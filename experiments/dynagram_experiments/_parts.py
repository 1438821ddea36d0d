"""The parts of an experiment: made one after the other, counted, and kept as they are finished.

A part is a mapping from names to arrays; a number or a text is an array without axes. With a
folder every finished part is one file there, complete or absent, so that a run that was stopped
goes on with the next part. What was made by another plan (another seed, size or version of the
experiment) is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.results import Estimate
from dynagram.results._files import plain, read_archive, write_archive
from dynagram_experiments._records import Settings

_KIND = "part of an experiment"

Part = dict[str, np.ndarray]
Record = TypeVar("Record")


def finish_parts(
    settings: Settings,
    name: str,
    makers: Mapping[str, Callable[[], Mapping[str, Any]]],
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Part]:
    """Every part by its key, in the order of `makers`: read from the folder, or made and kept.

    `plan` says what else than the seed and the size the parts depend on.

    >>> parts = finish_parts(Settings(), "example", {"width 16": lambda: {"loss": [0.5, 0.25]}})
    >>> parts["width 16"]["loss"]
    array([0.5 , 0.25])
    """
    made_by = plain({"seed": settings.seed, "full": settings.full, **(plan or {})})
    finished: dict[str, Part] = {}
    for done, (key, make) in enumerate(makers.items()):
        _tell(settings, done, len(makers))
        path = part_folder(settings, name, key)
        finished[key] = _read(path, made_by) or _write(path, made_by, _arrays(key, make()))
    _tell(settings, len(makers), len(makers))
    return finished


def part_folder(settings: Settings, name: str, key: str) -> Path | None:
    """Where a part is kept (with the suffix .npz), or the run of an ensemble that belongs to it."""
    if settings.folder is None:
        return None
    readable = re.sub(r"[^\w.=+-]+", "_", key)
    parts = settings.folder / f"{name}-parts"
    parts.mkdir(parents=True, exist_ok=True)
    return parts / readable


def stack_records(records: Sequence[Any]) -> Part:
    """Dataclass records of the same shapes as a part: every field, with the records first."""
    names = [field.name for field in fields(records[0])]
    return {name: np.stack([np.asarray(getattr(r, name)) for r in records]) for name in names}


def unstack_records(kind: type[Record], part: Mapping[str, np.ndarray]) -> list[Record]:
    """The records that `stack_records` made a part of."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    columns = {name: [_plain(value) for value in part[name]] for name in names}
    return [
        kind(**dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def _plain(value: np.ndarray | np.generic) -> Any:
    return value.item() if value.ndim == 0 else value


class Table(dict[str, np.ndarray]):
    """Columns of equal length, one row per measurement."""

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Table:
        """Rows as columns.

        >>> Table.of_rows([{"seed": 0, "loss": 0.5}, {"seed": 1, "loss": 0.3}])["loss"]
        array([0.5, 0.3])
        """
        rows = list(rows)
        return cls({name: np.array([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def joined(cls, tables: Iterable[Mapping[str, np.ndarray]]) -> Table:
        """The rows of several tables, one after the other."""
        tables = list(tables)
        columns = {name: [np.atleast_1d(t[name]) for t in tables] for name in tables[0]}
        return cls({name: np.concatenate(parts) for name, parts in columns.items()})

    def each(self, quantity: str, **where: Any) -> np.ndarray:
        """The column `quantity` in the rows where other columns have the values asked for.

        >>> table = Table.of_rows([{"seed": 0, "loss": 0.5}, {"seed": 1, "loss": 0.3}])
        >>> table.each("loss", seed=1)
        array([0.3])
        """
        chosen = np.ones(len(self[quantity]), dtype=bool)
        for name, value in where.items():
            chosen &= self[name] == value
        return self[quantity][chosen]

    def mean(self, quantity: str, **where: Any) -> Estimate:
        """Mean and standard error of these rows."""
        return Estimate.of_samples(self.each(quantity, **where))

    def columns(self) -> dict[str, list[Any]]:
        """For a `Result`: lists of Python's own numbers and texts."""
        return {name: values.tolist() for name, values in self.items()}


def _tell(settings: Settings, done: int, parts: int) -> None:
    if settings.progress is not None:
        settings.progress(Progress(done, parts))


def _arrays(key: str, values: Mapping[str, Any]) -> Part:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InvalidTypeError(f"{name} of part {key!r}", array.dtype, "expected an array")
    return arrays


def _read(path: Path | None, made_by: Mapping[str, Any]) -> Part | None:
    if path is None or not path.with_name(f"{path.name}.npz").is_file():
        return None
    try:
        kind, arrays, about = read_archive(path.with_name(f"{path.name}.npz"))
    except InvalidValueError:
        return None  # of another version, or not ours: made anew
    if kind != _KIND or about.get("plan") != json.loads(json.dumps(made_by)):
        return None
    return arrays


def _write(path: Path | None, made_by: Mapping[str, Any], arrays: Part) -> Part:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_archive(path.with_name(f"{path.name}.npz"), _KIND, arrays, {"plan": made_by})
    return arrays
