"""Erasing and holding: what somebody wrote is gone, and journal, log, state and decisions are whole."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.errors import UsageError
from moot.evidence.log_files import FOLDER, LogReader
from moot.evidence.merkle_tree import leaf_hash
from moot.store.journal_erasure import erase_records, find_erasures
from moot.store.journal_reader import read_records, verify
from moot.store.journal_segments import remove_segments, segments_of
from moot.store.record_chain import entry_of
from tests.evidence.growing_tree import GrowingTree
from tests.gateway.running_gateway import participants, running_gateway

PEOPLE = participants(agent=["mcp/proposal", "chat"], ana=["*"], host=[])
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "pay", "arguments": {"iban": "DE00-X"}}}


async def decide(tmp_path: Path) -> Path:
    """A chat, and a call that was approved and answered, in a gateway that stopped; the data folder."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent, ana, host = [await gateway.join(name) for name in PEOPLE]
        assert await agent.refused("chat", {"text": "my iban is DE00-X"}, id="c1") is None
        assert await agent.refused("mcp/proposal", CALL, to=["host"], id="p1") is None
        body = {"jsonrpc": "2.0", "id": 1}
        assert await ana.refused("mcp/request", body | CALL, to=["host"], about=["p1"], id="r1") is None
        answer = body | {"result": {"content": [{"type": "text", "text": "paid DE00-X"}]}}
        assert await host.refused("mcp/response", answer, to=["ana"], about=["r1"]) is None
        assert await ana.refused("chat", {"text": "thanks"}, id="c2") is None
        return Path(gateway.gateway.config.data)


def said_by(script: Path) -> str:
    run = [sys.executable, "-I", str(script)]
    return subprocess.run(run, check=False, capture_output=True, text=True).stdout  # noqa: S603


def text_of(data: Path) -> bytes:
    return b"".join(each.path.read_bytes() for each in segments_of(data / "spaces" / "lab" / "journal"))


async def test_what_a_member_wrote_is_erased_and_everything_still_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = await decide(tmp_path)
    journal, before = data / "spaces" / "lab" / "journal", text_of(data)
    signed = LogReader(journal.parent / FOLDER).signed()[0]
    command = ["journal", "erase", "--data", str(data), "--who", "agent", "--why", "request 17"]
    assert main(command) == 0
    assert "would erase" in capsys.readouterr().out
    assert text_of(data) == before
    assert main([*command, "--yes"]) == 0
    assert b"DE00-X" in before
    assert b"DE00-X" not in text_of(data) + (data / "moot.sqlite").read_bytes()
    # The chain, and the tree over what is left, are those that were signed.
    assert verify(journal).ok
    assert main(["journal", "verify", "--data", str(data)]) == 0
    assert "5 of them were erased" in capsys.readouterr().out
    tree = GrowingTree()
    for record in list(read_records(journal))[: signed.size]:
        tree.append(leaf_hash(entry_of(record.line)))
    assert tree.root == signed.root
    # An auditor checks it with Python alone, and finds a changed letter.
    packed = tmp_path / "lab.tar.gz"
    assert main(["journal", "archive", str(packed), "--data", str(data)]) == 0
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    capsys.readouterr()
    script = tmp_path / "lab" / "verify.py"
    assert "5 of them were erased" in said_by(script)
    records = script.with_name("records.jsonl")
    whole = records.read_bytes()
    for changed, words in (
        (whole.replace(b"thanks", b"THANKS"), "is not the one that was signed"),
        (whole[: whole.index(b'{"n":12,')], "at the end are missing"),
        (whole.replace(b'{"n":9,', b'{"n":10,'), "missing or not in its place"),
    ):
        records.write_bytes(changed)
        assert words in said_by(script)
    last = json.loads(whole.splitlines()[-1])["n"]
    records.write_bytes(whole + b'{"n":%d,"in":"receive","who":"ana"}\n' % (last + 1))
    assert f" to {last + 1} were not signed for: nothing vouches" in said_by(script)
    about = script.with_name("about.json")
    before = about.read_bytes()
    records.write_bytes(whole[whole.index(b'{"n":5,') :])
    about.write_bytes(before.replace(b'"records_from": 1', b'"records_from": 5'))
    assert "records 1 to 4 were signed for and are not in this archive" in said_by(script)
    about.write_bytes(before)
    records.write_bytes(whole)
    note = script.with_name("checkpoint")
    note.write_text(note.read_text("utf-8")[:-8] + "AAAAAA=\n", "utf-8")
    assert "did not sign" in said_by(script)
    # Who decided what is still known; what was said is not.
    assert main(["proposal", "history", "--data", str(data), "--json"]) == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["tool"], found["decided_by"], found["outcome"]) == ("pay", "ana", "done")
    assert found["arguments"] == {}
    # The gateway starts as it was, and the log goes on.
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        ana = await gateway.join("ana")
        assert await ana.refused("chat", {"text": "still here"}, id="c3") is None
    assert LogReader(journal.parent / FOLDER).signed()[0].size > signed.size


async def test_decisions_memberships_and_what_no_snapshot_covers_stay(tmp_path: Path) -> None:
    data = await decide(tmp_path)
    journal, before = data / "spaces" / "lab" / "journal", text_of(data)
    joins = [each.number for each in read_records(journal) if each.text("in") == "join"]
    assert main(["journal", "erase", str(joins[0]), "--data", str(data), "--why", "x", "--yes"]) == 1
    assert main(["journal", "erase", "nothing", "--data", str(data), "--why", "x", "--yes"]) == 2
    with pytest.raises(UsageError, match="no snapshot covers"):
        erase_records(journal, [5], covered=4, by="me", why="x", now=1.0)
    assert text_of(data) == before


async def test_a_proposal_that_the_space_still_has_is_kept_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent = await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, to=["host"], id="p1") is None
        assert await agent.refused("chat", {"text": "and a word"}, id="c1") is None
        data = Path(gateway.gateway.config.data)
    assert b"DE00-X" in (data / "moot.sqlite").read_bytes()
    assert main(["journal", "erase", "--data", str(data), "--who", "agent", "--why", "x", "--yes"]) == 0
    assert "the space still has this proposal" in capsys.readouterr().out
    assert b"DE00-X" in text_of(data)
    assert b"and a word" not in text_of(data)


async def test_a_stub_that_no_record_names_is_a_changed_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = await decide(tmp_path)
    journal = data / "spaces" / "lab" / "journal"
    chat = next(each for each in read_records(journal) if each.id == "c1")
    (segment,) = segments_of(journal)
    stub = b'{"n":%d,"erased":"%b","t":1,"in":"receive","out":"erased"' % (chat.number, b"0" * 64)
    seal = chat.line[-73:]
    segment.path.write_bytes(segment.path.read_bytes().replace(chat.line, stub + seal))
    assert find_erasures(journal).unnamed == [chat.number]
    assert main(["journal", "verify", "--data", str(data)]) == 1
    assert "says that it was erased" in capsys.readouterr().out


async def test_a_held_space_keeps_everything_until_it_is_released(tmp_path: Path) -> None:
    data = await decide(tmp_path)
    journal, before = data / "spaces" / "lab" / "journal", text_of(data)
    assert main(["journal", "hold", "--data", str(data), "--why", "case 4"]) == 0
    erase = ["journal", "erase", "c1", "--data", str(data), "--why", "x", "--yes"]
    assert main(erase) == 2
    remove_segments(journal, 1_000)
    assert text_of(data) == before
    assert main(["journal", "release", "--data", str(data)]) == 0
    assert main(["journal", "release", "--data", str(data)]) == 2
    assert main(erase) == 0
