"""What `spec.toml` of a run says: the request, checksums of its inputs, and the job."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dynagram._toml import read_toml, write_table
from dynagram.ensembles._jobs import Job
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._records import array_digest
from dynagram.errors import InvalidValueError

FORMAT = 2


def write_specification(job: Job, *, members: int | None, until_error: float | None) -> str:
    """The text of `spec.toml`: the tables [run] and [inputs], then those of the job."""
    run = {
        "format": FORMAT,
        "job": job.kind,
        "members": members,
        "until_error": until_error,
        "chunk": job.chunk_members,
        "seed": job.seed,
        **_versions(),
    }
    return "\n".join([write_table("run", run), write_table("inputs", _digests(job)), job.to_toml()])


def read_run_table(folder: Path, spec: str) -> dict[str, Any]:
    """The table [run]; runs of another format are refused."""
    try:
        run = read_toml(spec)["run"]
        known = run["format"], run["job"], run["chunk"], run["seed"]
    except (InvalidValueError, KeyError, TypeError) as error:
        raise RunError(f"spec.toml of {folder} cannot be read: {error!r}; restore it") from error
    if known[0] != FORMAT:
        allowed = f"this version of dynagram reads runs of format {FORMAT}: compute it again"
        raise InvalidValueError(f"format of {folder}", known[0], allowed)
    members, until_error = run.get("members"), run.get("until_error")
    wrong = [
        name
        for name, value, smallest in (
            ("chunk", run["chunk"], 1),
            ("seed", run["seed"], 0),
            ("members", 1 if members is None else members, 1),
        )
        if type(value) is not int or not smallest <= value < 2**32
    ]
    if not isinstance(run["job"], str):
        wrong.append("job")
    if until_error is None and members is None:
        wrong.append("members")
    if not (until_error is None or (isinstance(until_error, float) and 0 < until_error < 1)):
        wrong.append("until_error")
    if wrong:
        raise RunError(f"spec.toml of {folder} was changed in {', '.join(wrong)}: restore it")
    return run


def find_differences(
    spec: str, job: Job, *, members: int | None, until_error: float | None
) -> list[str]:
    """In what a request differs from the one that `spec` was written for."""
    tables = read_toml(spec)
    asked = {"job": job.kind, "members": members, "until_error": until_error}
    differences = [name for name, value in asked.items() if tables["run"].get(name) != value]
    if tables.get("inputs", {}) != _digests(job):
        differences.append("inputs")
    if not spec.endswith(f"\n{job.to_toml()}"):
        differences.append("specification")
    return differences


def changed_versions(run: Mapping[str, Any]) -> list[str]:
    """What the numbers depend on, to rounding, and has changed since the run was begun."""
    return [
        f"begun with {name} {run[name]}, now {version}: expect other last digits"
        for name, version in _versions().items()
        if run.get(name, version) != version
    ]


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("dynagram", "jax")}


def _digests(job: Job) -> dict[str, str]:
    return {name: array_digest(array) for name, array in job.arrays().items()}
