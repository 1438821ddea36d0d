"""Code by name: "module:function" is imported when the user names it, never because a file does.

What is given in Python or on the command line is the user's word. A run folder, a TOML file or a
saved result may come from somebody else: a name in it is imported only if the user has named the
same function in this process, by `trust` or by using it.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dynagram.errors import InvalidTypeError, InvalidValueError

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
# The update rules that optax itself offers are called like those that have a name of ours.
_OF_THE_HOUSE = re.compile(r"optax:[a-z][a-z0-9_]*")
_named: set[str] = set()


def trust(*functions: str | Callable[..., Any]) -> None:
    """Let files name these functions: nothing else that a file names is imported or called.

    **Arguments:**

    - `functions`: "module:function" as it stands in the file, or the function itself.

    >>> from dynagram.networks import MLP
    >>> text = '[network]\\nwidths = [1, 1]\\nactivation = "jax.numpy:tanh"\\nC_b = 0\\nC_W = 1'
    >>> try:
    ...     MLP.from_toml(text)
    ... except InvalidValueError as error:
    ...     print(str(error).partition(":  ")[0])
    activation = 'jax.numpy:tanh': a file names this code, which is not imported on its word
    >>> trust("jax.numpy:tanh")
    >>> MLP.from_toml(text).activation.name
    'jax.numpy:tanh'
    """
    for function in functions:
        if callable(function):
            home = getattr(function, "__module__", None)
            function = f"{home}:{getattr(function, '__qualname__', '')}"
        _named.add(_checked("trust", function))


def trusted() -> tuple[str, ...]:
    """What files may name, for workers that are to do the same."""
    return tuple(sorted(_named))


def check_trusted(argument: str, name: object) -> None:
    """Refuse code that a file names and the user does not, in tables and lists too."""
    if isinstance(name, Mapping | list):
        for entry in name.values() if isinstance(name, Mapping) else name:
            check_trusted(argument, entry)
    if not isinstance(name, str) or ":" not in name or name in _named:
        return
    if _OF_THE_HOUSE.fullmatch(name):
        return
    words = "a file names this code, which is not imported on its word:  if you know it, "
    raise InvalidValueError(argument, name, f"{words}--trust {name}, or dynagram.trust({name!r})")


def import_function(argument: str, path: str) -> Callable[..., Any]:
    """The function that "module:function" means, on the user's word.

    `argument` is blamed when it cannot be imported. The working folder comes last on the path:
    a script's folder is on it, that of a command is not.
    """
    module, _, attribute = _checked(argument, path).partition(":")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # a module of the user's may do anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidValueError(argument, path, f"cannot be imported: {reason}") from error
    finally:
        if added and here in sys.path:
            sys.path.remove(here)
    if not callable(target):
        raise InvalidTypeError(argument, path, "is not callable")
    _named.add(path)
    return target


def _checked(argument: str, path: object) -> str:
    if not isinstance(path, str) or _PATH.fullmatch(path) is None:
        raise InvalidValueError(argument, path, "expected package.module:function")
    return path
