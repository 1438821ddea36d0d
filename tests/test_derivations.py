"""What docstrings and documents cite is in the repository: equations, pages, modules, tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path for path in (ROOT / "docs" / "derivations").glob("*.md") if path.stem != "index"
)
CITING = sorted(
    path
    for folder in ("src", "experiments", "tests", "docs", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md") and ".peer" not in path.parts  # an environment of others
)
ROOTS = (ROOT, ROOT / "src" / "dynagram")


def numbers(page):
    """The numbers of the equations a page defines: they end a line."""
    return re.findall(r"\((D\d+\.\d+)\)$", page.read_text(), re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_are_numbered_in_order(page):
    chapter = re.match(r"# (D\d+) ", page.read_text())
    assert chapter is not None
    found = numbers(page)
    assert found == [f"{chapter[1]}.{i}" for i in range(1, len(found) + 1)]


def test_cited_equations_exist():
    known = {number for page in PAGES for number in numbers(page)}
    for path in CITING:
        cited = set(re.findall(r"\bD\d+\.\d+\b", path.read_text()))
        assert cited <= known, (path, cited - known)


def test_cited_documents_exist():
    for path in CITING:
        for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text()):
            assert (ROOT / name).is_file(), (path, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_modules_and_tests_named_on_a_page_exist(page):
    folder = ""
    for name in re.findall(r"`([\w/]+\.py)`", page.read_text()):
        # `theory/skips/_flow.py`, `_vertex.py`: the second is beside the first.
        folder, name = (
            (name.rpartition("/")[0], name) if "/" in name else (folder, f"{folder}/{name}")
        )
        assert any((root / name).is_file() for root in ROOTS), name


def test_no_private_notes_are_cited():
    private = re.compile(r"\b(0[1-9]|1[0-9]) §|[Rr]eference (0[1-9]|1[0-9])\b|[Aa]lgorithms §")
    for path in CITING:
        if path != Path(__file__):
            assert not private.search(path.read_text()), path
