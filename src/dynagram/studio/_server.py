"""The studio on this machine: the standard library's server on the loopback address.

Every address begins with a secret made for this run; requests for another host (a page elsewhere
that points its name at this machine) and without the secret are refused. Of every part one
request is computed at a time, so that a slow part holds up no other; a request that a newer one of
the same window has overtaken is not computed at all.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dynagram.report._page import style_sheet, vega_library
from dynagram.report._theme import DARK, LIGHT
from dynagram.results._files import plain
from dynagram.studio._answers import PARTS, answer
from dynagram.studio._state import DATA, DEEPEST_TRAINED, RANGES, State, names_of_activations

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LONGEST_QUERY = 4000
_MOST_WINDOWS = 64
_PATIENCE = 60.0  # seconds that a connection may be silent


@cache
def asset(name: str) -> str:
    """A file that comes with the studio."""
    return files("dynagram.studio").joinpath("assets", name).read_text(encoding="utf-8")


def settings() -> dict[str, Any]:
    """What the page has to know before it asks anything."""
    return {
        "usual": State().to_dict(),
        "ranges": RANGES,
        "deepest": DEEPEST_TRAINED,
        "data": DATA,
        "activations": names_of_activations(),
        "light": LIGHT,
        "dark": DARK,
    }


class Studio(ThreadingHTTPServer):
    """The server; `address` is what to open.

    **Arguments:**

    - `port`: where it listens, on 127.0.0.1; 0 takes any that is free.
    """

    daemon_threads = True

    def __init__(self, port: int = 0):
        self.secret = secrets.token_urlsafe(24)
        self.newest: dict[tuple[str, str], int] = {}
        self.working = {part: threading.Lock() for part in PARTS}
        self.latencies: list[tuple[str, float]] = []
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """The address of the page, secret included."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silence for a connection that broke; what is our own mistake is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def compute(self, part: str, window: str, number: int, values: dict[str, str]) -> dict | None:
        """The answer to a request, or None where a newer one of that window has come."""
        key = (window, part)
        if len(self.newest) > _MOST_WINDOWS * len(PARTS):
            self.newest.clear()
        self.newest[key] = max(number, self.newest.get(key, number))
        with self.working.get(part, threading.Lock()):
            if self.newest.get(key, number) > number:
                return None
            result = answer(part, values)
        self.latencies.append((part, result["ms"]))
        return result


class _Handler(BaseHTTPRequestHandler):
    server: Studio  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "dynagram", ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Pages, scripts and answers; nothing is ever written."""
        try:
            parts = urlsplit(self.path)
        except ValueError:  # brackets that enclose no address
            self._send(400, "text/plain", "no address\n")
            return
        pieces = parts.path.split("/", 2)
        host = f"127.0.0.1:{self.server.server_address[1]}"
        named = self.headers.get("Host", "") in (host, host.replace("127.0.0.1", "localhost"))
        secret = pieces[1] if len(pieces) == 3 else ""
        if not named or not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            self._send(403, "text/plain", "open the address that dynagram studio printed\n")
            return
        name = pieces[2]
        if name.startswith("api/"):
            self._answer(name.removeprefix("api/"), parts.query)
        elif name in _PAGES:
            kind, make = _PAGES[name]
            self._send(200, kind, make())
        else:
            self._send(404, "text/plain", "nothing is here\n")

    def _answer(self, part: str, query: str) -> None:
        if len(query) > _LONGEST_QUERY:
            self._send(414, "text/plain", "too long\n")
            return
        values = dict(parse_qsl(query))
        window, number = values.pop("window", ""), values.pop("number", "0")
        count = int(number) if number.isdecimal() and len(number) < 16 else 0
        result = self.server.compute(part, window[:40], count, values)
        if result is None:
            self._send(409, "text/plain", "overtaken\n")
            return
        self._send(200, "application/json", json.dumps(plain(result), allow_nan=False))

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        try:
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the window has gone on

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: addresses hold the secret."""


_PAGES = {
    "": ("text/html", lambda: asset("studio.html")),
    "start.js": ("text/javascript", lambda: asset("start.js")),
    "studio.js": ("text/javascript", lambda: asset("studio.js")),
    "vega.js": ("text/javascript", vega_library),
    "style.css": ("text/css", lambda: style_sheet() + asset("studio.css")),
    "settings.json": ("application/json", lambda: json.dumps(plain(settings()))),
}


def serve(*, port: int = 0, state: str = "", open_browser: bool = True) -> None:
    """Run the studio until Ctrl-C.

    **Arguments:**

    - `port`: on 127.0.0.1; 0 takes any that is free.
    - `state`: settings to begin with, as they stand after # in an address of the studio.
    - `open_browser`: whether to open it.

    **Returns:** nothing.
    """
    with Studio(port) as studio:
        address = studio.address + (f"#{state.lstrip('#')}" if state else "")
        print(f"The studio is at {address}\nCtrl-C ends it.", flush=True)
        if open_browser:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            studio.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print()
