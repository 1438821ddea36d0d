"""Results of a long experiment, kept in a file as they come, so that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynagram.results._files import write_atomically


class Kept:
    """Finished parts by name; what was made with another plan is not used.

    Without a folder nothing is written. Parts must survive JSON.

    >>> kept = Kept(None, "example", {"members": 8})
    >>> kept.part("width 16", lambda: {"loss": 0.5})
    {'loss': 0.5}
    >>> kept.part("width 16", lambda: {"loss": 99.0})
    {'loss': 0.5}
    """

    def __init__(self, folder: Path | None, name: str, plan: Mapping[str, Any]):
        self._path = None if folder is None else folder / f"{name}.json"
        self._plan = json.loads(json.dumps(plan))
        self._parts: dict[str, Any] = {}
        if self._path is not None and self._path.is_file():
            found = json.loads(self._path.read_text())
            if found.get("plan") == self._plan:
                self._parts = found["parts"]

    def part(self, key: str, make: Callable[[], Any]) -> Any:
        """The part called `key`, made and written if it is not there yet."""
        if key not in self._parts:
            self._parts[key] = make()
            if self._path is not None:
                found = {"plan": self._plan, "parts": self._parts}
                write_atomically(self._path, json.dumps(found).encode())
        return self._parts[key]
