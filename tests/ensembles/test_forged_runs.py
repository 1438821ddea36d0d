"""Run folders that come from somebody else: nothing outside them is touched, and none hangs us."""

import contextlib
import errno
import hashlib
import json
import os
import shutil

import numpy as np
import pytest
import zarr

from dynagram.ensembles.engine import read_job, resume_job, run_job
from dynagram.ensembles.store import DamagedChunkError, RunError
from dynagram.ensembles.store import _durable as durable
from dynagram.errors import DynagramError
from dynagram.results import _files as files_module
from oracles.walks import DRIFT, MEMBERS, Walks, files

JOB = Walks(DRIFT)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "complete"
    run_job(JOB, members=MEMBERS, folder=folder)
    return folder


@pytest.fixture
def folder(tmp_path, complete):
    """A complete run, beside a file of the user's."""
    shutil.copytree(complete, tmp_path / "run")
    (tmp_path / "thesis.tex").write_text("years of work")
    return tmp_path / "run"


def resume(path, **options):
    return resume_job(path, job_class=Walks, **options)


def forge(folder, chunk, number=None, /, **changes):
    """The record of a chunk with changes, and a checksum that fits, as the record `number`."""
    content = json.loads((folder / "chunks" / f"{chunk}.json").read_text())
    del content["sha256"]
    content |= changes
    text = json.dumps(content, sort_keys=True).encode()
    content["sha256"] = hashlib.sha256(text).hexdigest()
    number = chunk if number is None else number
    (folder / "chunks" / f"{number}.json").write_text(json.dumps(content))
    return content


def test_checksums_can_be_forged(folder):
    """Else the tests below would test nothing."""
    before = read_job(folder, job_class=Walks)
    forge(folder, 1)
    np.testing.assert_array_equal(
        read_job(folder, job_class=Walks).arrays["walk"], before.arrays["walk"]
    )


@pytest.mark.parametrize("place", ["../thesis.tex", "{outside}", "arrays/../../thesis.tex"])
@pytest.mark.parametrize("chunk", [2, 77])
def test_records_name_no_file_outside(folder, place, chunk):
    """Neither one of a chunk that is asked for, nor a stray one that is cleared away at the end."""
    thesis, before = folder.parent / "thesis.tex", files(folder)
    place = place.format(outside=thesis)
    forge(folder, 2, chunk, files={place: hashlib.sha256(b"years of work").hexdigest()})
    found = resume(folder)
    assert thesis.read_text() == "years of work"
    assert found.recomputed == ((2,) if chunk == 2 else ())
    assert files(folder) == before


@pytest.mark.parametrize("forged", [{}, {"chunk": 77}, {"first": 40, "size": 20}])
def test_a_stray_record_deletes_no_chunk(folder, forged):
    before = files(folder)
    forge(folder, 3, 77, **forged)
    assert resume(folder).recomputed == ()
    assert files(folder) == before


@pytest.mark.parametrize(
    "forged",
    [
        {"first": 0},
        {"size": 7},
        {"size": 10**30},
        {"chunk": 0},
        {"files": []},
        {"files": {}},
        {"layouts": {}},
        {"layouts": []},
        {"layouts": {"../walk": {"dtype": "float64", "chunk_shape": [20, 4], "dims": ["a", "b"]}}},
        {"layouts": {"walk": {"dtype": "object", "chunk_shape": [20, 4], "dims": ["a", "b"]}}},
        {"layouts": {"walk": {"dtype": "float64", "chunk_shape": [-1], "dims": ["a"]}}},
        {"layouts": {"walk": {"dtype": "float64", "chunk_shape": [2**60, 8], "dims": ["a", "b"]}}},
        {"failed": [{"member": "x", "seed": 1, "error": ""}]},
        {"failed": 3},
        {"surprise": 1},
    ],
)
def test_a_forged_record_is_a_damaged_chunk(folder, forged):
    before = files(folder)
    forge(folder, 1, **forged)
    with pytest.raises(DamagedChunkError, match="chunk 1"):
        read_job(folder, job_class=Walks)
    assert resume(folder).recomputed == (1,)
    assert files(folder) == before


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "null", '{"sha256": 1}', "\x00", "9" * 5000])
def test_records_that_are_none(folder, text):
    before = files(folder)
    (folder / "chunks" / "1.json").write_text(text)
    assert resume(folder).recomputed == (1,)
    assert files(folder) == before


def test_names_that_are_no_numbers_are_no_records(folder):
    for name in ("٣", "007", "1e3", "-1", "9" * 200):
        (folder / "chunks" / f"{name}.json").write_text("{}")
    assert resume(folder).recomputed == ()


@pytest.mark.parametrize(
    "name", ["arrays", "arrays/walk", "arrays/walk/c", "chunks", "chunks/2.json", "inputs", "lock"]
)
def test_links_lead_nowhere(folder, name):
    """A link to a folder of the user's would let a run write and delete there."""
    elsewhere = folder.parent / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    if name != "chunks/2.json":
        (folder / "chunks" / "3.json").unlink()
    inside = {p: p.read_bytes() for p in elsewhere.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match="is a link: a run has its files in its own folder"):
        resume(folder)
    assert {p: p.read_bytes() for p in elsewhere.rglob("*") if p.is_file()} == inside


def test_a_run_may_lie_behind_a_link(folder):
    (folder.parent / "shortcut").symlink_to(folder)
    (folder / "chunks" / "3.json").unlink()
    assert resume(folder.parent / "shortcut").members == MEMBERS


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
@pytest.mark.parametrize("name", ["spec.toml", "chunks/2.json", "arrays/walk/c/2/0", "status.json"])
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    for function in (lambda: read_job(folder, job_class=Walks), lambda: resume(folder)):
        with contextlib.suppress(DynagramError):
            assert function().members == MEMBERS


def test_a_file_as_large_as_a_disk_is_not_read(folder):
    with open(folder / "chunks" / "2.json", "wb") as file:
        file.truncate(2**40)
    assert resume(folder).recomputed == (2,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("chunk = 20", "chunk = 0"),
        ("chunk = 20", "chunk = 21"),
        ("members = 90", "members = 0"),
        ("members = 90", "members = -5"),
        ("members = 90", f"members = {10**40}"),
        ("members = 90", f"members = {'9' * 5000}"),
        ("members = 90", ""),
        ("members = 90", "members = 90\nuntil_error = 7"),
        ("seed = 1", 'seed = "one"'),
        ('job = "walks"', "job = [1]"),
        ("[walks]", "[other]"),
        ("bad = -1", "surprise = 1"),
        ("[inputs]", '[inputs]\n"../../thesis.tex" = "0"'),
        ("[run]", "inputs = 3\n[run]"),
        ("[run]", f"deep = {'[' * 10_000}\n[run]"),
    ],
)
def test_a_forged_specification_is_one_line(folder, old, new):
    text = (folder / "spec.toml").read_text()
    assert old in text
    (folder / "spec.toml").write_text(text.replace(old, new, 1))
    for function in (lambda: read_job(folder, job_class=Walks), lambda: resume(folder)):
        with pytest.raises(DynagramError) as error:
            function()
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 1000


def test_numbers_that_are_no_results_of_the_job(folder):
    """All checksums fit, and yet the sums are those of something else."""
    for chunk in range(5):
        content = json.loads((folder / "chunks" / f"{chunk}.json").read_text())
        kept = {name: layout for name, layout in content["layouts"].items() if "/" not in name}
        names = {key: sha for key, sha in content["files"].items() if key.split("/")[1] in kept}
        forge(folder, chunk, layouts=kept, files=names)
    outcome = read_job(folder, job_class=Walks)
    assert outcome.estimates == {}
    for chunk in range(5):
        (folder / "chunks" / f"{chunk}.json").unlink()
    job = Walks(DRIFT)
    resume(folder)
    wrong = Walks.estimates
    try:
        Walks.estimates = lambda self, moments: {"mean": moments["others"].mean()}  # noqa: ARG005
        with pytest.raises(RunError, match="hold no results of this job: KeyError"):
            read_job(folder, job_class=Walks)
        with pytest.raises(KeyError):  # without a folder, nobody but the job is to blame
            run_job(job, members=MEMBERS)
    finally:
        Walks.estimates = wrong


# --- folders that cannot be written -----------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_read_only_folder_is_read_and_not_resumed(folder, monkeypatch, number):
    """As the system says it; root, who may write anywhere, must be told by hand."""

    def refuse(path, mode="r", *_, **__):
        if "r" not in mode:
            raise OSError(number, os.strerror(number), str(path))
        return open(path, mode)

    monkeypatch.setattr(durable, "open", refuse, raising=False)
    with pytest.raises(RunError) as error:
        resume(folder)
    assert f"{folder} cannot be written: {os.strerror(number)}" in str(error.value)
    assert "dynagram.open_run" in str(error.value)
    assert "\n" not in str(error.value)
    assert read_job(folder, job_class=Walks).complete
    with pytest.raises(RunError, match="cannot be written"):
        run_job(JOB, members=MEMBERS, folder=folder.parent / "new")


def test_files_that_cannot_be_replaced(folder, monkeypatch):
    (folder / "chunks" / "2.json").unlink()

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(files_module, "_write_all", refuse)
    with pytest.raises(RunError, match="cannot write chunk 2 .*: Permission denied; once that is"):
        resume(folder)


@pytest.mark.parametrize("name", ["arrays/zarr.json", "arrays/sums/zarr.json", "inputs/zarr.json"])
@pytest.mark.parametrize("text", [None, "", "{"])
def test_group_metadata_is_mended(folder, name, text):
    before = files(folder)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    assert resume(folder).recomputed == ()
    assert files(folder) == before
    assert zarr.open_group(folder / "arrays", mode="r")["sums/counts"][:].sum() == MEMBERS
    assert zarr.open_group(folder / "inputs", mode="r")["x"].shape == (4,)
