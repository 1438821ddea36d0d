"""A local page to play in: sliders for a network, and what theory says of it at once.

`dynagram studio` opens it; `widget()` is the same in a notebook.
"""

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.studio._answers import answer as answer
    from dynagram.studio._formula import parse_formula as parse_formula
    from dynagram.studio._server import Studio as Studio
    from dynagram.studio._server import serve as serve
    from dynagram.studio._state import State as State
    from dynagram.studio._widget import widget as widget

_HOMES = {
    "State": "_state",
    "Studio": "_server",
    "answer": "_answers",
    "parse_formula": "_formula",
    "serve": "_server",
    "widget": "_widget",
}
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = load_on_demand(__name__, _HOMES)
