"""The arrays of a stored run that have one entry per member, read from disk when they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dynagram.ensembles._jobs import fill_value
from dynagram.ensembles.store._arrays import is_summed
from dynagram.ensembles.store._records import Record
from dynagram.ensembles.store._store import RunStore
from dynagram.ensembles.store._zarr_files import Layout


class StoredMembers(Mapping[str, np.ndarray]):
    """Arrays by name; each is read, checked and joined from its chunks when it is asked for.

    Members that could not be computed are NaN (0 in arrays of integers, False in those of truth
    values). For arrays larger than the memory take a Zarr library, which reads `RUN/arrays`.
    """

    def __init__(self, store: RunStore, chunks: int, members: int):
        self._store, self._members = store, members
        self._records: list[Record] = [store.record(chunk) for chunk in range(chunks)]
        self._layouts: dict[str, Layout] = {
            name: layout
            for record in self._records
            for name, layout in record.layouts.items()
            if not is_summed(name)
        }

    def __getitem__(self, name: str) -> np.ndarray:
        layout = self._layouts[name]
        dtype = np.dtype(layout.dtype)
        array = np.full((self._members, *layout.chunk_shape[1:]), fill_value(dtype), dtype)
        for record in self._records:
            if name in record.layouts:  # not in a chunk of which all members failed
                rows = slice(record.first, record.first + record.size)
                array[rows] = self._store.read(record, name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)

    def __len__(self) -> int:
        return len(self._layouts)
