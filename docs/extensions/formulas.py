"""A hook of mkdocs: displayed formulas, written as indented text, are set with indices and powers.

A block indented by four spaces is a formula when it has an equation number at its end, or when it
stands in the theory or the derivations and holds no code. Nothing runs in the reader's browser.
"""

from __future__ import annotations

import html
import re
from typing import Any

_BLOCK = re.compile(r"(?:(?<=\n\n)|\A)((?: {4}[^\n]*\n(?:\n(?= {4}))?)+)")
_NUMBER = re.compile(r"^(.*?\S)\s{2,}(\((?:[A-Z]?\d*|∞)[\d.∞]+[^()]*\))\s*$")
_LATIN = "[A-Za-z0-9ℓ∥⊥∞′*]"
# In braces; pairs in brackets; Latin letters, of which the last may begin the next symbol (h_ah_b);
# or a Greek letter and what follows it.
_GROUP = (
    rf"(\{{[^{{}}]*\}}|\((?:[^()]{{1,4}})\)(?:\([^()]{{1,4}}\))?|{_LATIN}+?(?=[A-Za-z]_)"
    rf"|{_LATIN}+|[α-ωΑ-Ω]{_LATIN}*)"
)
_LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᴸ", "0123456789+−L")
_CODE = re.compile(r"^\s*(>>>|\$ |def |import |from |\[)|`|=\s*['\"]", re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the formulas of a page."""
    path = page.file.src_path.replace("\\", "/")
    mathematical = path.startswith(("theory/", "derivations/"))
    fenced = re.split(r"(^```.*?^```)", markdown, flags=re.M | re.S)
    parts = [
        part if index % 2 else _BLOCK.sub(lambda m: _block(m.group(1), mathematical), part)
        for index, part in enumerate(fenced)
    ]
    return "".join(parts)


def _block(text: str, mathematical: bool) -> str:
    lines = [line[4:].rstrip() for line in text.splitlines()]
    numbered = any(_NUMBER.match(line) for line in lines)
    if not (numbered or mathematical) or _CODE.search(text) or not re.search(r"[=≈≤≥∝→~]", text):
        return text
    return "\n".join(_line(line) for line in lines if line.strip()) + "\n\n"


def _line(line: str) -> str:
    match = _NUMBER.match(line)
    body, number = (match.group(1), match.group(2)) if match else (line, "")
    tail = f'<span class="number">{html.escape(number)}</span>' if number else ""
    return f'<div class="formula" markdown="0"><span>{typeset(body)}</span>{tail}</div>'


def typeset(text: str) -> str:
    """One line as HTML: indices below, powers above, single letters slanted.

    >>> typeset("K_ab = C_W^{2}")
    '<var>K</var><sub>ab</sub> = <var>C</var><sub><var>W</var></sub><sup>2</sup>'
    """
    escaped = html.escape(text, quote=False)
    escaped = re.sub("⁽([^⁾]*)⁾", lambda m: f"^{{({m.group(1).translate(_LOWERED)})}}", escaped)
    made = re.sub(rf"_{_GROUP}", lambda m: f"<sub>{_bare(m.group(1))}</sub>", escaped)
    made = re.sub(r"\^(\{[^{}]*\}|[\w−+*]+)", lambda m: f"<sup>{_bare(m.group(1))}</sup>", made)
    return re.sub(r"(?<![\w<&;])(?<!</)([A-Za-zα-ωΑ-Ω])(?![\w;>])", r"<var>\1</var>", made)


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("{") else text
