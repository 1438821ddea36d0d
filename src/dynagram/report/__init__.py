"""Figures and pages that show results; they compute nothing themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import facade

if TYPE_CHECKING:
    from dynagram.report._charts import xy_chart as xy_chart
    from dynagram.report._export import save as save
    from dynagram.report._figures import flow as flow
    from dynagram.report._figures import phase_plane as phase_plane
    from dynagram.report._figures import theory_and_ensemble as theory_and_ensemble
    from dynagram.report._initialisation import initialisation_report as initialisation_report
    from dynagram.report._page import Code as Code
    from dynagram.report._page import Figure as Figure
    from dynagram.report._page import Notice as Notice
    from dynagram.report._page import Section as Section
    from dynagram.report._page import Table as Table
    from dynagram.report._page import Text as Text
    from dynagram.report._page import render as render
    from dynagram.report._phase import phase_figure as phase_figure

__getattr__, __dir__, __all__ = facade(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "_charts": "xy_chart",
        "_export": "save",
        "_figures": "flow phase_plane theory_and_ensemble",
        "_page": "Code Figure Notice Section Table Text render",
        "_phase": "phase_figure",
        "_initialisation": "initialisation_report",
    },
)
