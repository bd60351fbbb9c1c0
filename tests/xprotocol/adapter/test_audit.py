"""The audit log: who called what, on whose account, and no word of what was said (XP 8.6)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.errors import UsageError
from moot.xprotocol.adapter.config.adapter_settings import AuditSettings
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    AdapterEnvironment,
    notes_server,
    running_adapter,
)

KIND = f"{NAMESPACE}.write_note"
CALL = {"name": "one", "text": "a very private text"}


def lines(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


async def audited(environment: AdapterEnvironment) -> tuple[Path, list[dict[str, Any]]]:
    await environment.adapter.audit.flush()
    file = environment.adapter.settings.audit_file
    assert file is not None
    return file, lines(file)


@pytest.mark.requirement("XP-8.6-4")
async def test_calls_and_refusals_are_noted_without_a_word_of_what_was_said(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        answer = await adapter.alice.ask(KIND, CALL, correlation_id="c-1")
        await adapter.alice.ask(f"{NAMESPACE}.run_failing", {})
        carol = await adapter.somebody("carol")
        await carol.ask(KIND, CALL)
        await until(lambda: adapter.adapter.requests.in_progress == 0)
        file, (first, second, third) = await audited(adapter)
        assert first | {"time": "", "milliseconds": 0, "bytes_in": 0, "bytes_out": 0} == {
            "time": "",
            "event": answer.event.in_reply_to,
            "kind": KIND,
            "sender": adapter.alice.key,
            "principal": adapter.alice.key,
            "correlation_id": "c-1",
            "source": "desk",
            "tool": "write_note",
            "outcome": "ok",
            "milliseconds": 0,
            "bytes_in": 0,
            "bytes_out": 0,
            "answer": answer.event.id,
        }
        assert second["outcome"] == "tool_error"
        assert third["outcome"] == "AUTHORIZATION_INSUFFICIENT"
        assert third["sender"] == carol.key
        assert b"private" not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_plaintext_stands_there_when_it_is_asked_for(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path), audit={"plaintext": True}) as adapter:
        await adapter.alice.ask(KIND, CALL)
        await until(lambda: adapter.adapter.requests.in_progress == 0)
        _, (entry,) = await audited(adapter)
        assert entry["arguments"] == CALL
        assert entry["result"]["content"] == "written"


async def test_no_call_goes_through_that_could_not_be_written_down(tmp_path: Path) -> None:
    """As D-85: an action without a trace is worse than one refused."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        file, _ = await audited(adapter)
        # As if the disk were gone: root may write everywhere, but not into a folder as if it were a file.
        file.unlink()
        file.mkdir()
        await adapter.alice.ask(KIND, CALL)
        await until(lambda: not adapter.adapter.audit.is_writable)
        refused = await adapter.alice.ask(KIND, CALL)
        assert refused.code == "ENDPOINT_UNAVAILABLE"
        assert len(notes.requests()) == 1
        assert adapter.adapter.health()["status"] == "degraded"
        file.rmdir()
        await until(lambda: adapter.adapter.audit.is_writable)
        assert (await adapter.alice.ask(KIND, CALL)).code is None
        await until(lambda: adapter.adapter.requests.in_progress == 0)
        _, found = await audited(adapter)
        assert [each["outcome"] for each in found] == ["ok", "ENDPOINT_UNAVAILABLE", "ok"]


async def test_files_rotate_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    monkeypatch.setattr("moot.xprotocol.adapter.telemetry.audit_log.FILE_BYTES", 200)
    monkeypatch.setattr("moot.xprotocol.adapter.telemetry.audit_log.MAX_OLD_FILES", 2)
    audit = AuditLog(file, AuditSettings())
    for number in range(12):
        audit.record({"number": number, "nothing": None, "words": "x" * 60})
        await audit.flush()
    await audit.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
    ]
    assert all(each.stat().st_size <= 200 for each in tmp_path.iterdir())
    kept = [entry["number"] for name in (".2", ".1", "") for entry in lines(tmp_path / f"audit.jsonl{name}")]
    assert kept == list(range(12 - len(kept), 12))
    assert "nothing" not in lines(file)[0]


async def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match=r"audit\.enabled"):
        AuditLog(tmp_path / "taken" / "audit.jsonl")


async def test_what_was_noted_is_written_before_the_end(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    for number in range(1_000):
        audit.record({"number": number})
    await audit.close()
    assert [entry["number"] for entry in lines(tmp_path / "audit.jsonl")] == list(range(1_000))
    audit.record({"number": -1})
    nowhere = AuditLog(None)
    nowhere.record({"number": 1})
    await nowhere.close()


class HangingFile:
    """A file whose writers wait until somebody reads: as a disk that hangs."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data = b""
        file.unlink(missing_ok=True)
        os.mkfifo(file)

    async def release(self, expected: Callable[[bytes], bool]) -> None:
        """Read, and let the writers go on, until all that was expected has come."""
        reader = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK)

        def has_come() -> bool:
            with suppress(BlockingIOError):
                self.data += os.read(reader, 1 << 20)
            return expected(self.data)

        try:
            await until(has_come)
        finally:
            os.close(reader)


async def test_no_entry_is_lost_silently_while_the_disk_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.telemetry.audit_log.MAX_BUFFERED_BYTES", 2_000)
    disk = HangingFile(tmp_path / "audit.jsonl")
    # Checking whether it can be written opens it for reading and writing, which does not wait.
    audit = AuditLog(disk.file, AuditSettings())
    audit.record({"call": -1})
    assert audit.accepts_calls
    for number in range(100):
        audit.record_refusal({"refusal": number, "words": "x" * 60})
    assert not audit.accepts_calls
    for number in range(50):
        # Calls that were in progress.
        audit.record({"call": number})
    assert 0 < audit.lost_refusals < 100
    assert [each.message for each in caplog.records].count(
        "audit log is full: refusals are only counted until it can be written"
    ) == 1
    await disk.release(lambda data: b"refusals_not_recorded" in data)
    await audit.wait_accepting()
    found = [orjson.loads(line) for line in disk.data.splitlines()]
    assert [each["call"] for each in found if "call" in each] == [-1, *range(50)]
    assert [each["refusal"] for each in found if "refusal" in each] == list(range(100 - audit.lost_refusals))
    assert found[-1]["refusals"] == audit.lost_refusals
    await audit.close()


async def test_no_call_starts_while_entries_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0046: no fault is reported by such a disk, and still nothing is recorded."""
    monkeypatch.setattr("moot.xprotocol.adapter.telemetry.audit_log.MAX_BUFFERED_BYTES", 1)
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        file, _ = await audited(adapter)
        disk = HangingFile(file)
        assert (await adapter.alice.ask(KIND, CALL)).code is None
        await until(lambda: not adapter.adapter.audit.accepts_calls)
        refused = await adapter.alice.ask(KIND, CALL)
        assert refused.code == "ENDPOINT_UNAVAILABLE"
        assert len(notes.requests()) == 1
        assert adapter.adapter.audit.lost_refusals == 1
        assert adapter.adapter.health()["status"] == "degraded"
        assert "moot_adapter_audit_lost_refusals 1" in adapter.adapter.metrics.registry.exposition()
        await disk.release(lambda data: b"refusals_not_recorded" in data)
        await until(lambda: adapter.adapter.audit.accepts_calls)
        file.unlink()
        assert (await adapter.alice.ask(KIND, CALL)).code is None
        await until(lambda: adapter.adapter.requests.in_progress == 0)


async def test_an_update_that_cannot_be_recorded_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.telemetry.audit_log.MAX_BUFFERED_BYTES", 1)
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        file, _ = await audited(adapter)
        disk = HangingFile(file)
        request = adapter.alice.event(f"{NAMESPACE}.resource.subscribe", {"uri": "note:///one"})
        await adapter.alice.send(request)
        await adapter.alice.answer(request)
        await until(lambda: not adapter.adapter.audit.accepts_calls)
        reads = len(notes.requests("resources/read"))
        followed = adapter.adapter.subscriptions._followed
        notes.note("one", "second words")
        await until(lambda: any(each.task is not None for each in followed.values()))
        assert len(notes.requests("resources/read")) == reads
        await disk.release(lambda data: b"\n" in data)
        update = await adapter.alice.answer(request, place=1)
        assert update.payload["contents"][0]["text"] == "second words"
        file.unlink()
