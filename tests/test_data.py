"""Data sets: what is generated has its defining property, what is read is what was written."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest

from dynagram.data import Dataset, digits, load_array, load_data, local_images, swiss_roll
from dynagram.data._files import load_arrays, table_header
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
    data = load_data(path)
    assert np.array_equal(data.x, x.reshape(3, 8))
    assert data.y.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert data.classes.tolist() == [2, 4]
    np.savez(path, x=x, y=np.array([0.5, 1.0, 2.0]), x_test=x[:2], y_test=np.ones(2))
    data = load_data(path)
    assert data.y.tolist() == [[0.5], [1.0], [2.0]]
    assert data.test_y.tolist() == [[1.0], [1.0]]
    assert data.classes is None


def test_labels_are_columns_of_the_network(tmp_path):
    path = tmp_path / "batch.npz"
    np.savez(path, x=np.ones((2, 3)), y=np.array([True, False]))
    assert load_data(path, outputs=1).y.tolist() == [[1.0], [0.0]]
    assert load_data(path, outputs=3).y.tolist() == [[0, 1, 0], [1, 0, 0]]
    np.savez(path, x=np.ones((2, 3)), y=np.array([0, 5]))
    with pytest.raises(DynagramError, match="labels = \\[5\\]: 3 outputs: for labels 0 to 2"):
        load_data(path, outputs=3)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.ones((3, 2))}, "no array y in this file, which holds x"),
        ({"x": np.ones((3, 2)), "y": np.ones((2, 1))}, r"shape of y = \(2, 1\)"),
        ({"x": np.ones(3), "y": np.ones(3)}, r"shape of x = \(3,\)"),
        ({"x": np.ones((3, 2)), "y": np.array([1.0, np.nan, 0.0])}, r"y\[1, 0\] = nan"),
        ({"x": np.ones((3, 2)), "y": np.array(["a", "b", "c"])}, "array of reals"),
        ({"x": np.ones((3, 2)), "y": np.array([None] * 3)}, "--data.*not an archive of arrays"),
        ({"x": np.ones((3, 2)), "y": np.ones(3), "x_test": np.ones((3, 2))}, "go together"),
    ],
)
def test_a_bad_batch_is_refused_in_one_line(tmp_path, arrays, words):
    path = tmp_path / "batch.npz"
    np.savez(path, **arrays)
    with pytest.raises(DynagramError, match=words) as caught:
        load_data(path, "--data")
    assert "\n" not in str(caught.value)


def test_arrays_and_tables(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    assert load_array(path).tolist() == [0, 1, 2]
    (tmp_path / "a.csv").write_text("1, 2\n\n3,4\n")
    assert load_array(tmp_path / "a.csv").tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for name, contents, words in (
        ("empty.npy", b"", "the file is empty"),
        ("words.txt", b"loss\nabc\n", "nor a table of numbers"),
        ("header.txt", b"loss\n", "no numbers"),
        ("ragged.txt", b"1 2\n3\n", "nor a table of numbers"),
        ("bytes.bin", bytes(range(128, 255)), "nor a table of numbers"),
        ("cut.npy", path.read_bytes()[:-4], "not an array of numbers saved with numpy.save"),
        ("archive.npy", b"PK", "not an archive"),
    ):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(DynagramError, match=words):
            load_array(tmp_path / name)
    np.save(tmp_path / "text.npy", np.array(["a"]))
    with pytest.raises(DynagramError, match="expected real numbers, not <U1"):
        load_array(tmp_path / "text.npy")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DynagramError, match="not an array of numbers"):
        load_array(tmp_path / "object.npy")


def test_a_batch_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "batch.npz").write_text("hello")
    np.save(tmp_path / "array.npy", np.ones(3))
    for name in ("batch.npz", "array.npy", "missing.npz"):
        with pytest.raises(DynagramError, match=name):
            load_data(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\ufeff0.5\n0.25\n", [[0.5], [0.25]]),
        ("\ufeffstep,loss\n0,1\n", [[0.0, 1.0]]),
        ("my step, train loss\n0, 1\n", [[0.0, 1.0]]),
        ("0,,1\n", "empty cells"),
        ("step,loss\n0,\n", "empty cells"),
        ("0.5,-\n1,2\n", "nor a table of numbers"),
    ],
)
def test_a_table_loses_no_row_and_shifts_no_column(tmp_path, text, rows):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    if isinstance(rows, list):
        assert load_array(tmp_path / "a.csv").tolist() == rows
        return
    with pytest.raises(DynagramError, match=rows):
        load_array(tmp_path / "a.csv")


def test_names_of_columns_may_have_spaces(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffstep, train loss\n0, 1\n", encoding="utf-8")
    assert table_header(tmp_path / "a.csv") == ["step", "train loss"]


def test_an_archive_with_two_arrays_of_one_name_is_refused(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(2))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", buffer.getvalue())
        archive.writestr("x", buffer.getvalue())
    with pytest.raises(DynagramError, match="two arrays of one name"):
        load_arrays(tmp_path / "a.npz")
