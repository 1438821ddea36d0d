"""The letters of tensors, listed once: what each is, its axes, its order, where it comes from.

The letters of the literature are the names of record. A tensor of order 1/n multiplies 1/n_{ℓ−1}
in layer ℓ; K and Θ are exact at infinite width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynagram.errors import InvalidValueError


@dataclass(frozen=True)
class Letter:
    """One tensor of a network at initialisation.

    `name` is the letter, `plain` what it is in words. `axes` are its sample axes in the printed
    order; the first 2·`pairs` of them are symmetric pairs (ab)(cd)…, stored once. `order` is "∞",
    "1/n" or "1/n²". `needs` are the letters of the layer below that its recursion takes, itself
    included, empty for those that no recursion of this house makes. `derivatives` is the highest
    derivative of σ that must be a function for it to exist (`Activation.derivatives`).
    `everywhere` tells that ensembles measure it in all layers, not in the output only; `equation`
    is the book's, or our derivation.
    """

    name: str
    plain: str
    axes: str
    pairs: int
    order: str
    needs: tuple[str, ...]
    derivatives: int
    everywhere: bool
    equation: str


def _letter(
    name: str, plain: str, axes: str, pairs: int, needs: str, derivatives: int, equation: str,
    order: str = "1/n", everywhere: bool = False,
) -> Letter:  # fmt: skip
    below = tuple(needs.split())
    return Letter(name, plain, axes, pairs, order, below, derivatives, everywhere, equation)


_ALL = (
    _letter("K", "kernel", "ab", 1, "", 0, "(4.118)", "∞", True),
    _letter("Theta", "frozen NTK", "ab", 1, "", 1, "(8.63)", "∞"),
    _letter("V", "four-point vertex", "abcd", 2, "V", 0, "(4.119)", everywhere=True),
    _letter("G1", "1/n shift of the metric", "ab", 1, "V G1", 0, "(4.115)", everywhere=True),
    _letter("H1", "1/n shift of the mean NTK", "ab", 1, "V G1 D F H1", 1, "D5.14"),
    _letter("A", "NTK covariance of two neurons", "abcd", 2, "V D A", 1, "(8.97)"),
    _letter("B", "NTK variance between neurons", "abcd", 0, "B", 1, "(8.89)"),
    _letter("D", "NTK against outputs, diagonal", "abcd", 2, "V D", 1, "(8.77)"),
    _letter("F", "NTK against outputs, crossed", "abcd", 0, "F", 1, "(8.79)"),
    _letter("P", "dNTK against outputs", "abcd", 0, "B P", 2, "(11.49)"),
    _letter("Q", "dNTK against outputs, crossed", "abcd", 0, "F Q", 2, "(11.52)"),
    _letter("R", "mean of the first ddNTK", "abcd", 0, "B P R", 2, "(∞.177)"),
    _letter("S", "mean of the second ddNTK", "abcd", 0, "B S", 2, "(∞.179)"),
    _letter("T", "mean of the second ddNTK, crossed", "abcd", 0, "F Q T", 2, "(∞.180)"),
    _letter("U", "mean of the second ddNTK, crossed twice", "abcd", 0, "U", 2, "(∞.181)"),
    _letter("six_point", "six-point vertex", "abcdef", 3, "", 0, "D6", "1/n²", True),
    _letter("odd", "odd cumulant of networks with skips", "abc", 1, "", 0, "D2", everywhere=True),
)  # fmt: skip
LETTERS: dict[str, Letter] = {letter.name: letter for letter in _ALL}
# What the recursions of plain networks make, in the order in which they are listed.
RECURSIVE = tuple(letter.name for letter in _ALL if letter.needs)
INFINITE = tuple(letter.name for letter in _ALL if letter.order == "∞")


def closure(wanted: Sequence[str]) -> list[str]:
    """The letters of finite width in `wanted` and those that their recursions need, in order.

    >>> closure(["K", "A"])
    ['V', 'A', 'D']
    """
    needed = {below for name in wanted for below in LETTERS[name].needs}
    return [name for name in RECURSIVE if name in needed]


def check_letters(tensors: Sequence[str] | str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The letters asked for, each once, in the order of the registry.

    >>> check_letters(["V", "K", "V"], ("K", "V", "G1"))
    ('K', 'V')
    """
    names = [tensors] if isinstance(tensors, str) else list(tensors)
    if not names or any(name not in allowed for name in names):
        text = ",".join(map(str, names))
        raise InvalidValueError("tensors", text, f"expected some of {', '.join(allowed)}")
    return tuple(name for name in LETTERS if name in names)
