"""`dynagram report`: one offline page that tells how a network is born, learns and might stall."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli._models import LayerNames, load_model
from dynagram.cli._options import NamedActivation, Trust
from dynagram.cli._output import tell
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.report.story import Effort, Subject
else:
    Effort = Subject = object  # imported when the command runs, so that --help stays quick


# Samples that a live model is read with.
_TRACED = 64


def report(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML file of a problem, the folder of a run or of a watch, a file of weights, "
            "or package.module:function that makes your model; without one, handwritten digits."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the page.")] = Path(
        "dynagram-report"
    ),
    data: Annotated[
        Path | None, typer.Option(help="With weights or a model: a .npz file with x and y.")
    ] = None,
    activation: NamedActivation = None,
    layers: LayerNames = None,
    lr: Annotated[
        float | None,
        typer.Option("--lr", help="With weights or a model: rate of the training to come."),
    ] = None,
    members: Annotated[
        int | None, typer.Option("--members", help="Networks that are trained.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer networks, wider error bars.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the networks.")] = 0,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
) -> None:
    """Write one page: what theory expects of a network, beside what networks do.

    Birth, training, what is learned, plateaus, one network from inside, advice. Stages that are
    finished are kept: the same command continues a report that was stopped.
    """
    from dynagram.report.story import is_watched, write_story, write_watched

    if source is not None and is_watched(source):
        _check_watched(
            {"--data": data, "--activation": activation, "--layers": layers, "--lr": lr,
             "--members": members, "--quick": quick or None, "--seed": seed or None}
        )  # fmt: skip
        _say(write_watched(source, _folder(output)))
        return
    subject = _subject(source, data, activation, layers, lr)
    effort = _effort(quick, members, seed)
    subject = replace(subject, command=subject.command + _options(quick, members, seed))
    _folder(output)
    try:
        with _stage_bar() as watch:
            page = write_story(subject, output, effort=effort, watch=watch)
    except KeyboardInterrupt:
        if (output / "stages").is_dir():
            tell("finished stages are kept: the same command continues")
        raise
    _say(page)


def _folder(output: Path) -> Path:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError("--output", str(output), "cannot be made a folder") from error
    return output


def _say(page: Path) -> None:
    size = page.stat().st_size
    print(
        f"The report is in {page} ({size / 1e6:.1f} MB). Open it in a browser; it needs no network."
    )


def _check_watched(options: dict[str, Any]) -> None:
    """A watch has recorded all that its page shows: no option changes it."""
    for name, value in options.items():
        if value is not None:
            shown = str(value) if isinstance(value, Path) else value
            raise InvalidValueError(name, shown, "does not go with the folder of a watch")


def _subject(
    source: Path | None,
    data: Path | None,
    activation: str | None,
    layers: str | None,
    lr: float | None,
) -> Subject:
    from dynagram.networks._weight_files import SUFFIXES
    from dynagram.report.story import default_subject, of_config, of_model, of_run

    given = {"--data": data, "--activation": activation, "--layers": layers, "--lr": lr}
    is_weights = source is not None and source.is_file() and source.suffix.lower() != ".toml"
    is_live = source is not None and ":" in source.name and not source.exists()
    for name, value in given.items():
        if value is not None and not is_weights and not (is_live and name in ("--data", "--lr")):
            raise InvalidValueError(name, value, "goes with a file of weights")
    if is_live:
        return _live(str(source), data, lr)
    if source is None:
        return default_subject()
    if source.is_dir():
        return of_run(source)
    if not is_weights:
        return of_config(source)
    if source.suffix.lower() not in SUFFIXES:
        allowed = f"expected a .toml, the folder of a run, or weights ({', '.join(SUFFIXES)})"
        raise InvalidValueError("source", str(source), allowed)
    for name in ("--data", "--activation"):
        if given[name] is None:
            raise InvalidValueError(name, None, "needed with a file of weights")
    assert data is not None
    assert activation is not None
    model, batch = load_model(source, data, activation, layers, "0")
    words = f"dynagram report {quote(str(source))} --data {quote(str(data))}"
    words += f" --activation {quote(activation)}"
    words += "" if layers is None else f" --layers {quote(layers)}"
    words += "" if lr is None else f" --lr {lr:g}"
    return of_model(model, batch, rate=lr, command=words)


def _live(source: str, data: Path | None, lr: float | None) -> Subject:
    """A model that a function of the user's makes, alone or with its x and y."""
    from dynagram.cli._check import made_model
    from dynagram.data._files import as_data, load_batch
    from dynagram.live._live import fitting_inputs
    from dynagram.networks import Model
    from dynagram.report.story import of_model

    made, given = made_model(source)
    if data is not None:
        batch = load_batch(data, "--data")
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        batch = {"x": _numbers(given[0]), "y": _numbers(given[1])}
    else:
        allowed = "needed, unless the function returns (model, (x, y))"
        raise InvalidValueError("--data", None, allowed)
    model = Model.of(made, fitting_inputs(made, batch["x"][:_TRACED]))
    words = f"dynagram report {source}" + ("" if data is None else f" --data {quote(str(data))}")
    words += "" if lr is None else f" --lr {lr:g}"
    samples = as_data(batch, model.network.output_size)
    return of_model(model, samples, rate=lr, command=words)


def _numbers(values: Any) -> np.ndarray:
    """Arrays of any library, tensors that have gradients too."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _options(quick: bool, members: int | None, seed: int) -> str:
    """What was typed beside the source, so that the page names the command that made it."""
    words = " --quick" if quick else ""
    words += "" if members is None else f" --members {members}"
    return words + ("" if seed == 0 else f" --seed {seed}")


def _effort(quick: bool, members: int | None, seed: int) -> Effort:
    from dynagram.networks._checks import checked_integer
    from dynagram.report.story import FULL, QUICK

    effort = replace(QUICK if quick else FULL, seed=seed)
    if members is None:
        return effort
    return replace(effort, trained=checked_integer("members", members, 2, 2**32 - 1))


@contextmanager
def _stage_bar() -> Iterator[Callable[[str, float], object]]:
    """A bar on stderr that names the stage; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _name, _done: None
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.description}"),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda name, done: bar.update(task, description=name, completed=done)
