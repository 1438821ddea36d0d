"""Shows docstrings as they were written: plain text with doctests, not Markdown.

Doctests become code blocks, and the characters that Markdown would take for markup (K* and V_[a][b]
are full of them) are escaped outside of backticks.
"""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(^[ \t]*>>> .*?)(?=^[ \t]*$|\Z)", re.M | re.S)
_CODE = re.compile(r"(`+[^`]*`+)")


class PlainDocstrings(griffe.Extension):
    """Rewrites each docstring once, after the package has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """`text` with its doctests fenced and its prose escaped."""
    pieces = _DOCTEST.split(text)
    for index, piece in enumerate(pieces):
        if index % 2:
            pieces[index] = f"\n```pycon\n{piece.rstrip()}\n```\n"
        else:
            pieces[index] = "".join(
                part if part.startswith("`") else re.sub(r"([\[\]*_{}])", r"\\\1", part)
                for part in _CODE.split(piece)
            )
    return "".join(pieces)
