"""Stored runs: a folder with a specification, Zarr arrays, checksums and a status.

    RUN/spec.toml         the job, the number of members or the precision asked for
    RUN/inputs/           the arrays of the specification, as Zarr
    RUN/arrays/           the results, as Zarr: (member, …) arrays and the sums of every chunk
    RUN/chunks/7.json     chunk 7 is there: its members, its files with their SHA-256, failures
    RUN/status.json       how far the run is, for people and other programs; nothing depends on it
    RUN/lock              held by the process that writes

A chunk exists once its record `chunks/<number>.json` does, which is written last. Every file is
written whole or not at all. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.ensembles._jobs import (
    KINDS,
    FailedMember,
    Job,
    JobClass,
    Packed,
    import_job,
)
from dynagram.ensembles.store._arrays import (
    UNREADABLE,
    describe,
    is_summed,
    laid_out,
    read_input,
    read_metadata,
    write_inputs,
)
from dynagram.ensembles.store._durable import Lock, RunError, sync_folder
from dynagram.ensembles.store._records import DamagedChunkError, Record, array_digest, digest
from dynagram.ensembles.store._specification import (
    find_differences,
    read_run_table,
    write_specification,
)
from dynagram.ensembles.store._zarr_files import GROUP, Layout
from dynagram.errors import InvalidValueError
from dynagram.results._files import PARTS, replace_file

# What may lie in the folder of a run that was interrupted while it was being created.
_OWN_NAMES = {"inputs", "lock", "arrays", "chunks"}


class RunStore:
    """A run on disk. Make one with `create` or `open`; write only inside `with store.locked()`.

    **Arguments:**

    - `folder`: where the run is.
    - `spec`: its specification, in TOML.
    """

    def __init__(self, folder: Path, spec: str):
        self.folder = folder
        self.spec = spec
        self.run: dict[str, Any] = read_run_table(folder, spec)
        self._spec_digest = digest(spec.encode())
        self._layouts: dict[str, Layout] = {}  # by the names of results, the same in all chunks

    # --- opening ------------------------------------------------------------------------------

    @classmethod
    @contextlib.contextmanager
    def create(
        cls, folder: Path, job: Job, *, members: int | None, until_error: float | None
    ) -> Iterator[RunStore]:
        """A new run in `folder`, which must be new or empty; locked for the duration."""
        if not folder.parent.is_dir():
            raise InvalidValueError("run", str(folder), "its parent folder does not exist")
        if (folder / "spec.toml").exists():
            raise InvalidValueError("run", str(folder), "already holds a run: resume it")
        if folder.exists() and not _is_begun(folder):
            raise InvalidValueError("run", str(folder), "is not an empty folder")
        spec = write_specification(job, members=members, until_error=until_error)
        with _explained(folder, "the start of the run"):
            folder.mkdir(exist_ok=True)
        with Lock(folder / "lock"):
            with _explained(folder, "the start of the run"):
                for part in folder.glob(PARTS):
                    part.unlink(missing_ok=True)
                for name in ("inputs", "arrays", "chunks"):
                    shutil.rmtree(folder / name, ignore_errors=True)
                    (folder / name).mkdir()
                replace_file(folder / "arrays" / "zarr.json", GROUP)
                write_inputs(folder / "inputs", job.arrays(), job.dims())
                replace_file(folder / "spec.toml", spec.encode())
                sync_folder(folder)
            yield cls(folder, spec)

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """The run in `folder`."""
        try:
            spec = (folder / "spec.toml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValueError("run", str(folder), "holds no run (no spec.toml)") from error
        return cls(folder, spec)

    @staticmethod
    def is_run(folder: Path) -> bool:
        """Whether `folder` holds a run."""
        return (folder / "spec.toml").is_file()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse other writers for the duration."""
        with Lock(self.folder / "lock"):
            for part in self.folder.rglob(PARTS):  # a process that was killed was writing these
                part.unlink(missing_ok=True)
            yield

    def require_same(self, job: Job, *, members: int | None, until_error: float | None) -> None:
        """Refuse to continue this run for another job, or to another end."""
        differences = find_differences(self.spec, job, members=members, until_error=until_error)
        if differences:
            allowed = f"holds a run with another {', '.join(differences)}: take a new folder"
            raise InvalidValueError("run", str(self.folder), allowed)

    def is_complete(self, members: int) -> bool:
        """Whether a run that holds so many members is at its end."""
        if self.run.get("until_error") is None:
            return members == self.run["members"]
        status = self.status()
        return status.get("state") == "complete" and status.get("members") == members

    def job(self, job_class: JobClass | None = None) -> Job:
        """The job, from the specification; of `job_class`, or of the kind that it names."""
        if job_class is None:
            kind = self.run["job"]
            if kind not in KINDS:
                allowed = f"not one of {', '.join(KINDS)}: pass its class"
                raise InvalidValueError("kind of job", kind, allowed)
            job_class = import_job(KINDS[kind])
        return job_class.from_toml(self.spec, self._inputs())

    def _inputs(self) -> dict[str, np.ndarray]:
        arrays = {}
        for name, expected in tomllib.loads(self.spec).get("inputs", {}).items():
            where = self.folder / "inputs" / name
            try:
                arrays[name] = read_input(where)
            except UNREADABLE as error:
                raise RunError(f"{where} cannot be read: restore it or start anew") from error
            if array_digest(arrays[name]) != expected:
                raise RunError(f"{where} does not match its checksum: restore it or start anew")
        return arrays

    # --- chunks -------------------------------------------------------------------------------

    def chunks(self) -> list[int]:
        """The numbers of the chunks that have a record, sorted."""
        names = (path.stem for path in (self.folder / "chunks").glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def record(self, chunk: int) -> Record:
        """The record of a chunk, checked."""
        path = self._record_path(chunk)
        try:
            record = Record.from_json(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"chunks/{path.name} is missing or was changed"
            raise DamagedChunkError(self.folder, chunk, what) from error
        if record.spec != self._spec_digest:
            raise RunError(
                f"spec.toml of {self.folder} was changed after the run began: restore it"
            )
        return record

    def load(self, chunk: int) -> tuple[Record, Packed]:
        """The record and the arrays of a chunk; raises `DamagedChunkError` where one is amiss."""
        record = self.record(chunk)
        packed: Packed = {}
        for name, layout in record.layouts.items():
            array = self.read(record, name)
            packed[name] = array[0] if is_summed(name) else array
            self._layouts.setdefault(name, layout)
            self._check_metadata(chunk, name, layout)
        return record, packed

    def read(self, record: Record, name: str) -> np.ndarray:
        """The rows of the array `name` that belong to a chunk, checked."""
        layout, chunk = record.layouts[name], record.chunk
        key = f"arrays/{name}/{layout.key(chunk)}"
        try:
            data = (self.folder / key).read_bytes()
        except OSError as error:
            raise DamagedChunkError(self.folder, chunk, f"{key} is missing") from error
        if digest(data) != record.files.get(key):
            what = f"{key} does not match its checksum"
            raise DamagedChunkError(self.folder, chunk, what)
        return layout.decode(data, 1 if is_summed(name) else record.size)

    def _check_metadata(self, chunk: int, name: str, layout: Layout) -> None:
        try:
            found, length = read_metadata(self.folder / "arrays" / name)
        except UNREADABLE:
            found, length = None, 0
        if found != layout or length <= chunk * layout.chunk_shape[0]:
            what = f"arrays/{name}/zarr.json is missing or was changed"
            raise DamagedChunkError(self.folder, chunk, what)

    def commit(
        self,
        chunk: int,
        first: int,
        size: int,
        packed: Packed,
        failed: Sequence[FailedMember],
        dims: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Write a chunk: its arrays, and last of all its record."""
        files, layouts = {}, {}
        with _explained(self.folder, f"chunk {chunk}"):
            for name, array in packed.items():
                rows, own = laid_out(name, array, dims, self.run["chunk"])
                layout = self._layouts.setdefault(name, own)
                path = self.folder / "arrays" / name / layout.key(chunk)
                path.parent.mkdir(parents=True, exist_ok=True)
                data = layout.encode(rows)
                replace_file(path, data)
                describe(self.folder / "arrays", name, layout, self._rows_needed(name, chunk))
                files[f"arrays/{name}/{layout.key(chunk)}"] = digest(data)
                layouts[name] = layout
            record = Record(chunk, first, size, self._spec_digest, files, layouts, tuple(failed))
            # Should the power fail before the names of the files above are on the disk, the
            # checksums will tell.
            replace_file(self._record_path(chunk), record.to_json())
            sync_folder(self.folder / "chunks")

    def drop_after(self, chunk: int, members: int) -> None:
        """Forget the chunks behind `chunk`, the last one of a run that ended with `members`."""
        with _explained(self.folder, "the end of the run"):
            for later in self.chunks():
                if later > chunk:
                    self._drop(later)
            for name, layout in self.record(chunk).layouts.items():
                length = chunk + 1 if is_summed(name) else members
                path = self.folder / "arrays" / name / "zarr.json"
                if path.read_bytes() != layout.metadata(length):
                    replace_file(path, layout.metadata(length))

    def _drop(self, chunk: int) -> None:
        try:
            files = list(self.record(chunk).files)
        except DamagedChunkError:
            files = []
        self._record_path(chunk).unlink()  # first, so that no chunk is ever half there
        for key in files:
            (self.folder / key).unlink(missing_ok=True)

    def write_status(self, **status: Any) -> None:
        """Say how far the run is. On a full disk the old text stays."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = json.dumps(status | {"updated": now}, indent=1, ensure_ascii=False)
        with contextlib.suppress(OSError):
            replace_file(self.folder / "status.json", text.encode(), sync=False)

    def status(self) -> dict[str, Any]:
        """What `write_status` wrote last; empty where it cannot be read."""
        try:
            found = json.loads((self.folder / "status.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _record_path(self, chunk: int) -> Path:
        return self.folder / "chunks" / f"{chunk}.json"

    def _rows_needed(self, name: str, chunk: int) -> int:
        """The length of an array that holds this chunk: at once that of the end, where known."""
        members = self.run.get("members")
        size = 1 if is_summed(name) else self.run["chunk"]
        if members is None:
            return (chunk + 1) * size
        return -(-members // self.run["chunk"]) if is_summed(name) else members


def _is_begun(folder: Path) -> bool:
    """Whether all that lies in a folder may come from a run that was being created."""
    if not folder.is_dir():
        return False
    return all(p.name in _OWN_NAMES or fnmatch(p.name, PARTS) for p in folder.iterdir())


@contextlib.contextmanager
def _explained(folder: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {what} to {folder}: {error.strerror or error}; once that is mended, "
            "resume the run: it goes on from the last whole chunk"
        ) from error
