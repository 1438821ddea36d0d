"""Façades that load a name when it is asked for, so that one room does not load the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def load_on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names live in these modules of it.

    >>> find, names = load_on_demand("dynagram.observables", {"find_plateaus": "_plateaus"})
    >>> find("find_plateaus").__name__, names()
    ('find_plateaus', ['find_plateaus'])
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find, lambda: sorted(homes)
