"""The arrays of a stored run: how they are laid out, and how their folders are read and written.

A result `name` has its members along its first axis. The sums of an observable have names with a
slash, `metric/sums_2`, and one entry per chunk along their first axis.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dynagram._memory import require_memory
from dynagram.ensembles.store._paths import check_name, inside, read_file
from dynagram.ensembles.store._zarr_files import GROUP, Layout
from dynagram.errors import InvalidValueError
from dynagram.results._files import replace_file

# What reading a folder raises that was not written by `describe` or `write_inputs`.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def is_summed(name: str) -> bool:
    """Whether one entry stands for a whole chunk."""
    return "/" in name


def laid_out(
    name: str, array: np.ndarray, dims: Mapping[str, tuple[str, ...]], chunk_members: int
) -> tuple[np.ndarray, Layout]:
    """The rows that a chunk adds to the array `name`, and the layout of that array."""
    check_name(name)
    stem, _, part = name.partition("/")
    if not part:
        axes = dims.get(name, _numbered(array.ndim - 1))
        return array, Layout.of(array, chunk_members, ("member", *axes))
    batch = () if part == "origin" else ("batch",)
    order = int(part[5:]) if part.startswith("sums_") else 1
    own = array.ndim - len(batch) - (order - 1)  # axes of the observable itself
    axes = dims.get(stem, ())
    if len(axes) != own:  # the estimate of this name has other axes than the observable
        axes = _numbered(own)
    if part == "counts":
        axes = ()
    elif order > 1:
        axes = (*axes, *[f"{axes[-1]}_{index}" for index in range(2, order + 1)])
    return array[None], Layout.of(array[None], 1, ("chunk", *batch, *axes))


def describe(folder: Path, name: str, layout: Layout, length: int) -> None:
    """Make the array `name` below `folder` known to Zarr, with at least `length` rows."""
    try:
        written_layout, written = read_metadata(folder, name)
    except UNREADABLE:
        written_layout, written = None, 0
    if written_layout == layout and written >= length:
        return
    replace_file(inside(folder, f"{name}/zarr.json"), layout.metadata(length), sync=False)


def mend_groups(folder: Path, names: Iterable[str]) -> None:
    """Write what Zarr must find in the folders above the arrays `names`, where it is not there."""
    for group in {"", *(name.rpartition("/")[0] for name in names)}:
        path = inside(folder, f"{group}/zarr.json".lstrip("/"))
        try:
            intact = read_file(path) == GROUP
        except OSError:
            intact = False
        if not intact and path.parent.is_dir():
            replace_file(path, GROUP, sync=False)


def read_metadata(folder: Path, name: str) -> tuple[Layout, int]:
    """Layout and length of the array `name` below `folder`; both must be as they were written."""
    data = json.loads(read_file(inside(folder, f"{name}/zarr.json")))
    chunk_shape = tuple(data["chunk_grid"]["configuration"]["chunk_shape"])
    layout = Layout(data["data_type"], chunk_shape, tuple(data["dimension_names"]))
    length = data["shape"][0]
    if type(length) is not int or length < 0 or data != json.loads(layout.metadata(length)):
        raise ValueError("not as written")
    return layout, length


def write_inputs(
    folder: Path, arrays: Mapping[str, np.ndarray], dims: Mapping[str, tuple[str, ...]]
) -> None:
    """The arrays of a specification, each in one chunk."""
    replace_file(folder / "zarr.json", GROUP)
    for name, array in arrays.items():
        check_name(name)
        if array.ndim == 0 or array.size == 0:
            raise InvalidValueError(f"shape of {name}", array.shape, "at least one axis and entry")
        layout = Layout.of(array, len(array), dims.get(name, _numbered(array.ndim)))
        path = folder / name / layout.key(0)
        path.parent.mkdir(parents=True)
        replace_file(path, layout.encode(array))
        replace_file(folder / name / "zarr.json", layout.metadata(len(array)))


def read_input(folder: Path, name: str) -> np.ndarray:
    """The array `name` that `write_inputs` put into `folder`."""
    layout, length = read_metadata(folder, name)
    require_memory(
        f"input {name} of {folder.parent}",
        layout.chunk_shape,
        2 * layout.nbytes,
        "it cannot be read here",
    )
    return layout.decode(
        read_file(inside(folder, f"{name}/{layout.key(0)}"), layout.nbytes), length
    )


def _numbered(axes: int) -> tuple[str, ...]:
    return tuple(f"axis_{index}" for index in range(1, axes + 1))
