"""Figures and pages that show results; they compute nothing themselves."""

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.report._birth_chart import birth_chart as birth_chart
    from dynagram.report._blocks import Code as Code
    from dynagram.report._blocks import Figure as Figure
    from dynagram.report._blocks import Finding as Finding
    from dynagram.report._blocks import Heading as Heading
    from dynagram.report._blocks import Notice as Notice
    from dynagram.report._blocks import Picture as Picture
    from dynagram.report._blocks import Section as Section
    from dynagram.report._blocks import Table as Table
    from dynagram.report._blocks import Text as Text
    from dynagram.report._blocks import Tile as Tile
    from dynagram.report._charts import Axis as Axis
    from dynagram.report._charts import Line as Line
    from dynagram.report._charts import coloured_points as coloured_points
    from dynagram.report._charts import line_chart as line_chart
    from dynagram.report._charts import panels as panels
    from dynagram.report._charts import side_by_side as side_by_side
    from dynagram.report._comparison_chart import scores_chart as scores_chart
    from dynagram.report._curve_charts import learning_curves_chart as learning_curves_chart
    from dynagram.report._export import save as save
    from dynagram.report._figures import flow as flow
    from dynagram.report._figures import phase_plane as phase_plane
    from dynagram.report._figures import theory_and_ensemble as theory_and_ensemble
    from dynagram.report._forecast_chart import forecast_chart as forecast_chart
    from dynagram.report._measurement_chart import measurement_chart as measurement_chart
    from dynagram.report._output_charts import outputs_chart as outputs_chart
    from dynagram.report._page import render as render
    from dynagram.report._phase import phase_figure as phase_figure
    from dynagram.report._tensor_charts import entries_chart as entries_chart
    from dynagram.report._tensor_charts import tensor_flow as tensor_flow

__all__ = [
    "Axis",
    "Code",
    "Figure",
    "Finding",
    "Heading",
    "Line",
    "Notice",
    "Picture",
    "Section",
    "Table",
    "Text",
    "Tile",
    "birth_chart",
    "coloured_points",
    "entries_chart",
    "flow",
    "forecast_chart",
    "learning_curves_chart",
    "line_chart",
    "measurement_chart",
    "outputs_chart",
    "panels",
    "phase_figure",
    "phase_plane",
    "render",
    "save",
    "scores_chart",
    "side_by_side",
    "tensor_flow",
    "theory_and_ensemble",
]

__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "Axis": "_charts",
        "Code": "_blocks",
        "Figure": "_blocks",
        "Finding": "_blocks",
        "Heading": "_blocks",
        "Line": "_charts",
        "Picture": "_blocks",
        "Tile": "_blocks",
        "Notice": "_blocks",
        "Section": "_blocks",
        "Table": "_blocks",
        "Text": "_blocks",
        "birth_chart": "_birth_chart",
        "entries_chart": "_tensor_charts",
        "flow": "_figures",
        "learning_curves_chart": "_curve_charts",
        "outputs_chart": "_output_charts",
        "coloured_points": "_charts",
        "line_chart": "_charts",
        "panels": "_charts",
        "phase_figure": "_phase",
        "phase_plane": "_figures",
        "forecast_chart": "_forecast_chart",
        "measurement_chart": "_measurement_chart",
        "scores_chart": "_comparison_chart",
        "render": "_page",
        "save": "_export",
        "tensor_flow": "_tensor_charts",
        "side_by_side": "_charts",
        "theory_and_ensemble": "_figures",
    },
)
