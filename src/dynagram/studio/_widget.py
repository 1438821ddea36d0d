"""The studio in a notebook: the same module as the page, through anywidget."""

from __future__ import annotations

from typing import Any

from dynagram.errors import MissingExtraError
from dynagram.report._page import style_sheet, vega_library
from dynagram.results._files import plain
from dynagram.studio._answers import answer
from dynagram.studio._server import asset, settings
from dynagram.studio._state import State


def widget(**state: Any) -> Any:
    """The studio as a widget of Jupyter, marimo and others; needs the extra `studio`.

    **Arguments:**

    - `state`: settings to begin with, such as `activation="tanh"`; see `State`.

    **Returns:** a widget; its `state` is what the sliders say.
    """
    try:
        import anywidget
        import traitlets
    except ModuleNotFoundError as error:
        raise MissingExtraError("anywidget", "studio") from error

    class StudioWidget(anywidget.AnyWidget):
        """Sliders and charts that ask this kernel."""

        _esm = script()
        settings = traitlets.Dict().tag(sync=True)
        style = traitlets.Unicode().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    def respond(made: Any, message: Any, _buffers: Any) -> None:
        values = message.get("state", {}) if isinstance(message, dict) else {}
        part, number = str(message.get("part", "")), message.get("number")
        made.send(plain(answer(part, values)) | {"number": number})

    start = State.of(state).to_dict()
    style = style_sheet() + asset("studio.css")
    made = StudioWidget(settings=plain(settings()), style=style, state=start)
    made.on_msg(respond)
    return made


def script() -> str:
    """Vega, the studio and what connects it to a kernel, as one module."""
    module = asset("studio.js").replace("export const mount", "const mount")
    module = module.replace("export class SmallNetwork", "class SmallNetwork")
    return "\n".join([vega_library(), module, asset("widget.js")])
