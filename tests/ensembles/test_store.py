"""Stored runs: what lies on disk, who may write it, and what happens when it is damaged."""

import errno
import json
import tomllib
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import zarr
from dynagram.ensembles.store._runs import open_run

from dynagram._toml import write_table
from dynagram.ensembles._jobs import pack
from dynagram.ensembles.engine._engine import resume_run, run_job
from dynagram.ensembles.initial._batches import moments_of
from dynagram.ensembles.store import _durable as durable
from dynagram.ensembles.store._durable import Lock, RunError, write_durably
from dynagram.ensembles.store._records import DamagedChunkError
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import DynagramError, InvalidValueError, NonFiniteError


@dataclass(frozen=True, eq=False)
class Walks:
    """A random walk per member, with drift `x`; member `bad` fails."""

    kind: ClassVar[str] = "walks"
    x: np.ndarray
    seed: int = 1
    chunk_members: int = 20
    bad: int = -1

    def run_chunk(self, first, size):
        members = range(first, first + size)
        if self.bad in members:
            raise NonFiniteError("it fell over")
        steps = np.array([np.random.default_rng((self.seed, m)).normal(size=4) for m in members])
        walk = np.cumsum(steps + self.x[None, :], axis=1)
        sums = moments_of([walk], order=2, first=first)
        return {"walk": walk, "sign": walk[:, -1] > 0, "sums": sums}

    def estimates(self, moments):
        return {"mean": moments["sums"].mean()}

    def to_toml(self):
        names = ("seed", "chunk_members", "bad")
        return write_table("walks", {name: getattr(self, name) for name in names})

    def arrays(self):
        return {"x": self.x}

    @classmethod
    def from_toml(cls, text, arrays):
        return cls(x=arrays["x"], **tomllib.loads(text)["walks"])

    def dims(self):
        return dict.fromkeys(("walk", "mean", "x", "sums"), ("step",)) | {"sign": ()}

    def coordinates(self):
        return {"step": np.array([1, 2, 3, 4])}


JOB = Walks(np.array([0.5, 0.0, 0.0, 1.0]))
MEMBERS = 90  # four chunks and a half


@pytest.fixture
def unbroken():
    return run_job(JOB, members=MEMBERS)


@pytest.fixture
def folder(tmp_path):
    """A complete run."""
    run_job(JOB, members=MEMBERS, folder=tmp_path / "run")
    return tmp_path / "run"


def resume(path, **options):
    return resume_run(path, job_class=Walks, **options)


def same(found, expected):
    assert found.members == expected.members
    mine, theirs = pack(found.moments), pack(expected.moments)
    for name, array in theirs.items():
        np.testing.assert_array_equal(mine[name], array)


def files(path):
    """The results of a run, file by file."""
    below = sorted(p for part in ("arrays", "chunks") for p in (path / part).rglob("*"))
    return {str(p.relative_to(path)): p.read_bytes() for p in below if p.is_file()}


# --- reading ----------------------------------------------------------------------------------


def test_a_run_reads_back_as_xarray(folder, unbroken):
    data = open_run(folder, job_class=Walks)
    assert data.walk.dims == ("member", "step")
    assert data.step.values.tolist() == [1, 2, 3, 4]
    assert data.member.values.tolist() == list(range(MEMBERS))
    assert data.sign.dtype == bool
    np.testing.assert_array_equal(data.walk.values, unbroken.arrays["walk"])
    np.testing.assert_array_equal(data.sign.values, unbroken.arrays["sign"])
    np.testing.assert_array_equal(data["mean"].values, unbroken.estimates["mean"].value)
    error = unbroken.estimates["mean"].standard_error
    np.testing.assert_array_equal(data.mean_error.values, error)
    np.testing.assert_array_equal(data.x.values, JOB.x)
    assert not np.any(data.missing)
    assert (data.attrs["members"], data.attrs["complete"]) == (MEMBERS, True)
    assert float(data.walk.sel(member=5, step=4)) == unbroken.arrays["walk"][5, 3]


def test_any_zarr_library_reads_the_arrays(folder, unbroken):
    group = zarr.open_group(folder / "arrays", mode="r")
    walk = group["walk"]
    assert walk.metadata.zarr_format == 3
    assert walk.metadata.dimension_names == ("member", "step")
    assert walk.chunks == (20, 4)
    assert np.isnan(walk.fill_value)  # of a chunk that is not there
    np.testing.assert_array_equal(walk[:], unbroken.arrays["walk"])
    assert group["sums/sums_2"].metadata.dimension_names == ("chunk", "batch", "step", "step_2")
    assert group["sums/counts"][:].sum() == MEMBERS
    inputs = zarr.open_group(folder / "inputs", mode="r")
    np.testing.assert_array_equal(inputs["x"][:], JOB.x)


def test_the_folder_explains_itself(folder):
    spec = tomllib.loads((folder / "spec.toml").read_text())
    assert spec["run"]["job"] == "walks"
    assert spec["run"]["members"] == MEMBERS
    assert spec["walks"]["chunk_members"] == 20
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["members"], status["of"]) == ("complete", 90, 90)
    record = json.loads((folder / "chunks" / "4.json").read_text())
    assert (record["first"], record["size"]) == (80, 10)
    assert not [p for p in folder.rglob("*") if p.name.endswith(".part")]


def test_an_unfinished_run_reads_up_to_the_first_gap(folder):
    (folder / "chunks" / "2.json").unlink()
    data = open_run(folder, job_class=Walks)
    assert data.sizes["member"] == 40
    assert data.attrs["complete"] is False


def test_kinds_unknown_to_dynagram_need_their_class(folder):
    with pytest.raises(InvalidValueError, match="kind of job = 'walks'"):
        open_run(folder)
    with pytest.raises(InvalidValueError, match="holds no run"):
        open_run(folder / "arrays")


def test_failed_members_are_kept_in_mind(tmp_path):
    job = Walks(JOB.x, bad=33)
    found = run_job(job, members=MEMBERS, folder=tmp_path / "run")
    assert [str(f) for f in found.failed] == ["member 33 (seed 1): it fell over"]
    data = open_run(tmp_path / "run", job_class=Walks)
    assert np.flatnonzero(data.missing).tolist() == [33]
    assert np.flatnonzero(np.isnan(data.walk.values[:, 0])).tolist() == [33]
    assert data.attrs["failed_members"] == ["member 33 (seed 1): it fell over"]
    assert resume(tmp_path / "run").failed == found.failed


# --- resuming ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path, folder, unbroken, stop):
    def interrupt(progress):
        if progress.done > 20 * stop:
            raise KeyboardInterrupt

    path = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        run_job(JOB, members=MEMBERS, folder=path, progress=interrupt)
    assert json.loads((path / "status.json").read_text())["state"] == "interrupted"
    seen = []
    same(resume(path, progress=lambda now: seen.append(now.done)), unbroken)
    assert seen == [20, 40, 60, 80, 90]
    assert files(path) == files(folder)


def test_a_run_killed_while_it_was_created_can_be_started_again(tmp_path):
    (tmp_path / "run" / "inputs" / "x").mkdir(parents=True)
    (tmp_path / "run" / "lock").touch()
    assert run_job(JOB, members=MEMBERS, folder=tmp_path / "run").members == MEMBERS


def test_folders_in_use_are_not_overwritten(tmp_path, folder):
    with pytest.raises(InvalidValueError, match="already holds a run"):
        run_job(JOB, members=MEMBERS, folder=folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(InvalidValueError, match="not an empty folder"):
        run_job(JOB, members=MEMBERS, folder=tmp_path / "other")
    with pytest.raises(InvalidValueError, match="parent folder does not exist"):
        run_job(JOB, members=MEMBERS, folder=tmp_path / "no" / "such")


class Eager(Executor):
    """Finishes all it is given before anything is asked for."""

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future


@pytest.mark.parametrize("cores", [2, 3])
def test_until_error_of_a_stored_run(tmp_path, monkeypatch, cores):
    """Chunks computed ahead of the one that met the goal are not kept."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    options = {"members": None, "until_error": 0.1}
    expected = run_job(JOB, **options)
    found = run_job(JOB, **options, folder=tmp_path / "run", executor=Eager())
    same(found, expected)
    data = open_run(tmp_path / "run", job_class=Walks)
    assert data.sizes["member"] == expected.members
    assert data.attrs["complete"] is True
    assert zarr.open_group(tmp_path / "run" / "arrays")["walk"].shape[0] == expected.members
    same(resume(tmp_path / "run"), expected)


# --- one writer -------------------------------------------------------------------------------


def test_a_second_writer_is_refused(folder, unbroken):
    def second(_):
        with pytest.raises(RunError, match="is in use by process"):
            resume(folder)

    (folder / "chunks" / "4.json").unlink()
    same(resume(folder, progress=second), unbroken)
    with Lock(folder / "lock"):
        assert open_run(folder, job_class=Walks).attrs["complete"]  # readers are welcome


# --- damage -----------------------------------------------------------------------------------


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [flip, truncate, remove])
@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        ("arrays/walk/c/2/0", 2),
        ("arrays/sums/sums_2/c/4/0/0/0", 4),
        ("arrays/sign/zarr.json", 0),
        ("chunks/1.json", 1),
    ],
)
def test_damage_is_found_named_and_mended(folder, unbroken, damage, name, chunk):
    before = files(folder)
    damage(folder / name)
    if (name, damage) != ("chunks/1.json", remove):  # that chunk was just never computed
        with pytest.raises(DamagedChunkError) as error:
            open_run(folder, job_class=Walks)
        assert f"chunk {chunk} of {folder} is damaged: {name}" in str(error.value)
        assert f"dynagram simulate --resume {folder}" in str(error.value)
        assert "\n" not in str(error.value)
    found = resume(folder)
    same(found, unbroken)
    assert files(folder) == before
    assert chunk in found.recomputed or damage is remove


def test_a_forged_number_is_found(folder):
    record = json.loads((folder / "chunks" / "1.json").read_text())
    record["failed"] = [{"member": 20, "seed": 1, "error": "never happened"}]
    (folder / "chunks" / "1.json").write_text(json.dumps(record))
    with pytest.raises(DamagedChunkError, match="chunk 1"):
        open_run(folder, job_class=Walks)


@pytest.mark.parametrize("name", ["spec.toml", "inputs/x/c/0", "inputs/x/zarr.json"])
def test_another_specification_is_refused(folder, name):
    text = (folder / name).read_bytes()
    changed = text.replace(b"seed = 1", b"seed = 2")
    (folder / name).write_bytes(changed if changed != text else text[::-1])
    for read in (open_run, resume_run):
        with pytest.raises(RunError, match="restore it"):
            read(folder, job_class=Walks)


@pytest.mark.parametrize("full_after", [0, 3, 9, 14, 15])
def test_a_full_disk_is_reported_and_the_run_goes_on_later(
    tmp_path, monkeypatch, unbroken, folder, full_after
):
    write_all, path, writes = durable._write_all, tmp_path / "new", []

    def full(file, data):
        writes.append(file.name)
        if len(writes) > full_after:
            file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(file, data)

    monkeypatch.setattr(durable, "_write_all", full)
    with pytest.raises(RunError) as error:
        run_job(JOB, members=MEMBERS, folder=path)
    assert "No space left on device" in str(error.value)
    assert f"--resume {path}" in str(error.value)
    assert not list(path.rglob("*.part"))
    monkeypatch.setattr(durable, "_write_all", write_all)
    if not (path / "spec.toml").exists():  # full before it began
        run_job(JOB, members=MEMBERS, folder=path)
    same(resume(path), unbroken)
    assert files(path) == files(folder)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    write_durably(tmp_path / "a", b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(durable, "_write_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "a", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_results_must_be_numbers_and_alike(tmp_path, monkeypatch):
    def run(result, name):
        monkeypatch.setattr(Walks, "run_chunk", lambda _, first, size: result(first, size))
        with pytest.raises(DynagramError) as error:
            run_job(JOB, members=MEMBERS, folder=tmp_path / name)
        return str(error.value)

    texts = run(lambda _, size: {"walk": np.array([["text"] * 4] * size)}, "1")
    assert "expected real numbers" in texts
    objects = run(lambda _, size: {"walk": np.array([[None] * 4] * size)}, "2")
    assert "expected real numbers" in objects
    shapes = run(lambda first, size: {"walk": np.zeros((size, 4 + (first > 0)))}, "3")
    assert "all chunks must return" in shapes
    axes = run(lambda _, size: {"walk": np.zeros((size, 4, 2))}, "4")
    assert "dims of a result" in axes
    assert RunStore.open(tmp_path / "3").chunks() == [0]
