"""Stored runs: a folder with a specification, Zarr arrays, checksums and a status.

    RUN/spec.toml         the job, the number of members or the precision asked for
    RUN/inputs/           the arrays of the specification, as Zarr
    RUN/arrays/           the results, as Zarr: (member, …) arrays and the sums of every chunk
    RUN/chunks/7.json     chunk 7 is there: its members, its files with their SHA-256, failures
    RUN/status.json       how far the run is, for people and other programs; nothing depends on it
    RUN/lock              held by the process that writes

A chunk exists once its record `chunks/<number>.json` does, which is written last. Every file is
written whole or not at all. Nothing is pickled. The folder may come from somebody else: whatever
its texts say, no file outside it is written or deleted (see `_paths`).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from dynagram._memory import require_memory
from dynagram._toml import read_toml
from dynagram.ensembles._jobs import (
    KINDS,
    FailedMember,
    Job,
    JobClass,
    Packed,
    import_job,
    unpack,
)
from dynagram.ensembles.store._arrays import (
    UNREADABLE,
    describe,
    is_summed,
    laid_out,
    mend_groups,
    read_input,
    read_metadata,
    write_inputs,
)
from dynagram.ensembles.store._durable import Lock, RunError, sync_folder
from dynagram.ensembles.store._paths import inside, is_plain, read_file
from dynagram.ensembles.store._records import DamagedChunkError, Record, array_digest, digest
from dynagram.ensembles.store._specification import (
    find_differences,
    read_run_table,
    write_specification,
)
from dynagram.ensembles.store._zarr_files import GROUP, Layout
from dynagram.errors import DynagramError, InvalidValueError
from dynagram.results._files import PARTS, replace_file

# What may lie in the folder of a run that was interrupted while it was being created.
_OWN_NAMES = {"inputs", "lock", "arrays", "chunks"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_ENSEMBLE = 2**32 - 1


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
        with Lock(inside(folder, "lock")):
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
            spec = read_file(folder / "spec.toml").decode()
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
        with Lock(inside(self.folder, "lock")):
            with _explained(self.folder, "a run that is to go on"):
                for part in self.folder.rglob(PARTS):  # one that was killed was writing these
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
        inputs = self._inputs()
        try:
            job = job_class.from_toml(self.spec, inputs)
        except DynagramError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"spec.toml of {self.folder} describes no job: {error!r}"
            raise RunError(f"{what}; restore it") from error
        if (job.chunk_members, job.seed) != (self.run["chunk"], self.run["seed"]):
            raise RunError(f"spec.toml of {self.folder} contradicts itself: restore it")
        return job

    def _inputs(self) -> dict[str, np.ndarray]:
        arrays = {}
        digests = read_toml(self.spec).get("inputs", {})
        for name, expected in digests.items() if isinstance(digests, dict) else ():
            where = self.folder / "inputs" / name
            try:
                if not is_plain(name):
                    raise ValueError("not the name of an input")
                arrays[name] = read_input(inside(self.folder, "inputs"), name)
            except UNREADABLE as error:
                raise RunError(f"{where} cannot be read: restore it or start anew") from error
            if array_digest(arrays[name]) != expected:
                raise RunError(f"{where} does not match its checksum: restore it or start anew")
        return arrays

    # --- chunks -------------------------------------------------------------------------------

    def chunks(self) -> list[int]:
        """The numbers of the chunks that have a record, sorted."""
        names = (path.stem for path in inside(self.folder, "chunks").glob("*.json"))
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def record(self, chunk: int) -> Record:
        """The record of a chunk, checked."""
        key = f"chunks/{chunk}.json"
        try:
            record = Record.from_json(read_file(inside(self.folder, key)))
            if not record.is_of(chunk, *self._span(chunk)):
                raise ValueError("tells of another chunk")
        except UNREADABLE as error:
            what = f"{key} is missing or was changed"
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
            if self._layouts.setdefault(name, layout) != layout:
                what = f"arrays/{name} has another form than in other chunks"
                raise DamagedChunkError(self.folder, chunk, what)
            self._check_metadata(chunk, name, layout)
        try:
            unpack(packed)
        except KeyError as error:
            what = f"the sums {error} are missing"
            raise DamagedChunkError(self.folder, chunk, what) from error
        return record, packed

    def read(self, record: Record, name: str) -> np.ndarray:
        """The rows of the array `name` that belong to a chunk, checked."""
        layout, chunk = record.layouts[name], record.chunk
        key = f"arrays/{name}/{layout.key(chunk)}"
        require_memory(f"{self.folder}/{key}", layout.chunk_shape, layout.nbytes, "it is forged")
        try:
            data = read_file(inside(self.folder, key), layout.nbytes)
        except OSError as error:
            what = f"{key} is missing" if not (self.folder / key).exists() else f"{key} {error}"
            raise DamagedChunkError(self.folder, chunk, what) from error
        if len(data) != layout.nbytes or digest(data) != record.files.get(key):
            what = f"{key} does not match its checksum"
            raise DamagedChunkError(self.folder, chunk, what)
        return layout.decode(data, 1 if is_summed(name) else record.size)

    def _check_metadata(self, chunk: int, name: str, layout: Layout) -> None:
        try:
            written, length = read_metadata(inside(self.folder, "arrays"), name)
        except UNREADABLE:
            written, length = None, 0
        if written != layout or length <= chunk * layout.chunk_shape[0]:
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
                path = inside(self.folder, f"arrays/{name}/{layout.key(chunk)}")
                path.parent.mkdir(parents=True, exist_ok=True)
                data = layout.encode(rows)
                replace_file(path, data)
                describe(
                    inside(self.folder, "arrays"), name, layout, self._rows_needed(name, chunk)
                )
                files[f"arrays/{name}/{layout.key(chunk)}"] = digest(data)
                layouts[name] = layout
            record = Record(chunk, first, size, self._spec_digest, files, layouts, tuple(failed))
            # Should the power fail before the names of the files above are on the disk, the
            # checksums will tell.
            replace_file(inside(self.folder, f"chunks/{chunk}.json"), record.to_json())
            sync_folder(self.folder / "chunks")

    def drop_after(self, chunk: int, members: int) -> None:
        """Forget the chunks behind `chunk`, the last one of a run that ended with `members`."""
        layouts = self.record(chunk).layouts
        with _explained(self.folder, "the end of the run"):
            for later in self.chunks():
                if later > chunk:
                    self._drop(later, layouts)
            for name, layout in layouts.items():
                length = chunk + 1 if is_summed(name) else members
                path = inside(self.folder, f"arrays/{name}/zarr.json")
                if read_file(path) != layout.metadata(length):
                    replace_file(path, layout.metadata(length))
            mend_groups(inside(self.folder, "arrays"), layouts)
            mend_groups(inside(self.folder, "inputs"), ())

    def _drop(self, chunk: int, layouts: Mapping[str, Layout]) -> None:
        """Delete a record, first, so that no chunk is ever half there, then the files it may have.

        Which these are is known from its number: what a stray record says of files is not asked.
        """
        inside(self.folder, f"chunks/{chunk}.json").unlink(missing_ok=True)
        for name, layout in layouts.items():
            key = f"arrays/{name}/{layout.key(chunk)}"
            inside(self.folder, key).unlink(missing_ok=True)

    def write_status(self, **status: Any) -> None:
        """Say how far the run is. On a full disk the old text stays."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = json.dumps(status | {"updated": now}, indent=1, ensure_ascii=False)
        with contextlib.suppress(OSError, RunError):
            replace_file(inside(self.folder, "status.json"), text.encode(), sync=False)

    def status(self) -> dict[str, Any]:
        """What `write_status` wrote last; empty where it cannot be read."""
        try:
            status = json.loads(read_file(inside(self.folder, "status.json")))
        except (*UNREADABLE, RunError):
            return {}
        return status if isinstance(status, dict) else {}

    def _span(self, chunk: int) -> tuple[int, int]:
        """The first member of a chunk and their number."""
        first, members = chunk * self.run["chunk"], self.run.get("members")
        limit = _LARGEST_ENSEMBLE if members is None else members
        return first, min(self.run["chunk"], limit - first)

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
