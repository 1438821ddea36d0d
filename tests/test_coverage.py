"""docs/coverage.md is up to date, and every function, test and experiment it names exists."""

import importlib
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("coverage_page", ROOT / "docs/extensions/coverage.py")
coverage = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(coverage)
GROUPS = [group for source in coverage.entries() for group in source["groups"]]
EXPERIMENTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
]["dynagram.experiments"]


def test_the_page_is_up_to_date():
    assert coverage.main(["--check"]) == 0, "run python docs/extensions/coverage.py"


@pytest.mark.parametrize(("key", "last"), [("nordio", 213), ("saddle", 71)])
def test_no_equation_of_the_numbered_papers_is_forgotten(key, last):
    (source,) = (source for source in coverage.entries() if source["key"] == key)
    named: set[int] = set()
    for group in source["groups"]:
        if "extended" not in group[0]:
            for first, end in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", group[0]):
                named |= set(range(int(first), int(end or first) + 1))
    assert named == set(range(1, last + 1))


@pytest.mark.parametrize("name", sorted({name for group in GROUPS for name in group[2]}))
def test_function_exists(name):
    """`theory.bayes.log_evidence` below dynagram, from the façade of its package."""
    module, parts = "dynagram", name.split(".")
    while len(parts) > 1 and importlib.util.find_spec(f"{module}.{parts[0]}"):
        module = f"{module}.{parts.pop(0)}"
    value = importlib.import_module(module)
    for part in parts:
        value = getattr(value, part)
    assert callable(value)


@pytest.mark.parametrize("name", sorted({name for group in GROUPS for name in group[3]}))
def test_test_exists(name):
    text = (ROOT / "tests" / name).read_text(encoding="utf-8")
    assert "def test_" in text


def test_experiments_exist_and_none_is_forgotten():
    named = {name for group in GROUPS for name in group[4]}
    assert named == set(EXPERIMENTS)


def test_every_function_is_used_by_a_test_of_its_group():
    for equations, _, functions, tests, _ in GROUPS:
        text = "".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in tests)
        for name in functions:
            word = name.rpartition(".")[2]
            assert re.search(rf"\b{word}\b", text), f"{equations}: {tests} never mention {word}"
