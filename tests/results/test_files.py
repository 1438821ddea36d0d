"""Files are written completely or not at all."""

import os

import pytest

from dynagram.errors import InvalidValueError
from dynagram.results._files import write_atomically


def test_replaces_an_older_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "page.html"
    target.write_bytes(b"old")
    assert write_atomically(target, b"new") == target
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["page.html"]


def test_interruption_keeps_the_older_file(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_bytes(b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_respects_the_umask(tmp_path):
    target = write_atomically(tmp_path / "a", b"")
    plain = tmp_path / "b"
    plain.write_bytes(b"")
    assert target.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("name", ["no/such/folder.svg", "."])
def test_refuses_a_place_that_is_none(tmp_path, name):
    with pytest.raises(InvalidValueError, match="path = "):
        write_atomically(tmp_path / name, b"")


def test_an_unwritable_place_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InvalidValueError, match="cannot be written: No space left on device"):
        write_atomically(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == []
