"""What every result can do: show itself, turn into plain data, be saved and read again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynagram.results._files import write_archive
from dynagram.results._regime import Regime
from dynagram.results._table import Grid

if TYPE_CHECKING:
    import xarray
    from rich.table import Table
else:
    xarray = Table = object  # imported when they are needed


class Result:
    """The common protocol of results; subclasses are frozen records of NumPy arrays.

    A subclass gives `summary()` (the rows of its table), `to_dict()`, `_arrays()` and `_about()`
    for its file, `to_xarray()` and `references`.
    """

    kind = "result"
    regime: Regime | None

    def summary(self) -> Grid:
        """The rows of the table."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Numbers and words in the types of JSON and NumPy."""
        raise NotImplementedError

    def brief(self) -> dict[str, Any]:
        """`to_dict` for a terminal: without what grows fastest with the samples."""
        return self.to_dict()

    def to_xarray(self) -> xarray.Dataset:
        """The arrays with named axes and coordinates; needs the extra `runs`."""
        raise NotImplementedError

    @property
    def references(self) -> tuple[str, ...]:
        """The papers and equations behind the numbers."""
        raise NotImplementedError

    def table(self) -> Table:
        """A rich table of what matters most."""
        return self.summary().rich()

    def save(self, path: str | Path) -> Path:
        """Write everything to a .npz file, whole or not at all; `results.load` reads it."""
        return write_archive(path, self.kind, self._arrays(), self._about())

    def _repr_html_(self) -> str:
        grid = self.summary()
        notes = () if self.regime is None else (str(self.regime),)
        return dataclasses.replace(grid, notes=(*grid.notes, *notes)).html(repr(self))

    def _arrays(self) -> dict[str, Any]:
        raise NotImplementedError

    def _about(self) -> dict[str, Any]:
        raise NotImplementedError


def require_xarray() -> Any:
    """The module xarray, or one line that says how to get it."""
    from dynagram.errors import MissingExtraError

    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError("xarray", "runs") from error
    return xarray
