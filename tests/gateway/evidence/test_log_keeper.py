"""A gateway keeps a log of each journal: signed behind the disk, served, and never for another journal."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.evidence.checkpoint import parse_checkpoint, signers
from moot.evidence.inclusion_file import parse_inclusion_file
from moot.evidence.log_files import LogAbout, LogBroken, LogReader, LogWriter
from moot.evidence.log_keys import read_keys, rotate_key, use_keys
from moot.evidence.merkle_tree import leaf_hash, proves_consistency
from moot.gateway.evidence.space_log import SpaceLog
from moot.store.journal_reader import last_records, read_records, verify
from moot.store.journal_segments import chain_start
from moot.store.record_chain import SEAL_BYTES, entry_of
from tests.gateway.running_gateway import participants, running_gateway
from tests.store.journals import TriedJournal, folder_in, opened_journal, value_record, wait_durable, write
from tests.waiting import until

PEOPLE = participants(alice=["*"], bob=["chat"])


def entries_in(journal: Path) -> list[bytes]:
    return [entry_of(record.line) for record in read_records(journal)]


async def test_what_was_said_is_proved_served_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "a word"})
        record = next(each for each in last_records(gateway.journal(), 9) if each.kind == "chat")
        proof = await gateway.gateway.logs.proof_of("lab", record.number)
        assert proof is not None
        assert parse_inclusion_file(str(proof).encode()).proves(entry_of(record.line))
        headers = {"Authorization": "Bearer t-bob"}
        answer = await gateway.http.get("/spaces/lab/log/checkpoint", headers=headers)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        checkpoint, note = parse_checkpoint(answer.content)
        keys = read_keys(gateway.gateway.config.data)
        assert keys is not None
        assert len(signers(note, keys.verifiers(checkpoint.origin))) == 1
        width = checkpoint.size % 256
        tile = await gateway.http.get(f"/spaces/lab/log/tile/0/000.p/{width}", headers=headers)
        hashes = b"".join(map(leaf_hash, entries_in(gateway.journal())[:width]))
        assert tile.content == hashes
        more = await gateway.http.get(f"/spaces/lab/log/tile/0/000.p/{width + 200}", headers=headers)
        assert more.status_code == 404
        assert (await gateway.http.get("/spaces/lab/log/checkpoint")).status_code == 401
        assert "moot_log_signed" in gateway.gateway.metrics()
    journal = gateway.journal()
    stopped = LogReader(journal.parent / "log").signed()[0]
    assert stopped.size == verify(journal).count
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        assert await gateway.gateway.logs.proof_of("lab", stopped.size + 1)
        reader = LogReader(journal.parent / "log")
        now = reader.signed()[0]
        assert now.size > stopped.size
        path = reader.consistency(stopped.size, now.size)
        assert proves_consistency(stopped.size, stopped.root, now.size, now.root, path)
        assert gateway.gateway.directory.hosts["lab"].journal.logged == now.size + reader.about.first - 1


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = folder_in(tmp_path)
    asyncio.run(write(folder, [value_record(each) for each in range(1, 11)]))
    return folder


def log_of(journal: Path, public_url: str | None = None) -> SpaceLog:
    return SpaceLog("lab", journal, use_keys(journal.parents[2]), public_url)


def test_a_log_has_only_what_is_on_disk_and_goes_on_where_it_ended(journal: Path) -> None:
    log = log_of(journal, "https://moot.example/")
    assert log.advance(4).size == 4
    assert log.advance(4).size == 4
    assert log.advance(7).origin == "moot.example/spaces/lab/log"
    again = log_of(journal, "https://other.example")
    checkpoint = again.advance(10)
    # Its name stays when the gateway's address changes.
    assert checkpoint.origin == "moot.example/spaces/lab/log"
    assert checkpoint.size == 10
    raw = LogReader(log.folder).entries(0, 10)
    assert [raw[at : at + 32] for at in range(0, 320, 32)] == entries_in(journal)


def test_an_entry_is_the_hash_of_the_line_without_seal_and_newline(journal: Path) -> None:
    for record in read_records(journal):
        line = record.line[:-SEAL_BYTES] + b"}" if record.hash else record.line[:-1]
        assert b',"s":"' in line
        assert entry_of(record.line) == sha256(line).digest()


def test_a_record_that_was_erased_keeps_its_entry() -> None:
    kept = sha256(b"what was there").digest()
    assert entry_of(b'{"n":17,"erased":"%b","t":1.0}\n' % kept.hex().encode()) == kept
    # Inside of an envelope those words are only words.
    said = b'{"n":17,"t":1.0,"raw":{"n":1,"erased":"%b"}}\n' % kept.hex().encode()
    assert entry_of(said) == sha256(said[:-1]).digest()
    for other in (
        b'{"n":17,"erased":"%b"}\n' % kept.hex().encode()[:-2],
        b'{"n":17,"erased":"' + b"x" * 64 + b'"}\n',
    ):
        assert entry_of(other) == sha256(other[:-1]).digest()


def test_a_journal_that_lost_what_is_signed_for_is_not_signed_any_more(journal: Path) -> None:
    log_of(journal).advance(10)
    segment = next(journal.glob("*.jsonl"))
    whole = segment.read_bytes()
    segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:7]))
    with pytest.raises(LogBroken, match=r"signed up to record 10, and the journal ends before it.*rename"):
        log_of(journal).advance(7)
    segment.write_bytes(whole.replace(b'"x":10', b'"x":11'))
    with pytest.raises(LogBroken, match="has another one there"):
        log_of(journal).advance(10)
    # As it says: the log is set aside, and another one under another name begins.
    log = log_of(journal)
    log.folder.rename(log.folder.with_name("log.1"))
    checkpoint = log.advance(10)
    assert checkpoint.size == 10
    assert checkpoint.origin != LogReader(log.folder.with_name("log.1")).about.origin


def test_a_log_that_is_lost_is_the_same_one_again(journal: Path) -> None:
    before = log_of(journal).advance(10)
    shutil.rmtree(journal.parent / "log")
    assert log_of(journal).advance(10) == before


def test_a_log_that_lost_what_it_is_about_is_not_begun_anew(journal: Path) -> None:
    folder = journal.parent / "log"
    log_of(journal).advance(10)
    (folder / "about.json").unlink()
    signed = (folder / "checkpoint").read_bytes()
    for left in (signed, b"damaged"):
        (folder / "checkpoint").write_bytes(left)
        with pytest.raises(LogBroken, match=r"no about\.json.*rename"):
            log_of(journal).advance(10)
        assert (folder / "checkpoint").read_bytes() == left


@pytest.mark.parametrize("member", ["log", "witness", "former"])
def test_keys_that_cannot_sign_are_refused_when_they_are_read(tmp_path: Path, member: str) -> None:
    use_keys(tmp_path)
    rotate_key(tmp_path)
    file = tmp_path / "log-keys.json"
    keys = json.loads(file.read_bytes())
    keys[member] = [{"public": "A", "until": 0}] if member == "former" else "AAAA"
    file.write_text(json.dumps(keys))
    with pytest.raises(UsageError, match=r"log-keys\.json is damaged"):
        use_keys(tmp_path)


async def test_a_log_that_cannot_be_written_for_now_is_still_read(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer t-bob"}
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        log = gateway.journal().parent / "log"
        logs = gateway.gateway.logs
        alice = await gateway.join("alice")
        await until(lambda: logs.is_signed("lab") and logs.logs["lab"].last_record > 0)
        before = (log / "checkpoint").read_bytes()
        (log / "entries").rename(log / "entries.kept")
        (log / "entries").mkdir()
        await alice.ask("chat", {"text": "a word"})
        await until(lambda: not logs.is_signed("lab"))
        answer = await gateway.http.get("/spaces/lab/log/checkpoint", headers=headers)
        assert (answer.status_code, answer.content) == (200, before)
        answer = await gateway.http.get("/spaces/lab/log/tile/0/000.p/1", headers=headers)
        assert answer.status_code == 503
        assert str(tmp_path) not in answer.text
        (log / "entries").rmdir()
        (log / "entries.kept").rename(log / "entries")
        await until(lambda: logs.is_signed("lab"))


async def test_retention_waits_for_the_log(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    async with opened_journal(folder, TriedJournal(segment_bytes=200, retain_segments=1)) as opened:
        opened.logged = 0
        for number in range(1, 9):
            await wait_durable(opened, opened.append(value_record(number)))
        opened.prune_until(8)
        log = log_of(folder)
        opened.logged = log.advance(5).size
        opened.prune_until(8)
        await until(lambda: chain_start(folder).number > 1)
    left = next(read_records(folder)).number
    assert left <= 6
    # What was removed while no log was kept is missing in it for good, and it says what to do.
    log.folder.rename(log.folder.with_name("kept"))
    early = folder.parent / "log"
    LogWriter.create(early, LogAbout(origin="early"), use_keys(folder.parents[2]).signer("early"))
    with pytest.raises(LogBroken, match=rf"signed up to record 0.*begins with {left}.*Rename"):
        log_of(folder).advance(8)
    shutil.rmtree(early)
    early.with_name("kept").rename(early)
    # A log that begins later says so by its name.
    shutil.rmtree(log.folder)
    late = log_of(folder)
    late.advance(8)
    assert late.writer is not None
    assert late.writer.about.first == left
    assert late.writer.about.origin.startswith(log.writer.about.origin + "/")  # type: ignore[union-attr]


def test_a_new_key_goes_on_with_the_log_of_the_old_one(journal: Path) -> None:
    old = log_of(journal)
    old.advance(4)
    data = journal.parents[2]
    assert (data / "log-keys.json").stat().st_mode & 0o777 == 0o600
    keys = rotate_key(data)
    log = log_of(journal)
    log.advance(10)
    assert log.writer is not None
    now, before = keys.verifiers(log.writer.about.origin)
    assert signers(log.writer.note, [now, before]) == [now]
    assert old.writer is not None
    assert signers(old.writer.note, [now, before]) == [before]
    assert "log" not in repr(keys).replace("LogKeys", "")


async def test_a_gateway_whose_log_does_not_fit_serves_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        pass
    entries = gateway.journal().parent / "log" / "entries"
    entries.write_bytes(b"\x00" * entries.stat().st_size)
    signed = (entries.parent / "checkpoint").read_bytes()
    with caplog.at_level(logging.ERROR):
        async with running_gateway(tmp_path, PEOPLE) as gateway:
            alice = await gateway.join("alice")
            await alice.ask("chat", {"text": "still here"})
            with pytest.raises(UsageError, match="not those that were signed"):
                await gateway.gateway.logs.proof_of("lab", 2)
            assert 'moot_log_signed{space="lab"} 0' in gateway.gateway.metrics()
    assert "log not signed any more" in caplog.text
    assert (entries.parent / "checkpoint").read_bytes() == signed
