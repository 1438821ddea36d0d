"""Tables of TOML: written so that numbers read back exactly, read with their keys checked."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError

_MOST_PARTS = 64  # of one key; ours have two, and texts before a bracket are counted too


def parse_toml(text: str) -> dict[str, Any]:
    """What `tomllib` makes of a text; ValueError or RecursionError where it is none.

    Keys of many parts are refused before: one of 30 000 is 60 kB of text and takes 3 GB to read.

    >>> parse_toml("run.seed = 3")
    {'run': {'seed': 3}}
    """
    pieces = re.split(r"([\n=,\[\]{}])", text)
    for piece, end in zip(pieces[::2], pieces[1::2], strict=False):
        if end in "=]" and piece.count(".") > _MOST_PARTS and not piece.lstrip().startswith("#"):
            raise ValueError(f"the key {shortened(piece.strip())!r} has too many parts")
    return tomllib.loads(text)


def write_table(name: str, values: Mapping[str, Any]) -> str:
    """`values` as a TOML table; None is left out. Numbers read back exactly.

    >>> print(write_table("initial", {"seed": 3, "tensors": ["K", "V"], "eta": 0.1}), end="")
    [initial]
    seed = 3
    tensors = ["K", "V"]
    eta = 0.1
    """
    lines = [f"{key} = {_toml_value(key, v)}" for key, v in values.items() if v is not None]
    return "\n".join([f"[{name}]", *lines]) + "\n"


def _toml_value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, Sequence | np.ndarray):
        return f"[{', '.join(_toml_value(key, entry) for entry in value)}]"
    raise InvalidTypeError(key, value, "cannot be written as TOML")


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; one line where it is none.

    >>> read_toml("[run]\\nseed = 3")
    {'run': {'seed': 3}}
    """
    try:
        return parse_toml(text)
    except (ValueError, RecursionError) as error:  # numbers too long, or brackets too deep
        raise InvalidValueError("TOML", shortened(text), f"cannot be read: {error}") from error


def shortened(text: str) -> str:
    """At most 60 characters of `text`, for messages."""
    return text if len(text) <= 60 else text[:57] + "…"


def read_table(
    text: str, name: str, known: Sequence[str], required: Sequence[str] = ()
) -> dict[str, Any]:
    """The table `name` of a TOML text, its keys checked; other tables are left to others.

    >>> read_table("[run]\\nseed = 3", "run", ("seed",))
    {'seed': 3}
    """
    table = read_toml(text).get(name)
    if not isinstance(table, dict):
        raise InvalidValueError("TOML", shortened(text), f"has no [{name}] table")
    if unknown := [key for key in table if key not in known]:
        allowed = f"unknown key; known: {', '.join(known)}"
        raise InvalidValueError(f"[{name}]", ", ".join(unknown), allowed)
    if missing := [key for key in required if key not in table]:
        raise InvalidValueError(f"[{name}]", ", ".join(missing), "this key must be given")
    return table
