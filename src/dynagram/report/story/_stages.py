"""The stages of a page, one after the other: what is finished is kept until the page is."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dynagram.ensembles.engine._progress import Progress
from dynagram.errors import DynagramError
from dynagram.report._blocks import Notice, Section, Tile, from_plain, to_plain
from dynagram.report.story._subject import Subject
from dynagram.results._files import write_atomically

# Called with the name of the stage that runs, and the part of all the work that is done.
Watcher = Callable[[str, float], object]


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    `drawn` networks for the tensors at birth, `trained` ones for outputs, `models` that are looked
    into, `steps` of these, `longest` training on a plateau.
    """

    drawn: int
    trained: int
    models: int
    steps: int
    longest: int
    seed: int = 0


FULL = Effort(drawn=8000, trained=400, models=6, steps=300, longest=3000)
QUICK = Effort(drawn=1000, trained=64, models=3, steps=100, longest=1200)


@dataclass(frozen=True)
class Stage:
    """One chapter: its name for the progress bar, its share of the time, and what makes it."""

    key: str
    title: str
    doing: str
    share: float
    tell: Callable[[Subject, Effort, Callable[[Progress], object]], Section]
    has_tile: bool = True


def run_stages(
    stages: Sequence[Stage],
    subject: Subject,
    effort: Effort,
    folder: Path,
    watch: Watcher = lambda _name, _done: None,
) -> list[Section]:
    """The sections of all stages; those that an interrupted call has finished are read back.

    **Arguments:**

    - `stages`, `subject`, `effort`: what is told, of what, and how thoroughly.
    - `folder`: where finished stages are kept, one file each.
    - `watch`: called before and during every stage.

    **Returns:** one `Section` per stage. A stage that the library refuses says why.
    """
    mark, total = fingerprint(subject, effort), sum(stage.share for stage in stages)
    sections, done = [], 0.0
    for stage in stages:
        watch(stage.doing, done / total)

        def within(progress: Progress, stage: Stage = stage, start: float = done) -> None:
            part = progress.done / progress.members if progress.members else 0.0
            watch(stage.doing, (start + stage.share * min(part, 1.0)) / total)

        path = folder / f"{stage.key}.json"
        section = _kept(path, mark)
        if section is None:
            section = _told(stage, subject, effort, within)
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"of": mark, "section": to_plain(section)})
            write_atomically(path, text.encode())
        sections.append(section)
        done += stage.share
    watch("writing the page", 1.0)
    return sections


def forget_stages(folder: Path) -> None:
    """Remove what was kept: the page is written."""
    shutil.rmtree(folder, ignore_errors=True)


def fingerprint(subject: Subject, effort: Effort) -> str:
    """What the finished stages belong to: the version, the problem to its last bit, the effort."""
    digest = hashlib.sha256()
    for part in (version("dynagram"), subject.network, subject.how.to_toml(), subject.command):
        digest.update(str(part).encode())
    digest.update(repr(effort).encode())
    for data in (subject.data, subject.batch):
        for array in (data.x, data.y, data.test_x, data.test_y):
            digest.update(b"" if array is None else array.tobytes())
    for layer in () if subject.model is None else subject.model.in_float64().params:
        digest.update(bytes(memoryview(layer.b)) + bytes(memoryview(layer.W).cast("B")))
    return digest.hexdigest()


def _kept(path: Path, mark: str) -> Section | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return from_plain(stored["section"]) if stored["of"] == mark else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _told(
    stage: Stage, subject: Subject, effort: Effort, within: Callable[[Progress], object]
) -> Section:
    try:
        return stage.tell(subject, effort, within)
    except DynagramError as error:
        words = f"This part is not known for this problem: {error}"
        tile = Tile(stage.title, "–", "not known here", str(error)[:120], "warn")
        tile = tile if stage.has_tile else None
        return Section(stage.title, [Notice("Not told here", [words], "warn")], tile)
