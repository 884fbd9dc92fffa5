"""Where a user keeps the list of his labs that are up."""

import os

import pytest

from netem.capture.runfolder import RunFolderError
from netem.lab import registry


def test_it_is_the_users_runtime_directory_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert registry.runtime_dir() == tmp_path / "fabriclab"
    assert (tmp_path / "fabriclab").stat().st_mode & 0o777 == 0o700


def test_one_that_is_not_there_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert registry.runtime_dir().stat().st_uid == os.geteuid()


def test_a_directory_of_somebody_else_is_not_used_and_none_is_one_line(tmp_path, monkeypatch):
    """It might be laid out by another user, in a place where everybody may write."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    monkeypatch.setattr(registry.Path, "mkdir", lambda *_, **__: None)
    with pytest.raises(RunFolderError, match=r"none of .* is ours .* XDG_RUNTIME_DIR$") as said:
        registry.runtime_dir()
    assert "\n" not in str(said.value)
