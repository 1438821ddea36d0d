"""Writes docs/coverage.md: every equation group of the sources, what computes it, what tests it.

    python docs/extensions/coverage.py            # writes docs/coverage.md
    python docs/extensions/coverage.py --check    # exit code 1 where it would change

The table is docs/coverage.toml. That every function, test and experiment in it exists is a test.
"""

import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).parents[1]
HEAD = (
    "# Coverage\n\n"
    "Every group of equations of the sources, the functions that compute it (below `dynagram`), "
    "the tests that hold it (below `tests/`) and the experiments that show it "
    "(`dynagram reproduce NAME`). What is not computed is listed after each table. This page is "
    "written by `python docs/extensions/coverage.py` from `docs/coverage.toml`.\n"
)


def entries():
    """The sources with their groups and what is missing."""
    return tomllib.loads((DOCS / "coverage.toml").read_text(encoding="utf-8"))["sources"]


def page():
    """The text of docs/coverage.md."""
    parts = [HEAD]
    for source in entries():
        parts.append(f"## {source['title']}\n\n{source['cite']}\n")
        rows = ["| equations | what | functions | tests | experiments |", "|---|---|---|---|---|"]
        for equations, what, functions, tests, experiments in source["groups"]:
            cells = [equations, what, *(_code(names) for names in (functions, tests, experiments))]
            rows.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(rows) + "\n")
        rows = ["Not computed:", "", "| where | what | why |", "|---|---|---|"]
        rows += [f"| {' | '.join(row)} |" for row in source["missing"]]
        parts.append("\n".join(rows) + "\n")
    groups = [group for source in entries() for group in source["groups"]]
    missing = [row for source in entries() for row in source["missing"]]
    parts.append(f"In all {len(groups)} groups are computed and {len(missing)} entries are not.\n")
    return "\n".join(parts)


def _code(names):
    return ", ".join(f"`{name}`" for name in names) or "–"


def main(arguments):
    """Write the page, or say whether it is what would be written."""
    path, text = DOCS / "coverage.md", page()
    if arguments == ["--check"]:
        return 0 if path.is_file() and path.read_text(encoding="utf-8") == text else 1
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
