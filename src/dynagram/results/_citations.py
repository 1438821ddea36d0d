"""The works that results rest on, to be cited with dynagram."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from dynagram.errors import InvalidValueError


@dataclass(frozen=True)
class Citation:
    """One work: `key`, `title`, `authors`, `year`, `arxiv` (empty for none), and
    `used_by`, the kinds of result that rest on it."""

    key: str
    title: str
    authors: tuple[str, ...]
    year: int
    arxiv: str
    used_by: tuple[str, ...]

    @property
    def bibtex(self) -> str:
        """The entry for a bibliography."""
        kind = "misc" if self.arxiv else "software"
        lines = [f"  title = {{{self.title}}},", f"  author = {{{' and '.join(self.authors)}}},"]
        lines.append(f"  year = {{{self.year}}},")
        if self.arxiv:
            lines += [f"  eprint = {{{self.arxiv}}},", "  archiveprefix = {arXiv},"]
        else:
            lines.append(f"  version = {{{version('dynagram')}}},")
        return "\n".join([f"@{kind}{{{self.key},", *lines, "}"])


_WORKS = (
    Citation("dynagram", "dynagram: how deep networks learn, layer by layer",
             ("{The dynagram authors}",), 2026, "", ()),
    Citation("roberts2022principles", "The Principles of Deep Learning Theory",
             ("Roberts, Daniel A.", "Yaida, Sho", "Hanin, Boris"), 2022, "2106.10165",
             ("predict", "train", "advise")),
    Citation("cha2026gram",
             "The Weight Gram Matrix Captures Sequential Feature Linearization in Deep Networks",
             ("Cha, T.", "Beaglehole, D.", "Radhakrishnan, A.", "Lee, D."), 2026, "2605.06258",
             ("measure",)),
    Citation("rawal2026saddle", "A Theory of Saddle Escape in Deep Nonlinear Networks",
             ("Rawal", "DeWeese"), 2026, "2605.01288", ("forecast",)),
    Citation("nordio2026gram",
             "Learning Dynamics Reveal a Hierarchy of Weight-Induced Layerwise Gram Metrics",
             ("Nordio, Claudio",), 2026, "2606.09744", ("fields",)),
)  # fmt: skip


def citations(about: str | None = None) -> tuple[Citation, ...]:
    """The works to cite for a kind of result.

    **Arguments:**

    - `about`: "predict", "train", "advise", "measure", "forecast" or "fields"; None for all.

    **Returns:** dynagram itself first, then the works.

    >>> [work.key for work in citations("forecast")]
    ['dynagram', 'rawal2026saddle']
    """
    known = sorted({name for work in _WORKS for name in work.used_by})
    if about is not None and about not in known:
        raise InvalidValueError("about", about, f"expected one of {', '.join(known)}")
    return tuple(
        work for work in _WORKS if about is None or not work.used_by or about in work.used_by
    )
