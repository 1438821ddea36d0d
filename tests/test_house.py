"""The laws of the house: who imports whom, what importing costs, and that every name is explained.

The import graph is read from the sources: imports at the top of modules, as Python runs them when
a room is entered. Imports inside functions are how a lower room may call a higher one on demand.
"""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dynagram

SOURCE = Path(dynagram.__file__).parent
ROOT = Path(__file__).parents[1]


def module_name(path):
    parts = ("dynagram", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGES = [name for name, path in MODULES.items() if path.name == "__init__.py"]


# --- who imports whom -------------------------------------------------------------------------


def executed(body):
    """The statements that run on import, with the branches of conditions and attempts."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from executed(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from executed(getattr(node, part, []))


def imports(module):
    """The modules of dynagram that a module imports at its top."""
    for node in executed(ast.parse(MODULES[module].read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "dynagram")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dynagram"):
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in MODULES else node.module


IMPORTS = {module: sorted(set(imports(module))) for module in MODULES}


def room(module, depth):
    """The package that a module belongs to, `depth` names deep; a module beside packages is one."""
    return ".".join(module.split(".")[:depth])


def graph(depth, within="dynagram"):
    """Room → the rooms it imports, for the modules under `within`."""
    inside = [m for m in MODULES if m.startswith(f"{within}.")]
    rooms = {room(module, depth): set() for module in inside}
    for module in inside:
        for target in IMPORTS[module]:
            if target.startswith(f"{within}.") and room(target, depth) != room(module, depth):
                rooms[room(module, depth)].add(room(target, depth))
    return rooms


@pytest.mark.parametrize(
    ("depth", "within"),
    [
        (2, "dynagram"),
        (3, "dynagram.theory"),
        (3, "dynagram.ensembles"),
        (3, "dynagram.observables"),
    ],
)
def test_no_cycle_of_packages(depth, within):
    try:
        list(TopologicalSorter(graph(depth, within)).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_no_cycle_of_modules():
    # A package runs before its modules: what a façade imports is not what its modules need.
    rooms = {m: set(IMPORTS[m]) - {m} for m in MODULES if m not in PACKAGES}
    list(TopologicalSorter(rooms).static_order())


def crossings(origin, *forbidden):
    """(module, module) for every import from `origin` of what is under `forbidden`."""
    under = tuple(f"dynagram.{name}" for name in forbidden)
    return {
        (module.removeprefix("dynagram."), target.removeprefix("dynagram."))
        for module in MODULES
        if module.startswith(f"dynagram.{origin}.")
        for target in IMPORTS[module]
        if target.startswith(under)
    }


def test_theory_never_samples():
    assert crossings("theory", "ensembles", "watch") == set()


# Theory that observables and ensembles still import. Only specifications and results are meant to
# be shared: remove a line here when its import is gone, add none.
EXCEPTIONS = {
    ("ensembles._exact_posterior", "theory._kernels"),
    ("ensembles._exact_posterior", "theory.bayes._conditioning"),
    ("ensembles._exact_posterior", "theory.bayes._solve"),
    ("ensembles._exact_posterior", "theory.bayes._terms"),
    ("ensembles.initial._blocks", "theory.skips._blocks"),
}


@pytest.mark.parametrize("origin", ["observables", "ensembles"])
def test_what_is_measured_knows_no_theory(origin):
    found = crossings(origin, "theory")
    assert found - EXCEPTIONS == set()
    assert {pair for pair in EXCEPTIONS if pair[0].startswith(origin)} - found == set()


def test_the_layers_below_know_nothing_of_those_above():
    above = ("theory", "ensembles", "observables", "watch", "report", "studio", "cli")
    for origin in ("activations", "gaussian", "networks", "data", "training", "results"):
        assert crossings(origin, *above) == set(), origin
    for origin in ("theory", "ensembles", "observables"):
        assert crossings(origin, "report", "studio", "cli", "watch") == set(), origin


# --- what importing costs ---------------------------------------------------------------------


def in_a_fresh_process(program):
    """The JSON that a program prints."""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_import_loads_little():
    """Counted in modules, which no busy machine changes, and in seconds at the best of three."""
    program = (
        "import json, sys, time; before, start = set(sys.modules), time.process_time(); "
        "import dynagram; seconds = time.process_time() - start; "
        "print(json.dumps([seconds, sorted(set(sys.modules) - before)]))"
    )
    seconds, modules = min(in_a_fresh_process(program) for _ in range(3))
    assert seconds < 1.5
    heavy = ("jax", "jaxlib", "numpy", "scipy", "equinox", "diffrax", "torch", "altair", "xarray")
    assert [m for m in modules if m.partition(".")[0] in heavy] == []
    assert len(modules) < 200


def test_importing_changes_no_jax_setting():
    program = (
        "import importlib, json, jax; before = dict(jax.config.values); "
        f"[importlib.import_module(package) for package in {PACKAGES!r}]; "
        "after = jax.config.values; "
        "print(json.dumps([name for name in before if before[name] != after[name]]))"
    )
    assert in_a_fresh_process(program) == []


# --- every public name is explained -----------------------------------------------------------


def public_names():
    """(package, name) of everything in an `__all__`, or exported as `x as x` by a façade."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = getattr(module, "__all__", None)
        if names is None:
            names = [
                alias.name
                for node in ast.parse(MODULES[package].read_text(encoding="utf-8")).body
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
                if alias.asname == alias.name
            ]
        yield from ((package, name) for name in names if not name.startswith("_"))


PUBLIC = list(public_names())


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_public_name_resolves_and_has_a_docstring(package, name):
    value = getattr(importlib.import_module(package), name)
    if inspect.isfunction(value) or inspect.isclass(value):
        text = value.__doc__ or ""
        # A dataclass without one is given its signature.
        assert text.strip(), f"{package}.{name} says nothing"
        assert not text.startswith(f"{name}("), f"{package}.{name} says only how it is called"


def asked(value):
    """Whether a public value is something a user calls: a function, or a class with `__init__`."""
    if not inspect.isclass(value):
        return callable(value) and inspect.isfunction(inspect.unwrap(value))
    if value.__module__ not in MODULES:
        return False
    source = ast.parse(MODULES[value.__module__].read_text(encoding="utf-8"))
    return any(
        isinstance(part, ast.FunctionDef) and part.name == "__init__"
        for node in source.body
        if isinstance(node, ast.ClassDef) and node.name == value.__name__
        for part in node.body
    )


def missing_sections(function):
    """Which of the arguments, and whether the return, a docstring leaves out."""
    text = inspect.getdoc(function) or ""
    arguments = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if not name.startswith("_") and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    lines = re.findall(r"^\s*- ((?:`?\*?\w+`?, )*`?\*?\w+`?):", text, re.M)
    stated = {name for line in lines for name in re.findall(r"\w+", line)}
    missing = [name for name in arguments if name not in stated]
    if arguments and "**Arguments:**" not in text:
        missing.insert(0, "**Arguments:**")
    if not inspect.isclass(function) and returns(function) and "**Returns:**" not in text:
        missing.append("**Returns:**")
    return missing


def returns(function):
    return inspect.signature(function).return_annotation not in (None, "None")


# Records that the library makes explain their fields instead.
@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_public_name_states_its_arguments_and_returns(package, name):
    value = getattr(importlib.import_module(package), name)
    if asked(value):
        assert missing_sections(value) == []


def test_missing_sections_are_seen():
    def stated(x, *, y=1, z=0, w=0) -> int:
        """Adds.

        **Arguments:**

        - `x`: one
        - y: two
        - `z`, `w`: three

        **Returns:** the sum.
        """
        return x + y + z + w

    def silent(x) -> int:
        """Keeps."""
        return x

    assert missing_sections(stated) == []
    assert missing_sections(silent) == ["**Arguments:**", "x", "**Returns:**"]


# --- every public name is in the documents, and needed ----------------------------------------

_DIRECTIVE = re.compile(r"^::: (\S+)\n((?: {4}.*\n?)*)", re.M)


def reference():
    """What the reference pages show: a module or a name → its members, None for all of them."""
    shown = {}
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        for target, options in _DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            members = re.search(r"members:( \[.*\]|(?:\n +- \w+)+)", options)
            names = None if members is None else set(re.findall(r"\w+", members[1]))
            known = shown.get(target, set())
            shown[target] = None if names is None or known is None else known | names
    return shown


REFERENCE = reference()


def homes(package, name):
    """A façade and the modules it takes a name from, through other façades to its own."""
    yield package
    for node in ast.walk(ast.parse(MODULES[package].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            if node.module in MODULES:
                yield from homes(node.module, name)
            return


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_public_name_is_in_the_reference(package, name):
    places = [place for place in homes(package, name) if place in REFERENCE]
    shown = any(REFERENCE[place] is None or name in REFERENCE[place] for place in places)
    assert shown, f"no page of docs/reference shows {package}.{name}"


def test_reference_pages_show_what_exists():
    for target, members in REFERENCE.items():
        module = importlib.import_module(target if target in MODULES else target.rpartition(".")[0])
        missing = [name for name in members or () if not hasattr(module, name)]
        assert missing == [], f"{target} has no {missing}"


def words_of_code():
    """Every word of the code that users are shown: documents, examples, experiments, doctests."""
    words = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = _DIRECTIVE.sub("", page.read_text(encoding="utf-8"))
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.S):
            words |= set(re.findall(r"\w+", code))
    for notebook in (ROOT / "docs").rglob("*.ipynb"):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            words |= set(re.findall(r"\w+", "".join(cell["source"])))
    for folder in ("examples", "experiments", "benchmarks"):
        for script in (ROOT / folder).rglob("*.py"):
            words |= set(re.findall(r"\w+", script.read_text(encoding="utf-8")))
    for path in MODULES.values():
        for line in re.findall(r"^ *(?:>>>|\.\.\.) (.*)", path.read_text(encoding="utf-8"), re.M):
            words |= set(re.findall(r"\w+", line))
    return words


# Building blocks of pages, which only our own pages are built of so far.
UNSHOWN = {"dynagram.report", "dynagram.report.story", "dynagram.advice"}


def test_no_name_is_public_that_nothing_shows():
    """Private by default: a record that a function returns is explained there and not exported."""
    words = words_of_code()
    unshown = [(p, n) for p, n in PUBLIC if n not in words and p not in UNSHOWN]
    assert unshown == [], "show it in a document, an example or a doctest, or make it private"


def glossary():
    """(package, name) of the table of names at the end of the glossary."""
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    package = ""
    for row in text.partition("## Names in the package")[2].splitlines()[4:]:
        module, names = row.split("|")[1:3]
        package = module.strip(" `") or package
        for name in re.findall(r"`(\w+)`", names):
            yield "dynagram" if package == "dynagram" else f"dynagram.{package}", name


def test_the_glossary_names_what_exists():
    names = set(glossary())
    assert len(names) > 200
    assert {(p, n) for p, n in names if not hasattr(importlib.import_module(p), n)} == set()


def test_documents_and_examples_import_nothing_private():
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb"), ROOT / "README.md"]
    private = {
        str(path.relative_to(ROOT)): match
        for path in (*pages, *(ROOT / "examples").glob("*.py"))
        for match in re.findall(
            r"(?:from|import) dynagram[\w.]*\._\w*", path.read_text(encoding="utf-8")
        )
    }
    assert private == {}


def pins(file):
    """Versions by normal name, in a file of requirements."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", file.read_text(), re.M | re.S)
    return {re.sub(r"[-_.]+", "-", name).lower(): (pin, rest) for name, pin, rest in found}


def test_hashes_are_of_the_versions_that_are_tested():
    """`make hashes` after a change of one of them."""
    hashed, tested = pins(ROOT / "hashes.txt"), pins(ROOT / "constraints.txt")
    assert len(hashed) > 50
    assert [name for name, (_, rest) in hashed.items() if "--hash=sha256:" not in rest] == []
    common = {name: pin for name, (pin, _) in hashed.items() if name in tested}
    assert common == {name: tested[name][0] for name in common}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"],
              *(line for extra in ("report", "runs", "sklearn", "dask", "studio")
                for line in extras[extra] if not line.startswith("dynagram"))]  # fmt: skip
    names = {re.match(r"[\w.-]+", line).group().lower() for line in needed}
    assert names - set(hashed) == set()
