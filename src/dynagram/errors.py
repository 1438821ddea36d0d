"""The exceptions of dynagram: one line each, with argument, value and what is allowed."""

from __future__ import annotations

import re
import unicodedata

# What a message shows of a value at most: whole lists of widths are no help.
_LONGEST = 300


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def printable(text: str) -> str:
    r"""`text` in which no terminal finds a command: control and format characters as escapes.

    Names in a message may come from a file, and an escape sequence in one could clear the screen
    or retitle the window.

    >>> printable("weights of \x1b[2Jé")
    'weights of \\x1b[2Jé'
    """
    return "".join(repr(c)[1:-1] if _is_command(c) else c for c in text)


def _is_command(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs")


class DynagramError(Exception):
    """Base of every error raised on purpose by dynagram: one line that a terminal can show.

    **Arguments:**

    - `message`: what is wrong; line breaks become spaces, control characters escapes.
    """

    def __init__(self, message: str = ""):
        super().__init__(printable(re.sub(r"\s*\n\s*", " ", message.strip())))


class InvalidValueError(DynagramError, ValueError):
    """An argument has a value that is not allowed."""

    def __init__(self, argument: str, value: object, allowed: str):
        self.argument = argument
        super().__init__(f"{argument} = {_shown(value)}: {allowed}")


class InvalidTypeError(DynagramError, TypeError):
    """An argument is of a kind that cannot be used."""

    def __init__(self, argument: str, value: object, allowed: str):
        self.argument = argument
        super().__init__(f"{argument} = {_shown(value)}: {allowed}")


class NonFiniteError(DynagramError, ArithmeticError):
    """A computation left the range of float64; the message names likely cause and remedy."""


class AccuracyError(DynagramError, ArithmeticError):
    """A requested accuracy was not reached within the work allowed."""


class MissingExtraError(DynagramError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(f"{package} is not installed: run  pip install 'dynagram[{extra}]'")


class RunWarning(UserWarning):
    """Something about a stored run that does not stop it: damage mended, versions changed."""
