"""Façades whose names are loaded on first use, so that importing a package costs little."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def facade(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    `modules` maps a module of the package to the public names in it, separated by spaces.

    >>> load, _, names = facade("dynagram", {"errors": "DynagramError InvalidValueError"})
    >>> names, load("DynagramError").__name__
    (['DynagramError', 'InvalidValueError'], 'DynagramError')
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    names = sorted(home)
    return load, lambda: names, names
