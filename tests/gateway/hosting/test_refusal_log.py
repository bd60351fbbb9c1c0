"""Refusals do not fill the disk: a member without rights, over a real socket and over HTTP."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from moot.gateway.hosting.message_refusals import RefusalLog
from moot.gateway.hosting.mint import FreshMint
from moot.protocol.dialects import DIALECTS
from moot.protocol.operation import Json
from moot.store.journal_reader import read_records, verify
from tests.config.former_constants import change_constants
from tests.gateway.running_gateway import LocalGateway, fields, participants, running_gateway
from tests.gateway.served import command
from tests.waiting import until

PEOPLE = participants(alice=["*"], mute=["chat"])


def stop_clock(gateway: LocalGateway) -> None:
    """All that follows is in one minute, however long it takes."""
    journaled = gateway.gateway.directory.hosts["lab"].journaled
    now = journaled.clock()
    journaled.clock = lambda: now


def records(folder: Path, who: str) -> list[dict[str, Any]]:
    return [r.fields for r in read_records(folder) if r.text("who") == who and r.text("in") != "join"]


async def test_a_flood_of_refused_messages_is_counted_and_not_kept(tmp_path: Path) -> None:
    """265 MB/s went into the journal before: 2,000 messages of 20 KB each are 40 MB."""
    limits: Json = {
        "refused_records_per_minute": 20,
        "refused_bytes_per_hour": 50_000,
        "refused_count_seconds": 3600,
    }
    async with running_gateway(tmp_path, PEOPLE, journal=limits) as gateway:
        stop_clock(gateway)
        mute, alice = await gateway.join("mute"), await gateway.join("alice")
        for number in range(2_000):
            text = f"{number} " + "x" * 20_000
            await mute.send(fields("mcp/request", {"text": text}, id=f"r{number}", to=["alice"]))
        # Each of them is answered all the same.
        for number in range(2_000):
            answer = await mute.hear("system/error")
            assert answer["correlation_id"] == [f"r{number}"]
        metrics = (await gateway.http.get("/metrics")).text
        journal = gateway.journal()
        assert re.search(r'moot_refusals_only_counted_total\{space="lab"\} 198\d', metrics)
        dropped = re.search(r'moot_refused_bytes_dropped_total\{space="lab"\} (\d+)', metrics)
        assert dropped is not None
        assert int(dropped[1]) > 39_000_000
        assert await alice.refused("chat", {"text": "still here"}) is None
    size = sum(path.stat().st_size for path in journal.glob("*.jsonl"))
    assert size < 200_000, size
    assert verify(journal).ok
    kept = [r for r in records(journal, "mute") if r["in"] == "receive"]
    assert len([r for r in kept if r["out"] != "accepted"]) == 20
    assert sum(r["raw"] is not None for r in kept if r["kind"] == "mcp/request") == 2
    assert {r["kind"] for r in kept} <= {"mcp/request", "system/fence"}
    for record in kept:
        assert record["size"] > 0
        assert len(record["sha256"]) == 64
    # At the end, too: what was only counted is told.
    (count,) = [r for r in records(journal, "mute") if r["in"] == "refused"]
    assert count["count"] == sum(count["codes"].values()) == 1_981
    assert count["bytes"] > 39_000_000
    code, reply = await command("journal", "tail", "-n", "40", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert code == 0
    assert "capability_violation" in reply
    # And a restart passes over it.
    async with running_gateway(tmp_path, PEOPLE, journal=limits) as gateway:
        await gateway.join("mute")


async def test_the_same_bytes_are_kept_once_and_found_by_their_hash(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        body = b'{"kind":"mcp/request","payload":{"n":1},"to":["alice"]}'
        for _ in range(3):
            assert (await gateway.post("mute", body)).status_code == 403
        journal = gateway.journal()
        await until(lambda: len(records(journal, "mute")) == 3)
    found = records(journal, "mute")
    assert [r["raw"] is not None for r in found] == [True, False, False]
    assert {r["sha256"] for r in found} == {hashlib.sha256(body).hexdigest()}
    assert {r.get("same_as") for r in found[1:]} == {found[0]["n"]}
    assert found[1]["to"] == ["alice"]


async def test_malformed_messages_and_counts_share_the_budget(tmp_path: Path) -> None:
    limits: Json = {"refused_records_per_minute": 5, "refused_count_seconds": 0.05}
    async with running_gateway(tmp_path, PEOPLE, journal=limits) as gateway:
        stop_clock(gateway)
        for number in range(30):
            assert (await gateway.post("mute", b"{broken %d" % number)).status_code == 400
        journal = gateway.journal()
        counts = await until(lambda: [r for r in records(journal, "mute") if r["in"] == "refused"])
        assert len([r for r in records(journal, "mute") if r["in"] == "malformed"]) == 5
        assert counts[0]["count"] == sum(counts[0]["codes"].values())


async def test_budgets_come_back_with_the_hour_and_belong_to_one_member() -> None:
    written: list[bytes] = []

    def append(record: bytes) -> int:
        written.append(record)
        return len(written)

    limits = {"refused_records_per_minute": 3, "refused_bytes_per_hour": 100, "refused_count_seconds": 3_600}
    change_constants({f"gateway.journal.{name}": value for name, value in limits.items()})
    log = RefusalLog("lab", append, lambda: 0.0)
    envelope = DIALECTS["mew"].decode(b'{"id":"e1","kind":"mcp/request","payload":{}}')

    def refuse(who: str, raw: bytes, now: float) -> int | None:
        mint = FreshMint()
        return log.record_envelope(who, "capability_violation", envelope, raw, now, mint, "post", who=who)

    assert [refuse("a", b'"%60d"' % n, 0.0) for n in range(5)] == [1, 2, 3, None, None]
    assert [b'"raw":null' in record for record in written] == [False, True, True]
    assert refuse("b", b'"other"', 0.0) == 4
    # A minute later there are records again, an hour later bytes.
    assert refuse("a", b'"%60d"' % 9, 61.0) == 5
    assert b'"raw":null' in written[-1]
    assert refuse("a", b'"%60d"' % 9, 3_700.0) == 6
    assert b'"raw":null' not in written[-1]
    # A clock that was set back takes nobody's budget away.
    assert refuse("a", b'"%60d"' % 8, 1.0) == 7
    log.flush()
    count = json.loads(b"{" + written[-1] + b"}")
    assert (count["in"], count["who"], count["count"]) == ("refused", "a", 2)
    log.flush()
    assert len(written) == 8


async def test_guests_share_one_budget(tmp_path: Path) -> None:
    rules: dict[str, Json] = {"access": "public", "anonymous": ["chat"]}
    limits: Json = {"refused_records_per_minute": 4}
    async with running_gateway(tmp_path, PEOPLE, rules=rules, journal=limits) as gateway:
        stop_clock(gateway)
        for _ in range(5):
            guest = await gateway.open("/ws?space=lab")
            await guest.send({"type": "join", "space": "lab"})
            await guest.hear("system/welcome")
            for _ in range(3):
                assert await guest.refused("mcp/request", {"method": "x"}, to=["alice"]) is not None
            await guest.leave()
        journal = gateway.journal()
    refused = [r for r in read_records(journal) if r.text("out") == "capability_violation"]
    assert len(refused) == 4
    (count,) = [r for r in read_records(journal) if r.text("in") == "refused"]
    assert count.fields["who"] == "guests"
    assert count.fields["count"] == 11
