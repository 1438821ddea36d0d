"""`dynagram reproduce`: run a named experiment, print what held, write its tables and figures.

Experiments are the entry points "dynagram.experiments" of the installed distributions.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from dynagram.cli._options import Json
from dynagram.cli._output import (
    console,
    narrow_table,
    print_json,
    print_list,
    progress_bar,
    tell,
)
from dynagram.errors import InvalidValueError

GROUP = "dynagram.experiments"

# The records of `dynagram_experiments`: dynagram knows them through entry points only.
Experiment = Result = Any


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="The experiment; without it, the list of all.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The published size, meant for a GPU.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of networks and data.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for tables, figures and finished parts."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the files of a public data set.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All experiments, one after the other, and a page.")
    ] = False,
    page: Annotated[Path, typer.Option(help="With --all: the page to write.")] = Path(
        "docs/reproductions.md"
    ),
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="With --all: begin no further experiment after so long."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="With --all: run these alone, by commas; others wait or are read."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the literature and say which of its claims hold.

    The exit code is 0 when every statement held and 1 when one did not. Finished parts are kept in
    the folder of --output: a run that was stopped continues by the same command.
    """
    if every:
        if name is not None:
            raise InvalidValueError("experiment", name, "none is named with --all")
        if output is None:
            raise InvalidValueError("--output", None, "--all needs a folder to keep what is done")
        limits = {"minutes": minutes, "only": None if only is None else only.split(",")}
        _reproduce_all(_made(output), page, seed=seed, full=full, limits=limits, as_json=as_json)
        return
    if name is None:
        _print_list_of([find_experiment(known) for known in experiment_names()], as_json)
        return
    chosen = find_experiment(name)
    if data is not None and not data.is_dir():
        raise InvalidValueError("--data", str(data), "no such folder")
    folder = _made(output)
    with _continuable(folder):
        result = _run(chosen, seed=seed, full=full, data=data, folder=folder)
    written = [] if folder is None else write_result(folder, result)
    if as_json:
        print_json(_as_json(chosen, seed, full, result))
    else:
        _print(chosen, result)
        if written:
            tell(f"{len(written)} files are in {folder}")
    if not result.passed:
        raise typer.Exit(1)


def _run(chosen: Experiment, *, folder: Path | None, **settings: Any) -> Result:
    """Run an experiment; a terminal shows a bar, a pipe a line for every finished part."""
    told: list[int] = []

    def count(progress: Any) -> None:
        if progress.done:
            told.append(progress.done)
            tell(f"{chosen.name}: {progress.done} of {progress.members} parts")

    with progress_bar(chosen.name, "parts") as bar:
        result = chosen.reproduce(folder=folder, progress=bar or count, **settings)
    if bar is None and not told:  # an experiment in one piece
        tell(f"{chosen.name}: 1 of 1 parts")
    return result


def _reproduce_all(
    folder: Path | None, page: Path, *, seed: int, full: bool, limits: dict[str, Any], as_json: bool
) -> None:
    from dynagram.cli._reproductions import page as page_text
    from dynagram.cli._reproductions import run_all, write_page

    assert folder is not None
    names = experiment_names()
    for name in limits["only"] or ():
        if name not in names:
            raise InvalidValueError("--only", name, _known(name, names))

    def run(name: str, place: Path) -> dict[str, Any]:
        chosen = find_experiment(name)
        result = _run(chosen, seed=seed, full=full, data=None, folder=place)
        write_result(place, result)
        return _as_json(chosen, seed, full, result) | {"summary": chosen.summary}

    with _continuable(folder):
        answers = run_all(names, folder, run, seed=seed, **limits)
    tell(f"wrote {write_page(page, page_text(answers))}")
    done = {name: answer for name, answer in answers.items() if answer is not None}
    waiting = [name for name in answers if name not in done]
    if as_json:
        print_json({"experiments": done, "not_run": waiting})
    else:
        out = console()
        table = narrow_table("experiment", "claims that hold")
        for name, answer in answers.items():
            claims = [] if answer is None else answer["statements"]
            counted = f"{sum(c['passed'] for c in claims)} of {len(claims)}"
            table.add_row(name, "not run yet" if answer is None else counted)
        out.print(table)
    if waiting:
        tell(f"the same command runs the {len(waiting)} that are left")
    is_limited = any(limit is not None for limit in limits.values())
    if (waiting and not is_limited) or not all(answer["passed"] for answer in done.values()):
        raise typer.Exit(1)


def experiment_names() -> list[str]:
    """The names of all installed experiments, in alphabetical order."""
    return sorted(_installed())


def find_experiment(name: str) -> Experiment:
    """The experiment called `name`; the others are not imported."""
    installed = _installed()
    if name not in installed:
        raise InvalidValueError("experiment", name, _known(name, sorted(installed)))
    return installed[name].load()


def _known(name: str, names: Sequence[str]) -> str:
    """What could have been meant."""
    if not names:
        return "none is installed"
    close = difflib.get_close_matches(name, names, cutoff=0.4)
    meant = f"did you mean {', '.join(close)}? " if close else ""
    return f"unknown experiment; {meant}`dynagram reproduce` lists all {len(names)}"


def _installed() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@contextmanager
def _continuable(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if folder is None:
            tell("nothing was kept: with --output DIR a run that was stopped continues")
        else:
            tell(f"finished parts are kept in {folder}: the same command continues from them")
        raise


def write_result(folder: Path, result: Result) -> list[Path]:
    """The tables as CSV and the figures as SVG and PNG, each written whole or not at all."""
    from dynagram.results._files import write_atomically

    written = [
        write_atomically(folder / f"{stem}.csv", _csv(columns).encode())
        for stem, columns in result.tables.items()
    ]
    for stem, chart in result.figures.items():
        from dynagram.report import save

        written += [save(chart, folder / f"{stem}{kind}") for kind in (".svg", ".png")]
    return written


def _csv(columns: Mapping[str, Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def _made(output: Path | None) -> Path | None:
    if output is None:
        return None
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError("--output", str(output), "cannot be made a folder") from error
    return output


def _as_json(chosen: Experiment, seed: int, full: bool, result: Result) -> dict[str, Any]:
    return {
        "experiment": chosen.name,
        "source": chosen.source,
        "seed": seed,
        "full": full,
        "passed": result.passed,
        "statements": [vars(statement) for statement in result.statements],
        "notes": result.notes,
        "tables": result.tables,
    }


def _print_list_of(experiments: Sequence[Experiment], as_json: bool) -> None:
    if as_json:
        print_json({e.name: {"summary": e.summary, "source": e.source} for e in experiments})
        return
    table = narrow_table("experiment", "what it checks")
    for known in experiments:
        table.add_row(known.name, known.summary)
    console().print(table)


def _print(chosen: Experiment, result: Result) -> None:
    out = console()
    out.print(f"{chosen.name}: {chosen.summary} ({chosen.source})", markup=False)
    out.print()
    for statement in result.statements:
        verdict = "[green]holds[/green]" if statement.passed else "[red]FAILS[/red]"
        out.print(verdict, end="  ")
        out.print(statement.claim, markup=False)
        out.print(f"       {statement.measured}", markup=False)
    if result.notes:
        out.print()
        print_list(out, result.notes)
    held = sum(statement.passed for statement in result.statements)
    out.print()
    out.print(f"{held} of {len(result.statements)} statements hold.")
