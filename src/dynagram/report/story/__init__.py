"""The page that tells the whole story of a network: from birth through training to advice."""

from __future__ import annotations

from pathlib import Path

from dynagram.report._page import render
from dynagram.report.story._advice import TITLE as _ADVICE
from dynagram.report.story._advice import tell_advice
from dynagram.report.story._birth import TITLE as _BIRTH
from dynagram.report.story._birth import tell_birth
from dynagram.report.story._inside import TITLE as _INSIDE
from dynagram.report.story._inside import tell_inside
from dynagram.report.story._learning import TITLE as _LEARNING
from dynagram.report.story._learning import tell_learning
from dynagram.report.story._models import trained_models
from dynagram.report.story._plateau import TITLE as _PLATEAU
from dynagram.report.story._plateau import tell_plateau
from dynagram.report.story._sources import tell_sources
from dynagram.report.story._stages import (
    FULL,
    QUICK,
    Effort,
    Stage,
    Watcher,
    forget_stages,
    run_stages,
)
from dynagram.report.story._subject import (
    Subject,
    default_subject,
    equal_rates,
    of_config,
    of_model,
    of_run,
)
from dynagram.report.story._training import TITLE as _TRAINING
from dynagram.report.story._training import tell_training
from dynagram.report.story._watched import is_watched, write_watched
from dynagram.results._files import write_atomically

__all__ = [
    "FULL",
    "QUICK",
    "Effort",
    "Subject",
    "default_subject",
    "equal_rates",
    "is_watched",
    "of_config",
    "of_model",
    "of_run",
    "trained_models",
    "write_story",
    "write_watched",
]

STAGES = (
    Stage("birth", _BIRTH, "drawing networks at birth", 2.0, tell_birth),
    Stage("training", _TRAINING, "predicting and training outputs", 5.0, tell_training),
    Stage("learning", _LEARNING, "following what is learned", 3.0, tell_learning),
    Stage("plateau", _PLATEAU, "forecasting plateaus", 2.0, tell_plateau),
    Stage("inside", _INSIDE, "looking into one network", 0.5, tell_inside, False),
    Stage("advice", _ADVICE, "working out advice", 0.5, tell_advice),
)
_FOOTER = (
    "Equation numbers: Roberts, Yaida, Hanin, The Principles of Deep Learning Theory, "
    "arXiv:2106.10165. Made by dynagram; this page loads nothing from the network."
)


def write_story(
    subject: Subject,
    folder: str | Path,
    *,
    effort: Effort = FULL,
    watch: Watcher = lambda _name, _done: None,
) -> Path:
    """Write the page about a network to `folder/index.html`.

    Finished stages are kept in `folder/stages` until the page is written: called again after an
    interruption, only what is missing is computed.

    **Arguments:**

    - `subject`: what the page is about: `default_subject()`, `of_config(path)`, `of_run(folder)`,
        `of_model(model, data, …)`.
    - `folder`: made if it is not there.
    - `effort`: how many networks are drawn and trained: `FULL`, `QUICK`, or an `Effort`.
    - `watch`: called with the name of the stage and the part of the work that is done.

    **Returns:** the path of the page.
    """
    folder = Path(folder)
    kept = folder / "stages"
    sections = run_stages(STAGES, subject, effort, kept, watch)
    page = render(
        subject.title, [*sections, tell_sources(subject)], lead=subject.lead, footer=_FOOTER
    )
    path = write_atomically(folder / "index.html", page.encode())
    forget_stages(kept)
    return path
