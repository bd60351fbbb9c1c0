"""A restart is a snapshot and a replay: what was decided stays so (D-41), whether it ended well or not."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.gateway.hosting import journaled_space
from moot.protocol.operation import Json
from moot.store import file_journal, journal_retention
from moot.store.journal_erasure import Hold, place_hold
from moot.store.journal_reader import verify
from moot.store.journal_segments import chain_start
from tests.gateway.running_gateway import (
    CALL,
    ROOT,
    GatewayUnderTest,
    gateway_settings,
    participants,
    refusal_in,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, command, served, started
from tests.waiting import until

PEOPLE = participants(
    alice=["*"], bob=["chat"], carol=["chat", "mcp/request"], agent=["mcp/proposal"], mallory=["*"]
)
ENDS = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}


@asynccontextmanager
async def restarted(file: Path, gateway: Served, number: int) -> AsyncIterator[Served]:
    """The same again, after it ended by this signal."""
    await gateway.close()
    await gateway.end(number)
    assert "Traceback" not in gateway.stderr()
    async with served(file) as again:
        yield again


async def acknowledged(gateway: GatewayUnderTest) -> None:
    """Everything that was said is on disk: HTTP 200 tells so (D-41)."""
    assert (
        await gateway.post("alice", {"kind": "chat", "payload": {"text": "a full stop"}})
    ).status_code == 200


@pytest.mark.requirement("MCPX-2.1-5", "MEW-3.6.6-4", "MEW-3.6.5-6")
@pytest.mark.parametrize("number", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("journal", ["on", "strict", "off"])
async def test_what_was_decided_survives_a_restart(tmp_path: Path, number: int, journal: str) -> None:
    """Grants, invites with their tokens, kicks, pauses, proposals, seen ids, an administrator's changes."""
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, journal=journal))
    first = await started(file)
    alice, bob, agent = [await first.join(name) for name in ("alice", "bob", "agent")]
    grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
    assert await alice.refused("capability/grant", grant, id="grant-1") is None
    tokens = []
    for name in ("zoe", "yan"):
        invite = {"participant_id": name, "initial_capabilities": [{"kind": "chat"}]}
        tokens.append((await alice.ask("space/invite", invite))["payload"]["token"])
    assert len({*tokens}) == 2
    await alice.ask("space/kick", {"participant_id": "mallory"})
    await alice.ask("participant/pause", {"reason": "wait"}, to=["carol"])
    for id in ("open", "fulfilled", "withdrawn"):
        assert await agent.refused("mcp/proposal", CALL, id=id) is None
    assert await alice.refused("mcp/request", CALL, about=["fulfilled"]) is None
    add: Json = {"add": [{"kind": "mcp/withdraw"}]}
    assert (await first.admin("POST", "participants/agent/capabilities", add)).status_code == 200
    assert await agent.refused("mcp/withdraw", about=["withdrawn"]) is None
    await bob.say("chat", {"text": "once"}, id="seen")
    await alice.say("stream/request", {"direction": "upload"})
    stream = (await alice.hear("stream/open"))["payload"]["stream_id"]
    await acknowledged(first)
    async with restarted(file, first, number) as again:
        bob, alice, agent = [await again.join(name) for name in ("bob", "alice", "agent")]
        assert await bob.refused("mcp/request", CALL, to=["alice"]) is None
        assert await alice.refused("capability/revoke", {"recipient": "bob", "grant_id": "grant-1"}) is None
        assert await bob.refused("mcp/request", CALL, to=["alice"]) == "capability_violation"
        for name, token in zip(("zoe", "yan"), tokens, strict=True):
            client = await again.open("/ws?space=lab", token=token)
            assert (await client.hear("system/welcome"))["payload"]["you"]["id"] == name
            assert await client.refused("chat") is None
        assert await again.status("/ws?space=lab", token="t-mallory") == 401
        carol = await again.join("carol")
        assert await carol.refused("chat") == "participant_paused"
        assert await agent.refused("mcp/withdraw", about=["open"], id="seen") == "duplicate_id"
        for id in ("fulfilled", "withdrawn"):
            assert await alice.refused("mcp/request", CALL, about=[id]) == "proposal_settled"
        assert await alice.refused("mcp/request", CALL, about=["open"]) is None
        assert await alice.refused("mcp/request", CALL, about=["open"]) == "proposal_settled"
        await alice.send(f"#{stream}#anyone?")
        assert refusal_in(await alice.hear("system/error")) == "stream_not_found"
        welcome = next(each for each in alice.received if each["kind"] == "system/welcome")
        assert welcome["payload"]["active_streams"] == []
    if journal != "off":
        code, output = await command("journal", "verify", "--data", str(tmp_path / "data"), cwd=tmp_path)
        assert code == 0, output


@pytest.mark.parametrize("number", ENDS.values(), ids=ENDS)
async def test_what_was_said_can_still_be_polled_after_a_restart(tmp_path: Path, number: int) -> None:
    """An open proposal outlives a restart, and so does what it says; newcomers were not there (D-40)."""
    spaces = {"lab": space_settings(PEOPLE)}
    file = write_config(tmp_path, gateway_settings(spaces))
    first = await started(file)
    alice, agent = await first.join("alice"), await first.join("agent")
    assert await agent.refused("mcp/proposal", CALL, id="p1") is None
    # Posts mostly have no id: the one that it was given is the one that is polled.
    posted = await first.post("alice", {"kind": "chat", "payload": {"text": "look at p1"}})
    assert await alice.refused("space/invite", {"participant_id": "guest"}, id="i1") is None
    assert await alice.refused("chat", {"text": "hello guest"}, id="c2") is None
    await acknowledged(first)
    before = (await first.poll("bob"))["messages"]
    more = PEOPLE | participants(dora=["chat"])
    write_config(tmp_path, gateway_settings({"lab": space_settings(more)}))
    async with restarted(file, first, number) as again:
        after = (await again.poll("bob"))["messages"]
        answer = [each for each in before if not each["kind"].startswith("system/")]
        assert [each for each in after if not each["kind"].startswith("system/")] == answer
        assert [each["id"] for each in answer[:2]] == ["p1", posted.json()["id"]]
        assert [each["id"] for each in (await again.poll("dora"))["messages"] if "chat" in each["kind"]] == []


@pytest.mark.parametrize("number", ENDS.values(), ids=ENDS)
async def test_a_restart_with_an_edited_file_starts_and_the_file_counts(tmp_path: Path, number: int) -> None:
    """Reloads and edits in between: the journal plays again under whatever the file says now."""
    spaces = {"lab": space_settings(PEOPLE)}
    file = write_config(tmp_path, gateway_settings(spaces))
    first = await started(file)
    alice, bob, carol = [await first.join(name) for name in ("alice", "bob", "carol")]
    assert await first.reload() == "reloaded"
    more = PEOPLE | participants(dora=["chat", "mcp/proposal"])
    write_config(tmp_path, gateway_settings({"lab": space_settings(more)}))
    assert await first.reload() == "reloaded"
    dora = await first.join("dora")
    assert await dora.refused("mcp/proposal", CALL, id="p-dora") is None
    grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
    for _ in range(30):
        assert await alice.refused("chat") is None
    assert await alice.refused("capability/grant", grant) is None
    assert await bob.refused("chat") is None
    await acknowledged(first)
    # Now without dora and carol, with other rights for bob, and a rate that the chats did not keep to.
    fewer = participants(alice=["*"], bob=["reasoning/*"], agent=["mcp/proposal"])
    rules: Json = {"limits": {"messages_per_second": 5}, "dialects": ["mew"]}
    write_config(tmp_path, gateway_settings({"lab": {"participants": fewer} | rules}))
    async with restarted(file, first, number) as again:
        assert await again.status("/ws?space=lab", token="t-dora") == 401
        assert await again.status("/ws?space=lab", token="t-carol") == 401
        client = await again.open("/ws?space=lab", token="t-bob")
        rights = (await client.hear("system/welcome"))["payload"]["you"]["capabilities"]
        assert rights == [{"kind": "reasoning/*"}, {"kind": "mcp/request"}]
    assert carol.received


async def test_restarting_many_times_changes_nothing_and_grows_nothing(tmp_path: Path) -> None:
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, snapshot_records=7))
    seen: list[Any] = []
    for number in range(6):
        async with running_gateway(tmp_path, file=file) as gateway:
            alice = await gateway.join("alice")
            bob = await gateway.join("bob")
            seen.append(bob.received[0]["payload"]["you"])
            if number == 0:
                capabilities: Json = [{"kind": "mcp/request"}]
                grant = {"recipient": "bob", "capabilities": capabilities}
                assert await alice.refused("capability/grant", grant) is None
            for _ in range(number):
                assert await alice.refused("chat") is None
            snapshot = len(gateway.gateway.directory.hosts["lab"].space.save()["deadlines"])
            assert snapshot <= 2
    assert seen[0]["capabilities"] == [{"kind": "chat"}]
    assert {str(each) for each in seen[1:]} == {str(seen[1])}
    assert {"kind": "mcp/request"} in seen[1]["capabilities"]


async def test_old_segments_go_when_a_snapshot_covers_them_and_nothing_is_forgotten(tmp_path: Path) -> None:
    """Rotation and retention: rights come from the snapshot, the chain still holds."""
    journal: Json = {"segment_bytes": 4_000, "retain_segments": 2}
    file = write_config(
        tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, journal=journal, snapshot_records=20)
    )
    folder = tmp_path / "data" / "spaces" / "lab" / "journal"
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
        assert await alice.refused("capability/grant", grant, id="g1") is None
        for _ in range(200):
            assert await alice.refused("chat", {"text": "x" * 100}) is None
        await until(lambda: not (folder / "000000000001.jsonl").exists())
    assert verify(folder).ok
    async with running_gateway(tmp_path, file=file) as gateway:
        bob = await gateway.join("bob")
        assert await bob.refused("mcp/request", CALL, to=["alice"]) is None
        alice = await gateway.join("alice")
        assert await alice.refused("capability/revoke", {"recipient": "bob", "grant_id": "g1"}) is None


async def test_records_that_are_too_old_go_and_the_log_says_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A day of this test is a moment. Nobody says anything in it; a space has its own number of days."""
    for module in (file_journal, journal_retention):
        monkeypatch.setattr(module, "DAY_SECONDS", 0.1)
    monkeypatch.setattr(journaled_space, "_AGE_CHECK_SECONDS", 0.05)
    spaces: dict[str, Json] = {
        "lab": space_settings(PEOPLE),
        "den": space_settings(PEOPLE) | {"journal": {"retain_days": 0}},
        "pit": space_settings(PEOPLE),
    }
    file = write_config(tmp_path, gateway_settings(spaces, journal={"retain_days": 2}))
    folders = {name: tmp_path / "data" / "spaces" / name / "journal" for name in spaces}
    folders["pit"].mkdir(parents=True)
    place_hold(folders["pit"], Hold("a lawsuit", 1.0))
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
        assert await alice.refused("capability/grant", grant, id="g1") is None
        number = gateway.gateway.directory.hosts["lab"].journal.next_number - 1
        await until(lambda: chain_start(folders["lab"]).number > number)
    assert [chain_start(folders[name]).number for name in ("den", "pit")] == [1, 1]
    assert all(verify(folder).ok for folder in folders.values())
    assert main(["journal", "verify", "--data", str(tmp_path / "data")]) == 0
    told = capsys.readouterr().out
    assert f"1 to {chain_start(folders['lab']).number - 1} were removed, and are in the log" in told
    assert told.count("removed") == 1
    async with running_gateway(tmp_path, file=file) as gateway:
        bob = await gateway.join("bob")
        assert await bob.refused("mcp/request", CALL, to=["alice"]) is None


@pytest.mark.parametrize("modes", [("on", "off", "on"), ("off", "strict", "off"), ("off", "on", "strict")])
async def test_the_journal_can_be_turned_off_and_on_between_starts(
    tmp_path: Path, modes: tuple[str, ...]
) -> None:
    """Each start goes on where the last one ended, whatever kept it."""
    names = ["zoe", "yan", "xia"]
    tokens: list[str] = []
    for number, mode in enumerate(modes):
        file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, journal=mode))
        async with running_gateway(tmp_path, file=file) as gateway:
            alice = await gateway.join("alice")
            for name, token in zip(names, tokens, strict=False):
                assert await gateway.status("/ws?space=lab", token=token) == 101, (mode, name)
            ack = await alice.ask("space/invite", {"participant_id": names[number]})
            assert ack["payload"]["status"] == "created"
            tokens.append(ack["payload"]["token"])
            kick = await alice.refused("space/kick", {"participant_id": "mallory"})
            assert kick == (None if number == 0 else "participant_not_found")
            assert await gateway.status("/ws?space=lab", token="t-mallory") == 401


async def test_a_crash_while_all_kinds_of_sessions_are_in_comes_back(tmp_path: Path) -> None:
    """Limited tokens, guests, runtime ids, legacy dialects and options, in the journal and in a snapshot."""
    people = participants(alice=["*"], mew=["chat"]) | {
        "bot": {
            "capabilities": [{"kind": "*"}],
            "tokens": [
                "t-bot",
                {"token": "t-less", "capabilities": [{"kind": "chat", "payload": {"n": 10**30}}]},
            ],
        }
    }
    for snapshot_records in (1, 100_000):
        folder = tmp_path / str(snapshot_records)
        folder.mkdir()
        rules: Json = {"access": "public", "anonymous": [{"kind": "chat"}]}
        spaces = {"lab": space_settings(people, **rules)}
        file = write_config(folder, gateway_settings(spaces, snapshot_records=snapshot_records))
        first = await started(file)
        alice = await first.join("alice", "&echo=0")
        await first.join("alice", "&dialect=m3p&routing=directed&streams=1")
        less = await first.open("/ws?space=lab", token="t-less")
        assert await less.refused("mcp/proposal", CALL) == "capability_violation"
        for join in (
            {"type": "join", "space": "lab"},
            {"type": "join", "space": "lab", "token": "t-mew", "participantId": "client-123"},
        ):
            client = await first.open("/")
            await client.send(join)
            assert await client.refused("chat", {"text": "hi"}) is None
        await alice.say("participant/pause", {}, to=["client-123"])
        assert (await first.post("bot", {"kind": "chat"}, token="t-bot")).status_code == 200
        async with restarted(file, first, signal.SIGKILL) as again:
            rows = (await again.admin("GET", "connections")).json()["connections"]
            assert rows == []
            alice = await again.join("alice")
            assert alice.received[0]["payload"]["participants"] == []
            mew = await again.join("mew")
            assert await mew.refused("chat") == "participant_paused"
            less = await again.open("/ws?space=lab", token="t-less")
            assert await less.refused("mcp/proposal", CALL) == "capability_violation"
            whole = await again.open("/ws?space=lab", token="t-bot")
            assert await whole.refused("mcp/proposal", CALL) is None


async def test_a_pause_ends_on_time_and_a_proposal_expires_across_a_restart(tmp_path: Path) -> None:
    rules: Json = {"limits": {"proposal_seconds": 1_800.0}}
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE, **rules)}))
    async with running_gateway(tmp_path, file=file) as gateway:
        alice, carol, agent = [await gateway.join(name) for name in ("alice", "carol", "agent")]
        await alice.ask("participant/pause", {"timeout_seconds": 3_600.0}, to=["carol"])
        assert await agent.refused("mcp/proposal", CALL, id="p1") is None
        assert await carol.refused("chat") == "participant_paused"
    async with running_gateway(tmp_path, file=file) as gateway:
        alice, carol = await gateway.join("alice"), await gateway.join("carol")
        host, now = gateway.gateway.directory.hosts["lab"], time.time()
        host.journaled.clock = lambda: now
        left = (await carol.ask("chat"))["payload"]["retry_after"]
        assert 1_800 < left <= 3_600
        host.journaled.clock = lambda: now + left - 0.01
        host.journaled.expire_due()
        assert await carol.refused("chat") == "participant_paused"
        host.journaled.clock = lambda: now + left + 0.01
        host.journaled.expire_due()
        assert await carol.refused("chat") is None
        assert await alice.refused("mcp/request", CALL, about=["p1"]) == "proposal_settled"


async def test_a_damaged_journal_is_a_clear_error_and_a_torn_end_is_none(tmp_path: Path) -> None:
    """A crash leaves half a line; what no crash explains stops the start and says what to do."""
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}))
    journal = tmp_path / "data" / "spaces" / "lab" / "journal"
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        for number in range(20):
            await alice.ask("chat", {"text": f"number {number}"})
    (segment,) = journal.glob("*.jsonl")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b'{"n":99999,"t":17')
    async with running_gateway(tmp_path, file=file) as gateway:
        await gateway.join("alice")
    code, output = await command("serve", str(file), "--port", "0", "--check", cwd=tmp_path)
    assert code == 0, output
    text = segment.read_bytes()
    segment.write_bytes(text.replace(b"number 7", b"number 8", 1))
    code, output = await command("journal", "verify", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert code == 1
    assert "line" in output
    code, output = await command("serve", str(file), "--port", "0", cwd=tmp_path)
    assert code == 2
    assert "\nmoot: the journal of lab is damaged" in output
    assert "moot journal repair --data " in output
    assert ROOT not in output
