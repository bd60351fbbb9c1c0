"""A record on a real disk: kept, not read when it is broken, and never said to be written when it is not."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from moot.errors import UsageError
from moot.resilience.atomic_file import RecordFile


class Count(msgspec.Struct):
    number: int = 0


def opened(path: Path) -> RecordFile[Count]:
    return RecordFile(path, Count, max_bytes=64, what="the count")


def test_a_record_is_there_again_and_a_broken_one_begins_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "count.json"
    file = opened(path)
    assert file.record.number == 0
    file.record.number = 7
    file.write()
    assert opened(path).record.number == 7
    for broken in (b"{", b'{"number": "x"}', b" " * 65 + b'{"number": 1}'):
        path.write_bytes(broken)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert opened(path).record.number == 0
        assert "the count of the last run cannot be read" in caplog.text


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    file = opened(tmp_path / "count.json")
    file._path = blocked / "count.json"
    with pytest.raises(UsageError, match="cannot be written"):
        file.write()
