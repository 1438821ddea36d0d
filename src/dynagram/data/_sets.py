"""Data sets: handwritten digits, the Swiss roll, and public image sets from local files.

Nothing is downloaded and nothing is unpickled: CIFAR-10 is read in its binary version.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from dynagram.data._data import Data
from dynagram.data._files import EXPANDED, EXPANSION, read_bytes
from dynagram.errors import InvalidValueError, MissingExtraError

# What readers of images raise about files that are none.
_NO_IMAGES = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OSError, MemoryError, OverflowError,
    NotImplementedError, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and the class of each.

    **Arguments:**

    - `name`: what it is called.
    - `x`: inputs, one per row.
    - `labels`: the class of each.

    >>> data = Dataset("toy", np.eye(3), np.array([5, 7, 5]))
    >>> data.one_hot().tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    name: str
    x: Float[np.ndarray, "samples n_0"]
    labels: Int[np.ndarray, " samples"]

    @property
    def classes(self) -> Int[np.ndarray, " classes"]:
        """The labels that occur, in increasing order."""
        return np.unique(self.labels)

    def one_hot(self) -> Float[np.ndarray, "samples classes"]:
        """Column c is 1 where the label is the c-th of `classes`, else 0."""
        return (self.labels[:, None] == self.classes[None, :]).astype(np.float64)

    def subset(
        self,
        *,
        classes: Sequence[int] | None = None,
        limit: int | None = None,
        seed: int | None = None,
    ) -> Dataset:
        """The samples of some classes, at most `limit` of them, in an order drawn from `seed`.

        Without a seed the order of the file is kept.

        >>> data = Dataset("toy", np.arange(8.0)[:, None], np.arange(8) % 4)
        >>> data.subset(classes=[1, 3], limit=3).labels.tolist()
        [1, 3, 1]
        """
        rows = np.arange(len(self.labels))
        if classes is not None:
            unknown = sorted(set(classes) - set(self.classes.tolist()))
            if unknown:
                raise InvalidValueError(
                    "classes", unknown, f"{self.name} has {self.classes.tolist()}"
                )
            rows = rows[np.isin(self.labels, list(classes))]
        if seed is not None:
            rows = np.random.default_rng(seed).permutation(rows)
        if limit is not None:
            if not 1 <= limit <= len(rows):
                raise InvalidValueError("limit", limit, f"1 to {len(rows)} samples are there")
            rows = rows[:limit]
        return Dataset(self.name, self.x[rows], self.labels[rows])

    def split(
        self, train: int, test: int, *, classes: Sequence[int] | None = None, seed: int = 0
    ) -> Data:
        """A training problem: the first `train` samples of a seeded order, then `test` others.

        Inputs are divided by the root mean square of the training inputs; targets are one-hot.

        >>> roll = swiss_roll(50, seed=0).split(10, 5)
        >>> roll.x.shape, roll.y.shape, roll.test_x.shape, round(float(np.mean(roll.x**2)), 9)
        ((10, 3), (10, 2), (5, 3), 1.0)
        >>> swiss_roll(50, seed=0).split(10, 0)
        Data(10 training samples, 0 test samples, 3 inputs, 2 outputs)
        """
        pool = self.subset(classes=classes)
        chosen = pool.subset(limit=train + test, seed=seed)
        y = (chosen.labels[:, None] == pool.classes[None, :]).astype(np.float64)
        x = chosen.x / np.sqrt(np.mean(chosen.x[:train] ** 2))
        if test == 0:
            return Data(x, y)
        return Data(x[:train], y[:train], x[train:], y[train:])


def digits() -> Dataset:
    """The 1 797 handwritten digits of 8×8 pixels (0 to 16) that come with scikit-learn.

    **Arguments:** none; needs the extra `sklearn`.

    **Returns:** `Dataset`.

    >>> digits().x.shape
    (1797, 64)
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    images, labels = load_digits(return_X_y=True)
    return Dataset("digits", np.asarray(images, dtype=np.float64), np.asarray(labels, dtype=int))


def swiss_roll(samples: int, *, seed: int, noise: float = 0.0, classes: int = 2) -> Dataset:
    """Points t (cos t, sin t) with a height in [0, 21], 3π/2 ≤ t ≤ 9π/2, classed by bands of t.

    **Arguments:**

    - `samples`, `seed`: how many, and their draw.
    - `noise`: the standard deviation added to every coordinate.
    - `classes`: the number of bands.

    **Returns:** `Dataset`.

    >>> roll = swiss_roll(100, seed=0)
    >>> roll.x.shape, roll.classes.tolist()
    ((100, 3), [0, 1])
    """
    for name, value in {"samples": samples, "classes": classes}.items():
        if value < 1:
            raise InvalidValueError(name, value, "at least 1 needed")
    if not 0.0 <= noise < np.inf:
        raise InvalidValueError("noise", noise, "a finite number ≥ 0 needed")
    rng = np.random.default_rng(seed)
    fraction = rng.random(samples)
    t = 1.5 * np.pi * (1.0 + 2.0 * fraction)
    x = np.stack([t * np.cos(t), 21.0 * rng.random(samples), t * np.sin(t)], axis=1)
    x += noise * rng.standard_normal(x.shape)
    labels = np.minimum((fraction * classes).astype(int), classes - 1)
    return Dataset("swiss roll", x, labels)


def local_images(name: str, folder: str | Path) -> Dataset:
    """Training images from the files their authors publish; nothing is downloaded.

    **Arguments:**

    - `name`: "mnist", "svhn" or "cifar10".
    - `folder`: with the files train-images-idx3-ubyte and train-labels-idx1-ubyte (or .gz);
        train_32x32.mat; data_batch_1.bin to data_batch_5.bin.

    **Returns:** `Dataset`; pixels are 0 to 255, one image a row.
    """
    readers = {"mnist": _mnist, "svhn": _svhn, "cifar10": _cifar10}
    if name not in readers:
        raise InvalidValueError("name", name, f"expected one of {', '.join(readers)}")
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidValueError("folder", str(folder), "no such folder")
    try:
        images, labels = readers[name](folder)
    except InvalidValueError:
        raise
    except _NO_IMAGES as error:
        reason = " ".join(str(error).split())
        raise InvalidValueError("folder", str(folder), f"cannot be read: {reason}") from error
    x = images.reshape(len(images), -1).astype(np.float64)
    if len(x) != len(labels):
        raise InvalidValueError("folder", str(folder), f"{len(x)} images, {len(labels)} labels")
    return Dataset(name, x, labels.astype(int))


def _mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    return _idx(folder, "train-images-idx3-ubyte"), _idx(folder, "train-labels-idx1-ubyte")


def _idx(folder: Path, stem: str) -> np.ndarray:
    """An array in the IDX format: two zero bytes, the type, the rank, big-endian sizes, bytes."""
    path = _found(folder, stem, stem + ".gz")
    raw = read_bytes(path, "file")
    if path.suffix == ".gz":
        largest = max(EXPANDED, EXPANSION * len(raw))
        with gzip.open(io.BytesIO(raw)) as file:
            raw = file.read(largest + 1)
        if len(raw) > largest:
            raise InvalidValueError("file", str(path), f"expands to more than {largest} bytes")
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise InvalidValueError("file", str(path), "not an IDX file of bytes")
    rank = raw[3]
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", count=rank, offset=4))
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank)
    if values.size != math.prod(shape):
        raise InvalidValueError("file", str(path), f"{shape} announced, {values.size} bytes found")
    return values.reshape(shape)


def _svhn(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = _found(folder, "train_32x32.mat")
    try:
        contents = loadmat(io.BytesIO(read_bytes(path, "file")), variable_names=("X", "y"))
    except MatReadError as error:
        raise InvalidValueError("file", str(path), f"not a MATLAB file: {error}") from error
    # The publishers store the digit 0 as label 10 and the images along the last axis.
    return np.moveaxis(contents["X"], -1, 0), contents["y"].ravel() % 10


def _cifar10(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    batches = [_found(folder, f"data_batch_{number}.bin") for number in range(1, 6)]
    parts = [np.frombuffer(read_bytes(path, "file"), np.uint8) for path in batches]
    rows = np.concatenate([part.reshape(-1, 3073) for part in parts])
    return rows[:, 1:], rows[:, 0]


def _found(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InvalidValueError("folder", str(folder), f"{' or '.join(names)} not found in it")
