"""Activations by name, by `package.module:function`, or from a callable."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from dynagram._trust import import_function
from dynagram.activations._analysis import analyse
from dynagram.activations._core import Activation
from dynagram.errors import InvalidTypeError, InvalidValueError

# Slopes come to the eighth power in averages of four neurons and their derivatives.
_LARGEST_PARAMETER = 1e6
_REGISTRY: dict[str, Callable[..., Activation]] = {}


def register(name: str, *aliases: str):
    """Decorator: register a factory of activations under `name` and `aliases`.

    **Arguments:**

    - `name`: the name that `activation` will know.
    - `aliases`: other names for the same.

    **Returns:** a decorator of factories, which take the parameters of the activation as numbers;
    it returns the factory with its results cached.
    """

    def add(factory: Callable[..., Activation]) -> Callable[..., Activation]:
        made: dict[str, Activation] = {}

        @functools.cache
        def cached(*parameters: float) -> Activation:
            # By name: `elu`, `elu(1)` and `elu(1.0)` are one object, equal and cached as one.
            sigma = factory(*parameters)
            if factory.__module__ == "dynagram.activations._catalogue" and not sigma.known:
                sigma = replace(sigma, known=True)
            return made.setdefault(sigma.name, sigma)

        for key in (name, *aliases):
            _REGISTRY[key] = cached
        return cached

    return add


def registered() -> list[str]:
    """The names `activation` knows, sorted.

    **Returns:** the names, aliases among them.
    """
    return sorted(_REGISTRY)


def activation(spec: str | Callable[..., Any] | Activation) -> Activation:
    """The activation meant by a name, `name(parameters)`, `package.module:function` or callable.

    **Arguments:**

    - `spec`: one of these, or an `Activation`, which is returned as it is. A callable must map a
        scalar to a scalar and be traceable by JAX.

    **Returns:** an `Activation`.

    >>> from dynagram.activations import activation
    >>> activation("leaky_relu(0.2)").homogeneity
    Homogeneity(degree=1, plus=1.0, minus=-0.2)
    >>> import jax.numpy as jnp
    >>> activation(lambda z: jnp.maximum(z, 0)).kinks
    (Kink(location=0.0, jumps=(0.0, 1.0)),)
    """
    if isinstance(spec, Activation):
        return spec
    if not isinstance(spec, str):
        return _from_callable(spec)
    if ":" in spec:
        return _from_callable(import_function("activation", spec), spec)
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*", spec)
    if match is None:
        raise InvalidValueError(
            "activation", spec, "expected a name, name(number, …) or package.module:function"
        )
    name, text = match.group(1), match.group(2)
    if name not in _REGISTRY:
        near = get_close_matches(name.lower(), registered(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(registered())}"
        raise InvalidValueError("activation", spec, f"unknown activation; {hint}")
    try:
        parameters = [float(part) for part in text.split(",")] if text and text.strip() else []
    except ValueError as error:
        raise InvalidValueError("activation", spec, "parameters must be numbers") from error
    if not all(math.isfinite(value) for value in parameters):
        raise InvalidValueError("activation", spec, "parameters must be finite")
    if any(abs(value) > _LARGEST_PARAMETER for value in parameters):
        allowed = f"parameters must lie within ±{_LARGEST_PARAMETER:g}: their powers would overflow"
        raise InvalidValueError("activation", spec, allowed)
    try:
        return _REGISTRY[name](*parameters)
    except TypeError as error:
        raise InvalidValueError(
            "activation", spec, f"{name} does not take these numbers"
        ) from error


def _from_callable(function: Any, name: str | None = None) -> Activation:
    if not callable(function):
        raise InvalidTypeError("activation", function, "expected a name or a callable")
    _refuse_torch(function)
    label = name or getattr(function, "__qualname__", type(function).__name__)
    try:
        hash(function)
    except TypeError:  # caches are keyed by the function: give it one that can be a key
        return analyse(lambda z: function(z), label, anonymous=name is None)
    return _analysed(function, label, name is None)


def _refuse_torch(function: Any) -> None:
    """JAX cannot look into modules and functions of PyTorch: say which name means the same."""
    homes = (getattr(function, "__module__", None), type(function).__module__)
    words = str(function).startswith("<built-in method") and "torch" in str(function)
    if not words and not any(str(home).partition(".")[0] == "torch" for home in homes):
        return
    name = getattr(function, "__name__", type(function).__name__).lower()
    name = {"leakyrelu": "leaky_relu"}.get(name, name)
    if name == "gelu" and getattr(function, "approximate", "none") == "tanh":
        name = "gelu_tanh"
    allowed = "PyTorch is not looked into: give a name, or the same function written with jax.numpy"
    if name in _REGISTRY:
        allowed = f'PyTorch is not looked into: write "{name}"'
    raise InvalidTypeError("activation", function, allowed)


@functools.lru_cache(maxsize=128)
def _analysed(function: Callable[..., Any], name: str, anonymous: bool) -> Activation:
    return analyse(function, name, anonymous=anonymous)
