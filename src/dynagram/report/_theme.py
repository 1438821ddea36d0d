"""Colours and type of every figure, for light and dark pages.

Series take their colours from the configuration, never from the chart, so that one specification
serves both pages. The palette is Okabe and Ito's, told apart by people with any colour vision;
series also differ by mark or dash wherever they must be told apart.
"""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"
REFERENCE = "#8a8f98"  # guide lines: readable on white and on near-black

_LIGHT_SERIES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_DARK_SERIES = ["#56B4E9", "#E69F00", "#2CC79B", "#E79BC4", "#F0E442", "#7FA8FF"]

# What has an order, such as layers, runs from cold to warm.
_LIGHT_ORDER = ["#0072B2", "#00897B", "#B8860B", "#C2410C"]
_DARK_ORDER = ["#56B4E9", "#2CC79B", "#F0E442", "#F58B5B"]


def _config(
    text: str, faint: str, background: str, series: list[str], order: list[str]
) -> dict[str, Any]:
    return {
        "background": background,
        "font": FONT,
        "range": {"category": series, "ordinal": {"scheme": order}},
        "view": {"stroke": None},
        "axis": {
            "labelColor": text,
            "titleColor": text,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titlePadding": 8,
            "gridColor": faint,
            "domainColor": REFERENCE,
            "tickColor": REFERENCE,
        },
        "legend": {
            "labelColor": text,
            "titleColor": text,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "labelLimit": 320,
            "symbolStrokeWidth": 2,
        },
        "title": {"color": text, "fontSize": 13, "fontWeight": "normal", "anchor": "start"},
        "text": {"color": text, "fontSize": 11},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 50},
    }


LIGHT = _config("#1f2328", "#e6e8eb", "#ffffff", _LIGHT_SERIES, _LIGHT_ORDER)
DARK = _config("#e6e8eb", "#34393f", "#1b1f24", _DARK_SERIES, _DARK_ORDER)
