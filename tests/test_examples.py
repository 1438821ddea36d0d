"""Scripts in examples/ run; commands in the documents and notebooks show what is written there.

Printed numbers agree to their last digit: what is left of the rounding of another CPU may move it
by one. The Python sessions of the documents are doctests, which pytest collects by itself.
"""

import contextlib
import functools
import importlib.util
import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from dynagram.cli import app

ROOT = Path(__file__).parents[1]
# Scripts of more than ten seconds; what shows them is marked slow.
LONG_SCRIPTS = {
    "examples/check_my_model.py",
    "examples/errata_saddle.py",
    "examples/gpt2_at_birth.py",
    "examples/tangent_kernels.py",
    "examples/trained_networks.py",
}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def execute(command):
    """What `dynagram …`, `python examples/…` or `python -c …` prints on stdout."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "dynagram":
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout
    assert program == "python"
    if arguments[0] != "-c":
        return printed_by(*arguments)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(arguments[1], {})
    return printed.getvalue()


@functools.cache
def printed_by(script, *arguments):
    """What a script prints; two documents may show the same."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return printed.getvalue()


def sessions():
    """The console blocks of the documents as lists of (command, printed text)."""
    for path in DOCUMENTS:
        blocks = re.findall(r"^```console\n(.*?)^```", path.read_text(), re.M | re.S)
        for number, block in enumerate(blocks, start=1):
            pieces = [p.partition("\n") for p in re.split(r"^\$ ", block, flags=re.M)[1:]]
            session = [(command, printed) for command, _, printed in pieces]
            scripts = [command.removeprefix("python ") for command, _ in session]
            yield pytest.param(session, id=f"{path.stem}-{number}", marks=long(*scripts))


def long(*scripts):
    return [pytest.mark.slow] if LONG_SCRIPTS & set(scripts) else []


NUMBER = re.compile(r"([-+−]?\d*\.?\d+(?:e[-+]?\d+)?)")
LONG = 1e-6  # relative: numbers printed to more digits than their method is good for


def lines(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def agree(printed, documented, same=None):
    """The same words and whole numbers; the same other numbers to their last printed digit."""
    mine, theirs = lines(printed), lines(documented)
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(same_line(*p, same or same_number) for p in pairs)


def same_line(mine, theirs, same):
    pieces, expected = NUMBER.split(mine), NUMBER.split(theirs)
    if len(pieces) != len(expected) or pieces[::2] != expected[::2]:
        return False
    return all(map(same, pieces[1::2], expected[1::2]))


def same_number(mine, theirs):
    if not {".", "e"} & set(mine + theirs):
        return mine == theirs
    value, expected = (float(text.replace("−", "-")) for text in (mine, theirs))
    unit = max(last_digit(mine), last_digit(theirs))
    return abs(value - expected) <= max(1.000001 * unit, LONG * abs(expected))


def like_number(mine, theirs):
    """Of a network trained in float32, which another CPU rounds otherwise at every step."""
    value, expected = (float(text.replace("−", "-")) for text in (mine, theirs))
    unit = max(last_digit(mine), last_digit(theirs))
    return abs(value - expected) <= max(1.000001 * unit, 0.02 * abs(expected))


def last_digit(text):
    """The size of one unit of the last printed digit."""
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def examples_not_shown():
    """The scripts that no document runs: the sessions check what the others print."""
    shown = {command for session in sessions() for command, _ in session.values[0]}
    scripts = (f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.py")))
    hidden = [script for script in scripts if f"python {script}" not in shown]
    return [pytest.param(script, marks=long(script)) for script in hidden]


@pytest.mark.parametrize("script", examples_not_shown())
def test_example(script):
    assert printed_by(script).strip()


@pytest.mark.parametrize("session", list(sessions()))
def test_console_session(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, printed in session:
        found = execute(command)
        if not agree(found, printed):
            assert lines(found) == lines(printed)  # shows the first line that differs


NOTEBOOKS = sorted((ROOT / "docs/gallery").glob("*.ipynb"))
PAGES = ROOT / "docs/extensions/notebooks.py"


def shown_by(path):
    """What every cell of a notebook shows: texts, tables without their tags, "figure" for one."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [[shown(output) for output in cell.get("outputs", [])] for cell in cells]


def shown(output):
    if output["output_type"] == "stream":
        return "".join(output["text"])
    data = output["data"]
    if "image/svg+xml" in data:
        drawing = ElementTree.fromstring("".join(data["image/svg+xml"]))
        assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) > 3
        return "figure"
    table = "".join(data.get("text/html", data["text/plain"])).replace("</tr>", "\n")
    return re.sub("<[^>]*>", " ", table)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path):
    """Run in a process of its own, as a reader would: the tests' settings of JAX are not theirs."""
    again = Path(shutil.copy(path, tmp_path))
    subprocess.run([sys.executable, PAGES, again], check=True, capture_output=True, timeout=1500)
    before, after = shown_by(path), shown_by(again)
    assert [len(cell) for cell in before] == [len(cell) for cell in after]
    for old, new in zip(chain(*before), chain(*after), strict=True):
        if not agree(new, old, like_number):
            assert lines(new) == lines(old)


def test_every_notebook_is_on_the_list_and_becomes_a_page():
    spec = importlib.util.spec_from_file_location("notebooks", PAGES)
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    index, nav = ((ROOT / name).read_text() for name in ("docs/gallery/index.md", "mkdocs.yml"))
    assert len(NOTEBOOKS) == 6
    for path in NOTEBOOKS:
        assert f"({path.name})" in index
        assert f"gallery/{path.name}" in nav
        page = pages.as_markdown(json.loads(path.read_text(encoding="utf-8")))
        assert page.startswith("# ")
        assert page.count("```python") >= 5
        assert 1 <= page.count('src="data:image/svg+xml;base64,') == page.count("<img alt=")
        assert '"chart"' not in page  # every figure says in words what it shows
        assert max(map(len, re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))) < 3000


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("K  0.123  after 12 steps", True),
        ("K 0.124 after 12 steps", True),
        ("K 0.125 after 12 steps", False),
        ("K 0.123 after 13 steps", False),
        ("K −0.123 after 12 steps", False),
        ("G 0.123 after 12 steps", False),
        ("K 0.123 after 12 steps\nand more", False),
        ("K 1.23e-1 after 12 steps", True),
        ("K rounding after 12 steps", False),
    ],
)
def test_what_counts_as_the_same_output(printed, same):
    assert agree(printed, "K 0.123 after 12 steps") == same


def test_long_numbers_agree_to_a_millionth():
    assert same_number("0.12345678901234567", "0.12345678911234567")
    assert not same_number("0.12345678901234567", "0.12345778901234567")
