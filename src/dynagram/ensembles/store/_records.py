"""The records of the chunks of a stored run, which say what was written and how to check it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagram.ensembles._jobs import FailedMember
from dynagram.ensembles.store._durable import RunError
from dynagram.ensembles.store._paths import is_plain
from dynagram.ensembles.store._zarr_files import Layout


class DamagedChunkError(RunError):
    """A chunk that was written is missing files or does not match its checksums.

    **Arguments:**

    - `folder`: that of the run.
    - `chunk`: its number.
    - `what`: what is wrong with it.
    """

    def __init__(self, folder: Path, chunk: int, what: str):
        self.chunk = chunk
        super().__init__(
            f"chunk {chunk} of {folder} is damaged: {what}; resume the run to compute it again"
        )


@dataclass(frozen=True)
class Record:
    """A chunk on disk: its members, its files with checksums and layouts, and its failures."""

    chunk: int
    first: int
    size: int
    spec: str
    files: dict[str, str]
    layouts: dict[str, Layout]
    failed: tuple[FailedMember, ...]

    def to_json(self) -> bytes:
        """Readable JSON that carries its own checksum."""
        layouts = {name: layout.as_json() for name, layout in self.layouts.items()}
        content = asdict(self) | {"layouts": layouts, "failed": [asdict(f) for f in self.failed]}
        content["sha256"] = digest(_canonical(content))
        return json.dumps(content, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Record:
        """Back from `to_json`; raises `ValueError` when anything was changed."""
        content = json.loads(data)
        if content.pop("sha256", None) != digest(_canonical(content)):
            raise ValueError("does not match its own checksum")
        layouts = {name: Layout.from_json(entry) for name, entry in content.pop("layouts").items()}
        failed = tuple(FailedMember(**entry) for entry in content.pop("failed"))
        return cls(**content, layouts=layouts, failed=failed)

    def is_of(self, chunk: int, first: int, size: int) -> bool:
        """Whether it tells of these members, and of no files but those of this chunk."""
        names = [part for name in self.layouts for part in name.split("/")]
        own = {f"arrays/{name}/{layout.key(chunk)}" for name, layout in self.layouts.items()}
        return (
            (self.chunk, self.first, self.size) == (chunk, first, size)
            and all(map(is_plain, names))
            and isinstance(self.files, dict)
            and set(self.files) == own
            and all(type(failure.member) is int for failure in self.failed)
            and all(isinstance(failure.step, float | None) for failure in self.failed)
        )


def digest(data: bytes) -> str:
    """The SHA-256 of the bytes of a file."""
    return hashlib.sha256(data).hexdigest()


def array_digest(array: np.ndarray) -> str:
    """The SHA-256 of an array, with its dtype and shape."""
    about = f"{array.dtype.name}{list(array.shape)}".encode()
    little = array.astype(array.dtype.newbyteorder("<"))
    return digest(about + little.tobytes())


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
