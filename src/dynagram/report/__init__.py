"""Figures and the HTML report. What draws needs the extra `report`, the sentences do not."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynagram.report._charts import Axis as Axis
    from dynagram.report._charts import Line as Line
    from dynagram.report._charts import coloured_points as coloured_points
    from dynagram.report._charts import line_chart as line_chart
    from dynagram.report._charts import panels as panels
    from dynagram.report._charts import side_by_side as side_by_side
    from dynagram.report._export import save as save

_HOMES = {
    "Axis": "_charts",
    "Line": "_charts",
    "coloured_points": "_charts",
    "line_chart": "_charts",
    "panels": "_charts",
    "save": "_export",
    "side_by_side": "_charts",
}
__all__ = ["Axis", "Line", "coloured_points", "line_chart", "panels", "save", "side_by_side"]


def __getattr__(name: str) -> Any:
    # Imported when asked for: `dynagram.report.prose` serves commands that draw nothing.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
