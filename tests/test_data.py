"""Data sets: what is generated has its defining property, what is read is what was written."""

import gzip
import struct

import numpy as np
import pytest

from dynagram.data import Dataset, digits, load_batch, local_images, swiss_roll
from dynagram.errors import DynagramError


def test_digits_have_ten_classes_of_sixteen_grey_levels():
    data = digits()
    assert data.classes.tolist() == list(range(10))
    assert (data.x.min(), data.x.max()) == (0.0, 16.0)
    assert np.all(data.one_hot().sum(axis=1) == 1)


def test_subset_draws_without_repetition_and_keeps_pairs():
    data = Dataset("toy", np.arange(50.0)[:, None], np.arange(50) % 5)
    part = data.subset(classes=[0, 3], limit=15, seed=1)
    assert len(set(part.x[:, 0])) == 15
    assert np.array_equal(part.x[:, 0] % 5, part.labels)
    assert np.array_equal(part.x, data.subset(classes=[0, 3], limit=15, seed=1).x)
    assert not np.array_equal(part.x, data.subset(classes=[0, 3], limit=15, seed=2).x)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"classes": [9]}, "classes.*9.*toy has"),
        ({"limit": 51}, "limit.*51.*1 to 50"),
        ({"limit": 0}, "limit.*0"),
    ],
)
def test_subset_refuses(arguments, words):
    data = Dataset("toy", np.arange(50.0)[:, None], np.arange(50) % 5)
    with pytest.raises(DynagramError, match=words):
        data.subset(**arguments)


def test_swiss_roll_lies_on_the_spiral():
    roll = swiss_roll(200, seed=3, classes=4)
    radius = np.hypot(roll.x[:, 0], roll.x[:, 2])
    assert np.allclose(roll.x[:, 0], radius * np.cos(radius))
    assert np.all(np.diff(roll.labels[np.argsort(radius)]) >= 0)
    noisy = swiss_roll(200, seed=3, noise=0.5)
    assert 0.4 < np.std(noisy.x - roll.x) < 0.6


def idx(values):
    values = np.asarray(values, dtype=np.uint8)
    return b"\0\0\x08" + bytes([values.ndim]) + struct.pack(
        f">{values.ndim}I", *values.shape
    ) + values.tobytes()  # fmt: skip


def test_mnist_is_read_plain_and_compressed(tmp_path):
    images = np.arange(3 * 4 * 4).reshape(3, 4, 4)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx([7, 0, 2])))
    data = local_images("mnist", tmp_path)
    assert np.array_equal(data.x, images.reshape(3, 16))
    assert data.labels.tolist() == [7, 0, 2]
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images)[:-5])
    with pytest.raises(DynagramError, match="announced, 43 bytes found"):
        local_images("mnist", tmp_path)


def test_svhn_labels_ten_is_zero(tmp_path):
    from scipy.io import savemat

    images = np.arange(2 * 2 * 3 * 5, dtype=np.uint8).reshape(2, 2, 3, 5)
    labels = np.array([[10], [1], [2], [10], [9]], dtype=np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": images, "y": labels})
    data = local_images("svhn", tmp_path)
    assert data.labels.tolist() == [0, 1, 2, 0, 9]
    assert np.array_equal(data.x[4], images[..., 4].ravel())


def test_cifar_is_read_in_its_binary_version(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, size=(5, 2, 3073), dtype=np.uint8)
    for number, batch in enumerate(rows, start=1):
        batch.tofile(tmp_path / f"data_batch_{number}.bin")
    data = local_images("cifar10", tmp_path)
    assert np.array_equal(data.labels, rows.reshape(10, 3073)[:, 0])
    assert np.array_equal(data.x, rows.reshape(10, 3073)[:, 1:])


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DynagramError, match="data_batch_1.bin not found"):
        local_images("cifar10", tmp_path)
    with pytest.raises(DynagramError, match="expected one of mnist, svhn, cifar10"):
        local_images("imagenet", tmp_path)


def test_a_batch_is_flattened_and_its_labels_become_columns(tmp_path):
    path = tmp_path / "batch.npz"
    x = np.arange(24.0).reshape(3, 2, 4)
    np.savez(path, x=x, y=np.array([4, 2, 4]))
    inputs, targets = load_batch(path)
    assert np.array_equal(inputs, x.reshape(3, 8))
    assert targets.tolist() == [[0, 1], [1, 0], [0, 1]]
    np.savez(path, x=x, y=np.array([0.5, 1.0, 2.0]))
    assert load_batch(path)[1].tolist() == [[0.5], [1.0], [2.0]]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.ones((3, 2))}, "needs arrays x and y: it holds x"),
        ({"x": np.ones((3, 2)), "y": np.ones((2, 1))}, r"x \(3, 2\), y \(2, 1\)"),
        ({"x": np.ones((3, 2)), "y": np.array([1.0, np.nan, 0.0])}, "y of --data, row 1"),
        ({"x": np.ones((3, 2)), "y": np.array(["a", "b", "c"])}, "expected real numbers"),
        ({"x": np.ones((3, 2)), "y": np.array([None] * 3)}, "not a .npz file of numbers"),
    ],
)
def test_a_bad_batch_is_refused_in_one_line(tmp_path, arrays, words):
    path = tmp_path / "batch.npz"
    np.savez(path, **arrays)
    with pytest.raises(DynagramError, match=words):
        load_batch(path, "--data")


def test_a_batch_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "batch.npz").write_text("hello")
    np.save(tmp_path / "array.npy", np.ones(3))
    for name in ("batch.npz", "array.npy", "missing.npz"):
        with pytest.raises(DynagramError, match=name):
            load_batch(tmp_path / name)
