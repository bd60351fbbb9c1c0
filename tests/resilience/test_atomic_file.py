"""A file is written as a whole, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moot.resilience.atomic_file import write_atomically


def test_a_file_is_replaced_as_a_whole_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "state.json"
    for data in (b"first", b"second"):
        write_atomically(file, data)
        assert file.read_bytes() == data
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == ["state.json"]


def test_a_file_that_is_not_to_be_replaced_stays(tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    write_atomically(file, b"mine", mode=0o644, replace=False)
    with pytest.raises(FileExistsError):
        write_atomically(file, b"yours", replace=False)
    assert file.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.json"
    write_atomically(file, b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_symbolic_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    other, file = tmp_path / "other", tmp_path / "state.json"
    other.write_bytes(b"precious")
    file.symlink_to(other)
    write_atomically(file, b"new")
    assert (other.read_bytes(), file.read_bytes(), file.is_symlink()) == (b"precious", b"new", False)
