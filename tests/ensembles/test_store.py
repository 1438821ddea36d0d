"""Stored runs: what lies on disk, who may write it, and what happens when it is damaged."""

import errno
import json
import re
import tomllib
from concurrent.futures import Executor, Future

import numpy as np
import pytest
import zarr

from dynagram.ensembles import open_run, resume_run, simulate
from dynagram.ensembles._jobs import pack
from dynagram.ensembles.engine import read_job, resume_job, run_job
from dynagram.ensembles.store import DamagedChunkError, RunError
from dynagram.ensembles.store._durable import Lock
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import DynagramError, InvalidValueError, RunWarning
from dynagram.networks import MLP
from dynagram.results import _files as files_module
from oracles.walks import DRIFT, MEMBERS, Walks, files

JOB = Walks(DRIFT)


@pytest.fixture
def unbroken():
    return run_job(JOB, members=MEMBERS)


@pytest.fixture
def folder(tmp_path):
    """A complete run."""
    run_job(JOB, members=MEMBERS, folder=tmp_path / "run")
    return tmp_path / "run"


def resume(path, **options):
    return resume_job(path, job_class=Walks, **options)


def read(path):
    return read_job(path, job_class=Walks)


def same(found, expected):
    assert found.members == expected.members
    mine, theirs = pack(found.moments), pack(expected.moments)
    for name, array in theirs.items():
        np.testing.assert_array_equal(mine[name], array)


# --- reading ----------------------------------------------------------------------------------


def test_a_run_reads_back_what_it_gave(folder, unbroken):
    stored = run_job(JOB, members=MEMBERS, folder=folder, resume=True)
    for found in (read(folder), stored):
        same(found, unbroken)
        assert (found.complete, found.failed, found.notes) == (True, (), ())
        assert list(found.arrays) == ["walk", "sign"]
        assert len(found.arrays) == 2
        np.testing.assert_array_equal(found.arrays["walk"], unbroken.arrays["walk"])
        np.testing.assert_array_equal(found.arrays["sign"], unbroken.arrays["sign"])
        assert found.arrays["sign"].dtype == bool
        mean, expected = found.estimates["mean"], unbroken.estimates["mean"]
        np.testing.assert_array_equal(mean.value, expected.value)
        np.testing.assert_array_equal(mean.standard_error, expected.standard_error)


def test_arrays_of_members_are_read_and_checked_when_they_are_used(folder):
    found = read(folder)
    flip(folder / "arrays/walk/c/2/0")
    assert found.arrays["sign"].shape == (MEMBERS,)
    with pytest.raises(DamagedChunkError, match="chunk 2"):
        found.arrays["walk"]


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
    found = read(folder)
    assert (found.members, found.complete) == (40, False)
    assert found.arrays["walk"].shape == (40, 4)
    (folder / "chunks" / "0.json").unlink()
    with pytest.raises(RunError, match="holds no finished chunk yet"):
        read(folder)


def test_kinds_unknown_to_dynagram_need_their_class(folder):
    for function in (open_run, resume_run, read_job):
        with pytest.raises(InvalidValueError, match="kind of job = 'walks'"):
            function(folder)
    with pytest.raises(InvalidValueError, match="holds no run"):
        open_run(folder / "arrays")


def test_failed_members_are_kept_in_mind(tmp_path):
    job = Walks(JOB.x, bad=33)
    found = run_job(job, members=MEMBERS, folder=tmp_path / "run")
    assert [str(f) for f in found.failed] == ["member 33 (seed 1): it fell over"]
    again = read(tmp_path / "run")
    assert again.failed == resume(tmp_path / "run").failed == found.failed
    assert np.flatnonzero(np.isnan(again.arrays["walk"][:, 0])).tolist() == [33]


def test_a_chunk_of_failures_only_is_missing_in_the_arrays(tmp_path):
    job = Walks(JOB.x, bad=2, chunk_members=1)
    run_job(job, members=60, folder=tmp_path / "run")
    walk = read(tmp_path / "run").arrays["walk"]
    assert walk.shape == (60, 4)
    assert np.flatnonzero(np.isnan(walk[:, 0])).tolist() == [2]


def test_runs_of_an_older_format_are_refused(folder):
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(text.replace("format = 2", "format = 1"))
    with pytest.raises(InvalidValueError) as error:
        read(folder)
    assert "= 1: this version of dynagram reads runs of format 2" in str(error.value)
    assert "\n" not in str(error.value)


# --- the runs of the house --------------------------------------------------------------------

NETWORK = MLP((2, 6, 5, 2), "tanh", C_b=0.1, C_W=1.2)
X = np.array([[1.0, 0.5], [-0.4, 0.8]])


def test_a_stored_simulation_opens_as_the_result_it_gave(tmp_path):
    options = {"members": 300, "seed": 3, "chunk_members": 100}
    plain = simulate(NETWORK, X, ("K", "V", "B"), **options)
    stored = simulate(NETWORK, X, ("K", "V", "B"), **options, run=tmp_path / "run")
    again, resumed = open_run(tmp_path / "run"), resume_run(tmp_path / "run")
    for other in (stored, again, resumed):
        assert repr(other) == repr(plain)
        assert (other.about, other.layers) == (plain.about, plain.layers)
        assert (other.members, other.seed, other.network) == (300, 3, NETWORK)
        np.testing.assert_array_equal(other.x, X)
        for name in plain:
            np.testing.assert_array_equal(other[name], plain[name])
            np.testing.assert_array_equal(other.error(name), plain.error(name))


def test_a_simulation_goes_on_where_it_stopped(tmp_path):
    def interrupt(progress):
        if progress.done > 100:
            raise KeyboardInterrupt

    options = {"members": 300, "chunk_members": 100, "run": tmp_path / "run"}
    for folder in (tmp_path / "run", None):
        with pytest.raises(InvalidValueError, match="run = .*: holds no run to resume"):
            simulate(NETWORK, X, **(options | {"run": folder, "resume": True}))
    with pytest.raises(KeyboardInterrupt):
        simulate(NETWORK, X, **options, progress=interrupt)
    part = open_run(tmp_path / "run")
    assert (part.members, part.about["complete"]) == (200, False)
    assert "The run is not finished." in part.summary().notes
    whole = simulate(NETWORK, X, **options, resume=True)
    np.testing.assert_array_equal(whole["V"], simulate(NETWORK, X, **options)["V"])
    plain = simulate(NETWORK, X, members=300, chunk_members=100)
    np.testing.assert_array_equal(whole["V"], plain["V"])
    for change in ({"members": 400}, {"seed": 1}, {"chunk_members": 50}, {"sampler": "weights"}):
        with pytest.raises(InvalidValueError, match="holds a run with another"):
            simulate(NETWORK, X, **(options | change))
    with pytest.raises(InvalidValueError, match="another inputs"):
        simulate(NETWORK, 2 * X, **options)


def test_what_a_run_wants_to_tell_is_a_warning(tmp_path):
    first = simulate(NETWORK, X, members=300, chunk_members=100, run=tmp_path / "run")
    flip(tmp_path / "run/arrays/metric/sums_2/c/1/0/0/0/0")
    with pytest.warns(RunWarning, match="computed again, because damaged: chunks 1"):
        again = resume_run(tmp_path / "run")
    np.testing.assert_array_equal(again["V"], first["V"])
    spec = (tmp_path / "run/spec.toml").read_text()
    older = re.sub('jax = ".*"', 'jax = "0.0.1"', spec)
    (tmp_path / "run/spec.toml").write_text(older)
    for record in (tmp_path / "run/chunks").glob("*.json"):
        record.unlink()
    with pytest.warns(RunWarning, match="begun with jax 0.0.1, now"):
        resume_run(tmp_path / "run")


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
    (tmp_path / "run" / ".spec.toml.123.part").touch()
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
    again = read(tmp_path / "run")
    assert (again.members, again.complete) == (expected.members, True)
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
        assert read(folder).complete  # readers are welcome


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
            read(folder)
        assert f"chunk {chunk} of {folder} is damaged: {name}" in str(error.value)
        assert "resume the run to compute it again" in str(error.value)
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
        read(folder)


@pytest.mark.parametrize("name", ["spec.toml", "inputs/x/c/0", "inputs/x/zarr.json"])
def test_another_specification_is_refused(folder, name):
    text = (folder / name).read_bytes()
    changed = text.replace(b"seed = 1", b"seed = 2")
    (folder / name).write_bytes(changed if changed != text else text[::-1])
    for function in (read, resume):
        with pytest.raises(RunError, match="restore it"):
            function(folder)


@pytest.mark.parametrize("full_after", [0, 3, 9, 14, 15])
def test_a_full_disk_is_reported_and_the_run_goes_on_later(
    tmp_path, monkeypatch, unbroken, folder, full_after
):
    write_all, path, writes = files_module._write_all, tmp_path / "new", []

    def full(file, data):
        writes.append(file.name)
        if len(writes) > full_after:
            file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(file, data)

    monkeypatch.setattr(files_module, "_write_all", full)
    with pytest.raises(RunError) as error:
        run_job(JOB, members=MEMBERS, folder=path)
    assert "No space left on device" in str(error.value)
    assert f"to {path}" in str(error.value)
    assert "resume the run: it goes on from the last whole chunk" in str(error.value)
    assert not list(path.rglob("*.part"))
    monkeypatch.setattr(files_module, "_write_all", write_all)
    if not (path / "spec.toml").exists():  # full before it began
        run_job(JOB, members=MEMBERS, folder=path)
    same(resume(path), unbroken)
    assert files(path) == files(folder)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    files_module.replace_file(tmp_path / "a", b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files_module, "_write_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files_module.replace_file(tmp_path / "a", b"new")
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
