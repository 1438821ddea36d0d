"""Modules of flax as functions of (params, x): linen with its variables, nnx as it stands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dynagram.errors import InvalidValueError


def as_function(model: Any, params: Any) -> tuple[Callable[[Any, Any], Any], Any] | None:
    """A function and its parameters; None for what is no module of flax, which is not imported.

    Dropout of nnx modules is off, in a copy; linen modules are called as their `__call__` says.
    """
    linen, nnx = (sys.modules.get(f"flax.{part}") for part in ("linen", "nnx"))
    if linen is not None and isinstance(model, linen.Module):
        if params is None and model.scope is None:
            allowed = "variables of a linen module are needed: params=module.init(key, x)"
            raise InvalidValueError("params", None, allowed)
        module, variables = (model, params) if model.scope is None else model.unbind()
        return module.apply, variables if params is None else params
    if nnx is None or not isinstance(model, nnx.Module):
        return None
    quiet = nnx.merge(*nnx.split(model))
    quiet.eval()
    definition, learned, rest = nnx.split(quiet, nnx.Param, ...)
    return lambda state, x: nnx.merge(definition, state, rest)(x), learned
