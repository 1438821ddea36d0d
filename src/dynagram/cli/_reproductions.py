"""All experiments one after the other, finished ones kept, and the page that tells what held."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynagram.cli._output import tell
from dynagram.errors import DynagramError, InvalidValueError

_FILE = "result.json"
_HEAD = (
    "# Reproductions\n\n"
    "What the experiments of the literature gave, claim by claim, at the size that fits a CPU. "
    "This page is written by `dynagram reproduce --all`, which goes on where it was stopped; a "
    "claim that fails is printed as it is. Core minutes do not depend on what else a machine is "
    "doing; they are those of the last go, less where finished parts were there already.\n"
)


def run_all(
    names: Sequence[str],
    folder: Path,
    run: Callable[[str, Path], Mapping[str, Any]],
    *,
    seed: int,
    minutes: float | None = None,
    only: Sequence[str] | None = None,
) -> dict[str, Mapping[str, Any] | None]:
    """The answers of all experiments by name: kept ones read, others run; None where not run.

    After `minutes` no further experiment is begun, nor any that is not in `only`. Of one that
    cannot be run the reason is told, and the next begun. An answer is kept in the experiment's
    folder when it is complete, and used again for the same seed only.
    """
    began = time.monotonic()
    answers: dict[str, Mapping[str, Any] | None] = {}
    for number, name in enumerate(names, start=1):
        place = folder / name
        answer = _kept(place / _FILE, seed)
        in_time = minutes is None or time.monotonic() - began < 60.0 * minutes
        if answer is None and in_time and (only is None or name in only):
            tell(f"{number} of {len(names)}: {name}")
            start = time.process_time()
            place.mkdir(parents=True, exist_ok=True)
            try:
                answer = dict(run(name, place))
                answer["core_minutes"] = (time.process_time() - start) / 60.0
            except DynagramError as error:  # the others are run all the same
                tell(f"{name} could not be run: {error}")
            else:
                _write(place / _FILE, answer)
        answers[name] = answer
    return answers


def page(answers: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The text of docs/reproductions.md."""
    done = {name: answer for name, answer in answers.items() if answer is not None}
    claims = [claim for answer in done.values() for claim in answer["statements"]]
    held = sum(claim["passed"] for claim in claims)
    parts = [
        _HEAD,
        f"{len(done)} of {len(answers)} experiments were run; {held} of {len(claims)} claims "
        "hold.\n",
    ]
    rows = ["| experiment | claims that hold | core minutes |", "|---|---|---|"]
    for name, answer in answers.items():
        if answer is None:
            rows.append(f"| {name} | not run yet | |")
            continue
        passed = sum(claim["passed"] for claim in answer["statements"])
        counted = f"{passed} of {len(answer['statements'])}"
        minutes = answer.get("core_minutes")  # not known of runs of earlier versions
        spent = "" if minutes is None else f"{minutes:.1f}"
        rows.append(f"| [{name}](#{name}) | {counted} | {spent} |")
    parts.append("\n".join(rows) + "\n")
    for name, answer in done.items():
        parts.append(f"## {name}\n\n{answer['summary']} ({answer['source']})\n")
        lines = [
            f"- {'holds' if claim['passed'] else '**fails**'}: {_plain(claim['claim'])}: "
            f"{_plain(claim['measured'])}"
            for claim in answer["statements"]
        ]
        lines += [f"- note: {_plain(note)}" for note in answer["notes"]]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def write_page(path: Path, text: str) -> Path:
    """The page, whole or not at all."""
    from dynagram.results._files import write_atomically

    if not path.parent.is_dir():
        raise InvalidValueError("--page", str(path), "its folder does not exist")
    return write_atomically(path, text.encode())


def _kept(path: Path, seed: int) -> Mapping[str, Any] | None:
    """What an earlier run left, if it is complete and of this seed."""
    if not path.is_file():
        return None
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.get("seed") == seed else None


def _write(path: Path, answer: Mapping[str, Any]) -> None:
    from dynagram.results._files import plain, write_atomically

    brief = {key: value for key, value in answer.items() if key != "tables"}
    write_atomically(path, json.dumps(plain(brief), ensure_ascii=False, indent=1).encode())


def _plain(text: str) -> str:
    """Without what Markdown would read as markup, but for code between backticks."""
    pieces = text.split("`")
    pieces[::2] = [piece.replace("|", "\\|").replace("*", "\\*") for piece in pieces[::2]]
    return "`".join(pieces)
