"""Large values on disk."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moot.gateway.hosting.content_store import find_content, keep_content
from tests.gateway.running_gateway import participants, running_gateway


def test_a_value_that_several_send_at_once_is_kept_for_all_of_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for round in range(20):
            folder, data = tmp_path / str(round), os.urandom(1 << 20)
            kept = [pool.submit(keep_content, folder, data, max_total_bytes=1 << 30) for _ in range(4)]
            (digest,) = {each.result() for each in kept}
            path = find_content(folder, digest)
            assert path is not None
            assert path.read_bytes() == data
            assert list(folder.iterdir()) == [path]


def test_what_is_gone_when_room_is_made_takes_none(tmp_path: Path) -> None:
    """A file of another sender got its name meanwhile; a link that leads nowhere is listed just so."""
    (tmp_path / "gone.partial").symlink_to(tmp_path / "nowhere")
    digest = keep_content(tmp_path, b"large", max_total_bytes=1 << 30)
    assert find_content(tmp_path, digest) is not None


def test_the_last_room_of_the_disk_is_left_to_the_journal(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="space") as full:
        keep_content(tmp_path, b"large", max_total_bytes=1 << 30, free_bytes=1 << 62)
    assert full.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_what_a_gateway_that_was_killed_left_half_written_goes_and_nothing_else(tmp_path: Path) -> None:
    left, fresh = tmp_path / f"{'a' * 64}.1.partial", tmp_path / f"{'b' * 64}.2.partial"
    for path in (left, fresh):
        path.write_bytes(b"half of it")
    os.utime(left, (0, 0))
    digest = keep_content(tmp_path, b"whole", max_total_bytes=1 << 30)
    # Somebody may be writing the other one.
    assert {path.name for path in tmp_path.iterdir()} == {digest, fresh.name}


async def test_a_disk_that_takes_no_values_is_said_to_be_the_reason(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, participants(bob=["chat"])) as gateway:
        (gateway.journal().parent / "content").write_text("a file where the folder should be")
        answer = await gateway.http.post(
            "/spaces/lab/content", content=b"large", headers={"Authorization": "Bearer t-bob"}
        )
        assert answer.status_code == 507
        assert answer.json()["message"] == "the gateway's disk takes no large values now"
