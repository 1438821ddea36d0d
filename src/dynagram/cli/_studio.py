"""`dynagram studio`: a local page with sliders, for playing with a network."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

import typer


def studio(
    port: Annotated[int, typer.Option(min=0, max=65535, help="On this machine; 0: any.")] = 0,
    state: Annotated[
        str, typer.Option(help="Settings to begin with, as after # in an address of the studio.")
    ] = "",
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
) -> None:
    """Play with a network: sliders, and what theory says of it at once.

    The page is served on this machine alone, at an address with a secret, and needs no network.
    """
    from dynagram.studio import State, serve

    # Nonsense is refused here, before a page opens that could only say the same.
    State.of(dict(parse_qsl(state.lstrip("#"), keep_blank_values=True)))
    serve(port=port, state=state, open_browser=browser)
